//! The tests of the contract, each a function of a file system and an empty directory in it.
//!
//! [`ALL`] holds for every file system. [`LOCAL`] does not hold on HDFS: there a file that is being
//! written does not grow under its readers, a deleted file cannot be read further, and files cannot
//! be truncated.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use evenkeel_fs::{APPEND_BUFFER_BYTES, BlocksWeight, CreateOptions, FileSystem, LocalHost};

const PARENTS: CreateOptions = CreateOptions { overwrite: false, parents: true, ..CreateOptions::SMALL };
const REPLACE: CreateOptions = CreateOptions { overwrite: true, parents: false, ..CreateOptions::SMALL };

/// A test.
pub type Test = fn(&TestDir<'_>);

/// The tests that hold for every file system.
pub const ALL: &[(&str, Test)] = &[
    ("what_is_flushed_is_read", what_is_flushed_is_read),
    ("reads_end_with_the_file", reads_end_with_the_file),
    ("big_and_small_appends_keep_their_order", big_and_small_appends_keep_their_order),
    ("a_bulk_file_is_a_file", a_bulk_file_is_a_file),
    ("create_obeys_its_options", create_obeys_its_options),
    ("files_and_directories_are_not_confused", files_and_directories_are_not_confused),
    ("absent_things_are_not_found", absent_things_are_not_found),
    ("lists_are_by_name_and_one_level_deep", lists_are_by_name_and_one_level_deep),
    ("rename_moves_and_replaces", rename_moves_and_replaces),
    ("a_file_can_be_written_on_after_its_rename", a_file_can_be_written_on_after_its_rename),
    ("delete_takes_all_below", delete_takes_all_below),
    ("only_empty_directories_are_deleted_as_such", only_empty_directories_are_deleted_as_such),
    ("a_touched_file_is_as_old_as_one_just_written", a_touched_file_is_as_old_as_one_just_written),
    ("small_files_are_replaced_whole", small_files_are_replaced_whole),
    ("mkdirs_may_be_repeated", mkdirs_may_be_repeated),
    ("a_closed_file_has_its_length", a_closed_file_has_its_length),
    ("a_closed_file_needs_no_recovery", a_closed_file_needs_no_recovery),
];

/// The tests that hold for local files and those in memory.
pub const LOCAL: &[(&str, Test)] = &[
    ("a_file_grows_under_its_readers", a_file_grows_under_its_readers),
    ("an_open_file_lives_on", an_open_file_lives_on),
    ("a_file_is_truncated_at_the_given_length", a_file_is_truncated_at_the_given_length),
];

/// A file system and an empty directory in it.
pub struct TestDir<'a> {
    pub fs: &'a dyn FileSystem,
    pub root: PathBuf,
}

impl TestDir<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        let mut file = self.fs.create(&self.path(name), PARENTS).expect("create");
        file.append(bytes).expect("append");
        file.close().expect("close");
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.fs.read_all(&self.path(name), 1 << 20)
    }

    fn names(&self, dir: &str) -> Vec<String> {
        let found = self.fs.list(&self.path(dir)).expect("list");
        found.iter().map(|status| status.name().to_owned()).collect()
    }
}

fn kind<T>(result: io::Result<T>) -> ErrorKind {
    result.err().expect("an error").kind()
}

fn what_is_flushed_is_read(test_dir: &TestDir<'_>) {
    let mut file = test_dir.fs.create(&test_dir.path("f"), CreateOptions::default()).expect("create");
    file.append(b"hello ").expect("append");
    file.append(b"").expect("append nothing");
    file.append(b"world").expect("append");
    assert_eq!(file.position(), 11);
    file.flush().expect("flush");
    assert_eq!(test_dir.read("f").expect("read"), b"hello world");
    file.append(b"!").expect("append");
    file.sync().expect("sync");
    assert_eq!(test_dir.read("f").expect("read"), b"hello world!");
}

fn reads_end_with_the_file(test_dir: &TestDir<'_>) {
    test_dir.write("f", b"0123456789");
    let file = test_dir.fs.open(&test_dir.path("f")).expect("open");
    let mut buf = [b'x'; 4];
    assert_eq!(file.len(), 10);
    assert!(!file.is_empty());
    assert_eq!(file.read_at(3, &mut buf).expect("inside"), 4);
    assert_eq!(&buf, b"3456");
    assert_eq!(file.read_at(8, &mut buf).expect("across the end"), 2);
    assert_eq!(&buf, b"8956");
    assert_eq!(file.read_at(10, &mut buf).expect("at the end"), 0);
    assert_eq!(file.read_at(1 << 40, &mut buf).expect("past the end"), 0);
    assert_eq!(kind(file.read_exact_at(7, &mut buf)), ErrorKind::UnexpectedEof);
}

