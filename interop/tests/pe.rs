//! `evenkeel pe` and HBase's PerformanceEvaluation: the same options write the same rows, cells and
//! bytes, and measure the same number of requests.

#![forbid(unsafe_code)]

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use interop::{Finished, java, server, target, toolchain};
use regex::Regex;
use serde_json::Value;

const CLIENTS: &str = "3";

/// Runs HBase's tool to its end.
fn stock(options: &[&str], command: &str, clients: &str) -> Finished {
    let conf = target().client_conf().expect("a client configuration");
    let class_path = toolchain::client_class_path().unwrap_or_else(|why| panic!("{why}"));
    let args = [&["--nomapred"], options, &[command, clients]].concat();
    let args: Vec<String> = args.into_iter().map(str::to_owned).collect();
    let run = java("org.apache.hadoop.hbase.PerformanceEvaluation", &args);
    let run = run.class_path(format!("{}:{class_path}", conf.display())).deadline_secs(240);
    let finished = run.run().unwrap_or_else(|why| panic!("{why}"));
    assert!(finished.success, "{options:?} {command}: {}\n{}", finished.end, finished.stderr);
    finished
}

/// Runs `evenkeel pe`; returns its report.
fn native(options: &[&str], command: &str, clients: &str) -> Value {
    let binary = server::evenkeel_binary().unwrap_or_else(|why| panic!("{why}"));
    let settings = target().client_settings();
    let masters = settings.iter().find(|(key, _)| key == "hbase.masters").expect("masters").1.clone();
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let json = interop::work().join("out").join(format!("pe-{}-{run}.json", std::process::id()));
    std::fs::create_dir_all(json.parent().expect("a folder")).expect("the folder of outputs");
    let mut pe = Command::new(binary);
    pe.args(["pe", &format!("--target={masters}"), &format!("--json={}", json.display())]);
    let output = pe.args(options).args([command, clients]).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{options:?} {command}: {}\n{said}", output.status);
    serde_json::from_slice(&std::fs::read(&json).expect("a report")).expect("JSON")
}

/// Sums over the clients in the log of HBase's tool: rows run, and latencies measured.
fn said(run: &Finished) -> (u64, u64) {
    let sum = |pattern: &str| {
        let pattern = Regex::new(pattern).expect("a pattern");
        pattern.captures_iter(&run.stderr).map(|found| found[1].parse::<u64>().expect("a number")).sum()
    };
    (
        sum(r"Finished class \S+ in \d+ms at offset \d+ for (\d+) rows"),
        sum(r"Num measures \(latency\) : (\d+)"),
    )
}

fn number(report: &Value, part: &str, field: &str) -> u64 {
    report[part][field].as_u64().unwrap_or_else(|| panic!("{part}.{field} in {report}"))
}

/// Rows, cells and bytes of values in a table.
fn contents(table: &str, families: &str) -> [u64; 3] {
    let table = format!("--table={table}");
    let options = [&table, "--rows=100000", "--caching=1000", "--addColumns=false", families];
    let report = native(&options, "scan", "1");
    ["rowsRead", "cellsRead", "bytesRead"].map(|field| number(&report, "tally", field))
}

/// Runs both tools with the same options, each on a separate table; both tables must have the same
/// counts.
fn writes_alike(name: &str, options: &[&str], families: &str, command: &str) {
    let (theirs, ours) = (format!("--table=Stock{name}"), format!("--table=Native{name}"));
    let with = |table| [&[table, families][..], options].concat();
    let (stock, native) = (stock(&with(&theirs), command, CLIENTS), native(&with(&ours), command, CLIENTS));
    let (_, measures) = said(&stock);
    assert_eq!(measures, number(&native, "latency", "count"), "{command}: requests measured");
    let (theirs, ours) =
        (contents(&format!("Stock{name}"), families), contents(&format!("Native{name}"), families));
    assert!(theirs[0] > 0, "{command} wrote nothing");
    assert_eq!(theirs, ours, "{command}: rows, cells and bytes");
}

#[test]
fn sequential_writes_leave_the_same_cells() {
    let options = ["--rows=500", "--columns=3", "--valueSize=77", "--presplit=4"];
    writes_alike("Sequential", &options, "--families=2", "sequentialWrite");
    let settings = ["--table=StockSequential", "--rows=2000", "--families=2", "--columns=3"];
    let stock_regions = native(&settings, "sequentialRead", "1");
    assert_eq!(
        number(&stock_regions, "tally", "rowsRead"),
        1500,
        "rows beyond the written ones are not there"
    );
}

