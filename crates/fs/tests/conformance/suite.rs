//! The tests of the contract, each a function of a file system and an empty directory in it.
//!
//! [`ALL`] holds for every file system. [`LOCAL`] does not hold on HDFS: there a file that is being
//! written does not grow under its readers, a deleted file cannot be read further, and files cannot
//! be truncated.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use evenkeel_fs::{APPEND_BUFFER_BYTES, CreateOptions, FileKind, FileSystem};

const PARENTS: CreateOptions = CreateOptions { overwrite: false, parents: true, kind: FileKind::Small };
const REPLACE: CreateOptions = CreateOptions { overwrite: true, parents: false, kind: FileKind::Small };

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
    ("a_file_is_cut_where_it_is_told", a_file_is_cut_where_it_is_told),
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

fn what_is_flushed_is_read(room: &TestDir<'_>) {
    let mut file = room.fs.create(&room.path("f"), CreateOptions::default()).expect("create");
    file.append(b"hello ").expect("append");
    file.append(b"").expect("append nothing");
    file.append(b"world").expect("append");
    assert_eq!(file.position(), 11);
    file.flush().expect("flush");
    assert_eq!(room.read("f").expect("read"), b"hello world");
    file.append(b"!").expect("append");
    file.sync().expect("sync");
    assert_eq!(room.read("f").expect("read"), b"hello world!");
}

