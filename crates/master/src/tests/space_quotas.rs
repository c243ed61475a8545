//! Quotas of space: which state each size leads to, what is stored, and what a removal leaves.

use evenkeel_common::quota::space::{Policy, SpaceUse};
use evenkeel_common::quota::{self, QuotaTarget};

use super::*;
use crate::quotas::chore::Stop;

fn name(name: &str) -> TableName {
    name.parse().expect("legal")
}

/// A cluster with quotas and a table of one region.
fn with_table(table: &str) -> Cluster {
    let cluster = Cluster::with_quotas();
    create(&cluster, table);
    cluster
}

fn create(cluster: &Cluster, table: &str) {
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    let table = TableDescriptor::new(name(table)).with_family(family);
    cluster.run(|master| master.create_table(table.clone(), Vec::new(), NO_NONCE)).expect("made");
}

/// Writes a store file of at least `bytes`.
fn fill(cluster: &Cluster, table: &str, row: &str, bytes: usize) {
    let region = cluster.region_in(&name(table), row);
    let value: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
    let cell = KeyValue::put(row.as_bytes(), b"f", b"q", LATEST_TIMESTAMP, &value);
    region
        .mutate_wait(Mutation::new(MutationKind::Put, row.as_bytes().to_vec(), vec![cell]))
        .expect("written");
    region.flush().expect("flushed");
}

fn request(target: &QuotaTarget, quota: pb::SpaceQuota) -> pb::SetQuotaRequest {
    let mut request = pb::SetQuotaRequest {
        space_limit: Some(pb::SpaceLimitRequest { quota: Some(quota) }),
        ..Default::default()
    };
    match target {
        QuotaTarget::Table(table) => request.table_name = Some(table.into()),
        QuotaTarget::Namespace(namespace) => request.namespace = Some(namespace.clone()),
        other => panic!("{other:?} has no quota of space"),
    }
    request
}

fn limit(cluster: &Cluster, target: &QuotaTarget, bytes: u64, policy: Policy) {
    let quota =
        pb::SpaceQuota { soft_limit: Some(bytes), violation_policy: Some(policy.into()), remove: None };
    cluster.master().set_quota(&request(target, quota)).expect("set");
}

fn remove(cluster: &Cluster, target: &QuotaTarget) {
    let quota = pb::SpaceQuota { remove: Some(true), ..Default::default() };
    cluster.master().set_quota(&request(target, quota)).expect("removed");
}

fn table(table: &str) -> QuotaTarget {
    QuotaTarget::Table(name(table))
}

fn observe(cluster: &Cluster) {
    cluster.master().report_region_sizes();
    cluster.master().observe_space();
}

/// The use of a table in hbase:quota.
fn stored(cluster: &Cluster, table: &str) -> Option<SpaceUse> {
    let row = QuotaTarget::Table(name(table)).row();
    let cells = cluster.regions_of(&name("hbase:quota"))[0].get(Scan::get(row)).expect("read");
    let cell = cells.iter().find(|cell| (cell.family(), cell.qualifier()) == (b"u", b"p"))?;
    Some(SpaceUse::decode(cell.value()).expect("decodes"))
}

/// The policy that the RegionServer enforces.
fn enforced(cluster: &Cluster, table: &str) -> Option<Policy> {
    let server = &cluster.master().parts.regionserver;
    server.space_quotas().expect("enabled").policy_of(&name(table))
}

fn state(cluster: &Cluster, table: &str) -> TableState {
    cluster.master().table(&name(table)).expect("there").state
}

/// Waits for a change that a quota causes.
fn wait_for_state(cluster: &Cluster, table: &str, wanted: TableState) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while state(cluster, table) != wanted {
        assert!(Instant::now() < deadline, "{table} becomes {wanted:?}");
        std::thread::yield_now();
    }
}

