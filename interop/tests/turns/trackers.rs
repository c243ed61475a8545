//! Tables whose store files are tracked by lists, and tables on the way to lists and back, on a
//! directory that stock HBase and Evenkeel serve in turns. Each server writes, flushes, compacts,
//! splits and changes trackers over what the other one left, and each is killed at the end of its
//! turn.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use evenkeel_client::{Delete, Error, Put};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor};
use evenkeel_protocol::pb;
use interop::Server;
use prost::Message;

use crate::turn::{Client, Side, entries, name, root_dir, row};

const TRACKER: &str = "hbase.store.file-tracker.impl";
const SRC: &str = "hbase.store.file-tracker.migration.src.impl";
const DST: &str = "hbase.store.file-tracker.migration.dst.impl";

/// Has FILE from its creation on.
const LISTED: &str = "listed";
/// Goes to FILE in the first turn, back in the second, and so on.
const MOVED: &str = "moved";
/// Is left between DEFAULT and FILE by the first turn.
const MOVING: &str = "moving";
const TABLES: [&str; 3] = [LISTED, MOVED, MOVING];
const ROWS: usize = 60;

/// The client, and what it does to the tables.
struct Tables {
    client: Client,
}

impl Tables {
    fn of(server: &Server) -> Self {
        Self { client: Client::of(server) }
    }

    fn create(&self) {
        for table in TABLES {
            let family = ColumnFamilyDescriptor::new(b"f").expect("legal").with("VERSIONS", "3");
            let tracker = if table == LISTED { "FILE" } else { "DEFAULT" };
            let table = TableDescriptor::new(name(table)).with_family(family).with(TRACKER, tracker);
            self.client.create(&table, &[]);
        }
    }

    /// Writes rows, new versions and markers, and flushes them, twice.
    fn fill(&self, turn: usize) {
        for table in TABLES {
            self.client.runtime.block_on(async {
                let rows = self.client.connection.table(name(table));
                for flush in 0..2 {
                    let put = |i: usize| Put::new(row(i)).column("f", "q", format!("{turn}.{flush}.{i}"));
                    rows.put_all((0..ROWS).map(put)).await.expect("written");
                    rows.delete(Delete::new(row(7 * turn + flush))).await.expect("deleted");
                    self.client.connection.admin().flush_table(&name(table)).await.expect("flushed");
                }
                // Only in the log when the server is killed.
                rows.put(Put::new(format!("log{turn}")).column("f", "q", "x")).await.expect("written");
            });
        }
    }

    fn change(&self, table: &str, tracker: &str) {
        let (admin, name) = (self.client.connection.admin(), name(table));
        let changed = admin.modify_table_store_file_tracker(&name, tracker);
        self.client.runtime.block_on(changed).unwrap_or_else(|error| panic!("{table} to {tracker}: {error}"));
    }

    fn alter(&self, table: &str, attributes: &[(&str, &str)]) -> Result<(), Error> {
        let admin = self.client.connection.admin();
        let described = self.client.runtime.block_on(admin.describe(&name(table))).expect("described");
        let altered = attributes.iter().fold(described, |table, (key, value)| table.with(key, value));
        self.client.runtime.block_on(admin.modify_table(&altered))
    }

    fn tracker(&self, table: &str) -> String {
        let described = self.client.runtime.block_on(self.client.connection.admin().describe(&name(table)));
        described.expect("described").text(TRACKER).unwrap_or_default().to_owned()
    }

    /// What a change is refused with: class and message.
    fn refusal(outcome: Result<(), Error>) -> String {
        match outcome {
            Err(Error::Remote(error)) => {
                let class = error.class.rsplit('.').next().unwrap_or_default().to_owned();
                format!("{class}: {}", error.message.lines().next().unwrap_or_default())
            }
            other => format!("{other:?}"),
        }
    }

    /// The errors of illegal changes.
    fn refusals(&self) -> Vec<String> {
        let admin = self.client.connection.admin();
        let listed = name(LISTED);
        let mut refusals = vec![
            Self::refusal(self.alter(LISTED, &[(TRACKER, "DEFAULT")])),
            Self::refusal(self.alter(LISTED, &[(TRACKER, "MIGRATION"), (SRC, "DEFAULT"), (DST, "FILE")])),
            Self::refusal(self.alter(LISTED, &[(TRACKER, "MIGRATION"), (SRC, "FILE"), (DST, "FILE")])),
        ];
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
        let table = TableDescriptor::new(name("refused")).with_family(family);
        let table = table.with(TRACKER, "MIGRATION").with(SRC, "DEFAULT").with(DST, "FILE");
        refusals.push(Self::refusal(self.client.runtime.block_on(admin.create_table(&table, &[]))));
        for tracker in ["MIGRATION", "migration"] {
            let changed = admin.modify_table_store_file_tracker(&listed, tracker);
            refusals.push(Self::refusal(self.client.runtime.block_on(changed)));
        }
        let unknown = admin.modify_family_store_file_tracker(&listed, b"nope", "FILE");
        refusals.push(Self::refusal(self.client.runtime.block_on(unknown)));
        refusals
    }

