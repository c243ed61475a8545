//! The native client against a whole server: every operation, over several regions.
//!
//! With `EVENKEEL_TEST_BOOTSTRAP=host:port` it runs against that cluster instead, such as stock
//! HBase, to verify that the suite expects HBase's behaviour.

use std::collections::BTreeSet;

use bytes::Bytes;
use evenkeel_client::{
    Action, Admin, Append, CheckAndMutate, CompareOp, Connection, Delete, Error, Get, Increment, Put,
    RowMutations, RowResult, Scan, Table, TableState,
};
use evenkeel_common::{ColumnFamilyDescriptor, ErrorKind, TableDescriptor, TableName};
use tokio::task::JoinSet;

use crate::common::{Server, block_on, config};

/// A connection, and the server if the test started one.
async fn cluster() -> (Option<Server>, Connection) {
    match std::env::var("EVENKEEL_TEST_BOOTSTRAP") {
        Ok(bootstrap) => (None, Connection::connect(config(&bootstrap)).await.expect("the cluster answers")),
        Err(_) => {
            let server = Server::started(&[]);
            let connection = server.connect().await;
            (Some(server), connection)
        }
    }
}

fn family(name: &str) -> ColumnFamilyDescriptor {
    ColumnFamilyDescriptor::new(name.as_bytes()).expect("legal").with("VERSIONS", "3")
}

fn descriptor(name: &TableName) -> TableDescriptor {
    TableDescriptor::new(name.clone()).with_family(family("f")).with_family(family("g"))
}

fn keys(names: &[&str]) -> Vec<Bytes> {
    names.iter().map(|n| Bytes::copy_from_slice(n.as_bytes())).collect()
}

/// Creates a table; first drops that of an earlier run.
async fn fresh(admin: &Admin, name: &str, splits: &[&str]) -> TableName {
    let name: TableName = name.parse().expect("legal");
    drop_table(admin, &name).await;
    admin.create_table(&descriptor(&name), &keys(splits)).await.expect("created");
    name
}

async fn drop_table(admin: &Admin, name: &TableName) {
    match admin.table_state(name).await.expect("a state") {
        None => return,
        Some(TableState::Enabled) => admin.disable_table(name).await.expect("disabled"),
        Some(_) => {}
    }
    admin.delete_table(name).await.expect("deleted");
}

fn row(result: &RowResult) -> String {
    String::from_utf8(result.row().unwrap_or_default().to_vec()).expect("text")
}

async fn rows(table: &Table, scan: Scan) -> Vec<String> {
    let mut scanner = table.scan(scan);
    let mut rows = Vec::new();
    while let Some(batch) = scanner.next_batch().await.expect("a batch") {
        rows.extend(batch.iter().map(row));
    }
    rows
}

#[test]
fn rows_are_written_read_and_deleted() {
    block_on(async {
        let (_server, connection) = cluster().await;
        let table = connection.table(fresh(&connection.admin(), "rows", &["m"]).await);
        assert!(table.get(Get::new("a")).await.expect("a result").is_empty());
        assert!(!table.exists(Get::new("a")).await.expect("a reply"));
        for row in ["a", "z"] {
            let put = Put::new(row).column("f", "q", "1").column("g", "q", "2").column_at("f", "old", 5, "3");
            table.put(put).await.expect("written");
        }
        let result = table.get(Get::new("z")).await.expect("a result");
        assert_eq!((result.value("f", "q"), result.value("g", "q")), (Some(&b"1"[..]), Some(&b"2"[..])));
        assert_eq!(result.cells().len(), 3);
        assert!(table.exists(Get::new("z").column("g", "q")).await.expect("a reply"));
        let old = table.get(Get::new("a").time_range(0, 6)).await.expect("a result");
        assert_eq!(old.cells().len(), 1);
        table.delete(Delete::new("a").family("f")).await.expect("deleted");
        let result = table.get(Get::new("a")).await.expect("a result");
        assert_eq!((result.value("f", "q"), result.value("g", "q")), (None, Some(&b"2"[..])));
        table.delete(Delete::new("z")).await.expect("deleted");
        assert!(table.get(Get::new("z")).await.expect("a result").is_empty());
    });
}