fn big_and_small_appends_keep_their_order(test_dir: &TestDir<'_>) {
    let mut file = test_dir.fs.create(&test_dir.path("f"), CreateOptions::default()).expect("create");
    let mut wanted = Vec::new();
    for len in [1, APPEND_BUFFER_BYTES, 3, APPEND_BUFFER_BYTES - 1, 2, 3 * APPEND_BUFFER_BYTES + 1, 7] {
        let bytes: Vec<u8> = (0..len).map(|i| (i * 31 + len) as u8).collect();
        file.append(&bytes).expect("append");
        wanted.extend_from_slice(&bytes);
        assert_eq!(file.position(), wanted.len() as u64);
    }
    file.flush().expect("flush");
    assert!(test_dir.read("f").expect("read") == wanted);
}

fn a_bulk_file_is_a_file(test_dir: &TestDir<'_>) {
    let mut file = test_dir.fs.create(&test_dir.path("d/f"), CreateOptions::BULK).expect("create");
    let bytes: Vec<u8> = (0..700_001).map(|i| (i * 31) as u8).collect();
    for _ in 0..9 {
        bytes.chunks(50_000).for_each(|chunk| file.append(chunk).expect("append"));
    }
    file.sync().expect("sync");
    assert!(test_dir.fs.read_all(&test_dir.path("d/f"), 10 << 20).expect("read") == bytes.repeat(9));
    assert_eq!(
        kind(test_dir.fs.create(&test_dir.path("d/f"), CreateOptions::BULK)),
        ErrorKind::AlreadyExists
    );
}

fn create_obeys_its_options(test_dir: &TestDir<'_>) {
    let in_missing_dir = test_dir.fs.create(&test_dir.path("no/such/f"), CreateOptions::default());
    assert_eq!(kind(in_missing_dir), ErrorKind::NotFound);
    assert!(!test_dir.fs.exists(&test_dir.path("no")).expect("exists"));

    test_dir.write("d/f", b"old");
    assert_eq!(
        kind(test_dir.fs.create(&test_dir.path("d/f"), CreateOptions::default())),
        ErrorKind::AlreadyExists
    );
    assert_eq!(test_dir.read("d/f").expect("untouched"), b"old");

    let mut file = test_dir.fs.create(&test_dir.path("d/f"), REPLACE).expect("replace");
    file.append(b"new").expect("append");
    file.flush().expect("flush");
    assert_eq!(test_dir.read("d/f").expect("read"), b"new");
}

fn files_and_directories_are_not_confused(test_dir: &TestDir<'_>) {
    test_dir.write("f", b"1");
    test_dir.fs.mkdirs(&test_dir.path("d")).expect("mkdirs");
    assert_eq!(kind(test_dir.fs.open(&test_dir.path("d"))), ErrorKind::IsADirectory);
    assert_eq!(kind(test_dir.fs.mkdirs(&test_dir.path("f"))), ErrorKind::AlreadyExists);
    assert_eq!(kind(test_dir.fs.mkdirs(&test_dir.path("f/d"))), ErrorKind::AlreadyExists);
    assert_eq!(kind(test_dir.fs.list(&test_dir.path("f"))), ErrorKind::NotADirectory);
    assert_eq!(kind(test_dir.fs.create(&test_dir.path("d"), REPLACE)), ErrorKind::IsADirectory);
    assert_eq!(kind(test_dir.fs.rename(&test_dir.path("f"), &test_dir.path("d"))), ErrorKind::IsADirectory);
    assert_eq!(kind(test_dir.fs.rename(&test_dir.path("d"), &test_dir.path("f"))), ErrorKind::NotADirectory);
    assert_eq!(test_dir.read("f").expect("still there"), b"1");
}

fn absent_things_are_not_found(test_dir: &TestDir<'_>) {
    test_dir.write("f", b"1");
    for name in ["x", "x/y", "f/y"] {
        let path = test_dir.path(name);
        assert_eq!(kind(test_dir.fs.status(&path)), ErrorKind::NotFound, "{name}");
        assert!(!test_dir.fs.exists(&path).expect("exists"), "{name}");
        assert!(!test_dir.fs.delete(&path).expect("delete"), "{name}");
    }
    assert_eq!(kind(test_dir.fs.open(&test_dir.path("x"))), ErrorKind::NotFound);
    assert_eq!(kind(test_dir.fs.list(&test_dir.path("x"))), ErrorKind::NotFound);
    assert_eq!(kind(test_dir.fs.rename(&test_dir.path("x"), &test_dir.path("y"))), ErrorKind::NotFound);
    assert_eq!(kind(test_dir.fs.rename(&test_dir.path("f"), &test_dir.path("x/y"))), ErrorKind::NotFound);
}