    fn digest(&self) -> Vec<String> {
        let tables = TABLES.into_iter().chain(["cloned"]).filter(|table| self.client.has_table(table));
        let cells: Vec<_> = tables.flat_map(|table| self.client.cells(table)).collect();
        assert!(cells.len() > ROWS, "{} cells", cells.len());
        cells
    }

    /// Writes, and changes everything that has a list.
    fn work(&self, turn: usize) {
        self.fill(turn);
        self.client.compact(LISTED, true);
        self.client.split(LISTED, row(10 * turn + 5));
        match turn {
            1 => {
                self.change(MOVED, "FILE");
                let migration = [(TRACKER, "MIGRATION"), (SRC, "DEFAULT"), (DST, "FILE")];
                self.alter(MOVING, &migration).expect("begun");
            }
            2 => {
                self.move_back();
                self.change(MOVING, "FILE");
                self.client.clone_table(LISTED, "s", "cloned");
            }
            _ => {
                match self.tracker(MOVED).as_str() {
                    "FILE" => self.move_back(),
                    _ => self.change(MOVED, "FILE"),
                }
                self.client.compact(MOVING, true);
            }
        }
        let trackers = TABLES.map(|table| self.tracker(table));
        let expected = match turn {
            1 => ["FILE", "FILE", "MIGRATION"],
            2 => ["FILE", "DEFAULT", "FILE"],
            3 => ["FILE", "FILE", "FILE"],
            _ => ["FILE", "DEFAULT", "FILE"],
        };
        assert_eq!(trackers, expected, "turn {turn}");
        self.fill(turn + 10);
    }

    /// From FILE to DEFAULT, in two changes of the descriptor: `ModifyTableStoreFileTracker` of
    /// stock 2.6.4 takes the server's tracker for the source, and then refuses the migration.
    fn move_back(&self) {
        let migration = [(TRACKER, "MIGRATION"), (SRC, "FILE"), (DST, "DEFAULT")];
        self.alter(MOVED, &migration).expect("begun");
        self.alter(MOVED, &[(TRACKER, "DEFAULT")]).expect("completed");
    }
}

/// The names that a list has, read by the format's description.
fn parse(bytes: &[u8]) -> (u64, BTreeSet<String>) {
    let length = u32::from_be_bytes(bytes[..4].try_into().expect("four bytes")) as usize;
    let list = pb::StoreFileList::decode(&bytes[4..4 + length]).expect("a message");
    assert_eq!(bytes.len(), length + 8);
    (list.timestamp, list.store_file.into_iter().map(|file| file.name).collect())
}

/// Checks the newest list of every region of a table: its files exist. Returns their number.
fn check_lists(root: &Path, table: &str) -> usize {
    let mut files = 0;
    let is_region = |dir: &PathBuf| dir.file_name().is_some_and(|name| name.len() == 32);
    for region in entries(&root.join("data/default").join(table)).into_iter().filter(is_region) {
        let family = region.join("f");
        let mut lists: Vec<(u64, u64, BTreeSet<String>)> = Vec::new();
        for path in entries(&family.join(".filelist")) {
            let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
            let (prefix, sequence) = file.split_once('.').unwrap_or_else(|| panic!("{file}"));
            assert!(["f1", "f2"].contains(&prefix), "{file}");
            let (timestamp, names) = parse(&fs::read(&path).expect("read"));
            lists.push((sequence.parse().expect("a number"), timestamp, names));
        }
        lists.sort();
        for name in lists.pop().map(|(_, _, names)| names).unwrap_or_default() {
            assert!(family.join(&name).exists(), "{}/{name} is listed and missing", family.display());
            files += 1;
        }
    }
    files
}

#[test]
fn lists_exchange_both_ways() {
    let (root, settings) = root_dir("trackers");
    let turns = [Side::Stock, Side::Evenkeel, Side::Stock, Side::Evenkeel];
    let (mut before, mut refusals) = (None, None);
    for (turn, side) in (1..).zip(turns) {
        let side = side.tested();
        let server = side.started(&settings);
        let tables = Tables::of(&server);
        if turn == 1 {
            tables.create();
        }
        if let Some(before) = before.take() {
            assert_eq!(tables.digest(), before, "turn {turn}: {side:?} over the files of the turn before");
        }
        let found = tables.refusals();
        assert_eq!(refusals.get_or_insert_with(|| found.clone()), &found, "turn {turn}: {side:?}");
        tables.work(turn);
        before = Some(tables.digest());
        drop((tables, server));
        assert!(check_lists(&root, LISTED) > 1, "turn {turn}: {side:?}");
        assert!(check_lists(&root, MOVING) > 0, "turn {turn}: {side:?}");
        if turn > 1 {
            assert!(check_lists(&root, "cloned") > 0, "turn {turn}: {side:?}");
        }
        // No server may serve or rely on these.
        for table in [LISTED, MOVING] {
            for region in entries(&root.join("data/default").join(table)) {
                if region.join("f").is_dir() && turn > 1 {
                    fs::write(region.join("f").join(format!("{turn:032x}")), b"broken").expect("written");
                }
            }
        }
    }
    println!("{}", refusals.unwrap_or_default().join("\n"));
}
