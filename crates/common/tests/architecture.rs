//! What the pages say about the structure of the whole workspace, compared with the sources.
//!
//! * ARCHITECTURE.md draws every crate, and each crate above those that it depends on.
//! * docs/design.md argues every thread-local outside tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace")
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).expect("readable")
}

/// Returns the crates below `crates`, and the crates of the workspace that each depends on.
fn dependencies() -> BTreeMap<String, Vec<String>> {
    let dirs = fs::read_dir(root().join("crates")).expect("a directory");
    let of_crate = |dir: PathBuf| {
        let name = dir.file_name().expect("a name").to_str().expect("UTF-8").to_owned();
        (name, named_dependencies(&read(dir.join("Cargo.toml"))))
    };
    dirs.map(|dir| of_crate(dir.expect("an entry").path())).collect()
}

/// Returns the crates of the workspace that a manifest names under `[dependencies]`.
fn named_dependencies(manifest: &str) -> Vec<String> {
    let (_, rest) = manifest.split_once("\n[dependencies]\n").unwrap_or_default();
    let own = rest.lines().take_while(|line| !line.starts_with('['));
    let names = own.filter_map(|line| line.strip_prefix("evenkeel-")?.split(['.', ' ', '=']).next());
    names.map(str::to_owned).collect()
}

/// Returns the crates of ARCHITECTURE.md's drawing in their order, each with its line. Only names
/// that are separated by two spaces share a line.
fn drawn(page: &str, crates: &BTreeMap<String, Vec<String>>) -> Vec<(usize, String)> {
    let (_, rest) = page.split_once("\n## The crates\n").expect("the heading");
    let (_, drawing) = rest.split_once("```\n").expect("the drawing");
    let (drawing, _) = drawing.split_once("```").expect("its end");
    let names = drawing.lines().enumerate().flat_map(|(at, line)| {
        let words = line.trim().split("  ").map(str::trim);
        words.take_while(|word| crates.contains_key(*word)).map(move |word| (at, word.to_owned()))
    });
    names.collect()
}

/// Returns the dependencies that are not drawn below their crate, and crates that are not drawn.
fn violations(drawn: &[(usize, String)], crates: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let line_of = |name: &str| drawn.iter().find(|(_, drawn)| drawn == name).map(|(line, _)| *line);
    let mut found = Vec::new();
    for (name, dependencies) in crates {
        let Some(line) = line_of(name) else {
            found.push(format!("{name} is not drawn"));
            continue;
        };
        let above = dependencies.iter().filter(|other| line_of(other).is_none_or(|at| at <= line));
        found.extend(above.map(|other| format!("{name} depends on {other}")));
    }
    found
}

#[test]
fn each_crate_is_drawn_above_its_dependencies() {
    let crates = dependencies();
    assert!(crates.len() > 20 && crates["region"].contains(&"hfile".to_owned()), "{crates:?}");
    let mut drawn = drawn(&read(root().join("ARCHITECTURE.md")), &crates);
    assert_eq!(violations(&drawn, &crates), Vec::<String>::new());
    // The check finds what it looks for.
    drawn.reverse();
    let count = drawn.len();
    drawn.iter_mut().enumerate().for_each(|(at, (line, _))| *line = at);
    assert!(violations(&drawn, &crates).contains(&"region depends on hfile".to_owned()));
    drawn.truncate(count - 1);
    assert!(violations(&drawn, &crates).iter().any(|violation| violation.ends_with("is not drawn")));
}

/// Returns the sources of the crates below `dir`, without tests and benchmarks.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("UTF-8");
        match path.is_dir() {
            true if !["tests", "benches", "examples", "target"].contains(&name) => sources(&path, found),
            false if name.ends_with(".rs") && !name.ends_with("tests.rs") => found.push(path),
            _ => {}
        }
    }
}

#[test]
fn every_thread_local_is_argued() {
    let page = read(root().join("docs/design.md"));
    let (_, rest) = page.split_once("\n### Thread-locals hold what belongs to the thread\n").expect("there");
    let (table, _) = rest.split_once("\n**Weighed.**").expect("its end");
    let mut all = Vec::new();
    sources(&root().join("crates"), &mut all);
    let declares = |path: &PathBuf| {
        let text = read(path);
        let own = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
        own.lines().any(|line| line.trim_start().starts_with("thread_local!"))
    };
    let names: Vec<String> = all
        .into_iter()
        .filter(declares)
        .map(|path| path.strip_prefix(root()).expect("below").display().to_string())
        .collect();
    assert!(names.len() >= 10, "{names:?}");
    let row = |name: &str| table.lines().find(|line| line.contains(&format!("`{name}`"))).unwrap_or_default();
    let mut missing = Vec::new();
    for name in &names {
        let text = read(root().join(name));
        let own = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
        let declared = thread_locals(own);
        assert!(!declared.is_empty(), "{name} declares none");
        let unnamed = declared.iter().filter(|local| !row(name).contains(&format!("`{local}`")));
        missing.extend(unnamed.map(|local| format!("{name}: {local}")));
    }
    assert!(missing.is_empty(), "not in docs/design.md: {missing:?}");
}

/// The names of the thread-locals that a source declares.
fn thread_locals(text: &str) -> Vec<&str> {
    let blocks = text.split("thread_local!").skip(1);
    let block = |rest: &'_ str| rest.find("\n}").or_else(|| rest.find(");")).unwrap_or(rest.len());
    let mut names = Vec::new();
    for rest in blocks {
        let of_block = rest.get(..block(rest)).unwrap_or_default();
        names.extend(of_block.split("static ").skip(1).filter_map(|rest| rest.split(':').next()));
    }
    names
}
