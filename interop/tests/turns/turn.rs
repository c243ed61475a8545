//! [`Side`], the server of a turn, and [`Client`], the client that the tests use on both.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use evenkeel_client::{ClientConfig, CompactionState, Connection, Scan, SnapshotDescription};
use evenkeel_common::{TableDescriptor, TableName};
use interop::{Server, start_evenkeel_with, start_stock_with, work};

const WAIT: Duration = Duration::from_secs(90);
const PAUSE: Duration = Duration::from_millis(20);

/// The server of a turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Side {
    Stock,
    Evenkeel,
}

impl Side {
    /// The server of this side; of stock HBase if only that is tested.
    pub fn tested(self) -> Self {
        match std::env::var("EVENKEEL_INTEROP_TARGET").as_deref() {
            Ok("stock") => Self::Stock,
            _ => self,
        }
    }

    /// Starts the server.
    ///
    /// # Errors
    /// The end of its log, if it does not serve.
    pub fn start(self, settings: &[(String, String)]) -> Result<Server, String> {
        match self {
            Self::Stock => start_stock_with(settings),
            Self::Evenkeel => start_evenkeel_with(settings),
        }
    }

    /// Starts the server of a turn.
    ///
    /// # Panics
    /// If it does not serve.
    #[track_caller]
    pub fn started(self, settings: &[(String, String)]) -> Server {
        self.start(settings).unwrap_or_else(|why| panic!("{self:?}: {why}"))
    }
}

/// Makes the parent of a test's root directory. Returns the root directory, and the setting that
/// names it.
pub fn root_dir(test: &str) -> (PathBuf, [(String, String); 1]) {
    let root = work().join("run").join(format!("{test}.{}", std::process::id())).join("hbase");
    fs::create_dir_all(&root).expect("made");
    let setting = ("hbase.rootdir".to_owned(), format!("file://{}", root.display()));
    (root, [setting])
}

pub fn name(table: &str) -> TableName {
    table.parse().expect("legal")
}

pub fn row(i: usize) -> String {
    format!("row{i:03}")
}

/// The entries of a directory; none if there is no directory.
pub fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).map(|dir| dir.flatten().map(|entry| entry.path()).collect()).unwrap_or_default()
}

/// A native client.
pub struct Client {
    pub runtime: tokio::runtime::Runtime,
    pub connection: Connection,
}

impl Client {
    pub fn of(server: &Server) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let settings = server.client_settings();
        let bootstrap = settings.iter().find(|(key, _)| key == "hbase.client.bootstrap.servers");
        let config = ClientConfig::new([bootstrap.expect("known").1.as_str()]);
        let connection = runtime.block_on(Connection::connect(config)).expect("the server answers");
        Self { runtime, connection }
    }

    pub fn create(&self, table: &TableDescriptor, splits: &[bytes::Bytes]) {
        self.runtime.block_on(self.connection.admin().create_table(table, splits)).expect("created");
    }

    pub fn drop_table(&self, table: &str) {
        let admin = self.connection.admin();
        self.runtime.block_on(async {
            admin.disable_table(&name(table)).await.expect("disabled");
            admin.delete_table(&name(table)).await.expect("deleted");
        });
    }

    /// Compacts a table, and waits for the end.
    pub fn compact(&self, table: &str, major: bool) {
        let (admin, table) = (self.connection.admin(), name(table));
        self.runtime.block_on(admin.compact_table(&table, None, major)).expect("asked for");
        wait_for("the end of the compaction", || {
            let state = self.runtime.block_on(admin.compaction_state(&table)).expect("a state");
            state == CompactionState::None
        });
    }

    /// Splits a region of a table, and waits for the daughters.
    pub fn split(&self, table: &str, at: String) {
        let (admin, table) = (self.connection.admin(), name(table));
        let regions = || self.runtime.block_on(admin.regions(&table)).expect("listed").len();
        let before = regions();
        self.runtime.block_on(admin.split_table(&table, Some(at.into()))).expect("split");
        wait_for("the end of the split", || regions() > before);
    }

    /// Takes a snapshot of a table and clones it.
    pub fn clone_table(&self, table: &str, snapshot: &str, clone: &str) {
        let admin = self.connection.admin();
        self.runtime.block_on(async {
            admin.snapshot(&SnapshotDescription::new(snapshot, name(table))).await.expect("taken");
            admin.clone_snapshot(snapshot, &name(clone)).await.expect("cloned");
        });
    }

    pub fn has_table(&self, table: &str) -> bool {
        self.runtime.block_on(self.connection.admin().table_exists(&name(table))).expect("looked")
    }

    /// All versions of all cells of a table, with their values.
    pub fn cells(&self, table: &str) -> Vec<String> {
        self.runtime.block_on(async {
            let mut cells = Vec::new();
            let mut rows = self.connection.table(name(table)).scan(Scan::new().all_versions());
            while let Some(row) = rows.next().await.expect("read") {
                cells.extend(row.cells().iter().map(|cell| {
                    let cell = cell.as_cell();
                    format!("{table} {cell:?} {}", cell.value().escape_ascii())
                }));
            }
            cells
        })
    }
}

/// Waits until a condition holds.
///
/// # Panics
/// If it does not within [`WAIT`].
#[track_caller]
pub fn wait_for(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + WAIT;
    while !holds() {
        assert!(Instant::now() < deadline, "no {what} within {WAIT:?}");
        sleep(PAUSE);
    }
}