#[test]
fn a_table_exceeds_its_quota_until_the_limit_is_raised_or_removed() {
    let cluster = with_table("t");
    limit(&cluster, &table("t"), 2000, Policy::NoInserts);
    observe(&cluster);
    let empty = SpaceUse { violated: None, used_bytes: 0, limit_bytes: 2000 };
    assert_eq!(stored(&cluster, "t"), Some(empty));
    fill(&cluster, "t", "a", 3000);
    observe(&cluster);
    let used = stored(&cluster, "t").expect("stored");
    assert_eq!((used.violated, used.limit_bytes), (Some(Policy::NoInserts), 2000));
    assert!(used.used_bytes > 3000, "{used:?}");
    assert_eq!(enforced(&cluster, "t"), Some(Policy::NoInserts));

    limit(&cluster, &table("t"), 2000, Policy::NoWrites);
    observe(&cluster);
    assert_eq!(enforced(&cluster, "t"), Some(Policy::NoWrites), "a new policy replaces the old one");
    limit(&cluster, &table("t"), 1 << 20, Policy::NoWrites);
    observe(&cluster);
    let used = stored(&cluster, "t").expect("stored");
    assert_eq!((used.violated, used.limit_bytes), (None, 1 << 20));
    assert_eq!(enforced(&cluster, "t"), None);

    for _ in 0..2 {
        limit(&cluster, &table("t"), 10, Policy::NoWrites);
        observe(&cluster);
        assert_eq!(enforced(&cluster, "t"), Some(Policy::NoWrites), "also when it is set again");
        remove(&cluster, &table("t"));
        assert_eq!((stored(&cluster, "t"), enforced(&cluster, "t")), (None, None), "removed at once");
        observe(&cluster);
        assert_eq!(stored(&cluster, "t"), None);
        assert!(cluster.master().quota_states().table_snapshots.is_empty());
    }
}

#[test]
fn sizes_and_states_are_reported_to_clients() {
    let cluster = with_table("t");
    fill(&cluster, "t", "a", 3000);
    limit(&cluster, &table("t"), 2000, Policy::NoWrites);
    limit(&cluster, &QuotaTarget::Namespace("default".into()), 1 << 30, Policy::NoInserts);
    observe(&cluster);
    let sizes = cluster.master().space_quota_region_sizes().sizes;
    let size = |wanted: &str| {
        let found = sizes.iter().find(|size| {
            size.table_name.as_ref().is_some_and(|table| TableName::try_from(table) == Ok(name(wanted)))
        });
        found.expect("reported").size()
    };
    assert!(size("t") > 3000 && size("hbase:namespace") < size("t"));
    let states = cluster.master().quota_states();
    let [of_table] = &states.table_snapshots[..] else { panic!("{states:?}") };
    let of_table = SpaceUse::from_message(&of_table.snapshot.expect("set"));
    assert_eq!((of_table.violated, of_table.used_bytes), (Some(Policy::NoWrites), size("t")));
    let [of_namespace] = &states.ns_snapshots[..] else { panic!("{states:?}") };
    assert_eq!(of_namespace.namespace(), "default");
    let of_namespace = SpaceUse::from_message(&of_namespace.snapshot.expect("set"));
    assert_eq!((of_namespace.violated, of_namespace.used_bytes), (None, size("t")));
}

