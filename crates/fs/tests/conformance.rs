//! The contract of every file system (`suite`): the same tests on the local one, the one in memory
//! (directly, and wrapped in a faulty one with an empty script) and the power-cut one. The tests
//! with stock HDFS are in `interop/tests/hdfs`.

#[path = "conformance/suite.rs"]
mod suite;

use std::path::Path;

use evenkeel_fs::{
    CreateOptions, FaultyFileSystem, FileSystem, LocalFileSystem, MemoryFileSystem, PowerCutFileSystem,
    SurvivingData,
};

use suite::TestDir;

fn each_file_system(test: impl Fn(&TestDir<'_>)) {
    let dir = tempfile::tempdir().expect("temp dir");
    test(&TestDir { fs: &LocalFileSystem::new(), root: dir.path().to_owned() });
    test(&TestDir { fs: &MemoryFileSystem::new(), root: "/".into() });
    let nested = MemoryFileSystem::new();
    nested.mkdirs(Path::new("/a/b")).expect("mkdirs");
    test(&TestDir { fs: &FaultyFileSystem::new(nested), root: "/a/b".into() });
    let recording = PowerCutFileSystem::new();
    recording.start_recording();
    test(&TestDir { fs: &recording, root: "/".into() });
    let recorded = recording.take_recording().expect("it was recording");
    let _every_step_can_be_taken_again = recorded.disk_after(recorded.len(), 1);
}

/// Runs each test in a separate directory.
fn run(tests: &[(&str, suite::Test)]) {
    for (name, test) in tests {
        println!("{name}");
        each_file_system(test);
    }
}

#[test]
fn every_file_system_keeps_the_contract() {
    run(suite::ALL);
}

#[test]
fn local_files_keep_what_hdfs_does_not() {
    run(suite::LOCAL);
}

#[test]
fn a_process_crash_loses_unflushed_bytes() {
    let fs = MemoryFileSystem::new();
    let mut file = fs.create("/f".as_ref(), CreateOptions::default()).expect("create");
    file.append(b"flushed").expect("append");
    file.flush().expect("flush");
    file.append(b"lost").expect("append");
    fs.crash(SurvivingData::Flushed);
    assert_eq!(fs.read_all("/f".as_ref(), 100).expect("read"), b"flushed");
    assert!(
        file.append(b"x").is_err() && file.flush().is_err() && file.sync().is_err(),
        "its writer is dead"
    );
    assert_eq!(fs.read_all("/f".as_ref(), 100).expect("read"), b"flushed");
}

#[test]
fn a_machine_crash_loses_unsynced_bytes() {
    let fs = MemoryFileSystem::new();
    let mut synced = fs.create("/synced".as_ref(), CreateOptions::default()).expect("create");
    synced.append(b"kept").expect("append");
    synced.sync().expect("sync");
    synced.append(b"lost").expect("append");
    synced.flush().expect("flush");
    let mut flushed = fs.create("/flushed".as_ref(), CreateOptions::default()).expect("create");
    flushed.append(b"lost").expect("append");
    flushed.flush().expect("flush");
    fs.crash(SurvivingData::Synced);
    assert_eq!(fs.read_all("/synced".as_ref(), 100).expect("read"), b"kept");
    assert!(!fs.exists("/flushed".as_ref()).expect("exists"));
}

#[test]
fn damage_is_seen_by_readers() {
    let fs = MemoryFileSystem::new();
    fs.write_atomically("/f".as_ref(), b"abc").expect("write");
    fs.damage("/f".as_ref(), |bytes| bytes[1] ^= 1).expect("damage");
    assert_eq!(fs.read_all("/f".as_ref(), 100).expect("read"), b"acc");
}