fn reads_end_with_the_file(room: &TestDir<'_>) {
    room.write("f", b"0123456789");
    let file = room.fs.open(&room.path("f")).expect("open");
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

fn big_and_small_appends_keep_their_order(room: &TestDir<'_>) {
    let mut file = room.fs.create(&room.path("f"), CreateOptions::default()).expect("create");
    let mut wanted = Vec::new();
    for len in [1, APPEND_BUFFER_BYTES, 3, APPEND_BUFFER_BYTES - 1, 2, 3 * APPEND_BUFFER_BYTES + 1, 7] {
        let bytes: Vec<u8> = (0..len).map(|i| (i * 31 + len) as u8).collect();
        file.append(&bytes).expect("append");
        wanted.extend_from_slice(&bytes);
        assert_eq!(file.position(), wanted.len() as u64);
    }
    file.flush().expect("flush");
    assert!(room.read("f").expect("read") == wanted);
}

fn a_bulk_file_is_a_file(room: &TestDir<'_>) {
    let mut file = room.fs.create(&room.path("d/f"), CreateOptions::BULK).expect("create");
    let bytes: Vec<u8> = (0..700_001).map(|i| (i * 31) as u8).collect();
    for _ in 0..9 {
        bytes.chunks(50_000).for_each(|chunk| file.append(chunk).expect("append"));
    }
    file.sync().expect("sync");
    assert!(room.fs.read_all(&room.path("d/f"), 10 << 20).expect("read") == bytes.repeat(9));
    assert_eq!(kind(room.fs.create(&room.path("d/f"), CreateOptions::BULK)), ErrorKind::AlreadyExists);
}

fn create_obeys_its_options(room: &TestDir<'_>) {
    let in_missing_dir = room.fs.create(&room.path("no/such/f"), CreateOptions::default());
    assert_eq!(kind(in_missing_dir), ErrorKind::NotFound);
    assert!(!room.fs.exists(&room.path("no")).expect("exists"));

    room.write("d/f", b"old");
    assert_eq!(kind(room.fs.create(&room.path("d/f"), CreateOptions::default())), ErrorKind::AlreadyExists);
    assert_eq!(room.read("d/f").expect("untouched"), b"old");

    let mut file = room.fs.create(&room.path("d/f"), REPLACE).expect("replace");
    file.append(b"new").expect("append");
    file.flush().expect("flush");
    assert_eq!(room.read("d/f").expect("read"), b"new");
}

fn files_and_directories_are_not_confused(room: &TestDir<'_>) {
    room.write("f", b"1");
    room.fs.mkdirs(&room.path("d")).expect("mkdirs");
    assert_eq!(kind(room.fs.open(&room.path("d"))), ErrorKind::IsADirectory);
    assert_eq!(kind(room.fs.mkdirs(&room.path("f"))), ErrorKind::AlreadyExists);
    assert_eq!(kind(room.fs.mkdirs(&room.path("f/d"))), ErrorKind::AlreadyExists);
    assert_eq!(kind(room.fs.list(&room.path("f"))), ErrorKind::NotADirectory);
    assert_eq!(kind(room.fs.create(&room.path("d"), REPLACE)), ErrorKind::IsADirectory);
    assert_eq!(kind(room.fs.rename(&room.path("f"), &room.path("d"))), ErrorKind::IsADirectory);
    assert_eq!(kind(room.fs.rename(&room.path("d"), &room.path("f"))), ErrorKind::NotADirectory);
    assert_eq!(room.read("f").expect("still there"), b"1");
}

fn absent_things_are_not_found(room: &TestDir<'_>) {
    room.write("f", b"1");
    for name in ["x", "x/y", "f/y"] {
        let path = room.path(name);
        assert_eq!(kind(room.fs.status(&path)), ErrorKind::NotFound, "{name}");
        assert!(!room.fs.exists(&path).expect("exists"), "{name}");
        assert!(!room.fs.delete(&path).expect("delete"), "{name}");
    }
    assert_eq!(kind(room.fs.open(&room.path("x"))), ErrorKind::NotFound);
    assert_eq!(kind(room.fs.list(&room.path("x"))), ErrorKind::NotFound);
    assert_eq!(kind(room.fs.rename(&room.path("x"), &room.path("y"))), ErrorKind::NotFound);
    assert_eq!(kind(room.fs.rename(&room.path("f"), &room.path("x/y"))), ErrorKind::NotFound);
}

fn lists_are_by_name_and_one_level_deep(room: &TestDir<'_>) {
    for name in ["l/b", "l/a.1", "l/a/inner", "l/a-", "l2/z"] {
        room.write(name, name.as_bytes());
    }
    assert_eq!(room.names("l"), ["a", "a-", "a.1", "b"]);
    let found = room.fs.list(&room.path("l")).expect("list");
    assert_eq!(found.iter().map(|s| s.is_dir).collect::<Vec<_>>(), [true, false, false, false]);
    assert_eq!((found[0].len, found[3].len), (0, 3));
    assert_eq!(found[3].path, room.path("l/b"));
}

fn rename_moves_and_replaces(room: &TestDir<'_>) {
    room.write("from", b"new");
    room.write("d/to", b"old");
    room.fs.rename(&room.path("from"), &room.path("d/to")).expect("rename");
    assert_eq!(room.read("d/to").expect("read"), b"new");
    assert!(!room.fs.exists(&room.path("from")).expect("exists"));

    room.write("tree/a/b", b"deep");
    room.fs.mkdirs(&room.path("empty")).expect("mkdirs");
    room.fs.rename(&room.path("tree"), &room.path("empty")).expect("over an empty directory");
    assert_eq!(room.read("empty/a/b").expect("read"), b"deep");
    assert!(room.fs.rename(&room.path("d"), &room.path("empty")).is_err(), "over a full directory");
    assert!(room.fs.rename(&room.path("empty"), &room.path("empty/a/c")).is_err(), "into itself");
    assert_eq!(room.read("empty/a/b").expect("read"), b"deep");
}

fn a_file_can_be_written_on_after_its_rename(room: &TestDir<'_>) {
    let mut file = room.fs.create(&room.path("a"), CreateOptions::default()).expect("create");
    file.append(b"1").expect("append");
    room.fs.rename(&room.path("a"), &room.path("b")).expect("rename");
    file.append(b"2").expect("append");
    file.flush().expect("flush");
    assert_eq!(room.read("b").expect("read"), b"12");
}

fn delete_takes_all_below(room: &TestDir<'_>) {
    room.write("t/a/b", b"1");
    room.write("t/c", b"1");
    room.write("t2", b"1");
    assert!(room.fs.delete(&room.path("t")).expect("delete"));
    assert!(!room.fs.exists(&room.path("t/a/b")).expect("exists"));
    assert!(room.fs.exists(&room.path("t2")).expect("exists"));
    assert!(room.fs.delete(&room.path("t2")).expect("delete"));
    assert!(!room.fs.delete(&room.path("t2")).expect("delete again"));
}

fn only_empty_directories_are_deleted_as_such(room: &TestDir<'_>) {
    room.write("t/a/b", b"1");
    assert!(!room.fs.delete_empty_dir(&room.path("t/a")).expect("looked"));
    assert_eq!(room.read("t/a/b").expect("read"), b"1");
    let error = room.fs.delete_empty_dir(&room.path("t/a/b")).expect_err("a file");
    assert_eq!(error.kind(), ErrorKind::NotADirectory);
    assert!(room.fs.delete(&room.path("t/a/b")).expect("delete"));
    assert!(room.fs.delete_empty_dir(&room.path("t/a")).expect("deleted"));
    assert!(!room.fs.delete_empty_dir(&room.path("t/a")).expect("gone already"));
    assert_eq!(room.names("t"), [""; 0]);
}

fn a_touched_file_is_as_old_as_one_just_written(room: &TestDir<'_>) {
    room.write("old", b"1");
    let modified_ms = |name: &str| room.fs.status(&room.path(name)).expect("status").modified_ms;
    let before = modified_ms("old");
    std::thread::sleep(std::time::Duration::from_millis(5));
    room.fs.touch(&room.path("old")).expect("touched");
    assert!(modified_ms("old") > before);
    assert_eq!(room.read("old").expect("read"), b"1");
    let error = room.fs.touch(&room.path("none")).expect_err("not there");
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

fn small_files_are_replaced_whole(room: &TestDir<'_>) {
    room.fs.write_atomically(&room.path("d/hbase.id"), b"one").expect("write");
    room.fs.write_atomically(&room.path("d/hbase.id"), b"two").expect("write");
    assert_eq!(room.read("d/hbase.id").expect("read"), b"two");
    assert_eq!(room.names("d"), ["hbase.id"]);
    let error = room.fs.read_all(&room.path("d/hbase.id"), 2).expect_err("too long");
    assert_eq!(error.kind(), ErrorKind::InvalidData);
}

fn mkdirs_may_be_repeated(room: &TestDir<'_>) {
    room.fs.mkdirs(&room.path("a/b/c")).expect("mkdirs");
    room.write("a/b/c/f", b"1");
    room.fs.mkdirs(&room.path("a/b/c")).expect("again");
    assert_eq!(room.names("a/b/c"), ["f"]);
    assert!(room.fs.status(&room.path("a/b")).expect("status").is_dir);
}

fn a_closed_file_has_its_length(room: &TestDir<'_>) {
    for options in [PARENTS, CreateOptions::LOG, CreateOptions::BULK] {
        let path = room.path(&format!("{:?}", options.kind));
        let mut file = room.fs.create(&path, options).expect("create");
        file.append(&[7; 70_000]).expect("append");
        file.close().expect("close");
        assert_eq!(file.position(), 70_000);
        assert_eq!(room.fs.status(&path).expect("status").len, 70_000);
        let mut empty = room.fs.create(&path, CreateOptions { overwrite: true, ..options }).expect("create");
        empty.close().expect("close");
        assert_eq!(room.fs.status(&path).expect("status").len, 0);
        assert_eq!(room.fs.read_all(&path, 1).expect("read"), b"");
    }
}

fn a_closed_file_needs_no_recovery(room: &TestDir<'_>) {
    room.write("f", b"1");
    room.fs.recover(&room.path("f"), &|| true).expect("closed");
    assert_eq!(room.read("f").expect("read"), b"1");
    let hosts = room.fs.hosts(&room.path("f")).expect("hosts");
    assert!(hosts.iter().all(|(_, bytes)| *bytes > 0), "{hosts:?}");
}

fn a_file_grows_under_its_readers(room: &TestDir<'_>) {
    let mut file = room.fs.create(&room.path("f"), CreateOptions::default()).expect("create");
    let reader = room.fs.open(&room.path("f")).expect("open");
    file.append(b"ab").expect("append");
    file.flush().expect("flush");
    let mut buf = [0; 8];
    assert_eq!(reader.len(), 0);
    assert_eq!(reader.read_at(0, &mut buf).expect("read"), 2);
    assert_eq!(room.fs.status(&room.path("f")).expect("status").len, 2);
}

fn an_open_file_lives_on(room: &TestDir<'_>) {
    for change in ["replace", "delete"] {
        room.write(change, b"old");
        let reader = room.fs.open(&room.path(change)).expect("open");
        match change {
            "replace" => drop(room.fs.create(&room.path(change), REPLACE).expect("replace")),
            _ => assert!(room.fs.delete(&room.path(change)).expect("delete")),
        }
        let mut buf = [0; 3];
        reader.read_exact_at(0, &mut buf).expect("the old file");
        assert_eq!(&buf, b"old", "{change}");
    }
}

fn a_file_is_cut_where_it_is_told(room: &TestDir<'_>) {
    let mut file = room.fs.create(&room.path("cut/a"), PARENTS).expect("create");
    file.append(b"kept and").expect("append");
    file.flush().expect("flush");
    file.append(b" not").expect("append");
    file.truncate(4).expect("cut");
    assert_eq!(room.read("cut/a").expect("read"), b"kept");
}
