//! A file that differs from what was written loses no data, wherever it is damaged: a flush keeps
//! its edits and their log, a compaction its inputs, a bulk load its source.

use std::path::Path;

use evenkeel_fs::{Damage, Fault, FileSystem, Op, SurvivingData};
use evenkeel_region::region::bulk_load::BulkLoadOutcome;

use crate::bulk_load::{file, hfile, load};
use crate::harness::{Cluster, values};

const ONE: &[(&[u8], u32)] = &[(b"f", 1)];
const DAMAGES: [Damage; 6] = [
    Damage::Flip { at: 50, mask: 4 },
    Damage::Drop,
    Damage::Truncate,
    Damage::Duplicate,
    Damage::Zero,
    Damage::Swap,
];

/// Some blocks of 64 KiB.
fn fill(cluster: &Cluster, name: &str) {
    let value = format!("{name}-").repeat(2500);
    (0..12).for_each(|i| cluster.put(&format!("row{i:02}{name}"), "f", "q", &value).expect("written"));
}

fn names(cluster: &Cluster) -> Vec<String> {
    cluster.region().stores()[0].files().iter().map(|file| file.name.clone()).collect()
}

/// Damages each append in turn, with every kind of damage: `cluster` makes a cluster, `work` writes
/// files below `.tmp` and gets true if the damage strikes only once (`times` is 1).
fn for_each_damage(times: u64, cluster: impl Fn() -> Cluster, work: impl Fn(&mut Cluster, Damage, bool)) {
    for damage in DAMAGES {
        for nth in 0.. {
            let mut cluster = cluster();
            let before = cluster.all();
            cluster.fs.inject(Fault::on(Op::Append, "/.tmp/f/").after(nth).times(times).damages(damage));
            work(&mut cluster, damage, times == 1);
            cluster.fs.clear();
            assert!(cluster.all() == before, "{damage:?} of append {nth}: other cells");
            let is_found = !cluster.files("/corrupt/").is_empty();
            cluster.crash(SurvivingData::Flushed);
            assert!(cluster.all() == before, "{damage:?} of append {nth}: other cells after a crash");
            if !is_found {
                assert!(nth >= 6, "{damage:?} of append {nth} was not found");
                break;
            }
        }
    }
}

fn with_edits() -> Cluster {
    let cluster = Cluster::new(ONE);
    fill(&cluster, "a");
    cluster
}

fn with_files() -> Cluster {
    let cluster = Cluster::new(ONE);
    for name in ["a", "b"] {
        fill(&cluster, name);
        cluster.flush_and_roll();
    }
    cluster
}

#[test]
fn a_flush_that_does_not_read_back_is_written_again() {
    for_each_damage(1, with_edits, |cluster, damage, _| {
        assert!(cluster.region().flush().expect("the second file is sound").flushed, "{damage:?}");
        assert_eq!(names(cluster).len(), 1);
    });
}

#[test]
fn a_flush_that_never_reads_back_keeps_its_edits_and_their_log() {
    for_each_damage(u64::MAX, with_edits, |cluster, damage, _| {
        if cluster.region().flush().is_err() {
            assert_eq!((names(cluster).len(), cluster.files("/corrupt/").len()), (0, 1), "{damage:?}");
            assert!(cluster.files("/.tmp/f/").is_empty(), "{:?}", cluster.files("/.tmp/f/"));
            cluster.wal().roll().expect("rolled");
            cluster.wal().wait_for_archiver();
            assert!(!cluster.wal().closed_paths().is_empty(), "the log went");
        }
    });
}

#[test]
fn a_compaction_that_does_not_read_back_leaves_its_inputs() {
    for times in [1, u64::MAX] {
        for_each_damage(times, with_files, |cluster, damage, once| {
            let inputs = names(cluster);
            match cluster.region().compact(None, true) {
                Ok(done) => assert!(done && names(cluster).len() == 1),
                Err(error) => {
                    assert!(!once && names(cluster) == inputs, "{damage:?}: {error}");
                    assert!(cluster.files("/.tmp/f/").is_empty(), "{:?}", cluster.files("/.tmp/f/"));
                }
            }
        });
    }
}

