//! Files written by one side and read by the other: single store files and WALs, and whole root
//! directories, left by a stopped or killed server and then served by the other server.
//!
//! `evenkeel.interop.files.FilesTables` prints the content of a directory, on the server that wrote
//! it and on the one that took it over. The test fails with the lines that differ. The tests need
//! both stock HBase and Evenkeel, so `EVENKEEL_INTEROP_TARGET` has no effect here.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use interop::{Server, evenkeel_binary, home, java, start_evenkeel_with, start_stock_with, work};

/// Our programs for store files and WALs (`src/bin`), which Cargo builds before this test.
const HFILE_TOOL: &str = env!("CARGO_BIN_EXE_hfile_tool");
const WAL_TOOL: &str = env!("CARGO_BIN_EXE_wal_tool");

/// Serializes tests that run a stock server, because it needs much memory.
static ONE_STOCK_SERVER: Mutex<()> = Mutex::new(());

/// The minimum number of cells in all tables of one `FilesTables fill`, read row by row: fewer
/// would prove less.
const CELLS_OF_A_FILL: u64 = 20_000;

/// A root directory, and the servers that take turns on it.
struct Root(PathBuf);

impl Root {
    fn new(name: &str) -> Self {
        Self(folder(name).join("hbase"))
    }

    fn settings(&self) -> Vec<(String, String)> {
        let codec = "org.apache.hadoop.hbase.io.compress.zstd.ZstdCodec";
        vec![
            ("hbase.rootdir".into(), format!("file://{}", self.0.display())),
            // Hadoop's codec needs a native library; both sides must use the same format.
            ("hbase.io.compress.zstd.codec".into(), codec.into()),
        ]
    }

    /// The settings, with logs that use every kind of compression.
    fn compressing(&self, codec: &str) -> Vec<(String, String)> {
        let log = |key: &str, value: &str| (format!("hbase.regionserver.wal.{key}"), value.to_owned());
        let mut settings = self.settings();
        settings.extend(
            ["enablecompression", "tags.enablecompression", "value.enablecompression"]
                .map(|on| log(on, "true")),
        );
        settings.push(log("value.compression.type", codec));
        settings
    }

    fn evenkeel(&self) -> Server {
        Self::started(start_evenkeel_with(&self.settings()))
    }

    fn stock(&self) -> Server {
        Self::started(start_stock_with(&self.settings()))
    }

    fn started(server: Result<Server, String>) -> Server {
        server.unwrap_or_else(|why| panic!("{why}"))
    }

    /// Directories below `WALs/`: servers with unflushed edits.
    fn logs(&self) -> Vec<String> {
        names(&self.0.join("WALs"))
    }
}

