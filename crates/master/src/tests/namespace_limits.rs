//! Limits of namespaces: each change that adds tables or regions, and what a refusal leaves.

use evenkeel_common::RegionInfo;

use super::*;

fn table(name: &str) -> TableDescriptor {
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    TableDescriptor::new(name.parse().expect("legal")).with_family(family)
}

fn namespace(tables: &str, regions: &str) -> pb::NamespaceDescriptor {
    let pair = |name: &str, value: &str| pb::NameStringPair { name: name.into(), value: value.into() };
    let configuration = vec![
        pair("hbase.namespace.quota.maxtables", tables),
        pair("hbase.namespace.quota.maxregions", regions),
    ];
    pb::NamespaceDescriptor { name: Bytes::from("ns"), configuration }
}

/// A cluster with the namespace `ns` of at most two tables and four regions.
fn limited() -> Cluster {
    let cluster = Cluster::with_quotas();
    cluster.run(|master| master.create_namespace(namespace("2", "4"), NO_NONCE)).expect("made");
    cluster
}

fn create(cluster: &Cluster, name: &str, splits: &[&'static str]) -> Result<()> {
    let splits = splits.iter().map(|row| Bytes::from(*row)).collect();
    cluster.run(|master| master.create_table(table(name), splits, NO_NONCE)).map(drop)
}

fn refused(outcome: Result<()>) -> String {
    let error = outcome.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::QuotaExceeded, "{error}");
    error.message().to_owned()
}

fn infos(cluster: &Cluster, name: &str) -> Vec<RegionInfo> {
    cluster.master().live_regions(&name.parse().expect("legal")).expect("read")
}

#[test]
fn tables_and_regions_of_a_namespace_are_limited() {
    let cluster = limited();
    create(&cluster, "ns:a", &["m"]).expect("within the limits");
    let text = refused(create(&cluster, "ns:b", &["c", "m"]));
    assert!(text.contains("not allowed to have 3 regions"), "{text}");
    assert!(text.contains("while current region count is 2"), "{text}");
    create(&cluster, "ns:b", &[]).expect("a refusal leaves nothing");
    assert!(refused(create(&cluster, "ns:c", &[])).ends_with("number of tables permitted is 2"));
    create(&cluster, "default:c", &["c", "m", "p", "x", "y"]).expect("another namespace has no limit");
    let error = create(&cluster, "ns:a", &[]).expect_err("it exists");
    assert_eq!(error.kind(), ErrorKind::TableExists, "as in HBase, this is checked first");

    let b: TableName = "ns:b".parse().expect("legal");
    cluster.run(|master| master.disable_table(b.clone(), NO_NONCE)).expect("disabled");
    cluster.run(|master| master.delete_table(b.clone(), NO_NONCE)).expect("deleted");
    create(&cluster, "ns:c", &["m"]).expect("a deleted table counts no longer");
    cluster.run(|master| master.modify_namespace(namespace("3", "5"), NO_NONCE)).expect("modified");
    create(&cluster, "ns:b", &[]).expect("a new limit applies at once");
}

#[test]
fn splits_are_limited_and_merges_make_room() {
    let mut cluster = limited();
    create(&cluster, "ns:a", &["m"]).expect("made");
    create(&cluster, "ns:b", &[]).expect("made");
    let split = |cluster: &Cluster, name: &str, row: &'static str| {
        let region = infos(cluster, name).into_iter().find(|info| info.contains_row(row.as_bytes()));
        let encoded = region.expect("there").encoded_name().to_owned();
        let outcome =
            cluster.run(|master| master.split_region(&encoded, Some(Bytes::from(row)), NO_NONCE)).map(drop);
        (encoded, outcome)
    };
    split(&cluster, "ns:b", "g").1.expect("the fourth region");
    let (encoded, outcome) = split(&cluster, "ns:a", "p");
    assert_eq!(
        refused(outcome),
        format!("Region split not possible for :{encoded} as quota limits are exceeded ")
    );
    assert_eq!(infos(&cluster, "ns:a").len(), 2);
    cluster.crash();
    assert!(split(&cluster, "ns:a", "p").1.is_err(), "a restart counts the same");
    let b = infos(&cluster, "ns:b").iter().map(|info| info.encoded_name().to_owned()).collect();
    cluster.run(|master| master.merge_regions(b, false, NO_NONCE)).expect("merged");
    split(&cluster, "ns:a", "p").1.expect("there is room again");
    all_are_open(&cluster, "ns:a");
}

