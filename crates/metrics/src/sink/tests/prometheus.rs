//! The text of `/prometheus`.

use proptest::prelude::*;

use super::grammar::samples;
use super::records;
use crate::record::{Aggregate, Metric, NamedValue, Record, Value};
use crate::sink::prometheus::{PrometheusQuery, prometheus_name};

fn text(records: &[Record]) -> String {
    PrometheusQuery { description: true, ..PrometheusQuery::default() }
        .answer(records.to_vec(), "h")
        .collect()
}

/// The examples of the specification, and further ones from HBase's pattern.
#[test]
fn names_are_those_of_hbase() {
    let cases = [
        ("Server", "regionCount", "server_region_count"),
        ("Server", "get_99.9th_percentile", "server_get_99_9th_percentile"),
        ("RegionServer", "queueCallTime_num_ops", "region_server_queue_call_time_num_ops"),
        ("JvmMetrics", "MemHeapUsedM", "jvm_metrics_mem_heap_used_m"),
        ("Server", "l1CacheHitRatio", "server_l1cache_hit_ratio"),
        ("WAL", "appendTime_mean", "wal_append_time_mean"),
        ("Server", "get_TimeRangeCount_0-1", "server_get_time_range_count_0_1"),
        (
            "Regions",
            "Namespace_default_table_a.b_region_1f_metric_x",
            "regions_namespace_default_table_a_b_region_1f_metric_x",
        ),
        ("A", "b__c_", "ab_c"),
        ("A", "b_-c", "ab__c"),
        ("9", "b", "_9b"),
        ("", "", "_"),
        ("T", "größe", "t_gr__e"),
        ("_A", "bC_DEf", "_abc_d_ef"),
    ];
    for (record, metric, name) in cases {
        assert_eq!(prometheus_name(record, metric), name, "{record} {metric}");
    }
}

#[test]
fn a_sample_has_type_help_labels_and_value() {
    let text = text(&records());
    let labels =
        "zookeeperquorum=\"a:2181\",servername=\"h,16020,1\",context=\"regionserver\",hostname=\"h\"";
    let expected = format!(
        "# HELP server_region_count Number of regions\n# TYPE server_region_count gauge\n\
         server_region_count{{{labels}}} 3\n"
    );
    assert!(text.starts_with(&expected), "{text}");
    assert!(text.contains("# TYPE server_total_request_count counter\n"), "{text}");
    assert!(!text.contains("heap_memory"), "beans of the platform are not shown");
    let samples = samples(&text);
    assert!(samples[&format!("server_l1cache_hit_ratio{{{labels}}}")].is_nan());
    assert_eq!(samples[&format!("server_percent_files_local{{{labels}}}")], 99.5);
}

#[test]
fn qry_selects_by_a_part_of_the_name() {
    let query = PrometheusQuery { qry: Some("queue"), description: false };
    let text: String = query.answer(records(), "h").collect();
    let expected = "# TYPE region_server_queue_size gauge\n\
                    region_server_queue_size{context=\"regionserver\",hostname=\"h\"} 0\n";
    assert_eq!(text, expected);
}

#[test]
fn no_name_has_two_types_and_no_sample_is_there_twice() {
    let mut all = records();
    all.extend(records());
    let mut other = Record::new("Server", "master", "name=Master,sub=Server");
    other.counter("regionCount", "as a counter", 1).gauge("region_count", "", 5);
    other.tag("odd tag\"", "a\\b\"c\nd").tag("hostName", "shadowed");
    all.push(other);
    let text = text(&all);
    let samples = samples(&text);
    assert_eq!(samples.keys().filter(|key| key.starts_with("server_region_count{")).count(), 2, "{text}");
    assert!(
        text.contains("{odd_tag_=\"a\\\\b\\\"c\\nd\",hostname=\"shadowed\",context=\"master\"} 1\n"),
        "{text}"
    );
}

fn record_with_aggregate() -> impl Strategy<Value = Record> {
    let prefix = prop_oneof![3 => "[aB_]{0,3}[ab9]_", 1 => "[aB_é-]{0,3}_?"];
    let prefixes = prop::collection::btree_set(prefix, 0..4);
    let metrics = prop::sample::select(&AGGREGATES[..]);
    ("[aB_]{0,2}", prefixes, metrics).prop_map(|(name, prefixes, metrics)| {
        let mut aggregate = Aggregate::new(metrics);
        for prefix in prefixes {
            let values: Vec<_> = metrics.iter().map(|(name, _)| Value::gauge(name.len() as u64)).collect();
            aggregate.add(prefix, &values);
        }
        Record { aggregate: Some(aggregate), ..Record::new(name, "c", "name=x") }
    })
}

