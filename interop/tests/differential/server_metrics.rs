//! Compares `/jmx` and `/prometheus` with stock HBase's after the same load
//! (`evenkeel.interop.metrics.MetricsLoad`).
//!
//! Every bean and attribute of stock HBase must exist with the same type, except those that the
//! tables of `docs/operating/metrics-and-hbase.md` list, each with a reason. Those that only
//! Evenkeel has must be listed too. An unused entry of the tables fails the test. Values that the
//! load determines must agree.
//!
//! The comparison of names excludes names that change over time: counts of ranges
//! (`_TimeRangeCount_`, shown while not 0), whose bounds are checked instead, and metrics of other
//! tests' tables.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use evenkeel_metrics::sink::prometheus::prometheus_name;
use interop::{Server, home, java};
use regex::Regex;
use serde_json::Value;

use crate::{reference, tested, turn};

/// The table of the load.
const TABLE: &str = "seen";
/// Stock counts regions every 5 s.
const SETTLING: Duration = Duration::from_secs(60);

/// The attributes of each bean, under names normalized to be the same for both servers.
type Beans = BTreeMap<String, BTreeMap<String, Value>>;

/// Runs the load on both servers, once.
fn load() {
    static LOADED: OnceLock<()> = OnceLock::new();
    LOADED.get_or_init(|| {
        load_on(reference());
        if !std::ptr::eq(reference(), tested()) {
            load_on(tested());
        }
    });
}

fn load_on(server: &Server) {
    let mut args = vec![TABLE.to_owned()];
    args.extend(server.client_settings().into_iter().map(|(key, value)| format!("-D{key}={value}")));
    let run =
        java("evenkeel.interop.metrics.MetricsLoad", &args).label("metrics-load").deadline_secs(180).run();
    let run = run.unwrap_or_else(|why| panic!("{why}"));
    assert!(run.success, "{}: {}\n{}\n{}", server.name(), run.end, run.stdout, run.stderr);
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern")
}

/// Normalizes a name by removing server-specific parts. `None` for a name of another test's table,
/// or a count of a range.
fn common_name(name: &str) -> Option<String> {
    static PATTERNS: OnceLock<[Regex; 5]> = OnceLock::new();
    let [id, user, of_table, range, appends] = PATTERNS.get_or_init(|| {
        [
            pattern("(region_)[0-9a-f]{32}"),
            // Clients of other tests may have other users.
            pattern("(?i)(user_).+(_metric_)"),
            pattern("(?i)namespace_([a-z]+)_table_([a-zA-Z0-9.]+)|^([a-zA-Z0-9_:-]+)\\.append"),
            pattern("(?i)_(time|size)_?range_?count_"),
            // In Prometheus's form; wal_slow_append_count is of all tables.
            pattern("^wal_(.+)_append_(count|size)$"),
        ]
    });
    let is_other = |found: regex::Captures<'_>| match (found.get(1), found.get(2)) {
        (Some(namespace), Some(table)) => namespace.as_str() == "default" && table.as_str() != TABLE,
        _ => !found[3].contains(':') && &found[3] != TABLE,
    };
    let is_of_others_appends = |found: regex::Captures<'_>| {
        let table = &found[1];
        table != TABLE && table != "slow" && !table.starts_with("hbase")
    };
    let left_out = range.is_match(name)
        || of_table.captures(name).is_some_and(is_other)
        || appends.captures(name).is_some_and(is_of_others_appends);
    let without_id = id.replace_all(name, "${1}id");
    (!left_out).then(|| user.replace(&without_id, "${1}name${2}").into_owned())
}

fn page(server: &Server, path: &str) -> String {
    server.page(path).unwrap_or_else(|why| panic!("{why}"))
}

fn all_beans(server: &Server) -> Vec<Value> {
    let mut jmx: Value = serde_json::from_str(&page(server, "/jmx")).expect("JSON");
    std::mem::take(jmx["beans"].as_array_mut().expect("beans"))
}

