//! The documents of `/jmx`.

use proptest::prelude::*;

use super::records;
use crate::record::{Aggregate, Record, Value};
use crate::sink::PIECE_BYTES;
use crate::sink::jmx::JmxQuery;

fn qry(pattern: &str) -> String {
    JmxQuery { qry: Some(pattern), ..JmxQuery::default() }.answer(records(), "h").collect()
}

fn get(get: &str) -> String {
    JmxQuery { get: Some(get), ..JmxQuery::default() }.answer(records(), "h").collect()
}

#[test]
fn a_bean_has_the_layout_of_the_servlet() {
    let expected = r#"{
  "beans": [
    {
      "name": "Hadoop:service=HBase,name=RegionServer,sub=IPC",
      "modelerType": "RegionServer,sub=IPC",
      "tag.Context": "regionserver",
      "tag.Hostname": "h",
      "queueSize": 0,
      "exceptions.otherExceptions": 2
    }
  ]
}"#;
    assert_eq!(qry("Hadoop:service=HBase,name=RegionServer,sub=IPC"), expected);
}

#[test]
fn beans_of_the_platform_have_bare_attributes() {
    let expected = r#"{
  "beans": [
    {
      "name": "java.lang:type=Memory",
      "modelerType": "sun.management.MemoryImpl",
      "Verbose": 0,
      "HeapMemoryUsage": {
        "committed": 1,
        "used": 2
      },
      "ObjectName": "java.lang:type=Memory"
    }
  ]
}"#;
    assert_eq!(qry("java.lang:*"), expected);
    assert!(get("java.lang:type=Memory::HeapMemoryUsage").contains("\"used\": 2"));
}

#[test]
fn values_are_numbers_or_strings_as_in_the_servlet() {
    let text = qry("Hadoop:*,sub=Server");
    let has = |line: &str| assert!(text.contains(line), "{line} in {text}");
    has(
        "\"tag.zookeeperQuorum\": \"a:2181\",\n      \"tag.serverName\": \"h,16020,1\",\n      \"tag.Context\"",
    );
    has("\"percentFilesLocal\": 99.5,");
    has("\"l1CacheHitRatio\": \"NaN\",");
    has("\"Get_num_ops\": 1,");
    has("\"Get_99.9th_percentile\": 2,");
    has("\"Get_TimeRangeCount_1-3\": 1");
    assert!(!text.contains("Young"), "a name with a blank is left out");
}

/// Each outcome was observed with HBase's servlet.
#[test]
fn errors_are_reported_in_the_document() {
    for malformed in ["nonsense", "a:", "*"] {
        assert_eq!(qry(malformed), "{}");
    }
    let excluded = JmxQuery { excl: Some("zz"), ..JmxQuery::default() };
    assert_eq!(excluded.answer(records(), "h").collect::<String>(), "{}");
    assert_eq!(qry("no:such=bean"), "{\n  \"beans\": []\n}");
    let format = "{\n  \"result\": \"ERROR\",\n  \"message\": \"query format is not as expected.\"\n}";
    assert_eq!((get("a:b=c").as_str(), get("a::b::c").as_str()), (format, format));
    let lacks = get("Hadoop:*::Nope");
    let end = "\"result\": \"ERROR\",\n      \"message\": \"No attribute with name Nope was found.\"\n    }\n  ]\n}";
    assert!(lacks.ends_with(end) && lacks.matches("modelerType").count() == 1, "{lacks}");
}

#[test]
fn get_selects_attributes() {
    let one = get("Hadoop:service=HBase,name=RegionServer,sub=IPC::queueSize");
    assert!(one.contains("\"queueSize\": 0") && !one.contains("tag."), "{one}");
    let listed = get("Hadoop:*,sub=Server::region.*,total[A-Z].*");
    assert!(listed.contains("regionCount") && listed.contains("totalRequestCount"), "{listed}");
    assert!(!listed.contains("percentFilesLocal"), "{listed}");
    // A list without an asterisk is one name, and so is an invalid expression.
    for name in ["queueSize,x", "*x", &"a*,".repeat(100)] {
        assert!(get(&format!("Hadoop:*,sub=IPC::{name}")).contains("ERROR"), "{name}");
    }
    assert!(get("Hadoop:*,sub=IPC::\\w{1000}{1000}*").contains("ERROR"), "too large an expression");
}