#[test]
fn the_quota_of_a_namespace_concerns_tables_that_do_not_exceed_their_own() {
    let cluster = Cluster::with_quotas();
    let namespace = pb::NamespaceDescriptor { name: Bytes::from("ns"), configuration: Vec::new() };
    cluster.run(|master| master.create_namespace(namespace, NO_NONCE)).expect("made");
    for of in ["ns:a", "ns:b", "ns:c"] {
        create(&cluster, of);
        fill(&cluster, of, "a", 1000);
    }
    create(&cluster, "other");
    let target = QuotaTarget::Namespace("ns".into());
    limit(&cluster, &target, 2500, Policy::NoWrites);
    limit(&cluster, &table("ns:a"), 500, Policy::NoInserts);
    limit(&cluster, &table("ns:b"), 1 << 20, Policy::NoInserts);
    for _ in 0..2 {
        observe(&cluster);
        let policies = ["ns:a", "ns:b", "ns:c", "other"].map(|of| enforced(&cluster, of));
        assert_eq!(policies, [Some(Policy::NoInserts), Some(Policy::NoWrites), Some(Policy::NoWrites), None]);
    }
    create(&cluster, "ns:d");
    observe(&cluster);
    assert_eq!(enforced(&cluster, "ns:d"), Some(Policy::NoWrites), "a new table, too");
    remove(&cluster, &table("ns:a"));
    observe(&cluster);
    assert_eq!(enforced(&cluster, "ns:a"), Some(Policy::NoWrites));
    limit(&cluster, &target, 1 << 20, Policy::NoWrites);
    observe(&cluster);
    assert_eq!(["ns:a", "ns:b", "ns:c", "ns:d"].map(|of| enforced(&cluster, of)), [None; 4]);
    limit(&cluster, &target, 1, Policy::NoWrites);
    observe(&cluster);
    remove(&cluster, &target);
    assert_eq!(["ns:a", "ns:c", "ns:d"].map(|of| stored(&cluster, of)), [None; 3]);
    let own = stored(&cluster, "ns:b").expect("it has a quota of its own");
    assert_eq!((own.violated, own.limit_bytes, enforced(&cluster, "ns:b")), (None, 1 << 20, None));
    observe(&cluster);
    assert_eq!(cluster.master().quota_states().ns_snapshots, []);
}

#[test]
fn a_quota_disables_a_table_and_enables_it_when_it_is_raised_or_removed() {
    let mut cluster = with_table("t");
    fill(&cluster, "t", "a", 3000);
    for removes in [true, false] {
        limit(&cluster, &table("t"), 1000, Policy::Disable);
        observe(&cluster);
        wait_for_state(&cluster, "t", TableState::Disabled);
        let error = cluster.master().enable_table_by_client(name("t"), NO_NONCE).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::AccessDenied);
        assert_eq!(error.message(), "Enabling the table 't' is disallowed due to a violated space quota.");
        // The sizes of its regions stay, although nothing reports them.
        cluster.clock.advance_ms(24 * 3_600_000);
        observe(&cluster);
        assert_eq!(enforced(&cluster, "t"), Some(Policy::Disable));
        assert_eq!(state(&cluster, "t"), TableState::Disabled);
        if removes {
            remove(&cluster, &table("t"));
            assert_eq!(state(&cluster, "t"), TableState::Enabled, "before the removal is answered");
        } else {
            cluster.end();
            cluster.start();
            cluster.ensure_quota_table();
            observe(&cluster);
            assert_eq!(state(&cluster, "t"), TableState::Disabled, "a restart changes nothing");
            limit(&cluster, &table("t"), 1 << 20, Policy::Disable);
            observe(&cluster);
            wait_for_state(&cluster, "t", TableState::Enabled);
        }
    }
}

#[test]
fn a_table_whose_size_is_not_known_is_within_its_quota() {
    let cluster = with_table("t");
    fill(&cluster, "t", "a", 3000);
    limit(&cluster, &table("t"), 1000, Policy::NoWrites);
    cluster.master().observe_space();
    assert_eq!((stored(&cluster, "t"), enforced(&cluster, "t")), (None, None), "nothing was reported");
    observe(&cluster);
    assert_eq!(enforced(&cluster, "t"), Some(Policy::NoWrites));
    // No report for longer than sizes are kept.
    cluster.clock.advance_ms(600_001);
    cluster.master().observe_space();
    cluster.master().observe_space();
    assert_eq!(enforced(&cluster, "t"), None);
    assert_eq!(stored(&cluster, "t").map(|used| used.violated), Some(None));
}