fn beans(server: &Server) -> Beans {
    let mut beans = Beans::new();
    for bean in all_beans(server) {
        let attributes = bean.as_object().expect("an object");
        let name = attributes["name"].as_str().expect("a name");
        let Some(name) = common_name(name) else { continue };
        let of_bean = beans.entry(name).or_default();
        let named = attributes.iter().filter(|(key, _)| *key != "name");
        of_bean.extend(named.filter_map(|(key, value)| Some((common_name(key)?, value.clone()))));
    }
    beans
}

/// The Java type as visible in JSON. `NaN` is a string, since JSON has no number for it.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Number(number) if number.is_f64() => "double",
        Value::Number(_) => "integer",
        Value::String(text) if text == "NaN" => "double",
        Value::String(_) => "text",
        Value::Bool(_) => "boolean",
        Value::Array(_) => "list",
        Value::Object(_) => "members",
        Value::Null => "null",
    }
}

/// One table of the document: patterns of a bean and of attributes.
struct Listed {
    entries: Vec<(String, String)>,
    used: BTreeSet<usize>,
}

impl Listed {
    fn read(heading: &str) -> Self {
        let path = home().join("../docs/operating/metrics-and-hbase.md");
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let after = text.split_once(&format!("## {heading}\n")).expect("the heading").1;
        let section = after.split("\n## ").next().unwrap_or_default();
        let rows = section.lines().filter(|line| line.starts_with("| `"));
        let quoted = pattern("`([^`]+)`");
        let all =
            |cell: &str| quoted.captures_iter(cell).map(|found| found[1].to_owned()).collect::<Vec<_>>();
        let mut entries = Vec::new();
        for row in rows {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let &[bean, attributes, reason] = &cells[..] else { panic!("three cells: {row}") };
            assert!(reason.len() > 3, "a reason: {row}");
            let bean = all(bean).remove(0);
            entries.extend(all(attributes).into_iter().map(|attribute| (bean.clone(), attribute)));
        }
        assert!(!entries.is_empty(), "{heading} has entries");
        Self { entries, used: BTreeSet::new() }
    }

    /// Returns true if the attribute is listed; its entries then count as used.
    fn has(&mut self, bean: &str, attribute: &str) -> bool {
        let bean = bean.strip_prefix("Hadoop:service=HBase,").unwrap_or(bean);
        let matching = self.entries.iter().enumerate().filter(|(_, (of_bean, of_attribute))| {
            matches_glob(of_bean, bean) && matches_glob(of_attribute, attribute)
        });
        let matching: Vec<usize> = matching.map(|(at, _)| at).collect();
        self.used.extend(&matching);
        !matching.is_empty()
    }

    fn assert_all_used(&self, what: &str) {
        let unused = self.entries.iter().enumerate().filter(|(at, _)| !self.used.contains(at));
        let unused: Vec<_> = unused.map(|(_, entry)| entry).collect();
        assert!(unused.is_empty(), "{what}, and nothing needs it: {unused:#?}");
    }
}

/// Matches a pattern, in which `*` stands for any text.
fn matches_glob(glob: &str, text: &str) -> bool {
    let parts: Vec<_> = glob.split('*').map(regex::escape).collect();
    pattern(&format!("^{}$", parts.join(".*"))).is_match(text)
}

/// Returns the attributes of `of` that `others` lack and that the list does not contain.
fn unlisted(of: &Beans, others: &Beans, listed: &mut Listed) -> Vec<String> {
    let mut missing = Vec::new();
    for (bean, attributes) in of {
        let known = others.get(bean);
        let lacks = |name: &str| known.is_none_or(|known| !known.contains_key(name));
        let absent = attributes.keys().filter(|name| *name != "modelerType" && lacks(name));
        missing.extend(absent.filter(|name| !listed.has(bean, name)).map(|name| format!("{bean} {name}")));
    }
    missing
}