#[test]
fn a_file_without_cells_that_does_not_read_back_is_not_kept() {
    for damage in DAMAGES {
        let mut found = 0;
        for nth in 0.. {
            let cluster = with_files();
            let before = cluster.files("/f/");
            cluster.fs.inject(Fault::on(Op::Append, "/.tmp/f/").after(nth).damages(damage));
            let written = cluster.region().write_empty_files();
            cluster.fs.clear();
            if written.is_ok() {
                assert_eq!(cluster.files("/f/").len(), before.len() + 1, "{damage:?} of append {nth}");
                break;
            }
            assert_eq!(cluster.files("/f/"), before, "{damage:?} of append {nth}");
            found += 1;
        }
        assert!(found > 0, "{damage:?} was not found");
    }
}

#[test]
fn one_corrupt_file_per_store_is_kept() {
    let cluster = with_edits();
    cluster.fs.inject(Fault::on(Op::Append, "/.tmp/f/").always().damages(Damage::Zero));
    for _ in 0..3 {
        let error = cluster.region().flush().expect_err("not what was written");
        assert!(error.message().contains("/.tmp/f/"), "the file is named: {error}");
    }
    assert_eq!(cluster.files("/corrupt/").len(), 1);
    cluster.fs.clear();
    assert!(cluster.region().flush().expect("sound").flushed);
}

#[test]
fn a_damaged_bulk_load_copy_is_not_served() {
    for damage in DAMAGES {
        let cluster = with_edits();
        let before = cluster.all();
        let cell = evenkeel_common::KeyValue::put(b"loaded", b"f", b"q", 5, b"v");
        let path = hfile(&cluster, "/hbase/in/1", &[cell]);
        let load = load("token", vec![file("f", path.clone(), true)]);
        cluster.fs.inject(Fault::on(Op::Append, "/.tmp/f/").damages(damage));
        cluster.region().bulk_load(&load).expect_err("the copy is another");
        assert!(cluster.all() == before && cluster.fs.exists(&path).expect("known"), "{damage:?}");
        cluster.fs.clear();
        assert_eq!(cluster.region().bulk_load(&load), Ok(BulkLoadOutcome::Loaded));
        assert!(values(&cluster.all()).contains(&"v"));
    }
}

/// A file of edits that became damaged after it was read back: all other edits are replayed, and
/// the file is kept.
#[test]
fn a_damaged_recovered_edit_loses_only_its_entry() {
    let mut cluster = Cluster::new(ONE);
    (0..9).for_each(|i| cluster.put(&format!("row{i}"), "f", "q", &format!("value{i}")).expect("written"));
    cluster.die(SurvivingData::Flushed);
    cluster.fs.inject(Fault::on(Op::Delete, "recovered.edits/0").fails(std::io::ErrorKind::Other));
    cluster.try_start().expect_err("the replay does not come to its end");
    cluster.fs.clear();
    let edits = cluster.files("recovered.edits/00");
    let [edits] = &edits[..] else { panic!("{edits:?}") };
    // The replayed edits are in a file; without it all are replayed again.
    for file in cluster.files("/f/") {
        assert!(cluster.memory.delete(Path::new(&file)).expect("deleted"));
    }
    let damage = |bytes: &mut Vec<u8>| {
        let row = bytes.windows(4).position(|w| w == b"row4").expect("a row");
        bytes[row - 2..row].fill(0xff);
    };
    cluster.memory.damage(Path::new(edits), damage).expect("damaged");
    cluster.start();
    let expected: Vec<_> = (0..9).filter(|i| *i != 4).map(|i| format!("value{i}")).collect();
    assert_eq!(values(&cluster.all()), expected);
    assert_eq!((cluster.files("/corrupt/").len(), cluster.files("recovered.edits/00").len()), (1, 0));
}
