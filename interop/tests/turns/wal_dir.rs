//! Logs in another directory than the data (`hbase.wal.dir`), of a standalone stock HBase and of
//! Evenkeel, which serve both directories in turns. Each is killed at the end of its turn, with
//! edits that are only in its log: the next one finds every acknowledged cell.

use std::path::{Path, PathBuf};

use evenkeel_client::{Delete, Increment, Put};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor};
use interop::Server;

use crate::turn::{Client, Side, entries, name, root_dir};

const ROWS: usize = 200;

/// The client, and what it does to a table.
struct Tables {
    client: Client,
}

impl Tables {
    fn of(server: &Server) -> Self {
        Self { client: Client::of(server) }
    }

    fn create(&self, table: &str) {
        let family = |name: &[u8]| ColumnFamilyDescriptor::new(name).expect("legal").with("VERSIONS", "5");
        let described = TableDescriptor::new(name(table)).with_family(family(b"f")).with_family(family(b"g"));
        let splits = [bytes::Bytes::from_static(b"row100")];
        self.client.create(&described, &splits);
    }

    /// Writes rows, some of which are flushed; the others are only in the log.
    fn write(&self, table: &str, turn: usize) {
        self.client.runtime.block_on(async {
            let rows = self.client.connection.table(name(table));
            for part in 0..2 {
                let put = |i: usize| {
                    let value = format!("{turn}.{part}.{i}");
                    Put::new(format!("row{i:03}")).column("f", "q", &value).column("g", "q", &value)
                };
                rows.put_all((part..ROWS).step_by(2).map(put)).await.expect("written");
                rows.delete(Delete::new(format!("row{:03}", 17 * turn + part))).await.expect("deleted");
                if part == 0 {
                    self.client.connection.admin().flush_table(&name(table)).await.expect("flushed");
                }
            }
            for _ in 0..turn {
                rows.increment(Increment::new("counter").column("f", "n", 1)).await.expect("counted");
            }
        });
    }

    /// Every cell of the table.
    fn digest(&self, table: &str) -> Vec<String> {
        let cells = self.client.cells(table);
        assert!(cells.len() > ROWS, "{} cells", cells.len());
        cells
    }
}

/// The logs below a root directory of logs that were not split.
fn logs(root: &Path) -> usize {
    entries(&root.join("WALs")).iter().map(|server| entries(server).len()).sum()
}

struct Dirs {
    root: PathBuf,
    wals: PathBuf,
}

impl Dirs {
    fn new(test: &str) -> Self {
        let (root, _) = root_dir(test);
        let wals = root.with_file_name("wals");
        Self { root, wals }
    }

    fn settings(&self, has_wal_dir: bool) -> Vec<(String, String)> {
        let uri = |dir: &Path| format!("file://{}", dir.display());
        let mut settings = vec![("hbase.rootdir".to_owned(), uri(&self.root))];
        settings.extend(has_wal_dir.then(|| ("hbase.wal.dir".to_owned(), uri(&self.wals))));
        settings
    }

    fn start(&self, side: Side, has_wal_dir: bool) -> Result<Server, String> {
        side.start(&self.settings(has_wal_dir))
    }
}

#[test]
fn killed_servers_recover_each_others_logs_in_another_directory() {
    let dirs = Dirs::new("wal-dir");
    let turns = [Side::Stock, Side::Evenkeel, Side::Stock, Side::Evenkeel, Side::Evenkeel];
    let mut before: Option<Vec<String>> = None;
    for (turn, side) in (1..).zip(turns) {
        let side = side.tested();
        let server = dirs.start(side, true).unwrap_or_else(|why| panic!("turn {turn}, {side:?}: {why}"));
        let tables = Tables::of(&server);
        match before.take() {
            None => tables.create("t"),
            Some(before) => {
                assert_eq!(
                    tables.digest("t"),
                    before,
                    "turn {turn}: {side:?} over the logs of the turn before"
                );
                tables.client.drop_table(&format!("gone{}", turn - 1));
            }
        }
        tables.write("t", turn);
        tables.client.split("t", ["row150", "row050", "row025", "row075", "row175"][turn - 1].to_owned());
        tables.write("t", turn + 10);
        tables.create(&format!("gone{turn}"));
        tables.write(&format!("gone{turn}"), turn);
        before = Some(tables.digest("t"));
        drop(tables);
        server.kill();
        assert!(logs(&dirs.wals) > 0, "turn {turn}: {side:?} left logs");
        assert_eq!(entries(&dirs.root.join("WALs")), Vec::<PathBuf>::new(), "turn {turn}: {side:?}");
        let ids = entries(&dirs.wals.join("data/default/t"));
        assert!(ids.iter().any(|region| region.join("recovered.edits").is_dir()), "turn {turn}: {side:?}");
    }
}

/// The logs of a killed stock HBase are in a directory that Evenkeel is not told of.
#[test]
fn evenkeel_does_not_start_without_stock_hbases_logs() {
    let dirs = Dirs::new("wal-dir-unset");
    let stock = dirs.start(Side::Stock, true).unwrap_or_else(|why| panic!("{why}"));
    let tables = Tables::of(&stock);
    tables.create("t");
    tables.write("t", 1);
    let before = tables.digest("t");
    drop(tables);
    stock.kill();
    let refused = dirs.start(Side::Evenkeel, false).err().expect("it must not serve without the rows");
    assert!(refused.contains("hbase.wal.dir"), "{refused}");
    let evenkeel = dirs.start(Side::Evenkeel, true).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(Tables::of(&evenkeel).digest("t"), before);
}
