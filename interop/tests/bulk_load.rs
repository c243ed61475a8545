//! Bulk load by stock HBase's tool: BulkLoadHFilesTool loads files of HFileOutputFormat2 that span
//! regions over existing cells and deletes. Every cell that is read is compared with the
//! expectation of `evenkeel.interop.tables.BulkLoadTable`. Then the servers take turns on the
//! directory; each is killed at the end of its turn.

#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};

use interop::{Server, java, start_evenkeel_with, start_stock_with, target, work};

fn folder(name: &str) -> PathBuf {
    let folder = work().join("run").join(format!("{name}.{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    folder
}

/// Runs steps of `BulkLoadTable` in sequence.
#[track_caller]
fn steps(server: &Server, steps: &[&str]) {
    let mut args: Vec<String> = steps.iter().map(|&step| step.to_owned()).collect();
    args.extend(server.client_settings().into_iter().map(|(key, value)| format!("-D{key}={value}")));
    let run =
        java("evenkeel.interop.tables.BulkLoadTable", &args).label("bulk-load").deadline_secs(300).run();
    let output = run.unwrap_or_else(|why| panic!("{why}"));
    println!("{}", output.stdout);
    assert!(output.success, "{steps:?} on {}:\n{}", server.name(), output.failures());
}

/// Files of a root directory whose paths contain `part`.
fn files(dir: &Path, part: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => found.extend(files(&path, part)),
            false if path.display().to_string().contains(part) => found.push(path),
            false => {}
        }
    }
    found
}

/// The entries that `hbase wal`, stock HBase's tool, prints for the logs of a directory's tables
/// after the server was killed. For a log without a trailer it ends with an error, after all
/// entries.
#[track_caller]
fn pretty_printed(root: &Path) -> String {
    let mut shown = String::new();
    for log in
        files(&root.join("WALs"), "").iter().filter(|log| !log.display().to_string().ends_with(".meta"))
    {
        let args = [format!("file://{}", log.display())];
        let run = java("org.apache.hadoop.hbase.wal.WALPrettyPrinter", &args).label("bulk-wal").run();
        let output = run.unwrap_or_else(|why| panic!("{why}"));
        let ended = output.success || output.stderr.contains("EOF while reading message size");
        assert!(ended, "{args:?}:\n{}", output.failures());
        shown.push_str(&output.stdout);
    }
    shown
}

#[test]
fn the_tool_splits_and_loads() {
    let input = folder("bulk-input");
    let load = |phase: u32| format!("load={phase}={}", input.display());
    steps(
        target(),
        &[
            "create",
            "write=0",
            "flush",
            "write=1",
            "check=1",
            &load(2),
            "check=2",
            "write=3",
            "check=3",
            "flush",
            "check=3",
            &load(4),
            "check=4",
            "flush",
            "compact",
            "check=4",
            &load(5),
            "check=5",
            "compact",
            "check=5",
        ],
    );
}

#[test]
fn a_directory_with_loaded_files_exchanges_both_ways() {
    let run = folder("bulk-exchange");
    let root = run.join("hbase");
    let settings = [("hbase.rootdir".to_owned(), format!("file://{}", root.display()))];
    let evenkeel = || start_evenkeel_with(&settings).unwrap_or_else(|why| panic!("{why}"));
    let load = |phase: u32| format!("load={phase}={}", run.join("input").display());

    let server = evenkeel();
    steps(&server, &["create", "write=0", "flush", "write=1", &load(2), "write=3", "check=3"]);
    server.kill();
    let loaded = files(&root.join("data"), "_SeqId_");
    assert_eq!(loaded.len(), 8, "two families of four regions: {loaded:?}");
    let left = files(&root.join("staging"), "");
    assert!(left.is_empty(), "{left:?}");
    let shown = pretty_printed(&root);
    for marker in ["HBASE::FLUSH", "HBASE::BULK_LOAD"] {
        assert!(shown.contains(&format!("column=METAFAMILY:{marker}, ")), "{marker}:\n{shown}");
    }

    let server = evenkeel();
    steps(&server, &["check=3", &load(4), "check=4"]);
    server.kill();

    let server = start_stock_with(&settings).unwrap_or_else(|why| panic!("{why}"));
    steps(&server, &["check=4", &load(5), "check=5"]);
    server.kill();

    let server = evenkeel();
    steps(&server, &["check=5", "compact", "check=5"]);
    server.kill();
    let shown = pretty_printed(&root);
    assert!(shown.contains("column=METAFAMILY:HBASE::COMPACTION, "), "{shown}");
    steps(&evenkeel(), &["check=5"]);
}
