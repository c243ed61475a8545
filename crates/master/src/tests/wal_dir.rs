//! Logs below another root directory than tables: `hbase.wal.dir`.

use std::collections::BTreeSet;

use super::*;

const WAL_ROOT: &str = "/wals";

impl Cluster {
    /// Splits the logs of earlier processes, below the root directory and below that of logs.
    pub(super) fn split_all_wals(
        &self,
        fs: &Arc<dyn FileSystem>,
        nonces: &NonceManager,
    ) -> Result<recovery::Recovered> {
        let mut recovered = recovery::split_wals(fs, &path(""), nonces, LIMITS)?;
        if let Some(root) = &self.wal_root {
            let logs = WalRoot { fs: Arc::clone(fs), path: root.clone() };
            recovered.add(recovery::split_wals_of(&logs, (&**fs, &path("")), nonces, LIMITS)?);
        }
        Ok(recovered)
    }

    /// A cluster whose logs are below another root directory from the first start on.
    fn with_wal_root() -> Self {
        let mut cluster = Self::with_table();
        cluster.wal_root = Some(WAL_ROOT.into());
        cluster.crash();
        cluster
    }

    fn names_below(&self, dir: &Path) -> BTreeSet<String> {
        let entries = self.memory.list(dir).unwrap_or_default();
        entries.iter().map(|entry| entry.name().to_owned()).collect()
    }

    /// The regions of the table that have a directory below the root directory of logs.
    fn wal_dirs(&self) -> BTreeSet<String> {
        self.names_below(&Path::new(WAL_ROOT).join("data/default/t"))
    }

    fn region_names(&self) -> BTreeSet<String> {
        encoded(self.master()).into_iter().collect()
    }
}

fn wal_dir(region: &str) -> PathBuf {
    Path::new(WAL_ROOT).join("data/default/t").join(region)
}

#[test]
fn logs_of_both_root_directories_are_recovered() {
    let mut cluster = Cluster::with_table();
    cluster.put("of-root").expect("written");
    cluster.wal_root = Some(WAL_ROOT.into());
    let mut expected: BTreeSet<String> = ROWS.iter().map(|row| (*row).to_owned()).collect();
    expected.insert("of-root".to_owned());
    for round in 0..3 {
        cluster.crash();
        let found: BTreeSet<String> = cluster.rows().into_iter().collect();
        assert_eq!(found, expected, "round {round}");
        let row = format!("row{round}");
        cluster.put(&row).expect("written");
        expected.insert(row);
    }
    assert!(cluster.names_below(&path("WALs")).is_empty(), "its logs were split");
    assert!(!cluster.names_below(&path("oldWALs")).is_empty(), "and archived on their own disk");
    assert_eq!(cluster.names_below(&Path::new(WAL_ROOT).join("WALs")).len(), 1);
    assert!(!cluster.names_below(&Path::new(WAL_ROOT).join("oldWALs")).is_empty());
}

#[test]
fn the_directories_of_daughters_and_parents_come_and_go() {
    let mut cluster = Cluster::with_wal_root();
    let before = cluster.region_names();
    assert_eq!(cluster.wal_dirs(), before);
    cluster.run(merge).expect("merged");
    let merged = cluster.region_names();
    assert_eq!(merged.len(), 1);
    let all: BTreeSet<_> = before.union(&merged).cloned().collect();
    assert_eq!(cluster.wal_dirs(), all, "those of the parents stay while hbase:meta lists them");
    let region = merged.first().expect("one");
    let ids: Vec<_> = cluster.names_below(&wal_dir(region).join("recovered.edits")).into_iter().collect();
    assert!(matches!(&ids[..], [id] if id.ends_with(".seqid")), "{ids:?}");
    cluster.region_of("a").compact(None, true).expect("compacted");
    // The start archives what the compaction has replaced.
    cluster.crash();
    assert_eq!(cluster.master().run_catalog_janitor().expect("ran"), 2);
    assert_eq!(cluster.wal_dirs(), merged);
    assert_eq!(cluster.rows(), ROWS);
}

#[test]
fn the_directories_of_a_deleted_table_go() {
    let cluster = Cluster::with_wal_root();
    cluster.run(|master| master.disable_table(table_name(), NO_NONCE)).expect("disabled");
    cluster.run(|master| master.delete_table(table_name(), NO_NONCE)).expect("deleted");
    cluster.master().run_catalog_janitor().expect("ran");
    assert!(!cluster.memory.exists(&Path::new(WAL_ROOT).join("data/default/t")).expect("looked"));
    let namespaces = cluster.names_below(&Path::new(WAL_ROOT).join("data/hbase"));
    assert!(namespaces.contains("meta") && namespaces.contains("namespace"), "{namespaces:?}");
}

/// A region that hbase:meta has lost, and that another one replaced, has unreplayed edits only.
#[test]
fn edits_below_the_root_of_logs_keep_the_directory_of_an_unlisted_region() {
    for has_edits in [false, true] {
        let mut cluster = Cluster::with_wal_root();
        let unlisted = "0123456789abcdef0123456789abcdef";
        cluster.memory.mkdirs(&path("data/default/t").join(unlisted)).expect("made");
        if has_edits {
            let edits = wal_dir(unlisted).join("recovered.edits/0000000000000000007");
            cluster.memory.write_atomically(&edits, b"edits").expect("written");
        }
        cluster.crash();
        cluster.master().run_catalog_janitor().expect("ran");
        let is_there = cluster.names_below(&path("data/default/t")).contains(unlisted);
        assert_eq!((is_there, cluster.wal_dirs().contains(unlisted)), (has_edits, has_edits));
        assert_eq!(cluster.rows(), ROWS);
    }
}

#[test]
fn a_snapshot_of_a_disabled_table_has_the_edits_below_the_root_of_logs() {
    let mut cluster = Cluster::with_wal_root();
    cluster.put("unflushed").expect("written");
    let disabling = meta::MetaChange::State(table_name(), TableState::Disabling);
    cluster.master().meta().commit(vec![disabling]).expect("written");
    cluster.crash();
    let snapshot = |table: &str| pb::SnapshotDescription {
        name: "s".into(),
        table: Some(table.into()),
        ..Default::default()
    };
    cluster.run(|master| master.take_snapshot(snapshot("t"), NO_NONCE)).expect("taken");
    let clone = |master: &Arc<Master>| master.restore_or_clone_snapshot(&snapshot("clone"), None, NO_NONCE);
    cluster.run(clone).expect("cloned");
    let cells = cluster.cells_of(&"clone".parse().expect("legal"));
    assert!(cells.iter().any(|cell| cell.starts_with("unflushed/")), "{cells:?}");
}