#[test]
fn versions_come_newest_first() {
    block_on(async {
        let (_server, connection) = cluster().await;
        let table = connection.table(fresh(&connection.admin(), "versions", &[]).await);
        for ts in [3, 1, 4, 2] {
            table.put(Put::new("r").column_at("f", "q", ts, ts.to_string())).await.expect("written");
        }
        let all = table.get(Get::new("r").max_versions(9)).await.expect("a result");
        let stamps: Vec<_> = all.cells().iter().map(|c| c.as_cell().timestamp()).collect();
        assert_eq!(stamps, [4, 3, 2]);
        table.delete(Delete::new("r").newest("f", "q")).await.expect("deleted");
        assert_eq!(table.get(Get::new("r")).await.expect("a result").value("f", "q"), Some(&b"3"[..]));
        table.delete(Delete::new("r").column_up_to("f", "q", 3)).await.expect("deleted");
        assert!(table.get(Get::new("r")).await.expect("a result").is_empty());
    });
}

#[test]
fn scans_cross_regions_in_both_directions() {
    block_on(async {
        let (_server, connection) = cluster().await;
        let table = connection.table(fresh(&connection.admin(), "scans", &["03", "05", "08"]).await);
        let all: Vec<_> = (0..10).map(|i| format!("{i:02}")).collect();
        let puts = all.iter().map(|r| Put::new(r).column("f", "q", r).column("g", "q", r));
        table.put_all(puts).await.expect("written");
        let backwards = |rows: &[String]| rows.iter().rev().cloned().collect::<Vec<_>>();
        assert_eq!(rows(&table, Scan::new()).await, all);
        assert_eq!(rows(&table, Scan::new().caching(1)).await, all);
        assert_eq!(rows(&table, Scan::new().reversed()).await, backwards(&all));
        assert_eq!(rows(&table, Scan::new().reversed().caching(1)).await, backwards(&all));
        assert_eq!(rows(&table, Scan::new().from("03").to("08")).await, all[3..8]);
        assert_eq!(rows(&table, Scan::new().from_exclusive("03").to_inclusive("08")).await, all[4..9]);
        assert_eq!(rows(&table, Scan::new().from("05").to_inclusive("05")).await, all[5..6]);
        assert_eq!(rows(&table, Scan::new().reversed().from("08").to("03")).await, backwards(&all[4..9]));
        let backwards_open = Scan::new().reversed().from_exclusive("08").to_inclusive("03");
        assert_eq!(rows(&table, backwards_open).await, backwards(&all[3..8]));
        for limit in [0, 1, 3, 4, 10, 11] {
            let expect = &all[..(limit as usize).min(10)];
            assert_eq!(rows(&table, Scan::new().limit(limit)).await, expect, "limit {limit}");
            assert_eq!(rows(&table, Scan::new().limit(limit).caching(2)).await, expect, "limit {limit}");
        }
        assert_eq!(rows(&table, Scan::new().family("g").limit(2)).await, all[..2]);
    });
}

#[test]
fn a_scan_gives_large_rows_whole() {
    block_on(async {
        let (_server, connection) = cluster().await;
        let table = connection.table(fresh(&connection.admin(), "large", &["b"]).await);
        // Each row is larger than one response of a scan, so it arrives in parts.
        for row in ["a", "b", "c"] {
            let wide = (0..6).fold(Put::new(row), |put, i| put.column("f", format!("{i}"), vec![i; 700_000]));
            table.put(wide).await.expect("written");
        }
        for scan in [Scan::new(), Scan::new().reversed()] {
            let mut scanner = table.scan(scan);
            let mut seen = Vec::new();
            while let Some(result) = scanner.next().await.expect("a row") {
                assert_eq!(result.cells().len(), 6, "row {}", row(&result));
                seen.push(row(&result));
            }
            seen.sort();
            assert_eq!(seen, ["a", "b", "c"]);
        }
        let mut scanner = table.scan(Scan::new());
        assert!(scanner.next().await.expect("a row").is_some());
        scanner.close().await;
    });
}

