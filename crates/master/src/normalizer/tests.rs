//! Plans by sizes and ages, rates, the queue, and the tables that are normalized.

use std::time::Duration;

use bytes::Bytes;
use evenkeel_common::cell::LATEST_TIMESTAMP;
use evenkeel_common::config::Configuration;
use evenkeel_common::{ColumnFamilyDescriptor, KeyValue, TableDescriptor};
use evenkeel_region::operations::{Mutation, MutationKind};

use super::plan::{plans, truncate};
use super::settings::Rules;
use super::*;
use crate::service::tables::matching;
use crate::tests::Cluster;

const DAY_MS: i64 = 24 * 3600 * 1000;
const NOW_MS: i64 = 100 * DAY_MS;

fn settings(keys: &[(&str, &str)]) -> NormalizerSettings {
    let mut conf = Configuration::new();
    keys.iter().for_each(|(key, value)| conf.set(*key, *value));
    NormalizerSettings::from(&conf).expect("legal")
}

fn table(attributes: &[(&str, &str)]) -> TableDescriptor {
    let table = TableDescriptor::new("t".parse().expect("legal"))
        .with_family(ColumnFamilyDescriptor::new(b"f").expect("legal"));
    attributes.iter().fold(table, |table, (key, value)| table.with(key, value))
}

fn rules(attributes: &[(&str, &str)]) -> Rules {
    settings(&[]).rules_of(&table(attributes)).expect("legal")
}

/// Old regions of these sizes, named by their positions.
fn regions(mib: &[u64]) -> Vec<Candidate> {
    let region = |(at, mib): (usize, &u64)| Candidate {
        encoded_name: at.to_string(),
        created_ms: 0,
        mib: *mib,
        is_changeable: true,
    };
    mib.iter().enumerate().map(region).collect()
}

/// The plans as text: `split 3` and `merge 0 1 2`.
fn texts(plans: &[Plan]) -> Vec<String> {
    let text = |plan: &Plan| match plan {
        Plan::Split { region, .. } => format!("split {region}"),
        Plan::Merge { regions, .. } => format!("merge {}", regions.join(" ")),
    };
    plans.iter().map(text).collect()
}

fn of_sizes(mib: &[u64], attributes: &[(&str, &str)]) -> Vec<String> {
    texts(&plans(&regions(mib), &rules(attributes), NOW_MS))
}

#[test]
fn without_regions_or_with_equal_ones_nothing_is_done() {
    assert_eq!(of_sizes(&[], &[]), [""; 0]);
    assert_eq!(of_sizes(&[10], &[]), [""; 0]);
    assert_eq!(of_sizes(&[10, 10, 10, 10], &[]), [""; 0]);
}

#[test]
fn a_region_of_more_than_twice_the_average_is_split() {
    assert_eq!(of_sizes(&[8, 6, 10, 8, 30], &[]), ["split 4"], "the average is 12.4");
    assert_eq!(of_sizes(&[9, 9, 10, 20], &[]), [""; 0], "20 is not more than twice 12");
    let mut closed = regions(&[8, 6, 10, 8, 30]);
    closed[4].is_changeable = false;
    assert_eq!(plans(&closed, &rules(&[]), NOW_MS), []);
}

#[test]
fn neighbours_that_fit_into_the_average_are_merged() {
    assert_eq!(of_sizes(&[15, 5, 5, 15, 16], &[]), ["merge 1 2"], "the average is 11.2");
    assert_eq!(of_sizes(&[16, 3, 16, 3, 16], &[]), [""; 0], "small ones are no neighbours");
    assert_eq!(of_sizes(&[1, 1, 1, 1, 1, 9], &[]), ["split 5", "merge 0 1", "merge 2 3"], "average 2.3");
}

#[test]
fn empty_regions_join_any_range() {
    let empty = [("hbase.normalizer.merge.min_region_size.mb", "0")];
    assert_eq!(of_sizes(&[0, 0, 0, 0], &empty), ["merge 0 1 2 3"]);
    assert_eq!(of_sizes(&[0, 9, 0, 9, 0], &empty), ["split 1", "split 3", "merge 0 1 2", "merge 3 4"]);
    assert_eq!(of_sizes(&[0, 0, 0, 0], &[]), [""; 0], "regions of less than 1 MiB are not merged");
}