#[test]
fn a_restart_enforces_what_is_stored_and_a_lost_table_is_forgotten() {
    let mut cluster = with_table("t");
    fill(&cluster, "t", "a", 3000);
    limit(&cluster, &table("t"), 1000, Policy::NoWrites);
    observe(&cluster);
    cluster.crash();
    cluster.ensure_quota_table();
    assert_eq!(enforced(&cluster, "t"), Some(Policy::NoWrites));
    for _ in 0..2 {
        cluster.master().observe_space();
        assert_eq!(enforced(&cluster, "t"), Some(Policy::NoWrites), "nothing was reported yet");
    }
    // Once its size was known, it counts as within its quota when it no longer is.
    observe(&cluster);
    cluster.clock.advance_ms(600_001);
    cluster.master().observe_space();
    assert_eq!(enforced(&cluster, "t"), None);
    cluster.run(|master| master.disable_table(name("t"), NO_NONCE)).expect("disabled");
    cluster.run(|master| master.delete_table(name("t"), NO_NONCE)).expect("deleted");
    assert_eq!((stored(&cluster, "t"), enforced(&cluster, "t")), (None, None));
    create(&cluster, "t");
    observe(&cluster);
    assert_eq!(stored(&cluster, "t"), None, "the quota is removed with the table");
}

#[test]
fn a_limit_of_requests_stays_when_that_of_space_is_removed() {
    let cluster = with_table("t");
    fill(&cluster, "t", "a", 3000);
    let limit_requests = pb::SetQuotaRequest {
        table_name: Some((&name("t")).into()),
        throttle: Some(pb::ThrottleRequest {
            r#type: Some(pb::ThrottleType::RequestNumber.into()),
            timed_quota: Some(pb::TimedQuota {
                time_unit: pb::TimeUnit::Seconds.into(),
                soft_limit: Some(1000),
                ..Default::default()
            }),
        }),
        ..Default::default()
    };
    cluster.master().set_quota(&limit_requests).expect("set");
    limit(&cluster, &table("t"), 1000, Policy::NoWrites);
    observe(&cluster);
    assert_eq!(enforced(&cluster, "t"), Some(Policy::NoWrites));
    remove(&cluster, &table("t"));
    assert_eq!((stored(&cluster, "t"), enforced(&cluster, "t")), (None, None));
    let left = cluster.master().read_quotas(&table("t")).expect("read").expect("the limit of requests");
    assert!(left.throttle.is_some() && left.space.is_none());
}

/// The sizes in hbase:quota, by row and qualifier.
fn sizes(cluster: &Cluster) -> Vec<(String, u64)> {
    let region = &cluster.regions_of(&name("hbase:quota"))[0];
    let mut scanner = region.scanner(Scan::default()).expect("opened");
    let mut cells = CellBuffer::new();
    while scanner.next(&mut cells, &mut ScannerContext::unlimited()).expect("read").has_more() {}
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    let of_sizes = cells.iter().filter(|cell| cell.qualifier().starts_with(b"ss"));
    of_sizes
        .map(|cell| {
            let at = format!("{} {}", text(cell.row()), text(cell.qualifier()));
            (at, evenkeel_common::quota::space::decode_size(cell.value()).expect("decodes"))
        })
        .collect()
}