fn lists_are_by_name_and_one_level_deep(test_dir: &TestDir<'_>) {
    for name in ["l/b", "l/a.1", "l/a/inner", "l/a-", "l2/z"] {
        test_dir.write(name, name.as_bytes());
    }
    assert_eq!(test_dir.names("l"), ["a", "a-", "a.1", "b"]);
    let found = test_dir.fs.list(&test_dir.path("l")).expect("list");
    assert_eq!(found.iter().map(|s| s.is_dir).collect::<Vec<_>>(), [true, false, false, false]);
    assert_eq!((found[0].len, found[3].len), (0, 3));
    assert_eq!(found[3].path, test_dir.path("l/b"));
}

fn rename_moves_and_replaces(test_dir: &TestDir<'_>) {
    test_dir.write("from", b"new");
    test_dir.write("d/to", b"old");
    test_dir.fs.rename(&test_dir.path("from"), &test_dir.path("d/to")).expect("rename");
    assert_eq!(test_dir.read("d/to").expect("read"), b"new");
    assert!(!test_dir.fs.exists(&test_dir.path("from")).expect("exists"));

    test_dir.write("tree/a/b", b"deep");
    test_dir.fs.mkdirs(&test_dir.path("empty")).expect("mkdirs");
    test_dir.fs.rename(&test_dir.path("tree"), &test_dir.path("empty")).expect("over an empty directory");
    assert_eq!(test_dir.read("empty/a/b").expect("read"), b"deep");
    assert!(
        test_dir.fs.rename(&test_dir.path("d"), &test_dir.path("empty")).is_err(),
        "over a full directory"
    );
    assert!(test_dir.fs.rename(&test_dir.path("empty"), &test_dir.path("empty/a/c")).is_err(), "into itself");
    assert_eq!(test_dir.read("empty/a/b").expect("read"), b"deep");
}

fn a_file_can_be_written_on_after_its_rename(test_dir: &TestDir<'_>) {
    let mut file = test_dir.fs.create(&test_dir.path("a"), CreateOptions::default()).expect("create");
    file.append(b"1").expect("append");
    test_dir.fs.rename(&test_dir.path("a"), &test_dir.path("b")).expect("rename");
    file.append(b"2").expect("append");
    file.flush().expect("flush");
    assert_eq!(test_dir.read("b").expect("read"), b"12");
}

fn delete_takes_all_below(test_dir: &TestDir<'_>) {
    test_dir.write("t/a/b", b"1");
    test_dir.write("t/c", b"1");
    test_dir.write("t2", b"1");
    assert!(test_dir.fs.delete(&test_dir.path("t")).expect("delete"));
    assert!(!test_dir.fs.exists(&test_dir.path("t/a/b")).expect("exists"));
    assert!(test_dir.fs.exists(&test_dir.path("t2")).expect("exists"));
    assert!(test_dir.fs.delete(&test_dir.path("t2")).expect("delete"));
    assert!(!test_dir.fs.delete(&test_dir.path("t2")).expect("delete again"));
}

fn only_empty_directories_are_deleted_as_such(test_dir: &TestDir<'_>) {
    test_dir.write("t/a/b", b"1");
    assert!(!test_dir.fs.delete_empty_dir(&test_dir.path("t/a")).expect("looked"));
    assert_eq!(test_dir.read("t/a/b").expect("read"), b"1");
    let error = test_dir.fs.delete_empty_dir(&test_dir.path("t/a/b")).expect_err("a file");
    assert_eq!(error.kind(), ErrorKind::NotADirectory);
    assert!(test_dir.fs.delete(&test_dir.path("t/a/b")).expect("delete"));
    assert!(test_dir.fs.delete_empty_dir(&test_dir.path("t/a")).expect("deleted"));
    assert!(!test_dir.fs.delete_empty_dir(&test_dir.path("t/a")).expect("gone already"));
    assert_eq!(test_dir.names("t"), [""; 0]);
}