#[test]
fn a_scan_continues_across_a_flush() {
    block_on(async {
        let (_server, connection) = cluster().await;
        let admin = connection.admin();
        let name = fresh(&admin, "flushed", &["05"]).await;
        let table = connection.table(name.clone());
        let all: Vec<_> = (0..10).map(|i| format!("{i:02}")).collect();
        table.put_all(all.iter().map(|r| Put::new(r).column("f", "q", r))).await.expect("written");
        let mut scanner = table.scan(Scan::new().caching(2));
        let mut seen = vec![row(&scanner.next().await.expect("a row").expect("a first row"))];
        admin.flush_table(&name).await.expect("flushed");
        while let Some(result) = scanner.next().await.expect("a row") {
            seen.push(row(&result));
        }
        assert_eq!(seen, all);
    });
}

#[test]
fn counters_and_appends_answer_with_new_values() {
    block_on(async {
        let (_server, connection) = cluster().await;
        let table = connection.table(fresh(&connection.admin(), "counters", &[]).await);
        let add = |n| Increment::new("r").column("f", "n", n).column("g", "m", 1);
        assert_eq!(table.increment(add(5)).await.expect("added").counter("f", "n"), Some(5));
        let result = table.increment(add(-7)).await.expect("added");
        assert_eq!((result.counter("f", "n"), result.counter("g", "m")), (Some(-2), Some(2)));
        let append = || Append::new("r").column("f", "s", "ab");
        table.append(append()).await.expect("appended");
        assert_eq!(table.append(append()).await.expect("appended").value("f", "s"), Some(&b"abab"[..]));
        let wrong = table.increment(Increment::new("r").column("f", "s", 1)).await.expect_err("4 bytes");
        assert_eq!(wrong.kind(), Some(ErrorKind::DoNotRetry), "{wrong}");
    });
}

/// Many calls of one connection, which the server reads from its buffer together.
#[test]
fn concurrent_single_writes_succeed_or_fail_independently() {
    const WRITES: u32 = 500;
    let row = |n: u32| format!("row{:03}", n * 7 % WRITES);
    block_on(async {
        let (_server, connection) = cluster().await;
        let table = connection.table(fresh(&connection.admin(), "single", &["row1", "row25"]).await);
        table.get(Get::new("row000")).await.expect("the region is known");
        let mut calls = JoinSet::new();
        for n in 0..WRITES {
            let (table, counters) = (table.clone(), table.clone());
            calls.spawn(async move {
                let family = if n % 5 == 0 { "nosuch" } else { "f" };
                (n, table.put(Put::new(row(n)).column(family, "q", n.to_string())).await)
            });
            if n % 50 == 0 {
                calls.spawn(async move {
                    let delta = Increment::new("counter").column("f", "n", 1);
                    (WRITES, counters.increment(delta).await.map(drop))
                });
            }
        }
        while let Some(outcome) = calls.join_next().await {
            let (n, outcome) = outcome.expect("no call panics");
            match outcome {
                Ok(()) => assert!(n % 5 != 0 || n == WRITES, "{n}"),
                Err(error) => {
                    assert_eq!(
                        (n % 5, error.kind()),
                        (0, Some(ErrorKind::NoSuchColumnFamily)),
                        "{n}: {error}"
                    );
                }
            }
        }
        for n in 0..WRITES {
            let expected = (n % 5 != 0).then(|| n.to_string());
            let result = table.get(Get::new(row(n))).await.expect("a result");
            assert_eq!(result.value("f", "q"), expected.as_deref().map(str::as_bytes), "{n}");
        }
        let counter = table.get(Get::new("counter")).await.expect("a result");
        assert_eq!(counter.value("f", "n"), Some(&10u64.to_be_bytes()[..]));
    });
}