#[test]
fn young_and_closed_regions_are_not_merged_and_end_a_range() {
    let mut mixed = regions(&[2, 2, 2, 2, 30, 2, 2]);
    mixed[1].created_ms = NOW_MS - 3 * DAY_MS;
    assert_eq!(texts(&plans(&mixed, &rules(&[]), NOW_MS)), ["split 4", "merge 2 3", "merge 5 6"]);
    assert_eq!(
        texts(&plans(&mixed, &rules(&[]), NOW_MS + 1)),
        ["split 4", "merge 0 1 2", "merge 5 6"],
        "the average is 6"
    );
    mixed[6].is_changeable = false;
    assert_eq!(texts(&plans(&mixed, &rules(&[]), NOW_MS + 1)), ["split 4", "merge 0 1 2"]);
}

#[test]
fn a_target_count_or_size_of_the_table_replaces_the_average() {
    let count = [("NORMALIZER_TARGET_REGION_COUNT", "2")];
    assert_eq!(of_sizes(&[10, 10, 10, 10], &count), ["merge 0 1", "merge 2 3"]);
    let count = [("NORMALIZER_TARGET_REGION_COUNT", "9")];
    assert_eq!(of_sizes(&[10, 10, 10, 10], &count), ["split 0", "split 1", "split 2", "split 3"]);
    for name in ["NORMALIZER_TARGET_REGION_SIZE_MB", "NORMALIZER_TARGET_REGION_SIZE"] {
        let size = [(name, "30"), ("NORMALIZER_TARGET_REGION_COUNT", "9")];
        assert_eq!(of_sizes(&[10, 10, 10, 10, 61], &size), ["split 4", "merge 0 1 2"], "{name}");
    }
    let both = [("NORMALIZER_TARGET_REGION_SIZE_MB", "20"), ("NORMALIZER_TARGET_REGION_SIZE", "90")];
    assert_eq!(of_sizes(&[10, 10, 10, 10], &both), ["merge 0 1", "merge 2 3"]);
}

#[test]
fn a_merge_has_at_most_the_set_number_of_regions() {
    let settings = settings(&[("hbase.normalizer.merge.merge_request_max_number_of_regions", "1")]);
    let rules = settings.rules_of(&table(&[("NORMALIZER_TARGET_REGION_SIZE_MB", "100")])).expect("legal");
    assert_eq!(
        texts(&plans(&regions(&[1, 1, 1, 1, 1]), &rules, NOW_MS)),
        ["merge 0 1", "merge 2 3"],
        "two at least"
    );
}

#[test]
fn too_few_regions_are_not_merged() {
    let target = ("NORMALIZER_TARGET_REGION_SIZE_MB", "100");
    assert_eq!(of_sizes(&[1, 1], &[target]), [""; 0]);
    for name in ["hbase.normalizer.merge.min.region.count", "hbase.normalizer.min.region.count"] {
        assert_eq!(of_sizes(&[1, 1], &[target, (name, "2")]), ["merge 0 1"], "{name}");
        assert_eq!(of_sizes(&[1, 1], &[target, (name, "0")]), [""; 0], "{name}: 0 counts as not set");
        let settings = settings(&[(name, "2")]);
        assert_eq!(settings.rules_of(&table(&[])).expect("legal").merge_count_min, 2, "{name}");
    }
}

#[test]
fn a_table_overrides_the_settings() {
    let of_server = settings(&[
        ("hbase.normalizer.split.enabled", "false"),
        ("hbase.normalizer.merge.min_region_age.days", "7"),
        ("hbase.normalizer.merge.min_region_size.mb", "5"),
    ]);
    let plain = of_server.rules_of(&table(&[])).expect("legal");
    assert!(!plain.splits && plain.merges);
    assert_eq!((plain.merge_age_ms_min, plain.merge_mib_min, plain.merge_count_min), (7 * DAY_MS, 5, 3));
    let own = [
        ("hbase.normalizer.split.enabled", "TRUE"),
        ("hbase.normalizer.merge.enabled", "no"),
        ("hbase.normalizer.merge.min_region_age.days", "0"),
        ("hbase.normalizer.merge.min_region_size.mb", "-2"),
    ];
    let own = of_server.rules_of(&table(&own)).expect("legal");
    assert!(own.splits && !own.merges);
    assert_eq!((own.merge_age_ms_min, own.merge_mib_min), (0, 5));
    let wrong = of_server.rules_of(&table(&[("NORMALIZER_TARGET_REGION_COUNT", "many")]));
    assert!(wrong.expect_err("not a number").contains("NORMALIZER_TARGET_REGION_COUNT"));
}

