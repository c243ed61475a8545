//! A start keeps and logs everything that it cannot use, in log directories and in directories that
//! it removes.

use std::fmt::{Debug, Write};

use evenkeel_region::layout::{self, CORRUPT_DIR};
use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Level, span};

use super::*;
use crate::change_intent::ChangeIntent;
use crate::meta::MetaChange;

/// The lines of warnings and errors that the calling thread logs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").expect("written");
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = String::new();
        event.record(&mut Line(&mut line));
        self.0.lock().push(line);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

impl Log {
    fn of(action: impl FnOnce()) -> Self {
        let log = Self::default();
        tracing::subscriber::with_default(log.clone(), action);
        log
    }

    /// Asserts that one line has all of these parts.
    fn names(&self, parts: &[&str]) {
        let lines = self.0.lock();
        let has_all = |line: &&String| parts.iter().all(|part| line.contains(part));
        assert_eq!(lines.iter().filter(has_all).count(), 1, "{parts:?} in {lines:#?}");
    }
}

fn names(cluster: &Cluster, dir: &str) -> Vec<String> {
    let entries = cluster.memory.list(&path(dir)).unwrap_or_default();
    entries.iter().map(|entry| entry.name().to_owned()).collect()
}

/// The log directory of the running server.
fn log_dir(cluster: &Cluster) -> PathBuf {
    let dirs = cluster.memory.list(&path("WALs")).expect("listed");
    dirs.last().expect("the server's").path.clone()
}

fn newest_log(cluster: &Cluster) -> PathBuf {
    cluster.memory.list(&log_dir(cluster)).expect("listed").last().expect("a log").path.clone()
}

fn text(cluster: &Cluster, below: &str) -> Vec<u8> {
    cluster.memory.read_all(&path(below), 99).unwrap_or_else(|error| panic!("{below}: {error}"))
}

/// Damages the lengths of the key and the value of a row's cell.
fn damage_entry_of(bytes: &mut [u8], row: &[u8]) {
    let at = bytes.windows(row.len()).position(|bytes| bytes == row).expect("the entry");
    bytes[at - 10..at - 2].fill(0xff);
}

#[test]
fn entries_of_a_log_directory_that_are_no_logs_are_kept() {
    let mut cluster = Cluster::with_table();
    for (content, is_first) in [(b"one", true), (b"two", false)] {
        let dir = log_dir(&cluster);
        for below in ["sub/deep/data", "strange"] {
            cluster.memory.write_atomically(&dir.join(below), content).expect("written");
        }
        cluster.memory.write_atomically(&path("WALs/beside"), content).expect("written");
        let log = Log::of(|| cluster.crash());
        assert!(!cluster.memory.exists(&dir).expect("looked"), "its directory is gone");
        assert!(!names(&cluster, "WALs").contains(&"beside".to_owned()));
        let end = if is_first { "" } else { ".1" };
        assert_eq!(text(&cluster, &format!("{CORRUPT_DIR}/sub{end}/deep/data")), content);
        for name in ["sub", "strange", "beside"] {
            log.names(&["not a WAL", &format!("/{name} kept")]);
        }
        for name in ["strange", "beside"] {
            assert_eq!(text(&cluster, &format!("{CORRUPT_DIR}/{name}{end}")), content);
        }
        assert_eq!(cluster.rows(), ROWS);
    }
}

#[test]
fn a_damaged_log_is_kept_and_the_entries_around_the_damage_are_there() {
    let mut cluster = Cluster::with_table();
    let rows: Vec<_> = (0..40).map(|i| format!("row{i:02}")).collect();
    rows.iter().for_each(|row| cluster.put(row).expect("written"));
    let log = newest_log(&cluster);
    cluster.memory.damage(&log, |bytes| damage_entry_of(bytes, b"row20")).expect("damaged");
    cluster.die();
    cluster.split_wals_and_die();
    assert!(cluster.memory.exists(&log).expect("looked"), "the next start knows of the damage");
    let lines = Log::of(|| cluster.start());
    let name = log.file_name().expect("a name").to_string_lossy().into_owned();
    lines.names(&["a WAL is damaged", &name, "kept in corrupt"]);
    lines.names(&["edits are lost", &name]);
    assert!(names(&cluster, CORRUPT_DIR).contains(&name));
    assert!(!names(&cluster, "oldWALs").contains(&name));
    let found = cluster.rows();
    let missing: Vec<_> = rows.iter().filter(|row| !found.contains(row)).collect();
    assert_eq!(missing, ["row20"]);
    assert!(ROWS.iter().all(|row| found.iter().any(|found| found == row)));
}

#[test]
fn edits_of_a_listed_region_without_a_directory_are_kept() {
    let mut cluster = Cluster::with_table();
    let region = encoded(cluster.master())[1].clone();
    let log = newest_log(&cluster);
    cluster.die();
    cluster.memory.delete(&path("data/default/t").join(&region)).expect("deleted");
    let lines = Log::of(|| cluster.start());
    lines.names(&["directory is missing", &region, "entries=3", "/hbase/corrupt/"]);
    // Those of `m`, `n` and `z`, flushed or not.
    assert_eq!(cluster.lost.iter().collect::<Vec<_>>(), [(&region, &3)]);
    let name = log.file_name().expect("a name").to_string_lossy().into_owned();
    assert!(names(&cluster, CORRUPT_DIR).contains(&name));
    assert_eq!(cluster.rows(), ["a", "b", "c"]);
    cluster.crash();
    assert!(cluster.lost.is_empty(), "said once");
}

