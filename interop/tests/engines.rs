//! Tables whose store files are in stripes of rows, or in windows of time, handed from Evenkeel to
//! stock HBase and back.
//!
//! The tests need both servers, so `EVENKEEL_INTEROP_TARGET` has no effect here.

#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use evenkeel_client::{ClientConfig, CompactionState, Connection, Delete, Put, Scan};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};
use interop::{Server, start_evenkeel_with, start_stock_with, work};

/// Only the file info of a stripe's file contains it.
const STRIPE_KEY: &[u8] = b"STRIPE_START_KEY";
const ROWS: usize = 60;
/// The difference between the timestamps of two rows.
const STEP_MS: i64 = 60_000;

const STRIPED: &str = "striped";
const TIERED: &str = "tiered";

fn tables() -> [TableDescriptor; 2] {
    let table = |name: &str, settings: &[(&str, &str)]| {
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal").with("VERSIONS", "3");
        let table = TableDescriptor::new(name.parse().expect("legal")).with_family(family);
        settings.iter().fold(table, |table, (key, value)| table.with(key, value))
    };
    let stripes = [
        ("hbase.hstore.engine.class", "org.apache.hadoop.hbase.regionserver.StripeStoreEngine"),
        ("hbase.store.stripe.sizeToSplit", "40000"),
        ("hbase.store.stripe.compaction.minFilesL0", "2"),
    ];
    let windows = [
        ("hbase.hstore.engine.class", "org.apache.hadoop.hbase.regionserver.DateTieredStoreEngine"),
        ("hbase.hstore.compaction.date.tiered.base.window.millis", "600000"),
        ("hbase.hstore.compaction.date.tiered.incoming.window.min", "2"),
    ];
    [table(STRIPED, &stripes), table(TIERED, &windows)]
}

fn name(table: &str) -> TableName {
    table.parse().expect("legal")
}

/// The client that the tests use on both servers.
struct Client {
    runtime: tokio::runtime::Runtime,
    connection: Connection,
}

impl Client {
    fn of(server: &Server) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let settings = server.client_settings();
        let bootstrap = settings.iter().find(|(key, _)| key == "hbase.client.bootstrap.servers");
        let config = ClientConfig::new([bootstrap.expect("known").1.as_str()]);
        let connection = runtime.block_on(Connection::connect(config)).expect("the server answers");
        Self { runtime, connection }
    }

    fn create(&self) {
        for table in tables() {
            self.runtime.block_on(self.connection.admin().create_table(&table, &[])).expect("created");
        }
    }

    /// Writes rows, new versions and markers, and flushes them, three times.
    fn fill(&self, round: i64, now_ms: i64) {
        for table in [name(STRIPED), name(TIERED)] {
            self.runtime.block_on(async {
                let rows = self.connection.table(table.clone());
                for flush in 0..3 {
                    let time = |i: usize| now_ms - STEP_MS * i as i64 + 10 * round + flush;
                    let value = |i: usize| format!("{round}.{flush}.{i} {}", "x".repeat(200));
                    let put = |i: usize| Put::new(row(i)).column_at("f", "q", time(i), value(i));
                    rows.put_all((0..ROWS).map(put)).await.expect("written");
                    let gone = row((7 * round + flush) as usize % ROWS);
                    rows.delete(Delete::new(gone).family_up_to("f", now_ms - 1000)).await.expect("deleted");
                    self.connection.admin().flush_table(&table).await.expect("flushed");
                }
            });
        }
    }

    fn compact(&self, major: bool) {
        for table in [name(STRIPED), name(TIERED)] {
            let admin = self.connection.admin();
            self.runtime.block_on(admin.compact_table(&table, None, major)).expect("asked for");
            let deadline = Instant::now() + Duration::from_secs(60);
            while self.runtime.block_on(admin.compaction_state(&table)).expect("a state")
                != CompactionState::None
            {
                assert!(Instant::now() < deadline, "the compaction does not end");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }

    fn digest(&self) -> Vec<String> {
        let mut cells = Vec::new();
        for table in [STRIPED, TIERED] {
            self.runtime.block_on(async {
                let mut rows = self.connection.table(name(table)).scan(Scan::new().all_versions());
                while let Some(row) = rows.next().await.expect("read") {
                    cells.extend(row.cells().iter().map(|cell| format!("{table} {:?}", cell.as_cell())));
                }
            });
        }
        assert!(cells.len() > ROWS, "{} cells", cells.len());
        cells
    }
}

fn row(i: usize) -> String {
    format!("row{i:03}")
}

/// The store files of a table.
fn files(root: &Path, table: &str) -> Vec<PathBuf> {
    let list = |dir: &Path| -> Vec<PathBuf> {
        fs::read_dir(dir).map(|dir| dir.flatten().map(|entry| entry.path()).collect()).unwrap_or_default()
    };
    let regions = list(&root.join("data/default").join(table));
    let files = regions.iter().flat_map(|region| list(&region.join("f")));
    files.filter(|file| file.extension().is_none()).collect()
}

fn stripes(root: &Path) -> usize {
    let has_key = |file: &PathBuf| {
        let bytes = fs::read(file).unwrap_or_default();
        bytes.windows(STRIPE_KEY.len()).any(|part| part == STRIPE_KEY)
    };
    files(root, STRIPED).iter().filter(|file| has_key(file)).count()
}

#[test]
fn stripes_and_windows_exchange_both_ways() {
    let root = work().join("run").join(format!("engines.{}", std::process::id())).join("hbase");
    fs::create_dir_all(&root).expect("made");
    let settings = [("hbase.rootdir".to_owned(), format!("file://{}", root.display()))];
    let started = |server: Result<Server, String>| server.unwrap_or_else(|why| panic!("{why}"));
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let now_ms = since.as_millis() as i64;

    let evenkeel = started(start_evenkeel_with(&settings));
    let client = Client::of(&evenkeel);
    client.create();
    client.fill(1, now_ms);
    let before = client.digest();
    client.compact(true);
    assert_eq!(client.digest(), before, "after our compaction");
    // A stripe that is too large is split by a compaction of its own, which the server requests.
    let deadline = Instant::now() + Duration::from_secs(60);
    let ours = loop {
        let (ours, windows) = (stripes(&root), files(&root, TIERED).len());
        if ours > 1 && windows > 1 {
            break ours;
        }
        assert!(Instant::now() < deadline, "{ours} stripes, {windows} windows");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(client.digest(), before, "after the stripe was split");
    drop((client, evenkeel));

    let stock = started(start_stock_with(&settings));
    let client = Client::of(&stock);
    assert_eq!(client.digest(), before, "stock HBase over our files");
    // A flush by stock HBase writes to the existing stripes; without stripes it would write one
    // file.
    client.fill(2, now_ms);
    let flushed = stripes(&root);
    assert!(flushed >= ours + 3, "{ours} stripes of ours, {flushed} files of stripes after three flushes");
    let second = client.digest();
    client.compact(true);
    assert_eq!(client.digest(), second, "after stock's compaction");
    drop((client, stock));

    let evenkeel = started(start_evenkeel_with(&settings));
    let client = Client::of(&evenkeel);
    assert_eq!(client.digest(), second, "Evenkeel over stock's files");
    client.fill(3, now_ms);
    let third = client.digest();
    for major in [false, true] {
        client.compact(major);
        assert_eq!(client.digest(), third, "after our compaction of both sides' files, major {major}");
    }
    assert!(stripes(&root) > 1);
}
