//! The operations of the native client, verified by the server's answers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use evenkeel_client::filter::{self, RowRange};
use evenkeel_client::{
    Admin, Append, CellBlockCodec, CheckAndMutate, ClientConfig, ClusterOption, ColumnFamilyDescriptor,
    Comparator, CompareOp, Connection, Consistency, Delete, Filter, Get, Increment, NamespaceDescriptor,
    Opened, Opener, Opening, Put, RowResult, Scan, SnapshotDescription, Table, TableDescriptor, TableName,
    TableState, Transport,
};
use evenkeel_common::{ErrorKind, KeyValue};
use evenkeel_protocol::pb;
use prost::Message;
use tokio::net::TcpStream;

use crate::{Site, connect};

pub async fn all(site: &Site) {
    let connection = connect(site.config()).await;
    let by_master = connect(site.config_by_master()).await;
    assert_eq!(connection.cluster_id(), by_master.cluster_id());
    assert_eq!(
        connection.active_master().await.expect("a master").port,
        by_master.active_master().await.expect("a master").port
    );
    stage("namespaces", namespaces(&connection.admin())).await;
    stage("schema", schema(&connection.admin())).await;
    let table = filled(&connection).await;
    stage("filters", filters(&table)).await;
    stage("checks", checks(&table)).await;
    stage("scans", scans(&table)).await;
    stage("writes", writes(&connection)).await;
    stage("replicas", replicas(site, &connection)).await;
    stage("sockets", sockets(site, &table)).await;
    stage("endpoints", endpoints(&connection)).await;
    stage("cluster", cluster(&connection.admin(), table.name())).await;
    stage("regions", regions(&connection.admin(), table.name())).await;
    stage("switches", switches(&connection.admin())).await;
    stage("snapshots", snapshots(&connection, &table)).await;
}

/// Runs a part of the suite with a time limit, so that a hanging one is named.
async fn stage(name: &str, part: impl Future<Output = ()>) {
    let start = std::time::Instant::now();
    let ended = tokio::time::timeout(Duration::from_secs(90), part).await;
    assert!(ended.is_ok(), "{name} does not end");
    println!("{name}: {:?}", start.elapsed());
}

pub fn family(name: &str) -> ColumnFamilyDescriptor {
    ColumnFamilyDescriptor::new(name.as_bytes()).expect("legal").with("VERSIONS", "3")
}

