//! What HBase 0.98 and 1.x left, read by Evenkeel and by stock HBase 2.6: store files of version 2,
//! and the root directory of a stopped server of 1.x, whose tables the next server serves.
//!
//! `OldTables cells`, a program of the old client, prints states, regions and cells, the same lines
//! on every server. The tests need the old versions, stock HBase 2.6 and Evenkeel, so
//! `EVENKEEL_INTEROP_TARGET` has no effect here.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use interop::server::{StockJvm, start_stock_as};
use interop::toolchain::ForeignClient;
use interop::{Server, evenkeel_binary, home, java, start_evenkeel_with, start_old_with, work};

const HFILE_TOOL: &str = env!("CARGO_BIN_EXE_hfile_tool");

/// The minimum number of cells of a root directory. Fewer would prove less.
const CELLS_MIN: usize = 10_000;

const HBASE_1: ForeignClient = ForeignClient {
    group: "org.apache.hbase",
    artifact: "hbase-server",
    version: "1.7.2",
    sources: &["old-server", "old-files", "old-files1"],
};

const HBASE_098: ForeignClient = ForeignClient {
    group: "org.apache.hbase",
    artifact: "hbase-server",
    version: "0.98.24-hadoop2",
    sources: &["old-server", "old-files", "old-files098"],
};

/// Serializes the tests, because each server needs much memory.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A folder that is removed after this process has ended. The PID is behind the first dot.
fn folder(name: &str) -> PathBuf {
    let name = format!("{}.{}", name.replace('.', "-"), std::process::id());
    let folder = work().join("run").join(name);
    fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    folder
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Runs a program of an old version; returns its lines.
#[track_caller]
fn old_program(version: &ForeignClient, class: &str, args: &[String]) -> Vec<String> {
    let class_path = version.class_path().unwrap_or_else(|why| panic!("{why}"));
    let label =
        format!("{class}-{}-{}", version.version, args.first().map_or("", |arg| arg)).replace('/', "_");
    let run = java(class, args).class_path(class_path).label(&label).deadline_secs(300).run();
    let output = run.unwrap_or_else(|why| panic!("{why}"));
    assert!(output.success, "{class} {args:?} of {}:\n{}", version.version, output.failures());
    output.stdout.lines().map(str::to_owned).collect()
}

/// Runs a command of `OldTables` on a server.
#[track_caller]
fn tables(version: &ForeignClient, server: &Server, command: &str) -> Vec<String> {
    let mut args = vec![command.to_owned()];
    args.extend(server.client_settings().into_iter().map(|(key, value)| format!("{key}={value}")));
    let lines = old_program(version, "OldTables", &args);
    assert_eq!(lines.last().map(String::as_str), Some("ok"), "{command} on {}", server.name());
    lines
}

/// Fails with the lines that only one side has.
#[track_caller]
fn same(before: &[String], after: &[String], what: &str) {
    let (a, b): (BTreeSet<_>, BTreeSet<_>) = (before.iter().collect(), after.iter().collect());
    let lines = |sign: &str, only: Vec<&&String>| {
        only.iter().take(20).map(|line| format!("{sign} {line}\n")).collect::<String>()
    };
    let lost = lines("-", a.difference(&b).collect());
    let new = lines("+", b.difference(&a).collect());
    assert!(lost.is_empty() && new.is_empty(), "{what}:\n{lost}{new}");
}

/// A root directory, with the ZooKeeper in which HBase 1.x keeps table states and the location of
/// hbase:meta. Stock HBase 2.6 needs both; Evenkeel reads the root directory alone.
struct Root(PathBuf);

impl Root {
    fn settings(&self) -> Vec<(String, String)> {
        vec![
            ("hbase.rootdir".into(), format!("file://{}", text(&self.0.join("hbase")))),
            ("hbase.zookeeper.property.dataDir".into(), text(&self.0.join("zookeeper"))),
        ]
    }

    fn old(&self, version: &ForeignClient) -> Server {
        start_old_with(version, &self.settings()).unwrap_or_else(|why| panic!("{why}"))
    }

    fn evenkeel(&self) -> Server {
        start_evenkeel_with(&self.settings()).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Starts stock HBase on a directory of 1.x: the first start only adds families to hbase:meta,
    /// and ends (`PleaseRestartMasterException`).
    fn upgraded_stock(&self) -> Server {
        let mut jvm = StockJvm::small();
        // ZooKeeper 3.4 made no snapshot of so few transactions.
        jvm.flags.push("-Dzookeeper.snapshot.trust.empty=true".into());
        let start = || start_stock_as(&jvm, &self.settings()).unwrap_or_else(|why| panic!("{why}"));
        start().wait_for_end();
        start()
    }

    fn copy(&self, name: &str) -> Self {
        let copy = Self(folder(name));
        copy_folder(&self.0, &copy.0);
        copy
    }

    /// The versions of all store files of tables: minor and major.
    fn versions(&self) -> BTreeSet<(u8, u8)> {
        let files = files_under(&self.0.join("hbase/data"));
        let is_hfile = |path: &PathBuf| fs::read(path).is_ok_and(|bytes| bytes.starts_with(b"DATABLK"));
        files.iter().filter(|path| is_hfile(path)).map(|path| version(path)).collect()
    }
}

/// Minor and major version of a store file: its last four bytes.
fn version(file: &Path) -> (u8, u8) {
    let bytes = fs::read(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    match bytes.last_chunk::<4>() {
        Some([minor, 0, 0, major]) => (*minor, *major),
        other => panic!("{}: {other:?}", file.display()),
    }
}

fn files_under(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())).flatten() {
        let path = entry.path();
        if path.is_dir() { files.extend(files_under(&path)) } else { files.push(path) }
    }
    files
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap_or_else(|e| panic!("{}: {e}", to.display()));
    for entry in fs::read_dir(from).unwrap_or_else(|e| panic!("{}: {e}", from.display())).flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy_folder(&from, &to);
        } else {
            fs::copy(&from, &to).unwrap_or_else(|e| panic!("{}: {e}", from.display()));
        }
    }
}

