//! Tables with MOB files on a directory that stock HBase and Evenkeel serve in turns. Each server
//! reads every cell that the other one left, writes, flushes, compacts, splits, deletes, and takes
//! and clones snapshots, and is killed at the end of its turn.

use std::path::{Path, PathBuf};

use evenkeel_client::{Delete, Get, Put, Scan};
use evenkeel_common::mob::{MobFileName, mob_family_dir};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor};
use interop::Server;

use crate::turn::{Client, Side, entries, name, root_dir, row};

/// Values from this length on are in MOB files.
const THRESHOLD: usize = 500;
const ROWS: usize = 40;
const TABLE: &str = "mob";

/// A value that is long in two rows of three.
fn value(turn: usize, i: usize) -> String {
    let text = format!("{turn}.{i}.");
    if i.is_multiple_of(3) {
        text
    } else {
        text.repeat(THRESHOLD + 100 * i).chars().take(THRESHOLD + 100 * i).collect()
    }
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
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal").with("VERSIONS", "3");
        let family = family.with("IS_MOB", "true").with("MOB_THRESHOLD", &(THRESHOLD - 1).to_string());
        let table = TableDescriptor::new(name(TABLE)).with_family(family);
        self.client.create(&table, &[]);
    }

    /// Writes short and long values, new versions and markers.
    fn fill(&self, turn: usize) {
        self.client.runtime.block_on(async {
            let rows = self.client.connection.table(name(TABLE));
            for flush in 0..2 {
                let put = |i: usize| Put::new(row(i)).column("f", format!("q{flush}"), value(turn, i));
                rows.put_all((0..ROWS).map(put)).await.expect("written");
                rows.delete(Delete::new(row(7 * (turn % 5) + flush))).await.expect("deleted");
                self.client.connection.admin().flush_table(&name(TABLE)).await.expect("flushed");
            }
            // Only in the log when the server is killed.
            let put = Put::new(format!("log{turn}")).column("f", "q", value(turn, 4));
            rows.put(put).await.expect("written");
        });
    }

    fn tables(&self) -> Vec<String> {
        let all = (1..=4).map(|turn| format!("clone{turn}")).chain([TABLE.to_owned()]);
        all.filter(|table| self.client.has_table(table)).collect()
    }

    /// All versions of all cells, with their values; forwards, backwards and by Gets.
    fn digest(&self) -> Vec<String> {
        let mut cells = Vec::new();
        for table in self.tables() {
            cells.extend(self.client.cells(&table));
            self.client.runtime.block_on(async {
                let handle = self.client.connection.table(name(&table));
                let got = handle.get(Get::new(row(4))).await.expect("read");
                cells.extend(got.cells().iter().map(|cell| {
                    let cell = cell.as_cell();
                    format!("get {table} {cell:?} {}", String::from_utf8_lossy(cell.value()))
                }));
                let mut reversed = handle.scan(Scan::new().reversed());
                let mut newest = 0;
                while let Some(row) = reversed.next().await.expect("read") {
                    newest += row.cells().iter().map(|cell| cell.as_cell().value().len()).sum::<usize>();
                }
                cells.push(format!("{table}: {newest} bytes backwards"));
            });
        }
        assert!(cells.len() > ROWS, "{} cells", cells.len());
        cells
    }

    fn work(&self, turn: usize) {
        self.fill(turn);
        self.client.clone_table(TABLE, &format!("s{turn}"), &format!("clone{turn}"));
        self.client.split(TABLE, row(7 * turn + 3));
        self.client.compact(TABLE, true);
        match turn {
            // A clone of the other server, whose values are in the files of the table.
            2 => self.client.compact("clone1", true),
            3 => self.client.drop_table("clone1"),
            _ => {}
        }
        self.fill(turn + 10);
    }
}

/// Checks the names in a table's MOB directory. Returns the number of files and of links.
fn check_mob_files(root: &Path, table: &str) -> (usize, usize) {
    let dir: PathBuf = mob_family_dir(root, &name(table), "f");
    let names = entries(&dir).into_iter();
    let names = names.filter_map(|path| path.file_name()?.to_str().map(str::to_owned));
    let visible = names.filter(|name| !name.starts_with('.'));
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
    let (root, settings) = root_dir("mob");
    let turns = [Side::Stock, Side::Evenkeel, Side::Stock, Side::Evenkeel];
    let mut before: Option<Vec<String>> = None;
    for (turn, side) in (1..).zip(turns) {
        let side = side.tested();
        let server = side.started(&settings);
        let tables = Tables::of(&server);
        if turn == 1 {
            tables.create();
        }
        if let Some(before) = before.take() {
            let now = tables.digest();
            let differs = before.iter().zip(&now).find(|(before, now)| before != now);
            assert_eq!(before.len(), now.len(), "turn {turn}, {side:?}: {differs:?}");
            assert_eq!(differs, None, "turn {turn}: {side:?} over the files of the turn before");
        }
        tables.work(turn);
        before = Some(tables.digest());
        drop((tables, server));
        let (files, links) = check_mob_files(&root, TABLE);
        assert!(files >= 2 && links == 0, "turn {turn}, {side:?}: {files} files, {links} links");
        let (_, links) = check_mob_files(&root, &format!("clone{turn}"));
        assert!(links >= 2, "turn {turn}, {side:?}: {links} links of the clone");
    }
}
