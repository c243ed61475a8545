//! Recovered edits below `hbase.wal.dir`, and below `hbase.rootdir` from a time before that
//! setting.

use std::path::{Path, PathBuf};

use evenkeel_fs::{Fault, FileSystem, Op, SurvivingData};

use crate::harness::Cluster;

const ONE: &[(&[u8], u32)] = &[(b"f", 1)];
const WAL_ROOT: &str = "/wals";

/// A dead cluster without store files, whose row `a` is in one file of recovered edits, and row
/// `b` in a later one.
fn with_two_files_of_edits() -> (Cluster, Vec<String>, Vec<String>) {
    let mut cluster = Cluster::new(ONE);
    cluster.put("a", "f", "q", "1").expect("written");
    cluster.wal().roll().expect("rolled");
    cluster.put("b", "f", "q", "2").expect("written");
    let rows = cluster.all();
    cluster.die(SurvivingData::Flushed);
    cluster.fs.inject(Fault::on(Op::Create, "/.tmp/f/").always().fails(std::io::ErrorKind::StorageFull));
    cluster.try_start().expect_err("replayed cells cannot be flushed");
    cluster.die(SurvivingData::Flushed);
    let edits = cluster.files("recovered.edits/00");
    assert_eq!((edits.len(), cluster.files("/f/").len()), (2, 0), "{edits:?}");
    (cluster, rows, edits)
}

/// The path of a file of recovered edits below the root directory of the logs.
fn moved(edits: &str) -> PathBuf {
    Path::new(WAL_ROOT).join(Path::new(edits).strip_prefix("/hbase").expect("below the root"))
}

fn below_wal_root(cluster: &Cluster, edits: &str) -> Vec<String> {
    let dir = moved(edits);
    let files = cluster.memory.list(dir.parent().expect("a directory")).expect("listed");
    files.iter().map(|file| file.name().to_owned()).collect()
}

#[test]
fn edits_of_either_root_are_replayed() {
    for at in 0..2 {
        let (mut cluster, rows, edits) = with_two_files_of_edits();
        let to = moved(&edits[at]);
        cluster.memory.mkdirs(to.parent().expect("a directory")).expect("made");
        cluster.memory.rename(Path::new(&edits[at]), &to).expect("moved");
        cluster.wal_root = Some(WAL_ROOT.into());
        cluster.start();
        assert_eq!(cluster.all(), rows, "file {at} is below the other root");
        assert_eq!(cluster.files("recovered.edits/00"), Vec::<String>::new());
        let [id] = &below_wal_root(&cluster, &edits[at])[..] else { panic!("one file with a sequence id") };
        assert!(id.ends_with(".seqid"), "{id}");
        cluster.crash(SurvivingData::Flushed);
        assert_eq!(cluster.all(), rows);
    }
}

/// `hbase.wal.dir` was removed for a while, and the sequence ids began at those of the store files.
#[test]
fn an_old_sequence_id_below_the_other_root_hides_no_edit() {
    let (mut cluster, rows, edits) = with_two_files_of_edits();
    let old = moved(&edits[0]).with_file_name("1000.seqid");
    cluster.memory.write_atomically(&old, b"").expect("written");
    cluster.wal_root = Some(WAL_ROOT.into());
    cluster.start();
    assert_eq!(cluster.all(), rows);
    assert!(cluster.region().open_seq_num() > 1000, "sequence ids do not go back");
}

#[test]
fn the_setting_begins_with_unflushed_edits_in_logs() {
    let mut cluster = Cluster::new(ONE);
    cluster.put("a", "f", "q", "1").expect("written");
    cluster.wal_root = Some(WAL_ROOT.into());
    for row in ["b", "c"] {
        cluster.crash(SurvivingData::Flushed);
        cluster.put(row, "f", "q", "2").expect("written");
    }
    let (rows, seq_num) = (cluster.all(), cluster.region().open_seq_num());
    assert_eq!(rows.len(), 3);
    cluster.restart();
    assert_eq!(cluster.all(), rows);
    assert!(cluster.region().open_seq_num() > seq_num, "the sequence id is below the other root");
}