/// Evenkeel has no ZooKeeper of 1.x, so it does not know which tables were disabled.
fn all_enabled(lines: &[String]) -> Vec<String> {
    let of_disabled = "state old:disabled disabled".to_owned();
    assert!(lines.contains(&of_disabled), "a table was disabled");
    lines.iter().map(|line| line.replace(&of_disabled, "state old:disabled enabled")).collect()
}

/// Runs a tool of our binary over a root directory, while no server runs.
fn evenkeel_tool(args: &[&str]) -> String {
    let binary = evenkeel_binary().unwrap_or_else(|why| panic!("{why}"));
    let output = Command::new(binary).args(args).output().unwrap_or_else(|e| panic!("{args:?}: {e}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{args:?}: {}\n{said}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

fn root_directories(version: &ForeignClient) {
    let _turn = turn();
    let name = |what: &str| format!("{what}-{}", version.version);
    let root = Root(folder(&name("old-root")));
    let old = root.old(version);
    tables(version, &old, "fill");
    tables(version, &old, "log");
    let before = tables(version, &old, "cells");
    assert!(before.iter().filter(|line| line.starts_with("cell ")).count() > CELLS_MIN, "{}", before.len());
    old.kill();
    let old = root.old(version);
    same(&before, &tables(version, &old, "cells"), "the old server after a kill");
    tables(version, &old, "shutdown");
    old.wait_for_end();
    assert_eq!(root.versions(), BTreeSet::from([(3, 2)]), "the old server writes version 2");
    let stopped = root.copy(&name("old-stopped"));

    let stock = root.upgraded_stock();
    same(&before, &tables(&HBASE_1, &stock, "cells"), "stock HBase 2.6 after the old server stopped");
    let bulk = bulk_folder(version);
    clone_and_load(&stock, &bulk);
    let on_stock = tables(&HBASE_1, &stock, "cells");
    check_clone_and_load(&on_stock);
    drop(stock);
    let evenkeel = stopped.evenkeel();
    let wanted = all_enabled(&before);
    same(&wanted, &tables(&HBASE_1, &evenkeel, "cells"), "Evenkeel after the old server stopped");
    assert!(!stopped.0.join("hbase/MasterProcWALs").exists(), "procedures of the old master are removed");
    clone_and_load(&evenkeel, &bulk);
    let on_evenkeel = tables(&HBASE_1, &evenkeel, "cells");
    same(&all_enabled(&on_stock), &on_evenkeel, "a clone of an old snapshot, and a bulk load of an old file");
}

/// A folder for a bulk load, with one store file of the old version. No family marker in it lies
/// behind a newer Put of the empty qualifier: stock HBase may pass over such a marker.
fn bulk_folder(version: &ForeignClient) -> PathBuf {
    let run = folder(&format!("old-bulk-{}", version.version));
    let (settings, cells, files) = (run.join("settings"), run.join("cells"), run.join("input/cf"));
    let made = hfile_tool(&[Path::new("cells"), &cells]);
    assert!(made.0, "{made:?}");
    fs::write(&settings, "0123456789abcdef cells=big.txt\n").unwrap_or_else(|e| panic!("{e}"));
    old_program(version, "OldFiles", &[&settings, &cells, &files].map(|path| text(path)));
    run.join("input")
}

/// Clones the snapshot that the old server took, and loads an old store file. A load moves its
/// input.
fn clone_and_load(server: &Server, bulk: &Path) {
    let input = folder(&format!("old-bulk-input-{}", server.pid()));
    copy_folder(bulk, &input);
    shell(server, "clone_snapshot 'old_snapshot', 'old:again'; create 'old:loaded', 'cf'");
    let mut settings: Vec<String> =
        server.client_settings().into_iter().map(|(key, value)| format!("-D{key}={value}")).collect();
    settings.push("-Dfs.defaultFS=file:///".into());
    settings.extend([text(&input), "old:loaded".into()]);
    let load = java("org.apache.hadoop.hbase.tool.BulkLoadHFilesTool", &settings).label("old-bulk").run();
    let output = load.unwrap_or_else(|why| panic!("{why}"));
    assert!(output.success, "the bulk load on {}:\n{}", server.name(), output.failures());
}

/// Runs statements in our shell; returns its output.
fn shell(server: &Server, statements: &str) -> String {
    let settings = server.client_settings().into_iter().map(|(key, value)| format!("-D{key}={value}"));
    let mut args: Vec<String> = std::iter::once("shell".to_owned()).chain(settings).collect();
    args.extend(["-n", "-e", statements].map(str::to_owned));
    evenkeel_tool(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The clone has the cells of the clone that the old server made before `log`.
fn check_clone_and_load(lines: &[String]) {
    let cells = |table: &str| -> Vec<&str> {
        let cells = lines.iter().filter_map(|line| line.strip_prefix("cell ")?.strip_prefix(table));
        cells.filter(|cell| !cell.contains(":log ")).collect()
    };
    assert!(cells("old:clone ").len() > 1000 && cells("old:loaded ").len() > 1000);
    assert_eq!(cells("old:clone "), cells("old:again "));
}

#[test]
fn root_directories_of_hbase_1() {
    root_directories(&HBASE_1);
}

fn lines_of(output: std::process::Output) -> (bool, Vec<String>) {
    let text = String::from_utf8_lossy(&output.stdout);
    (output.status.success(), text.lines().map(str::to_owned).collect())
}

fn hfile_tool(args: &[&Path]) -> (bool, Vec<String>) {
    let output = Command::new(HFILE_TOOL).args(args).output();
    lines_of(output.unwrap_or_else(|e| panic!("{HFILE_TOOL}: {e}")))
}

/// Reads store files by stock HBase's classes; returns the success and the lines.
fn read_by_stock(settings: &Path, cells: &Path, files: &Path) -> (bool, Vec<String>) {
    let args = [settings, cells, files, files].map(text);
    let run = java("evenkeel.interop.files.FilesRead", &args).label("FilesRead-old").deadline_secs(300).run();
    let output = run.unwrap_or_else(|why| panic!("{why}"));
    (output.success, output.stdout.lines().map(str::to_owned).collect())
}

fn starting_with(lines: &[String], start: &str) -> Vec<String> {
    lines.iter().filter(|line| line.starts_with(start)).cloned().collect()
}

/// Every cell forwards, backwards and by seek, and the answers of bloom filters to absent keys.
fn store_files(version: &ForeignClient) {
    let run = folder(&format!("old-files-{}", version.version));
    let settings = home().join("files/old-store-files.txt");
    let (cells, files) = (run.join("cells"), run.join("files"));
    let made = hfile_tool(&[Path::new("cells"), &cells]);
    assert!(made.0, "{made:?}");
    old_program(version, "OldFiles", &[&settings, &cells, &files].map(|path| text(path)));
    let all = files_under(&files);
    let lines = fs::read_to_string(&settings).unwrap_or_default();
    let count = lines.lines().filter(|line| !line.starts_with('#')).count();
    assert!(all.len() == count && count > 20, "{all:?}");
    assert!(all.iter().all(|file| self::version(file) == (3, 2)), "{all:?}");

    let (good, theirs) = read_by_stock(&settings, &cells, &files);
    assert!(good && starting_with(&theirs, "ok ").len() == count, "{theirs:#?}");
    let (good, ours) = hfile_tool(&[Path::new("read"), &settings, &cells, &files]);
    assert!(good && starting_with(&ours, "good ").len() == count, "{ours:#?}");
    let blooms = starting_with(&theirs, "bloom ");
    assert!(blooms.len() > count / 2, "{blooms:?}");
    same(&blooms, &starting_with(&ours, "bloom "), "which absent keys pass the bloom filters");
    refused_files(version, &run, &cells);
}

/// Files that HBase 2.6 refuses: PREFIX_TREE, and earlier versions.
fn refused_files(version: &ForeignClient, run: &Path, cells: &Path) {
    let (written, read, files) = (run.join("tree-written"), run.join("tree-read"), run.join("refused"));
    let write = |path: &Path, text: &str| fs::write(path, text).unwrap_or_else(|e| panic!("{e}"));
    write(&written, "tree cells=many.txt encoding=PREFIX_TREE\nminor cells=many.txt\nmajor cells=many.txt\n");
    write(&read, "tree cells=many.txt\nminor cells=many.txt\nmajor cells=many.txt\n");
    old_program(version, "OldFiles", &[written.as_path(), cells, files.as_path()].map(text));
    for (name, from_end, value) in [("minor", 4, 2), ("major", 1, 1)] {
        let mut bytes = fs::read(files.join(name)).unwrap_or_else(|e| panic!("{e}"));
        let at = bytes.len() - from_end;
        bytes[at] = value;
        fs::write(files.join(name), bytes).unwrap_or_else(|e| panic!("{e}"));
    }
    let reasons = [
        "Invalid data block encoding type in file info: PREFIX_TREE",
        "Invalid HFile version: major=2, minor=2: expected at least major=2 and minor=3",
        "Invalid HFile version: 1 (expected to be between 2 and 3)",
    ];
    let stock = read_by_stock(&read, cells, &files);
    let ours = hfile_tool(&[Path::new("read"), &read, cells, &files]);
    for (good, lines) in [stock, ours] {
        assert!(!good, "{lines:#?}");
        let said = lines.join("\n");
        assert!(reasons.iter().all(|reason| said.contains(reason)), "{said}");
    }
}

#[test]
fn store_files_of_hbase_1() {
    let _turn = turn();
    store_files(&HBASE_1);
}

#[test]
fn store_files_of_hbase_098() {
    let _turn = turn();
    store_files(&HBASE_098);
}