#[test]
fn a_start_that_is_cut_off_before_hbase_meta_is_read_loses_no_edits() {
    let mut cluster = Cluster::with_table();
    let region = encoded(cluster.master())[1].clone();
    let (dir, log) = (log_dir(&cluster), newest_log(&cluster));
    cluster.die();
    cluster.memory.delete(&path("data/default/t").join(&region)).expect("deleted");
    for _ in 0..2 {
        cluster.split_wals_and_die();
        assert!(cluster.memory.exists(&log).expect("looked"), "until hbase:meta is read");
        assert!(names(&cluster, CORRUPT_DIR).is_empty());
    }
    let lines = Log::of(|| cluster.start());
    lines.names(&["directory is missing", &region, "entries=3", "/hbase/corrupt/"]);
    assert_eq!(cluster.lost.iter().collect::<Vec<_>>(), [(&region, &3)]);
    assert!(!cluster.memory.exists(&dir).expect("looked"), "its directory is gone");
    assert_eq!(cluster.rows(), ["a", "b", "c"]);
}

/// Regions that were split, merged, truncated or deleted have edits in logs and no directory.
#[test]
fn edits_of_regions_that_changes_removed_are_not_lost() {
    let removals: [fn(&Cluster); 3] = [
        |cluster| {
            cluster.run(disable).expect("disabled");
            cluster.run(|master| master.delete_table(table_name(), NO_NONCE)).expect("deleted");
        },
        |cluster| {
            cluster.run(disable).expect("disabled");
            cluster.run(|m| m.truncate_table(table_name(), true, NO_NONCE)).expect("truncated");
        },
        |cluster| {
            cluster.run(split).expect("split");
            for region in cluster.regions() {
                region.compact(None, true).expect("compacted");
                region.archive_compacted().expect("archived");
            }
            cluster.master().run_catalog_janitor().expect("archived");
        },
    ];
    for remove in removals {
        let mut cluster = Cluster::with_table();
        let parent = encoded(cluster.master())[0].clone();
        remove(&cluster);
        assert!(!cluster.memory.exists(&path("data/default/t").join(parent)).expect("looked"));
        let log = Log::of(|| cluster.crash());
        assert!(log.0.lock().is_empty(), "{:#?}", log.0.lock());
        assert!(cluster.lost.is_empty(), "{:?}", cluster.lost);
        assert!(names(&cluster, CORRUPT_DIR).is_empty());
    }
}

/// Part of the log is damaged, so rows of hbase:meta may be lost: a region that it does not list
/// may be one that it listed.
#[test]
fn edits_of_an_unlisted_region_are_kept_if_hbase_meta_is_incomplete() {
    let mut cluster = Cluster::with_table();
    let region = cluster.regions()[1].info().clone();
    cluster.master().meta().commit(vec![MetaChange::Delete(region.clone())]).expect("written");
    cluster.put("damaged").expect("written");
    let log = newest_log(&cluster);
    cluster.die();
    cluster.memory.delete(&layout::region_dir(Path::new("/hbase"), &region)).expect("deleted");
    let other = log.with_file_name(format!("{}9", log.file_name().expect("a name").to_string_lossy()));
    let mut bytes = cluster.memory.read_all(&log, 1 << 24).expect("read");
    damage_entry_of(&mut bytes, b"damaged");
    cluster.memory.write_atomically(&other, &bytes).expect("written");
    cluster.start();
    assert!(cluster.lost.contains_key(region.encoded_name()), "{:?}", cluster.lost);
}

#[test]
fn unknown_entries_of_directories_that_go_to_the_archive_are_moved_aside() {
    let mut cluster = Cluster::with_table();
    let old = RegionInfo::new(table_name(), Bytes::new(), Bytes::new(), 7);
    let other: TableName = "cut".parse().expect("legal");
    let of_other = RegionInfo::new(other.clone(), Bytes::new(), Bytes::new(), 7);
    for info in [&old, &of_other] {
        let dir = layout::region_dir(Path::new("/hbase"), info);
        for below in ["f/0123", "f/sub/data", "notes"] {
            cluster.memory.write_atomically(&dir.join(below), below.as_bytes()).expect("written");
        }
        let table = layout::table_dir(Path::new("/hbase"), info.table());
        let _left = ChangeIntent::write(&cluster.memory, &table, [info], []).expect("written");
    }
    cluster.memory.write_atomically(&path("data/default/cut/readme"), b"readme").expect("written");
    cluster.crash();
    for info in [&old, &of_other] {
        let below = format!("data/default/{}/{}", info.table(), info.encoded_name());
        assert!(!cluster.memory.exists(&path(&below)).expect("looked"));
        assert_eq!(text(&cluster, &format!("archive/{below}/f/0123")), b"f/0123");
        for kept in ["f/sub/data", "notes"] {
            assert_eq!(text(&cluster, &format!(".hbck/{below}/{kept}")), kept.as_bytes());
        }
    }
    assert_eq!(text(&cluster, ".hbck/data/default/cut/readme"), b"readme");
    assert!(!cluster.memory.exists(&path("data/default/cut")).expect("looked"));
    assert_eq!(cluster.rows(), ROWS);
}