#[test]
fn descriptions_are_shown_on_request() {
    let text: String = JmxQuery { description: true, ..JmxQuery::default() }.answer(records(), "h").collect();
    let expected =
        "\"regionCount\": {\n        \"description\": \"Number of regions\",\n        \"value\": 3\n      }";
    assert!(text.contains(expected), "{text}");
    assert!(text.contains("\"percentFilesLocal\": 99.5"), "{text}");
    let excluded: String =
        JmxQuery { excl: Some("Hadoop:*"), ..JmxQuery::default() }.answer(records(), "h").collect();
    assert_eq!(excluded.matches("modelerType").count(), 1);
}

#[test]
fn records_of_one_bean_are_shown_together() {
    let mut again = Record::new("Server", "regionserver", "name=RegionServer,sub=Server");
    again.gauge("regionCount", "", 99).gauge("more", "", 1);
    let mut all = records();
    all.push(again);
    let text: String = JmxQuery::default().answer(all, "h").collect();
    assert_eq!(text.matches("sub=Server\",\n      \"modelerType").count(), 1);
    assert!(text.contains("\"regionCount\": 3") && !text.contains("99,") && text.contains("\"more\": 1"));
}

/// The document of many regions comes in pieces, and is the same as one of few pieces.
#[test]
fn aggregates_are_written_in_pieces() {
    const METRICS: [(&str, &str); 2] = [("first", "The first"), ("second", "")];
    const PARTS: usize = 5_000;
    let mut regions = Aggregate::new(&METRICS);
    for part in 0..PARTS {
        let values = [Value::gauge(part as u64), Value::Counter(7)];
        regions.add(format!("region_{part}_"), &values);
    }
    let mut all = records();
    let record = Record::new("Regions", "regionserver", "name=RegionServer,sub=Regions");
    all.push(Record { aggregate: Some(regions), ..record });
    all.push(Record::new("Last", "regionserver", "name=RegionServer,sub=Last"));

    let pieces: Vec<String> = JmxQuery::default().answer(all.clone(), "h").collect();
    assert!(pieces.len() > 3 && pieces.iter().all(|piece| piece.len() < 2 * PIECE_BYTES));
    let document: serde_json::Value = serde_json::from_str(&pieces.concat()).expect("JSON");
    let beans = document["beans"].as_array().expect("beans");
    let of_regions = &beans[beans.len() - 2];
    for part in 0..PARTS {
        assert_eq!(of_regions[format!("region_{part}_first")], part);
        assert_eq!(of_regions[format!("region_{part}_second")], 7);
    }
    assert_eq!(beans[beans.len() - 1]["name"], "Hadoop:service=HBase,name=RegionServer,sub=Last");

    let one = JmxQuery { get: Some("Hadoop:*,sub=Regions::region_4999_first"), ..JmxQuery::default() };
    let one: String = one.answer(all, "h").collect();
    assert!(one.contains("\"region_4999_first\": 4999") && !one.contains("region_4998"), "{one}");
}

proptest! {
    /// Parameters come from a socket: whatever they are, the response must be JSON.
    #[test]
    fn any_parameters_are_answered_with_json(
        qry in prop::option::of("([a-zA-Z]{0,4}|[*?:=,\"\\\\]){0,6}|\\PC{0,12}"),
        excl in prop::option::of("[*?:=,a]{0,8}"),
        get in prop::option::of("(\\*:\\*|Hadoop:\\*|\\PC{0,6})(::)?[]\\[a-zA-Z*+?(){},0-9\\\\|^$-]{0,10}"),
        description: bool,
    ) {
        let query = JmxQuery { qry: qry.as_deref(), excl: excl.as_deref(), get: get.as_deref(), description };
        let text: String = query.answer(records(), "h\u{0}\"").collect();
        let document: Result<serde_json::Value, _> = serde_json::from_str(&text);
        prop_assert!(document.is_ok_and(|document| document.is_object()), "{text}");
    }
}