fn types_that_differ(stock: &Beans, ours: &Beans) -> Vec<String> {
    let mut different = Vec::new();
    for (bean, attributes) in stock {
        let Some(known) = ours.get(bean) else { continue };
        for (name, value) in attributes {
            let Some(own) = known.get(name) else { continue };
            if type_of(value) != type_of(own) {
                different.push(format!("{bean} {name}: {value} and {own}"));
            }
        }
    }
    different
}

/// Waits until stock HBase shows the whole load, and returns both servers' beans: some seconds
/// after regions were opened or closed it removes beans for a moment, and it updates some region
/// values late.
fn settled() -> (Beans, Beans) {
    load();
    let start = Instant::now();
    loop {
        let (stock, ours) = (beans(reference()), beans(tested()));
        let different = values_that_differ(&stock, &ours);
        let regions = stock.get("Hadoop:service=HBase,name=RegionServer,sub=Regions");
        // The counts of where a region's rows were found are shown from its 45th second on.
        let is_of_meta = |name: &String| name.contains("_region_1588230740_store_info_metric_memstoreOnly");
        let is_whole = regions.is_some_and(|regions| regions.keys().any(is_of_meta));
        if different.is_empty() && is_whole {
            return (stock, ours);
        }
        assert!(start.elapsed() < SETTLING, "{different:#?}; stock shows all: {is_whole}");
        sleep(Duration::from_millis(500));
    }
}

#[test]
fn names_and_types_are_stock_s() {
    let _turn = turn();
    let (stock, ours) = settled();
    let (mut left_out, mut own) = (Listed::read("Left out"), Listed::read("Evenkeel's own"));
    let missing = unlisted(&stock, &ours, &mut left_out);
    let added = unlisted(&ours, &stock, &mut own);
    assert!(missing.is_empty(), "stock shows, and neither we nor the list do: {missing:#?}");
    assert!(added.is_empty(), "we show, and neither stock nor the list does: {added:#?}");
    assert_eq!(types_that_differ(&stock, &ours), [""; 0]);
    if !std::ptr::eq(reference(), tested()) {
        left_out.assert_all_used("the list says that it is left out");
        own.assert_all_used("the list says that it is our own");
    }
    assert_eq!(strange_ranges(tested()), [""; 0]);
}

/// Returns counts of ranges whose bounds are not among HBase's.
fn strange_ranges(server: &Server) -> Vec<String> {
    let shown = pattern("_(Time|Size)RangeCount_([0-9]+)-([0-9]+|inf)$");
    let time = "0 1 3 10 30 100 300 1000 3000 10000 30000 60000 120000 300000 600000 inf";
    let size = "0 10 100 1000 10000 100000 1000000 10000000 100000000 inf";
    let is_legal = |found: regex::Captures<'_>| {
        let ends: Vec<&str> = if &found[1] == "Time" { time } else { size }.split(' ').collect();
        ends.windows(2).any(|pair| pair == [&found[2], &found[3]])
    };
    let beans = all_beans(server);
    let names = beans.iter().filter_map(Value::as_object).flat_map(|bean| bean.keys());
    let ranges = names.filter(|name| name.contains("RangeCount_"));
    ranges.filter(|name| !shown.captures(name).is_some_and(is_legal)).cloned().collect()
}

/// Names and types of `/prometheus`, of samples.
fn families(server: &Server) -> BTreeMap<String, String> {
    let text = page(server, "/prometheus");
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    types.filter_map(|(name, kind)| Some((common_name(name)?, kind.to_owned()))).collect()
}

/// Stock HBase's names that the list excludes, in Prometheus's form.
fn left_out_of_prometheus(stock: &Beans, ours: &Beans) -> BTreeSet<String> {
    let mut left_out = BTreeSet::new();
    for (bean, attributes) in stock {
        let Some(rest) = bean.strip_prefix("Hadoop:service=HBase,name=") else { continue };
        let (context, sub) = rest.split_once(",sub=").unwrap_or((rest, rest));
        let record = if ["IPC", "Stats"].contains(&sub) { context } else { sub };
        let known = ours.get(bean);
        let absent = attributes.keys().filter(|name| known.is_none_or(|known| !known.contains_key(*name)));
        left_out.extend(absent.filter_map(|name| common_name(&prometheus_name(record, name))));
    }
    left_out
}