fn all_are_open(cluster: &Cluster, name: &str) {
    let open = cluster.regions_of(&name.parse().expect("legal")).len();
    assert_eq!(open, infos(cluster, name).len());
}

#[test]
fn clones_and_restored_tables_are_limited() {
    let cluster = limited();
    create(&cluster, "ns:a", &["c", "m"]).expect("made");
    let snapshot = |table: &str| pb::SnapshotDescription {
        name: "s".into(),
        table: Some(table.into()),
        ..pb::SnapshotDescription::default()
    };
    cluster.run(|master| master.take_snapshot(snapshot("ns:a"), NO_NONCE)).expect("taken");
    let to = |table: &str| {
        let wanted = snapshot(table);
        cluster.run(|master| master.restore_or_clone_snapshot(&wanted, None, NO_NONCE)).map(drop)
    };
    assert!(refused(to("ns:clone")).contains("The table ns:clone is not allowed to have 3 regions."));
    assert!(cluster.master().table(&"ns:clone".parse().expect("legal")).is_err());
    to("clone").expect("no limit there");

    let name: TableName = "ns:a".parse().expect("legal");
    cluster.run(|master| master.disable_table(name.clone(), NO_NONCE)).expect("disabled");
    to("ns:a").expect("as many regions as before");
    cluster.run(|master| master.truncate_table(name.clone(), false, NO_NONCE)).expect("truncated");
    cluster.run(|master| master.modify_namespace(namespace("2", "2"), NO_NONCE)).expect("modified");
    cluster.run(|master| master.disable_table(name.clone(), NO_NONCE)).expect("disabled");
    assert_eq!(
        refused(to("ns:a")),
        "The table ns:a region count cannot be updated as it would exceed maximum number of regions allowed in the \
         namespace.  The total number of regions permitted is 2"
    );
    assert_eq!(infos(&cluster, "ns:a").len(), 1);
}

#[test]
fn concurrent_changes_do_not_exceed_a_limit_together() {
    let cluster = limited();
    let ids = ["ns:a", "ns:b", "ns:c", "ns:d"]
        .map(|name| cluster.master().create_table(table(name), vec![Bytes::from("m")], NO_NONCE));
    let made = ids.map(|id| cluster.run(|_| id)).into_iter().filter(Result::is_ok).count();
    assert_eq!(made, 2);
}

#[test]
fn limits_are_checked_when_a_namespace_is_made_and_apply_only_with_quotas() {
    let cluster = Cluster::new();
    let make = |tables, regions| {
        let namespace = namespace(tables, regions);
        cluster.run(|master| master.create_namespace(namespace.clone(), NO_NONCE)).map(drop)
    };
    assert_eq!(make("0", "1").expect_err("refused").kind(), ErrorKind::Constraint);
    assert_eq!(make("x", "1").expect_err("refused").kind(), ErrorKind::DoNotRetry);
    make("1", "1").expect("made");
    let modify = namespace("1", "0");
    let error = cluster.run(|master| master.modify_namespace(modify, NO_NONCE)).expect_err("refused");
    assert_eq!(error.message(), "The max region quota for ns is less than or equal to zero.");
    create(&cluster, "ns:a", &["m"]).expect("quotas are off");
    create(&cluster, "ns:b", &[]).expect("quotas are off");
}
