//! Tables whose store files are in stripes of rows, or in windows of time, handed from Evenkeel to
//! stock HBase and back.
//!
//! The test needs both servers, so `EVENKEEL_INTEROP_TARGET` has no effect here.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use evenkeel_client::{Delete, Put};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor};
use interop::Server;

use crate::turn::{Client, Side, entries, name, root_dir, row, wait_for};

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

/// The client, and what it does to the tables.
struct Tables {
    client: Client,
}

impl Tables {
    fn of(server: &Server) -> Self {
        Self { client: Client::of(server) }
    }

    fn create(&self) {
        for table in tables() {
            self.client.create(&table, &[]);
        }
    }

    /// Writes rows, new versions and markers, and flushes them, three times.
    fn fill(&self, round: i64, now_ms: i64) {
        for table in [name(STRIPED), name(TIERED)] {
            self.client.runtime.block_on(async {
                let rows = self.client.connection.table(table.clone());
                for flush in 0..3 {
                    let time = |i: usize| now_ms - STEP_MS * i as i64 + 10 * round + flush;
                    let value = |i: usize| format!("{round}.{flush}.{i} {}", "x".repeat(200));
                    let put = |i: usize| Put::new(row(i)).column_at("f", "q", time(i), value(i));
                    rows.put_all((0..ROWS).map(put)).await.expect("written");
                    let gone = row((7 * round + flush) as usize % ROWS);
                    rows.delete(Delete::new(gone).family_up_to("f", now_ms - 1000)).await.expect("deleted");
                    self.client.connection.admin().flush_table(&table).await.expect("flushed");
                }
            });
        }
    }

    fn compact(&self, major: bool) {
        for table in [STRIPED, TIERED] {
            self.client.compact(table, major);
        }
    }

    fn digest(&self) -> Vec<String> {
        let cells: Vec<_> = [STRIPED, TIERED].iter().flat_map(|table| self.client.cells(table)).collect();
        assert!(cells.len() > ROWS, "{} cells", cells.len());
        cells
    }
}

/// The store files of a table.
fn files(root: &Path, table: &str) -> Vec<PathBuf> {
    let regions = entries(&root.join("data/default").join(table));
    let files = regions.iter().flat_map(|region| entries(&region.join("f")));
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
    let (root, settings) = root_dir("engines");
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let now_ms = since.as_millis() as i64;

    let evenkeel = Side::Evenkeel.started(&settings);
    let tables = Tables::of(&evenkeel);
    tables.create();
    tables.fill(1, now_ms);
    let before = tables.digest();
    tables.compact(true);
    assert_eq!(tables.digest(), before, "after our compaction");
    // A stripe that is too large is split by a compaction of its own, which the server requests.
    let is_split = || stripes(&root) > 1 && files(&root, TIERED).len() > 1;
    wait_for("split of a stripe, or second window", is_split);
    let ours = stripes(&root);
    assert_eq!(tables.digest(), before, "after the stripe was split");
    drop((tables, evenkeel));

    let stock = Side::Stock.started(&settings);
    let tables = Tables::of(&stock);
    assert_eq!(tables.digest(), before, "stock HBase over our files");
    // A flush by stock HBase writes to the existing stripes; without stripes it would write one
    // file.
    tables.fill(2, now_ms);
    let flushed = stripes(&root);
    assert!(flushed >= ours + 3, "{ours} stripes of ours, {flushed} files of stripes after three flushes");
    let second = tables.digest();
    tables.compact(true);
    assert_eq!(tables.digest(), second, "after stock's compaction");
    drop((tables, stock));

    let evenkeel = Side::Evenkeel.started(&settings);
    let tables = Tables::of(&evenkeel);
    assert_eq!(tables.digest(), second, "Evenkeel over stock's files");
    tables.fill(3, now_ms);
    let third = tables.digest();
    for major in [false, true] {
        tables.compact(major);
        assert_eq!(tables.digest(), third, "after our compaction of both sides' files, major {major}");
    }
    assert!(stripes(&root) > 1);
}