#[test]
fn batches_samples_and_cycles_have_equal_counts() {
    let options = ["--rows=500", "--autoFlush=true", "--multiPut=50", "--cycles=2", "--sampleRate=0.5"];
    writes_alike("Batched", &options, "--families=1", "sequentialWrite");
    let options = ["--table=StockBatched", "--rows=500", "--multiGet=20", "--measureAfter=100"];
    let (_, measures) = said(&stock(&options, "randomRead", CLIENTS));
    let report = native(&options, "randomRead", CLIENTS);
    assert_eq!(measures, number(&report, "latency", "count"));
    assert_eq!(number(&report, "tally", "rows"), 1500);
}

#[test]
fn shared_rows_end_with_equal_contents() {
    writes_alike("Increment", &["--rows=60"], "--families=2", "increment");
    writes_alike("Append", &["--rows=60"], "--families=2", "append");
    writes_alike("Check", &["--rows=60"], "--families=1", "checkAndPut");
    writes_alike("Mutate", &["--rows=60"], "--families=1", "checkAndMutate");
}

/// With one client: if two clients hit the same row, one deletes the newest version and leaves the
/// other's.
#[test]
fn checked_deletes_leave_equal_contents() {
    let options = |table| ["--rows=60", table];
    let [theirs, ours] = ["--table=StockUnchecked", "--table=NativeUnchecked"].map(options);
    for table in [theirs, ours] {
        native(&table, "checkAndPut", "1");
    }
    let (run, report) = (stock(&theirs, "checkAndDelete", "1"), native(&ours, "checkAndDelete", "1"));
    assert_eq!(said(&run).1, number(&report, "latency", "count"));
    let left = contents("StockUnchecked", "--families=1");
    assert_eq!(left[..2], [60, 60], "what was put and not deleted");
    assert_eq!(left, contents("NativeUnchecked", "--families=1"));
}

/// Reads and scans over one table, by both tools: the same numbers of rows, requests and cells.
#[test]
fn reads_have_equal_counts() {
    native(&["--table=Read", "--rows=300", "--columns=2"], "sequentialWrite", "2");
    let alike = |command: &str, options: &[&str], cells: Option<u64>| {
        let options = [&["--table=Read", "--rows=300", "--columns=2"][..], options].concat();
        let (run, report) = (stock(&options, command, "2"), native(&options, command, "2"));
        let ours = (number(&report, "tally", "rows"), number(&report, "latency", "count"));
        assert_eq!(said(&run), ours, "{command}");
        if let Some(cells) = cells {
            assert_eq!(number(&report, "tally", "cellsRead"), cells, "{command}");
        }
    };
    alike("sequentialRead", &[], Some(1200));
    alike("randomRead", &["--sampleRate=0.5", "--cycles=2"], None);
    alike("randomSeekScan", &["--caching=50"], None);
    alike("scanRange10", &[], None);
    alike("scanRange1000", &["--caching=100", "--filterAll"], Some(0));
    alike("filterScan", &["--rows=5"], None);
    alike("metaRandomRead", &[], None);
}

#[test]
fn random_writes_have_equal_counts() {
    let options = ["--rows=300", "--autoFlush=true", "--valueRandom", "--writeToWAL=false"];
    let with = |table| [&[table][..], &options].concat();
    let (_, measures) = said(&stock(&with("--table=StockRandom"), "randomWrite", CLIENTS));
    let report = native(&with("--table=NativeRandom"), "randomWrite", CLIENTS);
    assert_eq!(measures, number(&report, "latency", "count"));
    assert_eq!(number(&report, "tally", "rowsWritten"), 900);
}

#[test]
fn scans_measure_every_next() {
    native(&["--table=Scanned", "--rows=400"], "sequentialWrite", "2");
    let options = ["--table=Scanned", "--rows=400", "--caching=100"];
    let run = stock(&options, "scan", "2");
    let report = native(&options, "scan", "2");
    assert_eq!(said(&run), (number(&report, "tally", "rows"), number(&report, "latency", "count")));
    assert_eq!(number(&report, "tally", "cellsRead"), 800);
}

#[test]
fn a_missing_table_has_its_own_exit_status() {
    let binary = server::evenkeel_binary().unwrap_or_else(|why| panic!("{why}"));
    let settings = target().client_settings();
    let masters = settings.iter().find(|(key, _)| key == "hbase.masters").expect("masters").1.clone();
    let absent = Command::new(binary)
        .args(["pe", &format!("--target={masters}"), "--table=NoSuchTable", "randomRead", "1"])
        .output()
        .expect("it starts");
    assert_eq!(absent.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&absent.stderr).contains("no table NoSuchTable"));
}