const AGGREGATES: [&[(&str, &str)]; 6] = [
    &[("aB", "of two words"), ("b", ""), ("x9", "")],
    &[("x", "first"), ("aB", "")],
    &[("B", "one"), ("b", "the same in words")],
    &[("_x", "begins with a separator")],
    &[("x_", "ends with one"), ("x", "")],
    &[("9-", ""), ("é", "no word")],
];

/// Returns the record with its aggregate's metrics as its own.
fn flat(record: &Record) -> Record {
    let metric = |metric: NamedValue<'_>| Metric {
        name: metric.name().into_owned().into(),
        description: metric.description.to_owned().into(),
        value: metric.value,
    };
    let metrics = record.all_metrics().map(metric).collect();
    Record { metrics, aggregate: None, ..record.clone() }
}

#[test]
fn metrics_of_regions_are_in_order() {
    let mut record = Record::new("Regions", "regionserver", "name=RegionServer,sub=Regions");
    let mut aggregate = Aggregate::new(&[("storeCount", "Number of Stores"), ("putCount", "")]);
    aggregate
        .add("Namespace_default_table_t_region_1f_metric_".to_owned(), &[Value::Gauge(1), Value::Counter(2)]);
    aggregate
        .add("Namespace_default_table_t_region_2f_metric_".to_owned(), &[Value::Gauge(3), Value::Counter(4)]);
    record.aggregate = Some(aggregate);
    let text = text(&[record]);
    let name = "regions_namespace_default_table_t_region_1f_metric_store_count";
    let expected = format!("# HELP {name} Number of Stores\n# TYPE {name} gauge\n{name}{{");
    assert!(text.starts_with(&expected), "{text}");
    let values: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let values: Vec<_> = values.iter().filter_map(|line| line.rsplit(' ').next()).collect();
    assert_eq!(values, ["1", "2", "3", "4"]);
}

#[test]
fn the_text_of_many_parts_comes_in_pieces() {
    let mut record = Record::new("Regions", "regionserver", "name=RegionServer,sub=Regions");
    let mut aggregate = Aggregate::new(&[("storeCount", "Number of Stores")]);
    for region in 0..2000 {
        aggregate.add(format!("Namespace_default_table_t_region_{region}_metric_"), &[Value::Gauge(region)]);
    }
    record.aggregate = Some(aggregate);
    let mut pieces = PrometheusQuery::default().answer(vec![record.clone()], "h");
    let held = pieces.held_bytes();
    assert!(held > 2000 * 40, "{held}");
    let texts: Vec<String> = pieces.by_ref().collect();
    assert!(texts.len() > 2 && texts.iter().all(|text| text.len() < 70_000 && text.ends_with('\n')));
    assert_eq!(pieces.held_bytes(), 0);
    assert_eq!(
        texts.concat(),
        PrometheusQuery::default().answer(vec![flat(&record)], "h").collect::<String>()
    );
}

proptest! {
    #[test]
    fn an_aggregate_is_shown_like_metrics_of_a_record(
        records in prop::collection::vec(record_with_aggregate(), 1..3),
        other in ("[aB_]{0,2}", "[aB_x]{0,5}"),
        qry in prop::option::of("[ab_]{1,2}"),
    ) {
        let mut other_record = Record::new(other.0, "d", "name=y");
        other_record.counter(other.1, "", 1);
        let with_aggregate: Vec<Record> = records.into_iter().chain([other_record]).collect();
        let without: Vec<Record> = with_aggregate.iter().map(flat).collect();
        let query = PrometheusQuery { qry: qry.as_deref(), description: true };
        let text = |records| query.answer(records, "h").collect::<String>();
        prop_assert_eq!(text(with_aggregate), text(without));
    }

    #[test]
    fn any_record_is_legal_text(
        names in prop::collection::vec(("\\PC{0,8}", "[a-zA-Z_.0-9 -]{0,12}", any::<f64>()), 0..8),
        tag in "\\PC{0,6}",
        value in ".{0,6}",
    ) {
        let mut all = Vec::new();
        for (record, metric, number) in names {
            let mut record = Record::new(record, "c", "name=x");
            record.tag(tag.clone(), value.clone()).real(metric.clone(), value.clone(), number);
            record.counter(metric, "", 1);
            all.push(record);
        }
        samples(&text(&all));
    }
}