fn name(text: &str) -> TableName {
    text.parse().expect("legal")
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

async fn namespaces(admin: &Admin) {
    let named = |value: &str| NamespaceDescriptor::new("native").with("color", value);
    admin.create_namespace(&named("red")).await.expect("created");
    let again = admin.create_namespace(&named("red")).await.expect_err("it is there");
    assert_eq!(again.kind(), Some(ErrorKind::NamespaceExist), "{again}");
    admin.modify_namespace(&named("blue")).await.expect("changed");
    assert_eq!(admin.describe_namespace("native").await.expect("described"), named("blue"));
    let all = admin.list_namespaces().await.expect("listed");
    assert!(["default", "hbase", "native"].iter().all(|n| all.iter().any(|d| d.name == *n)), "{all:?}");
    let table = TableDescriptor::new(name("native:t")).with_family(family("f"));
    admin.create_table(&table, &[]).await.expect("created");
    assert_eq!(admin.list_namespace_tables("native").await.expect("listed"), [name("native:t")]);
    admin.disable_table(table.name()).await.expect("disabled");
    admin.delete_table(table.name()).await.expect("deleted");
    admin.delete_namespace("native").await.expect("deleted");
    let gone = admin.describe_namespace("native").await.expect_err("gone");
    assert_eq!(gone.kind(), Some(ErrorKind::NamespaceNotFound), "{gone}");
}

async fn schema(admin: &Admin) {
    let table = name("schema");
    let descriptor = TableDescriptor::new(table.clone()).with("MY_OWN", "kept").with_family(family("f"));
    admin.create_table(&descriptor, &["m".into()]).await.expect("created");
    admin.add_family(&table, &family("g").with("TTL", "100")).await.expect("added");
    admin.modify_family(&table, &family("g").with("TTL", "200")).await.expect("changed");
    let described = admin.describe(&table).await.expect("described");
    assert_eq!(described.family(b"g").and_then(|g| g.text("TTL")), Some("200"));
    assert_eq!(described.text("MY_OWN"), Some("kept"), "what nobody knows is kept");
    admin.delete_family(&table, b"g").await.expect("deleted");
    assert_eq!(admin.describe(&table).await.expect("described").families().len(), 1);
    assert_eq!(admin.alter_status(&table).await.expect("a status").0, 0);
    let matching = admin.list_tables_matching(Some("sch.*"), false).await.expect("listed");
    assert_eq!(matching, std::slice::from_ref(&table));
    assert_eq!(admin.describe_tables(Some("sch.*"), false).await.expect("described").len(), 1);
    assert!(admin.list_tables_matching(None, true).await.expect("listed").contains(&TableName::meta()));
    assert!(admin.is_table_enabled(&table).await.expect("an answer"));
    admin.disable_table(&table).await.expect("disabled");
    assert!(admin.is_table_disabled(&table).await.expect("an answer"));
    assert_eq!(admin.list_tables_by_state(false).await.expect("listed"), std::slice::from_ref(&table));
    admin.truncate_table(&table, true).await.expect("emptied");
    assert_eq!(admin.regions(&table).await.expect("regions").len(), 2);
    admin.disable_table(&table).await.expect("disabled");
    admin.delete_table(&table).await.expect("deleted");
    assert!(!admin.table_exists(&table).await.expect("an answer"));
    let foreign = TableDescriptor::new(name("foreign")).with_family(family("f"));
    let foreign = foreign.with("coprocessor$1", "|com.example.Observer|1001|");
    let refused = admin.create_table(&foreign, &[]).await.expect_err("no such class");
    assert_eq!(refused.kind(), Some(ErrorKind::DoNotRetry));
    assert!(refused.to_string().contains("Class com.example.Observer cannot be loaded"), "{refused}");
    let unknown = admin.describe(&table).await.expect_err("gone");
    assert!(unknown.to_string().contains("schema"), "{unknown}");
}

/// Rows 00 to 19 over three regions: `f:n` is the number as 8 bytes, `f:s` a word, `g:odd` only of
/// odd rows.
async fn filled(connection: &Connection) -> Table {
    let table = name("suite");
    let descriptor = TableDescriptor::new(table.clone()).with_family(family("f")).with_family(family("g"));
    connection.admin().create_table(&descriptor, &["07".into(), "14".into()]).await.expect("created");
    let table = connection.table(table);
    let put = |i: i64| {
        let put = Put::new(format!("{i:02}")).column_at("f", "n", 1000 + i, i.to_be_bytes()).column(
            "f",
            "s",
            ["apple", "pear", "plum"][i as usize % 3],
        );
        if i % 2 == 1 { put.column("g", "odd", "yes") } else { put }
    };
    table.put_all((0..20).map(put)).await.expect("written");
    table
}

/// Filters of scans and of Gets of the table that [`filled`] makes.
async fn filters(table: &Table) {
    for (filter, want) in filters_by_row().into_iter().chain(filters_by_cell()) {
        assert_eq!(rows(table, Scan::new().filter(filter.clone())).await, want, "{filter:?}");
    }
    for (filter, want) in filters_of_columns() {
        assert_eq!(columns_of_01(table, filter.clone()).await, want, "{filter:?}");
    }
    let lengths = Get::new("01").filter(Filter::KeyOnly { length_as_value: true });
    let result = table.get(lengths).await.expect("a row");
    assert_eq!(result.value("f", "s"), Some(&4i32.to_be_bytes()[..]));
    let custom = Filter::Custom { class: "com.example.NoFilter".into(), serialized: Bytes::new() };
    let error = table.get(Get::new("01").filter(custom)).await.expect_err("no such class");
    assert!(error.is_final(), "{error}");
}

/// The rows of [`filled`] in this range.
fn rows_in(range: std::ops::Range<i32>) -> Vec<String> {
    range.map(|i| format!("{i:02}")).collect()
}

/// The rows of [`filled`] with these numbers.
fn rows_where(keep: fn(&i32) -> bool) -> Vec<String> {
    (0..20).filter(keep).map(|i| format!("{i:02}")).collect()
}

fn named_rows(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Filters that look at the row only, and the rows that a scan returns.
fn filters_by_row() -> Vec<(Filter, Vec<String>)> {
    let range = |a: &str, b: &str| RowRange::new(a, b);
    vec![
        (Filter::prefix("1"), rows_in(10..20)),
        (Filter::row(CompareOp::Less, Comparator::binary("03")), rows_in(0..3)),
        (Filter::row(CompareOp::Equal, Comparator::regex("^.5$")), named_rows(&["05", "15"])),
        (Filter::row(CompareOp::Equal, Comparator::substring("9")), named_rows(&["09", "19"])),
        (
            Filter::row(CompareOp::Equal, Comparator::BinaryComponent { value: "7".into(), offset: 1 }),
            named_rows(&["07", "17"]),
        ),
        (Filter::InclusiveStop("02".into()), rows_in(0..3)),
        (Filter::MultiRowRange(vec![range("03", "05"), range("04", "06")]), rows_in(3..6)),
        (Filter::FuzzyRow(vec![("?3".into(), Bytes::from_static(&[1, 0]))]), named_rows(&["03", "13"])),
        (Filter::RandomRow(1.5), rows_in(0..20)),
        (Filter::FilterAll, vec![]),
    ]
}

/// Filters that look at cells or combine filters, and the rows that a scan returns.
fn filters_by_cell() -> Vec<(Filter, Vec<String>)> {
    vec![
        (Filter::single_column_value("f", "n", CompareOp::Less, Comparator::Long(4)), rows_in(0..4)),
        (
            Filter::all_of([
                Filter::value(CompareOp::Equal, Comparator::prefix("pl")),
                Filter::qualifier(CompareOp::Equal, Comparator::binary("s")),
            ]),
            rows_where(|i| i % 3 == 2),
        ),
        (Filter::Family(CompareOp::Equal, Comparator::binary("g")), rows_where(|i| i % 2 == 1)),
        (Filter::column_prefix("od"), rows_where(|i| i % 2 == 1)),
        (Filter::timestamps([1003, 1005]), named_rows(&["03", "05"])),
        (Filter::value(CompareOp::NotEqual, Comparator::binary("yes")).skip(), rows_where(|i| i % 2 == 0)),
        // It ends one region at a time, so the row is in the last one.
        (Filter::row(CompareOp::NotEqual, Comparator::binary("16")).while_match(), rows_in(0..16)),
        (Filter::one_of([Filter::prefix("00"), Filter::prefix("19")]), named_rows(&["00", "19"])),
        (
            Filter::value(
                CompareOp::Equal,
                Comparator::Bit { value: vec![0xff; 8].into(), op: filter::BitwiseOp::And },
            ),
            rows_in(1..20),
        ),
        (
            filter::parse("SingleColumnValueFilter('f','s',=,'binary:plum') AND PrefixFilter('1')")
                .expect("parses"),
            named_rows(&["11", "14", "17"]),
        ),
    ]
}

/// Filters that select columns, and the columns that a Get of row 01 returns.
fn filters_of_columns() -> Vec<(Filter, Vec<&'static str>)> {
    let column_range = Filter::ColumnRange {
        min: Some("n".into()),
        min_included: false,
        max: Some("s".into()),
        max_included: true,
    };
    let depends = Filter::DependentColumn {
        family: "f".into(),
        qualifier: "n".into(),
        drop_column: false,
        comparison: None,
    };
    vec![
        (Filter::FirstKeyOnly, vec!["n"]),
        (Filter::ColumnCountGet(2), vec!["n", "s"]),
        (Filter::ColumnPagination { limit: 1, offset: 1 }, vec!["s"]),
        (Filter::ColumnPaginationFrom { limit: 1, offset: "o".into() }, vec!["s"]),
        (column_range, vec!["s", "odd"]),
        (Filter::MultipleColumnPrefix(vec!["s".into(), "o".into()]), vec!["s", "odd"]),
        (Filter::column_value("f", "s", CompareOp::Equal, Comparator::binary("pear")), vec!["s"]),
        (depends, vec!["n"]),
        (Filter::FirstKeyValueMatchingQualifiers(vec!["s".into()]), vec!["n", "s"]),
    ]
}

/// The qualifiers that a Get of row 01 returns.
async fn columns_of_01(table: &Table, filter: Filter) -> Vec<String> {
    let result = table.get(Get::new("01").filter(filter)).await.expect("a row");
    let qualifier = |cell: &KeyValue| String::from_utf8_lossy(cell.as_cell().qualifier()).into_owned();
    result.cells().iter().map(qualifier).collect()
}

async fn checks(table: &Table) {
    let put = |value: &str| Put::new("check").column("f", "q", value);
    let regex = CheckAndMutate::matching("01", "f", "s", CompareOp::Equal, Comparator::regex("^pe"));
    let substring = CheckAndMutate::matching("01", "f", "s", CompareOp::Equal, Comparator::substring("EA"));
    for check in [regex, substring] {
        let done = table.check_and_mutate(check.then(Put::new("01").column("g", "checked", "1"))).await;
        assert!(done.expect("checked").success);
    }
    let filter = |value: &str| {
        let column = Filter::single_column_value("f", "s", CompareOp::Equal, Comparator::binary(value));
        CheckAndMutate::if_filter("01", column).then(Delete::new("01").column("g", "checked"))
    };
    assert!(!table.check_and_mutate(filter("plum")).await.expect("checked").success);
    assert!(table.check_and_mutate(filter("pear")).await.expect("checked").success);
    let absent = CheckAndMutate::if_absent("check", "f", "q").time_range(0, 10).then(put("a"));
    assert!(table.check_and_mutate(absent.clone()).await.expect("checked").success);
    assert!(table.check_and_mutate(absent).await.expect("checked").success, "outside the time range");
    let counted = CheckAndMutate::new("check", "f", "q", CompareOp::Equal, "a")
        .then(Increment::new("check").column("f", "n", 5));
    let outcome = table.check_and_mutate(counted).await.expect("checked");
    assert_eq!((outcome.success, outcome.result.counter("f", "n")), (true, Some(5)));
    table.delete(Delete::new("check")).await.expect("deleted");
}

async fn scans(table: &Table) {
    let all: Vec<_> = (0..20).map(|i| format!("{i:02}")).collect();
    assert_eq!(rows(table, Scan::new().prefix("0")).await, all[..10]);
    assert_eq!(rows(table, Scan::new().caching(3).max_result_bytes(1)).await, all);
    let mut stream = std::pin::pin!(table.scan(Scan::new().caching(4)).into_stream());
    let mut streamed = Vec::new();
    while let Some(result) = std::future::poll_fn(|cx| {
        use evenkeel_client::Stream;
        stream.as_mut().poll_next(cx)
    })
    .await
    {
        streamed.push(row(&result.expect("a row")));
    }
    assert_eq!(streamed, all);
    drop(table.scan(Scan::new()).into_stream());

    let mut pieces: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut scanner = table.scan(Scan::new().batch(1));
    while let Some(result) = scanner.next().await.expect("a piece") {
        assert_eq!(result.cells().len(), 1);
        let qualifier = String::from_utf8_lossy(result.cells()[0].as_cell().qualifier()).into_owned();
        pieces.entry(row(&result)).or_default().push(qualifier);
    }
    assert_eq!(pieces.len(), 20);
    assert_eq!((pieces["00"].len(), &pieces["01"][..]), (2, &["n".to_owned(), "s".into(), "odd".into()][..]));

    let mut scanner = table.scan(Scan::new().caching(2));
    let mut seen = vec![row(&scanner.next().await.expect("a row").expect("a first row"))];
    scanner.renew().await.expect("renewed");
    scanner.renew().await.expect("renewed twice");
    while let Some(result) = scanner.next().await.expect("a row") {
        seen.push(row(&result));
    }
    assert_eq!(seen, all);

    table.delete(Delete::new("05").column("f", "s")).await.expect("deleted");
    let raw = table.scan(Scan::new().from("05").to_inclusive("05").raw().all_versions()).next().await;
    let markers = raw.expect("a row").expect("a row").into_cells();
    assert!(markers.iter().any(|c| c.as_cell().is_delete()), "{markers:?}");
    let limited = table.get(Get::new("01").family_limit(1)).await.expect("a row");
    assert_eq!(limited.cells().len(), 2, "one of each family");
    let offset = table.get(Get::new("01").family("f").family_limit(1).family_offset(1)).await.expect("a row");
    assert_eq!(offset.cells()[0].as_cell().qualifier(), b"s");
}

async fn writes(connection: &Connection) {
    let table = name("writes");
    let descriptor = TableDescriptor::new(table.clone()).with_family(family("f"));
    connection.admin().create_table(&descriptor, &["3".into(), "6".into()]).await.expect("created");
    let table = connection.table(table);
    let mutator = table.buffered_mutator().buffer_bytes(10_000).flush_interval(Duration::from_millis(50));
    for i in 0..1000 {
        mutator
            .mutate(Put::new(format!("{}{i:04}", i % 10)).column("f", "q", format!("{i}")))
            .await
            .expect("taken");
    }
    mutator.mutate(Put::new("bad").column("nope", "q", "v")).await.expect("taken");
    let failures = mutator.close().await;
    assert_eq!(failures.len(), 1, "{failures:?}");
    assert_eq!(
        (failures[0].mutation.row(), failures[0].error.kind()),
        (&b"bad"[..], Some(ErrorKind::NoSuchColumnFamily))
    );
    let found = table.get_all((0..1000).map(|i| Get::new(format!("{}{i:04}", i % 10)))).await;
    for (i, result) in found.into_iter().enumerate() {
        assert_eq!(result.expect("a row").value("f", "q"), Some(format!("{i}").as_bytes()));
    }
    table.put(Put::new("ttl").ttl_ms(1).column("f", "q", "v")).await.expect("written");
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(table.get(Get::new("ttl")).await.expect("a row").is_empty(), "past its time");
    let silent =
        table.append(Append::new("a").column("f", "q", "v").without_result()).await.expect("appended");
    assert!(silent.is_empty());
    table.put(Put::new("v").column_at("f", "q", 5, "5").column_at("f", "q", 9, "9")).await.expect("written");
    table.delete(Delete::new("v").version("f", "q", 9)).await.expect("deleted");
    assert_eq!(table.get(Get::new("v")).await.expect("a row").value("f", "q"), Some(&b"5"[..]));
    table.delete(Delete::new("v").family_version("f", 4)).await.expect("deleted");
    assert!(table.exists(Get::new("v")).await.expect("an answer"));
    table.delete(Delete::new("v").up_to(5)).await.expect("deleted");
    assert!(!table.exists(Get::new("v")).await.expect("an answer"));
    let large = table.put(Put::new("l").column("f", "q", vec![0; 11 << 20])).await.expect_err("too large");
    assert!(large.is_final(), "{large}");
}

/// Reads of replicas. The second replica has the data flushed before it was opened, and gets no
/// more until it is reopened or refreshes its files.
async fn replicas(site: &Site, connection: &Connection) {
    let (admin, name) = (connection.admin(), name("replicas"));
    let descriptor = TableDescriptor::new(name.clone()).with_region_replication(2).with_family(family("f"));
    admin.create_table(&descriptor, &["m".into()]).await.expect("created");
    let table = connection.table(name.clone());
    let put = |row: &'static str, value: &'static str| table.put(Put::new(row).column("f", "q", value));
    put("a", "old").await.expect("written");
    put("z", "old").await.expect("written");
    admin.flush_table(&name).await.expect("flushed");
    admin.disable_table(&name).await.expect("disabled");
    admin.enable_table(&name).await.expect("enabled");
    put("a", "new").await.expect("written");

    // A new connection, so that it looks up the current locations of the replicas.
    let at_once = ClientConfig { primary_get_timeout: Duration::ZERO, ..site.config() };
    let at_once = ClientConfig { primary_scan_timeout: Duration::ZERO, ..at_once };
    let patient = ClientConfig { primary_get_timeout: Duration::from_secs(60), ..site.config() };
    let table = connect(at_once).await.table(name.clone());
    let value = |result: &RowResult| result.value("f", "q").map(<[u8]>::to_vec).unwrap_or_default();
    let strong = table.get(Get::new("a")).await.expect("a row");
    assert_eq!((value(&strong), strong.is_stale()), (b"new".to_vec(), false));
    for _ in 0..20 {
        let any = table.get(Get::new("a").consistency(Consistency::Timeline)).await.expect("a row");
        assert_eq!(value(&any), if any.is_stale() { b"old" } else { b"new" });
        let mut scanner = table.scan(Scan::new().consistency(Consistency::Timeline));
        let mut rows = Vec::new();
        while let Some(row) = scanner.next().await.expect("a row") {
            assert_eq!(value(&row) == b"new", row.row() == Some(b"a") && !row.is_stale());
            rows.push(self::row(&row));
        }
        assert_eq!(rows, ["a", "z"]);
    }
    let first = connect(patient).await.table(name.clone());
    let timely = first.get(Get::new("a").consistency(Consistency::Timeline)).await.expect("a row");
    assert!(!timely.is_stale() && value(&timely) == b"new", "the first replica was quick enough");

    let second = connection.table(name.clone());
    let lagging = second.get(Get::new("a").replica(1)).await;
    let scanned = second.scan(Scan::new().replica(1)).next().await;
    let (lagging, scanned) = (lagging.expect("a row"), scanned.expect("a row").expect("a first row"));
    assert!(lagging.is_stale() && scanned.is_stale());
    assert_eq!((value(&lagging), value(&scanned)), (b"old".to_vec(), b"old".to_vec()));
    admin.disable_table(&name).await.expect("disabled");
    admin.delete_table(&name).await.expect("deleted");
}

/// An opener that leaves sockets unchanged and records their purpose.
#[derive(Debug, Default)]
struct RecordingOpener {
    seen: Mutex<Vec<(String, &'static str)>>,
}

impl Opener for RecordingOpener {
    fn open<'a>(&'a self, address: &'a str, service: &'static str, socket: TcpStream) -> Opening<'a> {
        self.seen.lock().expect("no panic").push((address.to_owned(), service));
        let transport: Box<dyn Transport> = Box::new(socket);
        Box::pin(async { Ok(Opened { transport, preamble: b"HBas\0\x50".to_vec() }) })
    }
}

/// The same through compressed cell blocks, several sockets, and cells with tags.
async fn sockets(site: &Site, table: &Table) {
    let noting = Arc::new(RecordingOpener::default());
    let opener: Arc<dyn Opener> = noting.clone();
    let opened = connect(ClientConfig { opener: Some(opener), ..site.config() }).await;
    assert_eq!(rows(&opened.table(table.name().clone()), Scan::new().prefix("0")).await.len(), 10);
    assert!(noting.seen.lock().expect("no panic").iter().any(|(_, service)| *service == "ClientService"));

    for compressor in [CellBlockCodec::Gzip, CellBlockCodec::Snappy, CellBlockCodec::Lz4] {
        let compressor = Some(compressor);
        let config = ClientConfig { compressor, pool_size: 3, ..site.config() };
        let other = connect(config).await.table(table.name().clone());
        let value = vec![b'x'; 100_000];
        let puts = (0..5).map(|i| Put::new(format!("z{i}")).column("f", "big", &value));
        other.put_all(puts).await.expect("written");
        assert_eq!(rows(&other, Scan::new().prefix("z")).await.len(), 5);
        let read = table.get(Get::new("z3")).await.expect("a row");
        assert_eq!(read.value("f", "big"), Some(&value[..]), "{compressor:?}");
        other.batch((0..5).map(|i| Delete::new(format!("z{i}")).into()).collect()).await;
    }
    let tagged = connect(ClientConfig { tags: true, ..site.config() }).await.table(table.name().clone());
    tagged.put(Put::new("tagged").ttl_ms(1_000_000).column("f", "q", "v")).await.expect("written");
    let cell = tagged.get(Get::new("tagged")).await.expect("a row").into_cells().remove(0);
    let ttl = cell.as_cell().ttl_ms();
    assert_eq!((cell.as_cell().value(), ttl), (&b"v"[..], Some(1_000_000)));
    let plain = table.get(Get::new("tagged")).await.expect("a row").into_cells().remove(0);
    assert!(plain.as_cell().tags().is_empty());
    table.delete(Delete::new("tagged")).await.expect("deleted");
}

async fn endpoints(connection: &Connection) {
    let meta = connection.table(TableName::meta());
    let request = pb::MutateRowsRequest::default().encode_to_vec();
    let answer = meta.exec_service("suite,,", "MultiRowMutationService", "MutateRows", request).await;
    pb::MutateRowsResponse::decode(answer.expect("an answer")).expect("decodes");
    let suite = connection.table(name("suite"));
    let unknown =
        suite.exec_service("00", "NoService", "None", Bytes::new()).await.expect_err("no such service");
    assert_eq!(unknown.kind(), Some(ErrorKind::UnknownProtocol), "{unknown}");
    let each = suite.exec_service_range("08", "", "NoService", "None", Bytes::new()).await.expect("regions");
    assert_eq!(each.len(), 2);
}

async fn cluster(admin: &Admin, table: &TableName) {
    let metrics = admin.cluster_metrics(&[]).await.expect("metrics");
    assert_eq!((metrics.servers.len(), metrics.dead_servers.len()), (1, 0));
    assert!(metrics.master.is_some() && !metrics.version.is_empty() && metrics.cluster_id.len() == 36);
    assert_eq!(metrics.tables.get(table).map(|counts| counts.open), Some(3));
    let servers = admin.live_servers().await.expect("servers");
    assert_eq!(servers, [metrics.servers[0].server.clone()]);
    let few = admin.cluster_metrics(&[ClusterOption::ClusterId]).await.expect("metrics");
    assert_eq!((few.cluster_id, few.servers.len()), (metrics.cluster_id, 0));
    let online = admin.online_regions(&servers[0]).await.expect("regions");
    assert!(online.iter().filter(|region| region.table() == table).count() == 3);
    let loads = admin.region_metrics(&servers[0], Some(table)).await.expect("loads");
    assert!(loads.len() == 3 && loads.iter().any(|load| load.write_requests > 0), "{loads:?}");
    admin.roll_wal(&servers[0]).await.expect("rolled");
}

async fn regions(admin: &Admin, table: &TableName) {
    admin.flush_table(table).await.expect("flushed");
    let regions = admin.regions(table).await.expect("regions");
    let first = regions[0].region.clone();
    for known in [&first.name()[..], first.encoded_name().as_bytes()] {
        assert_eq!(admin.find_region(known).await.expect("looked").map(|r| r.region), Some(first.clone()));
    }
    assert_eq!(admin.find_region(b"00000000000000000000000000000000").await.expect("looked"), None);
    admin.flush_region(&first, Some(b"f")).await.expect("flushed");
    admin.compact_table(table, None, true).await.expect("asked");
    for _ in 0..200 {
        if admin.compaction_state(table).await.expect("a state") == Default::default() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    admin.unassign_region(&first).await.expect("closed");
    admin.assign_region(&first).await.expect("opened");
    assert_eq!(admin.table_state(table).await.expect("a state"), Some(TableState::Enabled));
    let [a, b] = [&regions[1].region, &regions[2].region].map(Clone::clone);
    admin.merge_regions(&[a, b], false).await.expect("merged");
    assert_eq!(admin.regions(table).await.expect("regions").len(), 2);
    admin.split_table(table, Some("03".into())).await.expect("split");
    let starts: Vec<_> = admin.regions(table).await.expect("regions");
    let starts: Vec<_> = starts.iter().map(|r| r.region.start_key().clone()).collect();
    assert_eq!(starts, ["", "03", "07"].map(Bytes::from));
}

async fn switches(admin: &Admin) {
    for on in [false, true] {
        admin.set_balancer(on).await.expect("set");
        assert_eq!(admin.is_balancer_enabled().await.expect("an answer"), on);
        admin.set_normalizer(on).await.expect("set");
        assert_eq!(admin.is_normalizer_enabled().await.expect("an answer"), on);
        admin.set_catalog_janitor(on).await.expect("set");
        assert_eq!(admin.is_catalog_janitor_enabled().await.expect("an answer"), on);
        admin.set_cleaner_chore(on).await.expect("set");
        assert_eq!(admin.is_cleaner_chore_enabled().await.expect("an answer"), on);
        admin.set_split(on).await.expect("set");
        assert_eq!(admin.is_split_enabled().await.expect("an answer"), on);
        admin.set_merge(on).await.expect("set");
        assert_eq!(admin.is_merge_enabled().await.expect("an answer"), on);
    }
    assert!(!admin.is_master_in_maintenance_mode().await.expect("an answer"));
    assert!(admin.run_catalog_janitor().await.expect("ran") >= 0);
    assert_eq!(admin.balance(true, false).await.expect("ran").moves_executed, 0);
}

async fn snapshots(connection: &Connection, table: &Table) {
    let admin = connection.admin();
    let snapshot = SnapshotDescription::new("snap", table.name().clone());
    admin.snapshot(&snapshot).await.expect("taken");
    let again = admin.snapshot(&snapshot).await.expect_err("it is there");
    assert!(again.is_final(), "{again}");
    let known = admin.list_snapshots().await.expect("listed");
    assert_eq!((known.len(), known[0].name.as_str(), &known[0].table), (1, "snap", table.name()));
    let before = rows(table, Scan::new()).await;
    let clone = name("cloned");
    admin.clone_snapshot("snap", &clone).await.expect("cloned");
    assert_eq!(rows(&connection.table(clone), Scan::new()).await, before);
    table.put(Put::new("later").column("f", "q", "v")).await.expect("written");
    assert!(admin.restore_snapshot("snap", false).await.is_err(), "the table is enabled");
    admin.disable_table(table.name()).await.expect("disabled");
    admin.restore_snapshot("snap", true).await.expect("restored");
    admin.enable_table(table.name()).await.expect("enabled");
    assert_eq!(rows(table, Scan::new()).await, before);
    admin.delete_snapshot("snap").await.expect("deleted");
    assert_eq!(admin.list_snapshots().await.expect("listed"), []);
    let gone = admin.restore_snapshot("snap", false).await.expect_err("gone");
    assert_eq!(gone.kind(), Some(ErrorKind::SnapshotDoesNotExist), "{gone}");
}