#[test]
fn a_table_is_normalized_if_it_or_else_the_server_says_so() {
    let (on, off) = (settings(&[("hbase.table.normalization.enabled", "true")]), settings(&[]));
    for (value, with_on, with_off) in
        [(None, true, false), (Some("true"), true, true), (Some("false"), false, false)]
    {
        let attributes: Vec<_> = value.iter().map(|value| ("NORMALIZATION_ENABLED", *value)).collect();
        let table = table(&attributes);
        assert_eq!((on.is_on_for(&table), off.is_on_for(&table)), (with_on, with_off), "{value:?}");
    }
}

#[test]
fn periods_and_rates_that_are_too_small_count_as_not_set() {
    assert_eq!(settings(&[]).every, Some(Duration::from_secs(300)));
    assert_eq!(settings(&[("hbase.normalizer.period", "0")]).every, None);
    let rate = |text| settings(&[("hbase.normalizer.throughput.max_bytes_per_sec", text)]).mb_per_s;
    assert_eq!((rate("5m"), rate("2000000"), rate("999999")), (5, 2, 1_000_000));
    assert_eq!(settings(&[]).plans_mib_max, None);
}

#[test]
fn plans_beyond_the_limit_of_their_sizes_are_left_out() {
    let mut plans: Vec<_> = [5, 3, 4].map(|mib| Plan::Split { region: mib.to_string(), mib }).into();
    truncate(&mut plans, 9);
    assert_eq!(texts(&plans), ["split 5", "split 3"]);
}

#[test]
fn a_plan_waits_until_those_before_it_are_paid_for() {
    let start = clock::monotonic();
    let mut rate = RateLimiter::new(10, start);
    let at = |s: f64| start + Duration::from_secs_f64(s);
    assert_eq!(rate.acquire(20, start), Duration::ZERO);
    assert_eq!(rate.acquire(5, start), Duration::from_secs(2));
    assert_eq!(rate.acquire(1, at(2.0)), Duration::from_millis(500));
    assert_eq!(rate.acquire(10, at(9.0)), Duration::ZERO, "a second's worth is saved");
    assert_eq!(rate.acquire(1, at(9.0)), Duration::ZERO);
    assert_eq!(rate.acquire(1, at(9.0)), Duration::from_millis(100));
}

#[test]
fn the_queue_has_each_table_once_and_requests_come_first() {
    let names = |names: &[&str]| names.iter().map(|name| name.parse().expect("legal")).collect();
    let shared = Shared::default();
    shared.enqueue(names(&["a", "b", "c"]), false);
    shared.enqueue(names(&["b", "d"]), false);
    shared.enqueue(names(&["e", "c", "e"]), true);
    let taken: Vec<_> = (0..5).map(|_| shared.next().expect("waits").to_string()).collect();
    assert_eq!(taken, ["c", "e", "a", "b", "d"]);
    shared.stop();
    assert_eq!(shared.next(), None);
    assert!(!shared.pause(Duration::from_secs(600)) && !shared.wait_for(1));
}

/// A cluster with a table `n` of five empty regions, which may be merged.
fn cluster_with_empty_regions() -> (Cluster, TableName) {
    let cluster = Cluster::with_table();
    let name: TableName = "n".parse().expect("legal");
    let table = TableDescriptor::new(name.clone())
        .with("NORMALIZATION_ENABLED", "true")
        .with("hbase.normalizer.merge.min_region_size.mb", "0")
        .with("hbase.normalizer.merge.min_region_age.days", "0")
        .with_family(ColumnFamilyDescriptor::new(b"f").expect("legal"));
    let splits = ["1", "2", "3", "4"].map(Bytes::from).to_vec();
    cluster.run(|master| master.create_table(table.clone(), splits, NO_NONCE)).expect("made");
    cluster.clock.advance_ms(10);
    (cluster, name)
}

