//! Tables with MOB files on a directory that stock HBase and Evenkeel serve in turns. Each server
//! reads every cell that the other one left, writes, flushes, compacts, splits, deletes, and takes
//! and clones snapshots, and is killed at the end of its turn.
//!
//! The test needs both servers. With `EVENKEEL_INTEROP_TARGET=stock`, every turn is of stock HBase.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use evenkeel_client::{
    ClientConfig, CompactionState, Connection, Delete, Get, Put, Scan, SnapshotDescription,
};
use evenkeel_common::mob::{MobFileName, mob_family_dir};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};
use interop::{Server, start_evenkeel_with, start_stock_with, work};

/// Values from this length on are in MOB files.
const THRESHOLD: usize = 500;
const ROWS: usize = 40;
const WAIT: Duration = Duration::from_secs(90);
const TABLE: &str = "mob";

#[derive(Clone, Copy, Debug, PartialEq)]
enum Side {
    Stock,
    Evenkeel,
}

fn name(table: &str) -> TableName {
    table.parse().expect("legal")
}

fn row(i: usize) -> String {
    format!("row{i:03}")
}

/// A value that is long in two rows of three.
fn value(turn: usize, i: usize) -> String {
    let text = format!("{turn}.{i}.");
    if i.is_multiple_of(3) {
        text
    } else {
        text.repeat(THRESHOLD + 100 * i).chars().take(THRESHOLD + 100 * i).collect()
    }
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

    fn create(&self) {
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal").with("VERSIONS", "3");
        let family = family.with("IS_MOB", "true").with("MOB_THRESHOLD", &(THRESHOLD - 1).to_string());
        let table = TableDescriptor::new(name(TABLE)).with_family(family);
        self.runtime.block_on(self.connection.admin().create_table(&table, &[])).expect("created");
    }

    /// Writes short and long values, new versions and markers.
    fn fill(&self, turn: usize) {
        self.runtime.block_on(async {
            let rows = self.connection.table(name(TABLE));
            for flush in 0..2 {
                let put = |i: usize| Put::new(row(i)).column("f", format!("q{flush}"), value(turn, i));
                rows.put_all((0..ROWS).map(put)).await.expect("written");
                rows.delete(Delete::new(row(7 * (turn % 5) + flush))).await.expect("deleted");
                self.connection.admin().flush_table(&name(TABLE)).await.expect("flushed");
            }
            // Only in the log when the server is killed.
            let put = Put::new(format!("log{turn}")).column("f", "q", value(turn, 4));
            rows.put(put).await.expect("written");
        });
    }

    fn compact(&self, table: &str) {
        let (admin, table) = (self.connection.admin(), name(table));
        self.runtime.block_on(admin.compact_table(&table, None, true)).expect("asked for");
        let deadline = Instant::now() + WAIT;
        while self.runtime.block_on(admin.compaction_state(&table)).expect("a state") != CompactionState::None
        {
            assert!(Instant::now() < deadline, "the compaction does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn split(&self, at: String) {
        let (admin, table) = (self.connection.admin(), name(TABLE));
        let regions = || self.runtime.block_on(admin.regions(&table)).expect("listed");
        let before = regions().len();
        self.runtime.block_on(admin.split_table(&table, Some(at.into()))).expect("split");
        let deadline = Instant::now() + WAIT;
        while regions().len() <= before {
            assert!(Instant::now() < deadline, "the split does not end");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn snapshot_and_clone(&self, turn: usize) {
        let admin = self.connection.admin();
        self.runtime.block_on(async {
            let snapshot = format!("s{turn}");
            admin.snapshot(&SnapshotDescription::new(snapshot.as_str(), name(TABLE))).await.expect("taken");
            admin.clone_snapshot(&snapshot, &name(&format!("clone{turn}"))).await.expect("cloned");
        });
    }

    fn drop_table(&self, table: &str) {
        let admin = self.connection.admin();
        self.runtime.block_on(async {
            admin.disable_table(&name(table)).await.expect("disabled");
            admin.delete_table(&name(table)).await.expect("deleted");
        });
    }

    fn tables(&self) -> Vec<String> {
        let all = (1..=4).map(|turn| format!("clone{turn}")).chain([TABLE.to_owned()]);
        let exists =
            |table: &String| self.runtime.block_on(self.connection.admin().table_exists(&name(table)));
        all.filter(|table| exists(table).expect("looked")).collect()
    }

    /// All versions of all cells, with their values; forwards, backwards and by Gets.
    fn digest(&self) -> Vec<String> {
        let mut cells = Vec::new();
        for table in self.tables() {
            self.runtime.block_on(async {
                let handle = self.connection.table(name(&table));
                let mut rows = handle.scan(Scan::new().all_versions());
                let mut found = Vec::new();
                while let Some(row) = rows.next().await.expect("read") {
                    for cell in row.cells() {
                        let cell = cell.as_cell();
                        let text = String::from_utf8_lossy(cell.value()).into_owned();
                        found.push(format!("{table} {cell:?} {text}"));
                    }
                }
                let got = handle.get(Get::new(row(4))).await.expect("read");
                found.extend(got.cells().iter().map(|cell| {
                    let cell = cell.as_cell();
                    format!("get {table} {cell:?} {}", String::from_utf8_lossy(cell.value()))
                }));
                let mut reversed = handle.scan(Scan::new().reversed());
                let mut newest = 0;
                while let Some(row) = reversed.next().await.expect("read") {
                    newest += row.cells().iter().map(|cell| cell.as_cell().value().len()).sum::<usize>();
                }
                found.push(format!("{table}: {newest} bytes backwards"));
                cells.extend(found);
            });
        }
        assert!(cells.len() > ROWS, "{} cells", cells.len());
        cells
    }

    fn work(&self, turn: usize) {
        self.fill(turn);
        self.snapshot_and_clone(turn);
        self.split(row(7 * turn + 3));
        self.compact(TABLE);
        match turn {
            // A clone of the other server, whose values are in the files of the table.
            2 => self.compact("clone1"),
            3 => self.drop_table("clone1"),
            _ => {}
        }
        self.fill(turn + 10);
    }
}

fn names_in(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).map(|dir| dir.flatten().collect::<Vec<_>>()).unwrap_or_default();
    entries.iter().filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Checks the names in a table's MOB directory. Returns the number of files and of links.
fn check_mob_files(root: &Path, table: &str) -> (usize, usize) {
    let dir: PathBuf = mob_family_dir(root, &name(table), "f");
    let visible = names_in(&dir).into_iter().filter(|name| !name.starts_with('.'));
    let (links, files): (Vec<_>, Vec<_>) = visible.partition(|name| name.contains('='));
    for file in &files {
        assert!(MobFileName::parse(file).is_some(), "{file}");
    }
    for link in &links {
        let target = link.split_once('-').map(|(_, file)| file).unwrap_or_default();
        assert!(MobFileName::parse(target).is_some(), "{link}");
    }
    (files.len(), links.len())
}

#[test]
fn mob_files_exchange_both_ways() {
    let root = work().join("run").join(format!("mob.{}", std::process::id())).join("hbase");
    fs::create_dir_all(&root).expect("made");
    let settings = [("hbase.rootdir".to_owned(), format!("file://{}", root.display()))];
    let only_stock = std::env::var("EVENKEEL_INTEROP_TARGET").as_deref() == Ok("stock");
    let turns = [Side::Stock, Side::Evenkeel, Side::Stock, Side::Evenkeel];
    let mut before: Option<Vec<String>> = None;
    for (turn, side) in (1..).zip(turns) {
        let side = if only_stock { Side::Stock } else { side };
        let server = match side {
            Side::Stock => start_stock_with(&settings),
            Side::Evenkeel => start_evenkeel_with(&settings),
        };
        let server = server.unwrap_or_else(|why| panic!("turn {turn}, {side:?}: {why}"));
        let client = Client::of(&server);
        if turn == 1 {
            client.create();
        }
        if let Some(before) = before.take() {
            let now = client.digest();
            let differs = before.iter().zip(&now).find(|(before, now)| before != now);
            assert_eq!(before.len(), now.len(), "turn {turn}, {side:?}: {differs:?}");
            assert_eq!(differs, None, "turn {turn}: {side:?} over the files of the turn before");
        }
        client.work(turn);
        before = Some(client.digest());
        drop((client, server));
        let (files, links) = check_mob_files(&root, TABLE);
        assert!(files >= 2 && links == 0, "turn {turn}, {side:?}: {files} files, {links} links");
        let (_, links) = check_mob_files(&root, &format!("clone{turn}"));
        assert!(links >= 2, "turn {turn}, {side:?}: {links} links of the clone");
    }
}