fn folder(name: &str) -> PathBuf {
    let folder = work().join("run").join(format!("{name}.{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    folder
}

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn tables(server: &Server, command: &str, argument: &str) -> Vec<String> {
    let mut args = vec![command.to_owned(), argument.to_owned()];
    args.extend(server.client_settings().into_iter().map(|(key, value)| format!("-D{key}={value}")));
    program("FilesTables", &args)
}

/// Runs one of our Java mains; returns its lines.
fn program(class: &str, args: &[String]) -> Vec<String> {
    let label = format!("{class}-{}", args.first().map_or("", |arg| arg.rsplit('/').next().unwrap_or("")));
    let run = java(&format!("evenkeel.interop.files.{class}"), args).label(&label).deadline_secs(300).run();
    let output = run.unwrap_or_else(|why| panic!("{why}"));
    assert!(output.success, "{class} {args:?}:\n{}", output.failures());
    output.stdout.lines().map(str::to_owned).collect()
}

/// Runs one of our programs; returns its lines.
fn tool(program: &str, args: &[&Path]) -> Vec<String> {
    let output = Command::new(program).args(args).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{program} {args:?}: {}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    text.lines().map(str::to_owned).collect()
}

/// Fails with the lines that only one side has. Raw scans of the `_log` table are excluded: its log
/// has cells that later ones replace, and each server may keep or drop those at a flush.
#[track_caller]
fn same(before: &[String], after: &[String], what: &str) {
    let kept = |lines: &'_ [String]| -> BTreeSet<String> {
        lines.iter().filter(|line| !line.contains("_log raw ")).cloned().collect()
    };
    let (a, b) = (kept(before), kept(after));
    let lines = |sign: &str, only: Vec<&String>| {
        only.iter().take(20).map(|line| format!("{sign} {line}\n")).collect::<String>()
    };
    let lost = lines("-", a.difference(&b).collect());
    let new = lines("+", b.difference(&a).collect());
    assert!(lost.is_empty() && new.is_empty(), "{what}:\n{lost}{new}");
}

/// The content of a namespace's tables, without its name: it is the same for every writer. (The
/// `_log` table, of the default namespace, has increments and appends, which get timestamps of the
/// server.)
fn contents(digest: &[String], namespace: &str) -> Vec<String> {
    let rows = digest.iter().filter_map(|line| line.strip_prefix(namespace)?.strip_prefix(':'));
    let kinds = [" rows ", " reversed ", " versions ", " gets "];
    rows.filter(|line| kinds.iter().any(|kind| line.contains(kind))).map(str::to_owned).collect()
}

fn cells(contents: &[String]) -> u64 {
    let rows = contents.iter().filter_map(|line| line.split_once(" rows "));
    rows.filter_map(|(_, rest)| rest.split(' ').next()?.parse::<u64>().ok()).sum()
}

#[test]
fn a_stopped_evenkeel_then_stock() {
    let _turn = ONE_STOCK_SERVER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let root = Root::new("stopped");
    let evenkeel = root.evenkeel();
    tables(&evenkeel, "fill", "ours");
    let before = tables(&evenkeel, "digest", "");
    assert!(cells(&contents(&before, "ours")) > CELLS_OF_A_FILL, "{before:?}");
    drop(evenkeel);
    assert_eq!(root.logs(), Vec::<String>::new(), "a server that stops leaves no logs to replay");

    let stock = root.stock();
    same(&before, &tables(&stock, "digest", ""), "stock HBase over what Evenkeel wrote");
    tables(&stock, "more", "later");
    assert!(tables(&stock, "digest", "") != before, "stock HBase takes writes");
}

#[test]
fn killed_servers_recover_each_others_logs() {
    let _turn = ONE_STOCK_SERVER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let root = Root::new("killed");
    let evenkeel = root.evenkeel();
    tables(&evenkeel, "fill", "ours");
    let ours = tables(&evenkeel, "digest", "");
    evenkeel.kill();
    assert_eq!(root.logs().len(), 1, "there is a log to replay");

    let stock = Root::started(start_stock_with(&root.compressing("gz")));
    same(&ours, &tables(&stock, "digest", ""), "stock HBase over what Evenkeel wrote");
    tables(&stock, "more", "second");
    tables(&stock, "fill", "theirs");
    let both = tables(&stock, "digest", "");
    same(&contents(&ours, "ours"), &contents(&both, "theirs"), "the same fill on both");
    stock.kill();
    recovered_hfiles_are_taken_in(&root, &both);

    let evenkeel = Root::started(start_evenkeel_with(&root.compressing("snappy")));
    same(&both, &tables(&evenkeel, "digest", ""), "Evenkeel over what stock HBase wrote");
    tables(&evenkeel, "more", "third");
    let third = tables(&evenkeel, "digest", "");
    evenkeel.kill();

    // Stock HBase finds its master's store, and an unknown server in hbase:meta.
    let stock = root.stock();
    same(&third, &tables(&stock, "digest", ""), "stock HBase over its own directory after Evenkeel");
    tables(&stock, "more", "fourth");
}

/// Takes a copy of a directory on which stock HBase was killed. Stock HBase's splitter converts its
/// logs to store files, as with `hbase.wal.split.to.hfile`. Evenkeel can read the rows of those
/// logs only from these files, and serves all of them. The log of hbase:meta stays: a stock master
/// splits that one first, to recovered edits. The splitter lacks the flushed sequence ids, so
/// already flushed cells are in two files; a raw scan, which shows both, is excluded.
fn recovered_hfiles_are_taken_in(root: &Root, before: &[String]) {
    let visible = |digest: &[String]| -> Vec<String> {
        digest.iter().filter(|line| !line.contains(" raw ")).cloned().collect()
    };
    let before = visible(before);
    assert!(before.len() > 10, "{before:?}");
    let copy = Root::new("recovered-hfiles");
    copy_folder(&root.0, &copy.0);
    let logs = files_under(&copy.0.join("WALs"));
    let logs: Vec<_> = logs.iter().filter(|log| !log.ends_with(".meta")).cloned().collect();
    let args: Vec<String> = [copy.0.display().to_string()].into_iter().chain(logs.clone()).collect();
    let split = program("FilesSplit", &args);
    assert!(!logs.is_empty() && split.len() > 10, "{logs:?} {split:?}");
    for log in logs {
        fs::remove_file(&log).unwrap_or_else(|e| panic!("{log}: {e}"));
    }
    let recovered = || {
        let files = files_under(&copy.0.join("data")).into_iter();
        files.filter(|file| file.contains("/recovered.hfiles/")).collect::<Vec<_>>()
    };
    assert_eq!(recovered().len(), split.len(), "{split:?}");

    let evenkeel = copy.evenkeel();
    let found = visible(&tables(&evenkeel, "digest", ""));
    same(&before, &found, "Evenkeel over store files of stock HBase's log split");
    // Parents of split and merged regions are not opened again, and their last edits were flushed
    // before.
    let of_served = |file: &String| !file.contains("/split/") && !file.contains("/merged/");
    let left: Vec<_> = recovered().into_iter().filter(of_served).collect();
    assert_eq!(left, Vec::<String>::new(), "all were taken in");
    evenkeel.kill();
    let again = copy.evenkeel();
    same(&before, &visible(&tables(&again, "digest", "")), "Evenkeel after that and a kill");
}

/// The paths of all files of a folder.
fn files_under(folder: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for name in names(folder) {
        let path = folder.join(name);
        if path.is_dir() {
            files.extend(files_under(&path));
        } else {
            files.push(path.display().to_string());
        }
    }
    files
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap_or_else(|e| panic!("{}: {e}", to.display()));
    for name in names(from) {
        let (from, to) = (from.join(&name), to.join(&name));
        if from.is_dir() {
            copy_folder(&from, &to);
        } else {
            fs::copy(&from, &to).unwrap_or_else(|e| panic!("{}: {e}", from.display()));
        }
    }
}

#[test]
fn store_files() {
    let run = folder("store-files");
    let settings = home().join(match std::env::var_os("EVENKEEL_INTEROP_FILES") {
        Some(all) if all == "all" => "files/store-files-all.txt",
        _ => "files/store-files.txt",
    });
    let (given, stock, ours) = (run.join("cells"), run.join("stock"), run.join("ours"));
    let hfile = |args: &[&Path]| tool(HFILE_TOOL, args);
    hfile(&[Path::new("cells"), &given]);
    let count =
        fs::read_to_string(&settings).unwrap_or_default().lines().filter(|l| !l.starts_with('#')).count();

    program("FilesWrite", &[&settings, &given, &stock].map(|path| path.display().to_string()));
    let read = hfile(&[Path::new("read"), &settings, &given, &stock]);
    assert_eq!(read.iter().filter(|line| line.starts_with("good ")).count(), count, "{read:#?}");

    fs::create_dir_all(&ours).unwrap_or_else(|e| panic!("{e}"));
    hfile(&[Path::new("write"), &settings, &given, &ours]);
    let args = [&settings, &given, &ours, &stock].map(|path| path.display().to_string());
    let theirs = program("FilesRead", &args);
    assert_eq!(theirs.iter().filter(|line| line.starts_with("ok ")).count(), count, "{theirs:#?}");

    let blooms = |lines: &[String]| -> Vec<String> {
        lines.iter().filter(|line| line.starts_with("bloom ")).cloned().collect()
    };
    let (theirs, ours_read) =
        (blooms(&theirs), blooms(&hfile(&[Path::new("read"), &settings, &given, &ours])));
    assert!(theirs.len() > count / 2, "{theirs:#?}");
    same(
        &theirs,
        &ours_read,
        "which keys pass the bloom filters of our files, asked by stock HBase and by us",
    );
    same(&theirs, &blooms(&read), "which keys pass the bloom filters of stock HBase's files, and of ours");

    for line in fs::read_to_string(&settings).unwrap_or_default().lines().filter(|l| !l.starts_with('#')) {
        // Compressors differ; everything else is identical.
        if let Some(name) = line.split(' ').next().filter(|_| !line.contains("compression=")) {
            let (a, b) = (fs::read(stock.join(name)), fs::read(ours.join(name)));
            assert!(a.is_ok() && a.ok() == b.ok(), "{name} is not the same to the byte");
        }
    }
    keep_store_files_for_fuzzing(&settings, &[("stock", &stock), ("ours", &ours)]);
}

/// The size limit of a seed of the fuzz targets (`fuzz/`): a few cells in a store file, whose
/// trailer alone is 4 KiB; the start of a log.
const SEED_BYTES_MAX: usize = 12 << 10;
const LOG_SEED_BYTES: usize = 4 << 10;

/// Keeps a seed of a fuzz target, from one interop run to the next.
fn keep_for_fuzzing(target: &str, name: &str, bytes: &[u8]) {
    let corpus = work().join("corpus").join(target);
    let kept = fs::create_dir_all(&corpus).and_then(|()| fs::write(corpus.join(name), bytes));
    kept.unwrap_or_else(|e| panic!("{}: {e}", corpus.display()));
}

/// Keeps the small store files of both writers, for the fuzz targets of their encodings and codecs.
fn keep_store_files_for_fuzzing(settings: &Path, written: &[(&str, &Path)]) {
    let encodings = [
        ("encoding=PREFIX", "hfile_prefix"),
        ("encoding=DIFF", "hfile_diff"),
        ("encoding=FAST_DIFF", "hfile_fast_diff"),
        ("encoding=ROW_INDEX_V1", "hfile_row_index"),
        ("compression=", "hfile_codecs"),
    ];
    let mut kept = BTreeSet::new();
    for line in fs::read_to_string(settings).unwrap_or_default().lines().filter(|l| !l.starts_with('#')) {
        let Some(name) = line.split(' ').next() else { continue };
        let form = encodings.iter().rev().find(|(part, _)| line.contains(part));
        let target = form.map_or("hfile", |(_, target)| target);
        for (writer, folder) in written {
            let bytes = fs::read(folder.join(name)).unwrap_or_else(|e| panic!("{name} of {writer}: {e}"));
            if bytes.len() <= SEED_BYTES_MAX {
                keep_for_fuzzing(target, &format!("{writer}-{name}"), &bytes);
                kept.insert((target, *writer));
            }
        }
    }
    assert_eq!(kept.len(), 2 * 6, "seeds of each form by each writer: {kept:?}");
}

/// Keeps the start of a log that its writer left open, so its entries may end anywhere.
fn keep_log_for_fuzzing(writer: &str, mode: &str, log: &Path) {
    let bytes = fs::read(log).unwrap_or_else(|e| panic!("{}: {e}", log.display()));
    let target = match mode {
        "plain" => "wal",
        "dict" | "dicttags" => "wal_dictionary",
        _ => "wal_values",
    };
    keep_for_fuzzing(target, &format!("{writer}-{mode}"), &bytes[..bytes.len().min(LOG_SEED_BYTES)]);
}

/// Hadoop's tools write checksum files beside files, and reject a file that does not match its
/// checksums. Each file of a directory gets one here; after files were compacted, archived,
/// replaced and created again, none is wrong.
#[test]
fn checksums_beside_files() {
    let root = Root::new("sums");
    let dir = root.0.display().to_string();
    let evenkeel = root.evenkeel();
    tables(&evenkeel, "fill", "ours");
    let before = tables(&evenkeel, "digest", "");
    drop(evenkeel);
    let sums = |command: &str| program("FilesSums", &[command.to_owned(), dir.clone()]).concat();
    let written = sums("write");
    let mut words = written.split([' ', ',']);
    assert_eq!(words.next(), words.nth(2), "every file has checksums: {written}");

    let evenkeel = root.evenkeel();
    same(&before, &tables(&evenkeel, "digest", ""), "what is served with checksums beside the files");
    tables(&evenkeel, "more", "later");
    evenkeel.kill();
    sums("check");
    let bin = evenkeel_binary().unwrap_or_else(|why| panic!("{why}"));
    let compacted = Command::new(bin).args(["compact", "--major", &dir]).output();
    assert!(compacted.as_ref().is_ok_and(|output| output.status.success()), "{compacted:?}");
    let checked = sums("check");
    assert!(!checked.contains(" 0 with"), "archived files keep theirs: {checked}");
    let evenkeel = root.evenkeel();
    assert!(tables(&evenkeel, "digest", "").len() >= before.len());
}

#[test]
fn wals() {
    let run = folder("wals");
    let wal = |args: &[&Path]| tool(WAL_TOOL, args);
    let entries =
        |lines: Vec<String>| lines.into_iter().filter(|line| line.contains(" seq=")).collect::<Vec<_>>();
    let text = |path: &Path| path.display().to_string();

    let modes = ["plain", "dict", "dicttags", "gz", "snappy", "lz4", "zstd"];
    let mut args = vec!["write".to_owned(), text(&run), "2000".to_owned()];
    args.extend(modes.map(str::to_owned));
    program("FilesWal", &args);
    for mode in modes {
        let written = fs::read_to_string(run.join(format!("{mode}.txt"))).unwrap_or_default();
        let written: Vec<String> = written.lines().map(str::to_owned).collect();
        assert_eq!(written.len(), 2000);
        assert!(
            entries(wal(&[Path::new("print"), &run.join(mode)])) == written,
            "a {mode} WAL of stock HBase"
        );
        keep_log_for_fuzzing("stock", mode, &run.join(mode));
    }

    let mut files = Vec::new();
    let mut ours = Vec::new();
    for mode in modes {
        let file =
            wal(&[Path::new("write"), &run.join("ours").join(mode), Path::new("200"), Path::new(mode)])
                .concat();
        let printed = entries(wal(&[Path::new("print"), Path::new(&file)]));
        keep_log_for_fuzzing("ours", mode, Path::new(&file));
        assert_eq!(printed.len(), 200);
        ours.extend(printed);
        files.push(file);
    }
    let mut args = vec!["print".to_owned()];
    args.extend(files);
    assert!(ours == program("FilesWal", &args), "WALs of ours: {modes:?}");
}

fn snapshots(server: &Server, command: &str, word: &str) -> Vec<String> {
    let mut args = vec![command.to_owned(), word.to_owned()];
    args.extend(server.client_settings().into_iter().map(|(key, value)| format!("-D{key}={value}")));
    program("FilesSnapshots", &args)
}

/// Runs one of stock HBase's tools over a root directory; returns its output.
fn stock_tool(class: &str, root: &Path, args: &[&str]) -> String {
    let mut all =
        vec![format!("-Dhbase.rootdir=file://{}", root.display()), "-Dfs.defaultFS=file:///".to_owned()];
    all.extend(args.iter().map(|arg| (*arg).to_owned()));
    let run = java(&format!("org.apache.hadoop.hbase.snapshot.{class}"), &all)
        .label(class)
        .deadline_secs(120)
        .run();
    let output = run.unwrap_or_else(|why| panic!("{why}"));
    assert!(output.success, "{class} {args:?}:\n{}\n{}", output.stdout, output.stderr);
    output.stdout
}

/// Each server clones and restores a snapshot of the other; stock HBase's tools read ours.
#[test]
fn snapshots_go_both_ways() {
    let _turn = ONE_STOCK_SERVER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let root = Root::new("snapshots");
    let evenkeel = root.evenkeel();
    let taken = snapshots(&evenkeel, "take", "ours");
    assert!(taken.iter().any(|line| line.starts_with("ours 300 ")), "{taken:?}");
    let said =
        stock_tool("SnapshotInfo", &root.0, &["-snapshot", "ours_snap", "-files", "-stats", "-schema"]);
    assert!(said.contains("Name: ours_snap") && said.contains("12 HFiles ("), "{said}");
    assert!(said.contains("3 in mob storage"), "{said}");
    assert!(!said.contains("CORRUPTED") && !said.contains("not found"), "{said}");
    let copy = folder("snapshots-copy").join("hbase");
    let target = format!("file://{}", copy.display());
    // Neither server keeps checksums of local files, so a comparison is impossible.
    let export = ["-snapshot", "ours_snap", "-copy-to", &target, "-mappers", "1", "-no-checksum-verify"];
    stock_tool("ExportSnapshot", &root.0, &export);
    let exported = stock_tool("SnapshotInfo", &copy, &["-snapshot", "ours_snap", "-stats"]);
    assert!(exported.contains("12 HFiles (12 in archive") && !exported.contains("CORRUPTED"), "{exported}");
    evenkeel.kill();

    let stock = root.stock();
    let by_stock = snapshots(&stock, "use", "ours");
    assert!(by_stock.iter().all(|line| line.split(' ').nth(1) == Some("200")), "{by_stock:?}");
    snapshots(&stock, "take", "theirs");
    stock.kill();

    let evenkeel = root.evenkeel();
    assert_eq!(snapshots(&evenkeel, "look", "ours"), by_stock[1..]);
    let by_us = snapshots(&evenkeel, "use", "theirs");
    let counts = |lines: &[String]| -> Vec<String> {
        lines.iter().map(|line| line.split_once(' ').map_or("", |(_, rest)| rest).to_owned()).collect()
    };
    assert_eq!(counts(&by_us), counts(&by_stock), "the same rows on both");
    drop(evenkeel);

    // The table that Evenkeel cloned from stock HBase's snapshot is complete for stock HBase, links
    // included.
    let stock = root.stock();
    assert_eq!(snapshots(&stock, "look", "theirs"), by_us[1..]);
}