#[test]
fn prometheus_has_stock_s_names_and_types() {
    let _turn = turn();
    settled();
    let (theirs, shown) = (families(reference()), families(tested()));
    // Fetched afterwards, so that it includes a metric that appears meanwhile.
    let left_out = left_out_of_prometheus(&beans(reference()), &beans(tested()));
    assert!(theirs.len() > 2000, "{} families", theirs.len());
    let absent = theirs.keys().filter(|name| !shown.contains_key(*name) && !left_out.contains(*name));
    assert_eq!(absent.collect::<Vec<_>>(), [""; 0]);
    let of_other_types =
        theirs.iter().filter(|(name, kind)| shown.get(*name).is_some_and(|own| own != *kind));
    assert_eq!(of_other_types.collect::<Vec<_>>(), []);
}

/// Returns a value of a bean of the region server; 0 if it is missing.
fn value(beans: &Beans, sub: &str, name: &str) -> f64 {
    let bean = beans.get(&format!("Hadoop:service=HBase,name=RegionServer,sub={sub}"));
    bean.and_then(|bean| bean.get(name)).and_then(Value::as_f64).unwrap_or(0.0)
}

/// A value that the load determines, and the allowed difference between the servers.
struct Agreement {
    sub: String,
    name: String,
    /// A fraction of stock HBase's value.
    tolerance: f64,
}

fn agreements() -> Vec<Agreement> {
    let requests = format!("TableRequests_Namespace_default_table_{TABLE}");
    let of_table = |name: &str| format!("Namespace_default_table_{TABLE}_metric_{name}");
    let exact = |sub: &str, name: String| Agreement { sub: sub.to_owned(), name, tolerance: 0.0 };
    let mut all = Vec::new();
    let operations = "Get Put PutBatch Delete DeleteBatch Increment Append CheckAndMutate CheckAndPut \
        CheckAndDelete Scan";
    for operation in operations.split_whitespace() {
        all.push(exact(&requests, format!("{operation}Time_num_ops")));
    }
    all.push(exact(&requests, "ScanSize_num_ops".to_owned()));
    let counts = "regionCount storeCount storeFileCount readRequestCount filteredReadRequestCount \
        writeRequestCount totalRequestCount flushTime_num_ops compactionTime_num_ops \
        majorCompactionTime_num_ops flushedMemstoreBytes numReferenceFiles";
    all.extend(counts.split_whitespace().map(|name| exact("Tables", of_table(name))));
    all.push(exact("WAL", format!("{TABLE}.appendCount")));
    // Files of different writers differ in bytes; stock HBase's size of an append counts only its
    // cells.
    let near = [
        ("Tables", of_table("flushedOutputBytes"), 0.05),
        ("Tables", of_table("compactedInputBytes"), 0.05),
        ("Tables", of_table("majorCompactedOutputBytes"), 0.05),
        ("Tables", of_table("storeFileSize"), 0.05),
        ("WAL", format!("{TABLE}.appendSize"), 0.15),
    ];
    all.extend(near.map(|(sub, name, tolerance)| Agreement { sub: sub.to_owned(), name, tolerance }));
    all
}

fn values_that_differ(stock: &Beans, ours: &Beans) -> Vec<String> {
    let mut different = Vec::new();
    for Agreement { sub, name, tolerance } in agreements() {
        let (theirs, own) = (value(stock, &sub, &name), value(ours, &sub, &name));
        if (theirs - own).abs() > theirs * tolerance {
            different.push(format!("{sub} {name}: {theirs} and {own}"));
        }
    }
    // Stock HBase shows these sums over its regions some seconds late.
    for (name, at_least) in CHECKS {
        let theirs = value(stock, "Server", name);
        if theirs < at_least {
            different.push(format!("Server {name}: {theirs} is below {at_least}"));
        }
    }
    different
}