#[test]
fn snapshots_count_with_the_files_that_only_they_have() {
    let cluster = with_table("t");
    fill(&cluster, "t", "a", 3000);
    let take = |snapshot: &str| {
        let wanted = pb::SnapshotDescription {
            name: snapshot.into(),
            table: Some("t".into()),
            ..pb::SnapshotDescription::default()
        };
        cluster.run(|master| master.take_snapshot(wanted.clone(), NO_NONCE)).expect("taken");
    };
    let measure = || {
        let (_run, stop) = Stop::pair();
        cluster.master().measure_snapshots(&stop);
        sizes(&cluster)
    };
    take("s1");
    take("s2");
    assert_eq!(measure(), [], "no quota");
    limit(&cluster, &table("t"), 1000, Policy::NoInserts);
    let zero = |at: &str| (at.to_owned(), 0);
    assert_eq!(measure(), [zero("n.default ss"), zero("t.t sss1"), zero("t.t sss2")]);
    fill(&cluster, "t", "b", 10);
    let region = cluster.region_in(&name("t"), "a");
    region.compact(None, true).expect("compacted");
    region.archive_compacted().expect("archived");
    let found = measure();
    let [(_, of_namespace), (_, first), (_, second)] = found[..] else { panic!("{found:?}") };
    assert!(first > 3000 && second == 0, "a file counts for one snapshot: {found:?}");
    assert_eq!(of_namespace, first);
    observe(&cluster);
    let used = stored(&cluster, "t").expect("stored").used_bytes;
    assert_eq!(used, region.own_file_bytes() + first);

    cluster.master().delete_snapshot("s1").expect("deleted");
    assert_eq!(measure(), [("n.default ss".to_owned(), first), ("t.t sss2".to_owned(), first)]);
    cluster.master().delete_snapshot("s2").expect("deleted");
    assert_eq!(measure(), []);
}

#[test]
fn a_failed_write_of_a_state_is_tried_again() {
    let cluster = with_table("t");
    fill(&cluster, "t", "a", 3000);
    limit(&cluster, &table("t"), 1000, Policy::NoWrites);
    cluster.fs.inject(Fault::on(Op::Sync, "WALs").always());
    observe(&cluster);
    cluster.fs.clear();
    assert_eq!(enforced(&cluster, "t"), None);
    observe(&cluster);
    assert_eq!(enforced(&cluster, "t"), Some(Policy::NoWrites));
    remove(&cluster, &table("t"));

    let target = namespace("default");
    limit(&cluster, &target, 1000, Policy::NoWrites);
    observe(&cluster);
    assert_eq!(enforced(&cluster, "t"), Some(Policy::NoWrites));
    limit(&cluster, &target, 1 << 20, Policy::NoWrites);
    cluster.fs.inject(Fault::on(Op::Sync, "WALs").always());
    observe(&cluster);
    cluster.fs.clear();
    assert_eq!(enforced(&cluster, "t"), Some(Policy::NoWrites));
    observe(&cluster);
    assert_eq!(enforced(&cluster, "t"), None, "also when the policy of a namespace ends");
}

fn namespace(name: &str) -> QuotaTarget {
    QuotaTarget::Namespace(name.into())
}

fn limit_requests(cluster: &Cluster, table: &str, units: Option<u64>) {
    let limit = |units| pb::TimedQuota {
        time_unit: pb::TimeUnit::Seconds.into(),
        soft_limit: Some(units),
        ..Default::default()
    };
    let request = pb::SetQuotaRequest {
        table_name: Some((&name(table)).into()),
        throttle: Some(pb::ThrottleRequest {
            r#type: Some(pb::ThrottleType::RequestNumber.into()),
            timed_quota: units.map(limit),
        }),
        ..Default::default()
    };
    cluster.master().set_quota(&request).expect("set");
}

#[test]
fn a_namespaces_policy_stays_when_the_limits_on_requests_to_a_table_change() {
    let cluster = with_table("t");
    fill(&cluster, "t", "a", 3000);
    limit(&cluster, &namespace("default"), 1000, Policy::Disable);
    observe(&cluster);
    assert_eq!(enforced(&cluster, "t"), Some(Policy::Disable));
    assert_eq!(state(&cluster, "t"), TableState::Enabled, "that of a namespace disables no table");
    cluster.run(|master| master.disable_table(name("t"), NO_NONCE)).expect("disabled");
    for units in [Some(1000), None] {
        limit_requests(&cluster, "t", units);
        assert_eq!(enforced(&cluster, "t"), Some(Policy::Disable), "{units:?}");
        assert_eq!(stored(&cluster, "t").and_then(|used| used.violated), Some(Policy::Disable));
        assert_eq!(state(&cluster, "t"), TableState::Disabled, "its administrator has disabled it");
    }
    assert_eq!(cluster.master().read_quotas(&table("t")), Ok(None));
    remove(&cluster, &namespace("default"));
    assert_eq!((stored(&cluster, "t"), state(&cluster, "t")), (None, TableState::Disabled));
}