#[test]
fn check_and_mutate_applies_only_on_a_match() {
    block_on(async {
        let (_server, connection) = cluster().await;
        let table = connection.table(fresh(&connection.admin(), "checks", &[]).await);
        let put = |v: &str| Put::new("r").column("f", "q", v);
        let absent = || CheckAndMutate::if_absent("r", "f", "q").then(put("5"));
        assert!(table.check_and_mutate(absent()).await.expect("checked").success);
        assert!(!table.check_and_mutate(absent()).await.expect("checked").success);
        let when = |op, v: &str| CheckAndMutate::new("r", "f", "q", op, v).then(put("5"));
        for (op, value, holds) in [
            (CompareOp::Less, "6", true),
            (CompareOp::Less, "5", false),
            (CompareOp::LessOrEqual, "5", true),
            (CompareOp::Equal, "5", true),
            (CompareOp::NotEqual, "5", false),
            (CompareOp::GreaterOrEqual, "5", true),
            (CompareOp::Greater, "4", true),
            (CompareOp::Greater, "6", false),
        ] {
            let outcome = table.check_and_mutate(when(op, value)).await.expect("checked");
            assert_eq!(outcome.success, holds, "5 {op:?} {value}");
        }
        let both = CheckAndMutate::new("r", "f", "q", CompareOp::Equal, "5")
            .then(Put::new("r").column("g", "x", "1"))
            .then(Delete::new("r").column("f", "q"));
        assert!(table.check_and_mutate(both.clone()).await.expect("checked").success);
        assert!(!table.check_and_mutate(both).await.expect("checked").success);
        let result = table.get(Get::new("r")).await.expect("a result");
        assert_eq!((result.value("f", "q"), result.value("g", "x")), (None, Some(&b"1"[..])));
    });
}

#[test]
fn row_mutations_apply_together() {
    block_on(async {
        let (_server, connection) = cluster().await;
        let table = connection.table(fresh(&connection.admin(), "together", &["m"]).await);
        table.put(Put::new("r").column("f", "a", "1")).await.expect("written");
        let mutations = RowMutations::new("r")
            .with(Put::new("r").column("f", "b", "2").column("g", "c", "3"))
            .with(Delete::new("r").column("f", "a"));
        table.mutate_row(mutations).await.expect("made");
        let result = table.get(Get::new("r")).await.expect("a result");
        assert_eq!((result.value("f", "a"), result.value("g", "c")), (None, Some(&b"3"[..])));
        let bad = RowMutations::new("r")
            .with(Put::new("r").column("f", "d", "4"))
            .with(Put::new("r").column("nope", "d", "4"));
        let error = table.mutate_row(bad).await.expect_err("no such family");
        assert_eq!(error.kind(), Some(ErrorKind::NoSuchColumnFamily), "{error}");
        assert_eq!(table.get(Get::new("r")).await.expect("a result").value("f", "d"), None);
    });
}

#[test]
fn batches_answer_each_action() {
    block_on(async {
        let (_server, connection) = cluster().await;
        let table = connection.table(fresh(&connection.admin(), "batches", &["03", "06"]).await);
        let put = |i: usize| Put::new(format!("{:02}", i % 10)).column("f", format!("{i}"), format!("{i}"));
        let outcomes = table.batch((0..500).map(|i| put(i).into()).collect()).await;
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        let mixed: Vec<Action> = vec![
            Get::new("01").column("f", "11").into(),
            Put::new("02").column("nope", "q", "v").into(),
            Increment::new("08").column("g", "n", 2).into(),
            Put::new("").column("f", "q", "v").into(),
            Delete::new("04").into(),
            Get::new("05").column("f", "15").into(),
            Get::new("none").into(),
        ];
        let outcomes = table.batch(mixed).await;
        assert_eq!(outcomes[0].as_ref().expect("a result").value("f", "11"), Some(&b"11"[..]));
        assert_eq!(outcomes[1].as_ref().expect_err("a failure").kind(), Some(ErrorKind::NoSuchColumnFamily));
        assert_eq!(outcomes[2].as_ref().expect("a result").counter("g", "n"), Some(2));
        assert!(matches!(outcomes[3], Err(Error::InvalidArgument(_))));
        assert!(outcomes[4].is_ok());
        assert_eq!(outcomes[5].as_ref().expect("a result").value("f", "15"), Some(&b"15"[..]));
        assert!(outcomes[6].as_ref().expect("a result").is_empty());
        assert!(table.get(Get::new("04")).await.expect("a result").is_empty());
    });
}