/// Returns the sum over the regions of the table.
fn sum_of_regions(server: &Server, metric: &str) -> f64 {
    let of_region = pattern(&format!("^Namespace_default_table_{TABLE}_region_[0-9a-f]+_metric_{metric}$"));
    let beans = all_beans(server);
    let regions = beans.iter().filter_map(Value::as_object).flat_map(|bean| bean.iter());
    let values = regions.filter(|(name, _)| of_region.is_match(name));
    values.filter_map(|(_, value)| value.as_f64()).sum()
}

/// The minimum counts of the server's calls: those of the load, without the server's internal calls
/// for hbase:meta.
const CALLS: [(&str, f64); 4] = [
    ("rpcGetRequestCount", 101.0),
    ("rpcMultiRequestCount", 12.0),
    ("rpcScanRequestCount", 60.0),
    ("rpcMutateRequestCount", 270.0),
];

/// The minimum counts of the load's conditional writes.
const CHECKS: [(&str, f64); 2] = [("checkMutatePassedCount", 7.0), ("checkMutateFailedCount", 3.0)];

#[test]
fn load_dependent_values_agree() {
    let _turn = turn();
    // `settled` waits until the compared values agree.
    let (stock, ours) = settled();
    let requests = format!("TableRequests_Namespace_default_table_{TABLE}");
    for name in ["GetTime_num_ops", "PutTime_num_ops", "DeleteTime_num_ops", "IncrementTime_num_ops"] {
        assert!(value(&stock, &requests, name) > 5.0, "{name} moves");
    }
    for metric in ["putCount", "deleteCount", "incrementCount", "appendCount", "getCount", "scanCount"] {
        let sums = [reference(), tested()].map(|server| sum_of_regions(server, metric));
        assert!(sums[0] > 0.0 && sums[0] == sums[1], "{metric}: {sums:?}");
    }
    for (name, at_least) in CALLS {
        let both = [&stock, &ours].map(|beans| value(beans, "Server", name));
        assert!(both.iter().all(|calls| *calls >= at_least), "{name}: {both:?}");
    }
    for (name, at_least) in CHECKS {
        let both = [&stock, &ours].map(|beans| value(beans, "Server", name));
        assert!(both.iter().all(|count| *count >= at_least), "{name}: {both:?}");
    }
}

/// What the server reports of itself and of the table's regions: names and values.
fn load_report(server: &Server) -> BTreeMap<String, String> {
    let mut args = vec![TABLE.to_owned()];
    args.extend(server.client_settings().into_iter().map(|(key, value)| format!("-D{key}={value}")));
    let run = java("evenkeel.interop.metrics.LoadReport", &args).label("load-report").deadline_secs(60).run();
    let run = run.unwrap_or_else(|why| panic!("{why}"));
    assert!(run.success, "{}: {}\n{}\n{}", server.name(), run.end, run.stdout, run.stderr);
    let pair = |line: &str| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    run.stdout.lines().filter_map(pair).collect()
}

#[test]
fn loads_of_the_server_and_its_regions_are_stock_s() {
    let _turn = turn();
    load();
    let start = Instant::now();
    loop {
        // A stock RegionServer reports every 3 s.
        let (stock, ours) = (load_report(reference()), load_report(tested()));
        let names: BTreeSet<_> = stock.keys().chain(ours.keys()).collect();
        let differs = |name: &&&String| stock.get(**name) != ours.get(**name);
        let difference = |name: &String| format!("{name}: {:?} and {:?}", stock.get(name), ours.get(name));
        let different: Vec<_> = names.iter().filter(differs).map(|name| difference(name)).collect();
        if different.is_empty() {
            assert!(stock.len() > 150, "{stock:#?}");
            return;
        }
        assert!(start.elapsed() < SETTLING, "{different:#?}");
        sleep(Duration::from_secs(1));
    }
}