#[test]
fn a_table_that_cannot_be_enabled_keeps_its_quota_until_it_can() {
    let mut cluster = with_table("t");
    fill(&cluster, "t", "a", 3000);
    for is_removed in [true, false] {
        limit(&cluster, &table("t"), 1000, Policy::Disable);
        observe(&cluster);
        wait_for_state(&cluster, "t", TableState::Disabled);
        cluster.fs.inject(Fault::on_any("data/default/t/").always());
        if is_removed {
            let quota = pb::SpaceQuota { remove: Some(true), ..Default::default() };
            cluster.master().set_quota(&request(&table("t"), quota)).expect_err("the table is not enabled");
            assert!(cluster.master().read_quotas(&table("t")).expect("read").is_some());
        } else {
            limit(&cluster, &table("t"), 1 << 20, Policy::NoWrites);
            observe(&cluster);
        }
        cluster.fs.clear();
        assert_eq!(state(&cluster, "t"), TableState::Disabled);
        assert_eq!(stored(&cluster, "t").and_then(|used| used.violated), Some(Policy::Disable));
        if is_removed {
            remove(&cluster, &table("t"));
            assert_eq!((stored(&cluster, "t"), enforced(&cluster, "t")), (None, None));
        } else {
            cluster.crash();
            cluster.ensure_quota_table();
            observe(&cluster);
            assert_eq!(enforced(&cluster, "t"), None);
        }
        assert_eq!(state(&cluster, "t"), TableState::Enabled);
    }
}

#[test]
fn a_table_is_disabled_by_one_procedure() {
    let cluster = with_table("t");
    fill(&cluster, "t", "a", 3000);
    limit(&cluster, &table("t"), 1000, Policy::Disable);
    let lock = cluster.master().lock_table(&name("t")).expect("locked");
    (0..3).for_each(|_| observe(&cluster));
    assert_eq!(state(&cluster, "t"), TableState::Enabled);
    limit(&cluster, &table("t"), 1 << 20, Policy::Disable);
    observe(&cluster);
    drop(lock);
    wait_for_state(&cluster, "t", TableState::Disabled);
    let all = cluster.master().procedures.all();
    let is_disable = |kind: &str| kind == "DisableTableProcedure";
    assert_eq!(all.iter().filter(|(_, state)| is_disable(state.kind)).count(), 1);
    while cluster.master().procedures.all().iter().any(|(_, state)| state.outcome.is_none()) {
        std::thread::yield_now();
    }
    observe(&cluster);
    assert_eq!((state(&cluster, "t"), enforced(&cluster, "t")), (TableState::Enabled, None));
}

#[test]
fn a_truncated_table_uses_nothing() {
    let cluster = with_table("t");
    fill(&cluster, "t", "a", 3000);
    limit(&cluster, &table("t"), 1000, Policy::Disable);
    observe(&cluster);
    wait_for_state(&cluster, "t", TableState::Disabled);
    cluster.run(|master| master.truncate_table(name("t"), true, NO_NONCE)).expect("truncated");
    for _ in 0..2 {
        observe(&cluster);
        assert_eq!((state(&cluster, "t"), enforced(&cluster, "t")), (TableState::Enabled, None));
    }
    assert_eq!(stored(&cluster, "t").map(|used| used.used_bytes), Some(0));
}

/// Writes a cell of hbase:quota.
fn write_quota_cell(cluster: &Cluster, row: &str, family: &[u8], qualifier: &[u8], value: &[u8]) {
    let region = &cluster.regions_of(&name("hbase:quota"))[0];
    let cell = KeyValue::put(row.as_bytes(), family, qualifier, cluster.clock.now_ms() + 1, value);
    region
        .mutate_wait(Mutation::new(MutationKind::Put, row.as_bytes().to_vec(), vec![cell]))
        .expect("written");
    cluster.clock.advance_ms(10);
}

