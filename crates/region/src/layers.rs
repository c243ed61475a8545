//! Tests the layers that the crate's header draws: a folder uses only those below it.

use std::path::{Path, PathBuf};

/// The folders of this crate, and which folders each may use. Every folder comes after all that it
/// uses, so there are no cycles.
const LAYERS: [(&str, &[&str]); 13] = [
    ("archive", &[]),
    ("descriptors", &[]),
    ("filter", &[]),
    ("layout", &[]),
    ("links", &[]),
    ("snapshot_manifest", &["links"]),
    ("metrics", &[]),
    ("store_file_tracker", &["links"]),
    ("operations", &["filter"]),
    ("scanner", &["filter", "operations"]),
    ("memstore", &["operations", "scanner"]),
    (
        "store",
        &["archive", "layout", "links", "memstore", "metrics", "operations", "scanner", "store_file_tracker"],
    ),
    (
        "region",
        &["archive", "filter", "layout", "links", "memstore", "metrics", "operations", "scanner", "store"],
    ),
];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// Returns the files of a folder and its subfolders, and the file beside it.
fn files_of(folder: &str) -> Vec<PathBuf> {
    let mut files = vec![source().join(format!("{folder}.rs"))];
    let mut folders = vec![source().join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        for entry in entries {
            let path = entry.expect("listed").path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files
}

/// Returns true for test code, which may use folders above it, as crates' tests may.
fn is_test(path: &Path) -> bool {
    let is_test_name = |name: &str| name == "tests" || name == "testing" || name.ends_with("_tests");
    let within = path.strip_prefix(source()).expect("in the crate");
    within.with_extension("").iter().any(|name| name.to_str().is_some_and(is_test_name))
}

/// Returns the folders that a line of code names by `crate::`.
fn folders_named(line: &str) -> impl Iterator<Item = &str> {
    let code = line.split("//").next().unwrap_or_default();
    code.split("crate::")
        .skip(1)
        .map(|rest| rest.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default())
}

/// Returns uses of a folder that the layers do not allow, as `file:line`.
fn wrong_uses(folder: &str, allowed: &[&str]) -> Vec<String> {
    let mut wrong = Vec::new();
    for file in files_of(folder).into_iter().filter(|file| !is_test(file)) {
        let text = std::fs::read_to_string(&file).expect("source");
        let production = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for (number, line) in production.lines().enumerate() {
            let is_wrong = |used: &&str| *used != folder && !allowed.contains(used);
            wrong.extend(
                folders_named(line)
                    .filter(is_wrong)
                    .map(|used| format!("{}:{}: {used}", file.display(), number + 1)),
            );
        }
    }
    wrong
}

#[test]
fn folders_use_only_those_below_them() {
    for (place, (folder, allowed)) in LAYERS.iter().enumerate() {
        let below: Vec<&str> = LAYERS[..place].iter().map(|(below, _)| *below).collect();
        assert!(allowed.iter().all(|used| below.contains(used)), "{folder} stands below what it uses");
        let wrong = wrong_uses(folder, allowed);
        assert!(wrong.is_empty(), "{folder} may use {allowed:?} only:\n{}", wrong.join("\n"));
    }
}

#[test]
fn every_folder_has_a_layer() {
    let root = std::fs::read_to_string(source().join("lib.rs")).expect("source");
    let mut modules: Vec<_> =
        root.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';')).collect();
    let mut layers = LAYERS.map(|(folder, _)| folder);
    modules.sort_unstable();
    layers.sort_unstable();
    assert_eq!(modules, layers);
}