#[test]
fn tables_are_created_altered_and_dropped() {
    block_on(async {
        let (_server, connection) = cluster().await;
        let admin = connection.admin();
        let name = fresh(&admin, "life", &["b", "d"]).await;
        let again = admin.create_table(&descriptor(&name), &[]).await.expect_err("it is there");
        assert_eq!(again.kind(), Some(ErrorKind::TableExists), "{again}");
        assert!(admin.list_tables().await.expect("names").contains(&name));
        let regions = admin.regions(&name).await.expect("regions");
        let starts: Vec<_> = regions.iter().map(|r| r.region.start_key().clone()).collect();
        assert_eq!(starts, keys(&["", "b", "d"]));
        let table = connection.table(name.clone());
        table.put_all(["a", "b", "c"].map(|r| Put::new(r).column("f", "q", r))).await.expect("written");

        admin.disable_table(&name).await.expect("disabled");
        assert_eq!(admin.table_state(&name).await.expect("a state"), Some(TableState::Disabled));
        let error = table.get(Get::new("a")).await.expect_err("disabled");
        assert!(matches!(error, Error::TableNotEnabled(_)), "{error}");
        admin.enable_table(&name).await.expect("enabled");
        assert_eq!(rows(&table, Scan::new()).await, ["a", "b", "c"]);

        let wider = admin.describe(&name).await.expect("described").with_family(family("h"));
        admin.modify_table(&wider).await.expect("changed");
        let changed = admin.describe(&name).await.expect("described");
        let families: BTreeSet<_> = changed.families().map(|f| f.name_text()).collect();
        assert_eq!(families, ["f", "g", "h"].map(String::from).into());
        table.put(Put::new("a").column("h", "q", "1")).await.expect("written");

        admin.flush_table(&name).await.expect("flushed");
        let region = admin.regions(&name).await.expect("regions").remove(0).region;
        admin.compact_region(&region, true).await.expect("asked");
        assert_eq!(rows(&table, Scan::new()).await, ["a", "b", "c"]);

        admin.disable_table(&name).await.expect("disabled");
        admin.truncate_table(&name, true).await.expect("emptied");
        assert_eq!(rows(&table, Scan::new()).await, Vec::<String>::new());
        assert_eq!(admin.regions(&name).await.expect("regions").len(), 3);
        admin.disable_table(&name).await.expect("disabled");
        admin.delete_table(&name).await.expect("deleted");
        assert_eq!(admin.table_state(&name).await.expect("a state"), None);
        let error = table.get(Get::new("a")).await.expect_err("gone");
        assert!(matches!(error, Error::TableNotFound(_)), "{error}");
    });
}

#[test]
fn a_split_moves_no_row() {
    block_on(async {
        let (_server, connection) = cluster().await;
        let admin = connection.admin();
        let name = fresh(&admin, "split", &[]).await;
        let table = connection.table(name.clone());
        let all: Vec<_> = (0..20).map(|i| format!("{i:02}")).collect();
        table.put_all(all.iter().map(|r| Put::new(r).column("f", "q", r))).await.expect("written");
        admin.flush_table(&name).await.expect("flushed");
        let region = admin.regions(&name).await.expect("regions").remove(0).region;
        admin.split_region(&region, Some("10".into())).await.expect("split");
        let regions = admin.regions(&name).await.expect("regions");
        let starts: Vec<_> = regions.iter().map(|r| r.region.start_key().clone()).collect();
        assert_eq!(starts, keys(&["", "10"]));
        assert_eq!(rows(&table, Scan::new()).await, all);
        assert_eq!(rows(&table, Scan::new().reversed().limit(1)).await, ["19"]);
        table.put(Put::new("05").column("f", "q", "x")).await.expect("written with an old location");
    });
}

#[test]
fn cluster_status_names_the_servers_and_the_id() {
    block_on(async {
        let (_server, connection) = cluster().await;
        assert_eq!(connection.cluster_id().len(), 36, "{}", connection.cluster_id());
        let status = connection.admin().cluster_status().await.expect("a status");
        assert_eq!(status.live_servers.len(), 1);
        let master = connection.active_master().await.expect("a master");
        assert_eq!(status.master.as_ref().map(|m| m.port()), Some(u32::from(master.port)));
        assert_eq!(status.cluster_id.map(|id| id.cluster_id).as_deref(), Some(connection.cluster_id()));
    });
}