#[test]
fn quotas_that_cannot_be_decoded_change_no_policy() {
    let cluster = with_table("t");
    fill(&cluster, "t", "a", 3000);
    limit(&cluster, &table("t"), 1000, Policy::NoWrites);
    observe(&cluster);
    let quota = pb::SpaceQuota { soft_limit: Some(1), violation_policy: Some(99), remove: None };
    let unknown = quota::encode(&pb::Quotas { space: Some(quota), ..Default::default() });
    for damaged in [&b"garbage"[..], &unknown] {
        write_quota_cell(&cluster, "t.t", b"q", b"s", damaged);
        observe(&cluster);
        assert_eq!(enforced(&cluster, "t"), Some(Policy::NoWrites), "{damaged:?}");
    }
    limit_requests(&cluster, "other", Some(1));
    write_quota_cell(&cluster, "t.t", b"q", b"s", &quota::encode(&pb::Quotas::default()));
    observe(&cluster);
    assert_eq!((stored(&cluster, "t"), enforced(&cluster, "t")), (None, None), "no quota has this state");
}

#[test]
fn an_unreadable_snapshot_keeps_its_size() {
    let cluster = with_table("t");
    fill(&cluster, "t", "a", 3000);
    let wanted = pb::SnapshotDescription { name: "s".into(), table: Some("t".into()), ..Default::default() };
    cluster.run(|master| master.take_snapshot(wanted.clone(), NO_NONCE)).expect("taken");
    limit(&cluster, &table("t"), 1000, Policy::NoInserts);
    fill(&cluster, "t", "b", 10);
    let region = cluster.region_in(&name("t"), "a");
    region.compact(None, true).expect("compacted");
    region.archive_compacted().expect("archived");
    let (run, stop) = Stop::pair();
    cluster.master().measure_snapshots(&stop);
    let before = sizes(&cluster);
    assert!(before.len() == 2 && before.iter().all(|(_, bytes)| *bytes > 3000), "{before:?}");
    cluster.fs.inject(Fault::on_any("data.manifest").always());
    cluster.master().measure_snapshots(&stop);
    cluster.fs.clear();
    assert_eq!(sizes(&cluster), before);

    remove(&cluster, &table("t"));
    cluster.master().measure_snapshots(&stop);
    assert_eq!(sizes(&cluster), []);
    limit(&cluster, &table("t"), 1000, Policy::NoInserts);
    drop(run);
    cluster.master().measure_snapshots(&stop);
    assert_eq!(sizes(&cluster), [], "it is stopped");
}

#[test]
fn clients_enable_tables_that_no_stored_policy_disables() {
    let cluster = with_table("t");
    fill(&cluster, "t", "a", 3000);
    let enable = |nonce| cluster.master().enable_table_by_client(name("t"), nonce);
    cluster.run(|master| master.disable_table(name("t"), NO_NONCE)).expect("disabled");
    let first = enable((1, 2)).expect("submitted");
    wait_for_state(&cluster, "t", TableState::Enabled);
    limit(&cluster, &table("t"), 1000, Policy::Disable);
    observe(&cluster);
    wait_for_state(&cluster, "t", TableState::Disabled);
    assert_eq!(enable((1, 2)), Ok(first), "a repeated request");
    let refused = |nonce| enable(nonce).expect_err("refused").kind();
    assert_eq!(refused((1, 3)), ErrorKind::AccessDenied);
    // The RegionServer may not have read the policy.
    let space = cluster.master().parts.regionserver.space_quotas().expect("enabled");
    space.install(Default::default());
    assert_eq!(refused(NO_NONCE), ErrorKind::AccessDenied);
    let system = cluster.master().enable_table_by_client(name("hbase:namespace"), NO_NONCE);
    assert_ne!(system.expect_err("it is enabled").kind(), ErrorKind::AccessDenied);
}