fn a_touched_file_is_as_old_as_one_just_written(test_dir: &TestDir<'_>) {
    test_dir.write("old", b"1");
    let modified_ms = |name: &str| test_dir.fs.status(&test_dir.path(name)).expect("status").modified_ms;
    let before = modified_ms("old");
    std::thread::sleep(std::time::Duration::from_millis(5));
    test_dir.fs.touch(&test_dir.path("old")).expect("touched");
    assert!(modified_ms("old") > before);
    assert_eq!(test_dir.read("old").expect("read"), b"1");
    let error = test_dir.fs.touch(&test_dir.path("none")).expect_err("not there");
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

fn small_files_are_replaced_whole(test_dir: &TestDir<'_>) {
    test_dir.fs.write_atomically(&test_dir.path("d/hbase.id"), b"one").expect("write");
    test_dir.fs.write_atomically(&test_dir.path("d/hbase.id"), b"two").expect("write");
    assert_eq!(test_dir.read("d/hbase.id").expect("read"), b"two");
    assert_eq!(test_dir.names("d"), ["hbase.id"]);
    let error = test_dir.fs.read_all(&test_dir.path("d/hbase.id"), 2).expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::InvalidData);
}

fn mkdirs_may_be_repeated(test_dir: &TestDir<'_>) {
    test_dir.fs.mkdirs(&test_dir.path("a/b/c")).expect("mkdirs");
    test_dir.write("a/b/c/f", b"1");
    test_dir.fs.mkdirs(&test_dir.path("a/b/c")).expect("again");
    assert_eq!(test_dir.names("a/b/c"), ["f"]);
    assert!(test_dir.fs.status(&test_dir.path("a/b")).expect("status").is_dir);
}

fn a_closed_file_has_its_length(test_dir: &TestDir<'_>) {
    for options in [PARENTS, CreateOptions::LOG, CreateOptions::BULK] {
        let path = test_dir.path(&format!("{:?}", options.kind));
        let mut file = test_dir.fs.create(&path, options).expect("create");
        file.append(&[7; 70_000]).expect("append");
        file.close().expect("close");
        assert_eq!(file.position(), 70_000);
        assert_eq!(test_dir.fs.status(&path).expect("status").len, 70_000);
        let reader = test_dir.fs.open(&path).expect("open");
        assert_eq!(reader.blocks_weight(0..70_000, &LocalHost::default()).total, 70_000);
        assert_eq!(reader.blocks_weight(70_000..80_000, &LocalHost::default()), BlocksWeight::default());
        let mut empty =
            test_dir.fs.create(&path, CreateOptions { overwrite: true, ..options }).expect("create");
        empty.close().expect("close");
        assert_eq!(test_dir.fs.status(&path).expect("status").len, 0);
        assert_eq!(test_dir.fs.read_all(&path, 1).expect("read"), b"");
    }
}

fn a_closed_file_needs_no_recovery(test_dir: &TestDir<'_>) {
    test_dir.write("f", b"1");
    test_dir.fs.recover(&test_dir.path("f"), &|| true).expect("closed");
    assert_eq!(test_dir.read("f").expect("read"), b"1");
}

fn a_file_grows_under_its_readers(test_dir: &TestDir<'_>) {
    let mut file = test_dir.fs.create(&test_dir.path("f"), CreateOptions::default()).expect("create");
    let reader = test_dir.fs.open(&test_dir.path("f")).expect("open");
    file.append(b"ab").expect("append");
    file.flush().expect("flush");
    let mut buf = [0; 8];
    assert_eq!(reader.len(), 0);
    assert_eq!(reader.read_at(0, &mut buf).expect("read"), 2);
    assert_eq!(test_dir.fs.status(&test_dir.path("f")).expect("status").len, 2);
}

fn an_open_file_lives_on(test_dir: &TestDir<'_>) {
    for change in ["replace", "delete"] {
        test_dir.write(change, b"old");
        let reader = test_dir.fs.open(&test_dir.path(change)).expect("open");
        match change {
            "replace" => drop(test_dir.fs.create(&test_dir.path(change), REPLACE).expect("replace")),
            _ => assert!(test_dir.fs.delete(&test_dir.path(change)).expect("delete")),
        }
        let mut buf = [0; 3];
        reader.read_exact_at(0, &mut buf).expect("the old file");
        assert_eq!(&buf, b"old", "{change}");
    }
}

fn a_file_is_truncated_at_the_given_length(test_dir: &TestDir<'_>) {
    let mut file = test_dir.fs.create(&test_dir.path("cut/a"), PARENTS).expect("create");
    file.append(b"kept and").expect("append");
    file.flush().expect("flush");
    file.append(b" not").expect("append");
    file.truncate(4).expect("cut");
    assert_eq!(test_dir.read("cut/a").expect("read"), b"kept");
}