#[test]
fn empty_regions_of_a_table_become_one() {
    let (cluster, name) = cluster_with_empty_regions();
    let master = cluster.master();
    let thread = NormalizerThread::start(master).expect("started");
    let all = || Ok(master.tables());
    while !master.normalize_regions(all, true).expect("queued") {
        std::thread::yield_now();
    }
    while cluster.regions_of(&name).len() > 1
        || master.has_regions_in_transition()
        || master.normalizer.merge_count() == 0
    {
        std::thread::yield_now();
    }
    assert_eq!((master.normalizer.merge_count(), master.normalizer.split_count()), (1, 0));
    assert_eq!(cluster.regions().len(), 2, "the other table is not normalized");
    drop(thread);
}

#[test]
fn switches_and_states_of_tables_prevent_plans() {
    let (cluster, name) = cluster_with_empty_regions();
    let master = cluster.master();
    let plans = || master.normalization_plans(&name).expect("computed");
    assert_eq!(plans().len(), 1);
    master.switches.merge.store(false, Ordering::Relaxed);
    assert_eq!(plans(), []);
    master.switches.merge.store(true, Ordering::Relaxed);
    cluster.run(|master| master.disable_table(name.clone(), NO_NONCE)).expect("disabled");
    assert_eq!(plans(), []);
    while master.has_regions_in_transition() {
        std::thread::yield_now();
    }
    assert!(master.normalize_regions(|| Ok(master.tables()), true).expect("queued"));
    assert_eq!(
        master.normalizer.shared.state.lock().queue.iter().filter(|queued| **queued == name).count(),
        0
    );
    master.switches.normalizer.store(false, Ordering::Relaxed);
    assert!(!master.normalize_regions(|| panic!("no table is looked up"), true).expect("off"));
}

#[test]
fn plans_of_changed_tables_and_grown_regions_are_not_carried_out() {
    let (cluster, name) = cluster_with_empty_regions();
    let master = cluster.master();
    let plan = master.normalization_plans(&name).expect("computed").remove(0);
    assert!(master.is_current(&name, &plan));
    let Plan::Merge { regions, .. } = &plan else { panic!("{plan:?}") };
    let region = master.parts.regionserver.regions().find(&regions[0]).expect("served");
    let cell = KeyValue::put(b"0", b"f", b"q", LATEST_TIMESTAMP, b"v");
    region.mutate_wait(Mutation::new(MutationKind::Put, b"0".to_vec(), vec![cell])).expect("written");
    region.flush().expect("flushed");
    assert!(!master.is_current(&name, &plan), "a region has grown");
    let plan = Plan::Merge { regions: regions.clone(), mib: 1 };
    assert!(master.is_current(&name, &plan));
    master.switches.normalizer.store(false, Ordering::Relaxed);
    assert!(!master.is_current(&name, &plan), "the normalizer is off");
    master.switches.normalizer.store(true, Ordering::Relaxed);
    cluster.run(|master| master.disable_table(name.clone(), NO_NONCE)).expect("disabled");
    assert!(!master.is_current(&name, &plan), "the table is disabled");
}

#[test]
fn requests_choose_tables_by_names_expression_and_namespace() {
    let (cluster, _) = cluster_with_empty_regions();
    let chosen = |names: &[&str], regex, namespace| {
        let names: Vec<_> = names.iter().map(|name| name.parse().expect("legal")).collect();
        let tables = matching(cluster.master(), &names, regex, namespace).expect("chosen");
        tables.iter().map(|table| table.descriptor.name().to_string()).collect::<Vec<_>>()
    };
    assert_eq!(chosen(&[], None, None), ["n", "t"]);
    assert_eq!(chosen(&[], None, Some("default")), ["n", "t"]);
    assert_eq!(chosen(&[], Some("default:t"), None), ["t"]);
    assert_eq!(chosen(&["t", "gone"], None, None), ["t"]);
    assert_eq!(chosen(&["t", "n"], Some("n.*"), None), ["n"]);
    assert!(matching(cluster.master(), &[], None, Some("gone")).is_err());
}
