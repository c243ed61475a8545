//! Logs in another directory than the data (`hbase.wal.dir`), of a standalone stock HBase and of
//! Evenkeel, which serve both directories in turns. Each is killed at the end of its turn, with
//! edits that are only in its log: the next one finds every acknowledged cell.
//!
//! The test needs both servers. With `EVENKEEL_INTEROP_TARGET=stock`, every turn is of stock HBase.

#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use evenkeel_client::{ClientConfig, Connection, Delete, Increment, Put, Scan};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};
use interop::{Server, start_evenkeel_with, start_stock_with, work};

const ROWS: usize = 200;
const WAIT: Duration = Duration::from_secs(90);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Side {
    Stock,
    Evenkeel,
}

fn name(table: &str) -> TableName {
    table.parse().expect("legal")
}

struct Client {
    runtime: tokio::runtime::Runtime,
    connection: Connection,
}

impl Client {
    fn of(server: &Server) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let settings = server.client_settings();
        let bootstrap = settings.iter().find(|(key, _)| key == "hbase.client.bootstrap.servers");
        let config = ClientConfig::new([bootstrap.expect("known").1.as_str()]);
        let connection = runtime.block_on(Connection::connect(config)).expect("the server answers");
        Self { runtime, connection }
    }

    fn create(&self, table: &str) {
        let family = |name: &[u8]| ColumnFamilyDescriptor::new(name).expect("legal").with("VERSIONS", "5");
        let described = TableDescriptor::new(name(table)).with_family(family(b"f")).with_family(family(b"g"));
        let splits = [bytes::Bytes::from_static(b"row100")];
        self.runtime.block_on(self.connection.admin().create_table(&described, &splits)).expect("created");
    }

    /// Writes rows, some of which are flushed; the others are only in the log.
    fn write(&self, table: &str, turn: usize) {
        self.runtime.block_on(async {
            let rows = self.connection.table(name(table));
            for part in 0..2 {
                let put = |i: usize| {
                    let value = format!("{turn}.{part}.{i}");
                    Put::new(format!("row{i:03}")).column("f", "q", &value).column("g", "q", &value)
                };
                rows.put_all((part..ROWS).step_by(2).map(put)).await.expect("written");
                rows.delete(Delete::new(format!("row{:03}", 17 * turn + part))).await.expect("deleted");
                if part == 0 {
                    self.connection.admin().flush_table(&name(table)).await.expect("flushed");
                }
            }
            for _ in 0..turn {
                rows.increment(Increment::new("counter").column("f", "n", 1)).await.expect("counted");
            }
        });
    }

    fn drop_table(&self, table: &str) {
        self.runtime.block_on(async {
            let admin = self.connection.admin();
            admin.disable_table(&name(table)).await.expect("disabled");
            admin.delete_table(&name(table)).await.expect("deleted");
        });
    }

    fn split(&self, table: &str, at: &'static str) {
        let (admin, table) = (self.connection.admin(), name(table));
        let regions = || self.runtime.block_on(admin.regions(&table)).expect("listed");
        let before = regions().len();
        self.runtime.block_on(admin.split_table(&table, Some(at.into()))).expect("split");
        let deadline = Instant::now() + WAIT;
        while regions().len() <= before {
            assert!(Instant::now() < deadline, "the split does not end");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Every cell of the table.
    fn digest(&self, table: &str) -> Vec<String> {
        let cells = self.runtime.block_on(async {
            let mut cells = Vec::new();
            let mut rows = self.connection.table(name(table)).scan(Scan::new().all_versions());
            while let Some(row) = rows.next().await.expect("read") {
                cells.extend(row.cells().iter().map(|cell| format!("{:?}", cell.as_cell())));
            }
            cells
        });
        assert!(cells.len() > ROWS, "{} cells", cells.len());
        cells
    }
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).map(|dir| dir.flatten().map(|entry| entry.path()).collect()).unwrap_or_default()
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
        let folder = work().join("run").join(format!("{test}.{}", std::process::id()));
        let [root, wals] = ["hbase", "wals"].map(|name| folder.join(name));
        fs::create_dir_all(&folder).expect("made");
        Self { root, wals }
    }

    fn settings(&self, has_wal_dir: bool) -> Vec<(String, String)> {
        let uri = |dir: &Path| format!("file://{}", dir.display());
        let mut settings = vec![("hbase.rootdir".to_owned(), uri(&self.root))];
        settings.extend(has_wal_dir.then(|| ("hbase.wal.dir".to_owned(), uri(&self.wals))));
        settings
    }

    fn start(&self, side: Side, has_wal_dir: bool) -> Result<Server, String> {
        let settings = self.settings(has_wal_dir);
        match side {
            Side::Stock => start_stock_with(&settings),
            Side::Evenkeel => start_evenkeel_with(&settings),
        }
    }
}

fn is_only_stock() -> bool {
    std::env::var("EVENKEEL_INTEROP_TARGET").as_deref() == Ok("stock")
}

#[test]
fn killed_servers_recover_each_others_logs_in_another_directory() {
    let dirs = Dirs::new("wal-dir");
    let turns = [Side::Stock, Side::Evenkeel, Side::Stock, Side::Evenkeel, Side::Evenkeel];
    let mut before: Option<Vec<String>> = None;
    for (turn, side) in (1..).zip(turns) {
        let side = if is_only_stock() { Side::Stock } else { side };
        let server = dirs.start(side, true).unwrap_or_else(|why| panic!("turn {turn}, {side:?}: {why}"));
        let client = Client::of(&server);
        match before.take() {
            None => client.create("t"),
            Some(before) => {
                assert_eq!(
                    client.digest("t"),
                    before,
                    "turn {turn}: {side:?} over the logs of the turn before"
                );
                client.drop_table(&format!("gone{}", turn - 1));
            }
        }
        client.write("t", turn);
        client.split("t", ["row150", "row050", "row025", "row075", "row175"][turn - 1]);
        client.write("t", turn + 10);
        client.create(&format!("gone{turn}"));
        client.write(&format!("gone{turn}"), turn);
        before = Some(client.digest("t"));
        drop(client);
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
    let client = Client::of(&stock);
    client.create("t");
    client.write("t", 1);
    let before = client.digest("t");
    drop(client);
    stock.kill();
    let refused = dirs.start(Side::Evenkeel, false).err().expect("it must not serve without the rows");
    assert!(refused.contains("hbase.wal.dir"), "{refused}");
    let evenkeel = dirs.start(Side::Evenkeel, true).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(Client::of(&evenkeel).digest("t"), before);
}
