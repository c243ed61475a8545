//! Every method of the Java client's Table, AsyncTable, Admin, AsyncAdmin and Hbck, called once
//! (`evenkeel.interop.methods.MethodWalk`). Its outcome is that of stock HBase
//! (`methods/expected.txt`), or stands with a reason in `methods/differences.txt`.
//!
//! `EVENKEEL_INTEROP_RECORD=1` with `EVENKEEL_INTEROP_TARGET=stock` writes the outcomes instead of
//! comparing.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs;

use interop::{Server, home, java, start_evenkeel_with, start_stock};

/// The page that lists the differences.
const PAGE: &str = "../docs/operating/compatibility.md";

/// A method whose outcome differs.
struct Difference {
    outcome: String,
    reason: String,
}

fn read(path: &str) -> String {
    fs::read_to_string(home().join(path)).unwrap_or_else(|why| panic!("{path}: {why}"))
}

/// Splits a line at the colon that ends the method's name.
fn method_and_outcome(line: &str) -> (&str, &str) {
    line.split_once("): ").unwrap_or_else(|| panic!("no outcome in {line:?}"))
}

/// The outcomes of stock HBase, by method.
fn expected() -> BTreeMap<String, String> {
    let text = read("methods/expected.txt");
    text.lines().map(method_and_outcome).map(|(method, outcome)| (method.into(), outcome.into())).collect()
}

/// The lines `method: outcome | reason`.
fn differences() -> BTreeMap<String, Difference> {
    let text = read("methods/differences.txt");
    let difference = |line: &str| {
        let (method, rest) = method_and_outcome(line);
        let (outcome, reason) = rest.split_once(" | ").unwrap_or_else(|| panic!("no reason in {line:?}"));
        (method.to_owned(), Difference { outcome: outcome.to_owned(), reason: reason.to_owned() })
    };
    text.lines().map(difference).collect()
}

/// Calls the methods; returns a line for each.
fn walk(server: &Server) -> String {
    let args: Vec<String> =
        server.client_settings().into_iter().map(|(key, value)| format!("-D{key}={value}")).collect();
    let run = java("evenkeel.interop.methods.MethodWalk", &args).label("methods").deadline_secs(1800).run();
    let output = run.unwrap_or_else(|why| panic!("{why}"));
    assert!(output.success && output.stdout.ends_with("done\n"), "{}", output.stdout);
    let lines = output.stdout.lines().filter_map(|line| line.strip_prefix("method "));
    lines.flat_map(|line| [line, "\n"]).collect()
}

#[test]
fn each_method_of_the_client_has_the_outcome_of_stock_hbase() {
    let is_stock = std::env::var("EVENKEEL_INTEROP_TARGET").is_ok_and(|target| target == "stock");
    // A client is told the master's info port; stock HBase is started without one.
    let no_pages = ["hbase.master.info.port", "hbase.regionserver.info.port"];
    let no_pages = no_pages.map(|key| (key.to_owned(), "-1".to_owned()));
    let server = if is_stock { start_stock() } else { start_evenkeel_with(&no_pages) };
    let found = walk(&server.expect("the server starts"));
    if is_stock && std::env::var_os("EVENKEEL_INTEROP_RECORD").is_some() {
        return fs::write(home().join("methods/expected.txt"), found).expect("written");
    }
    let (expected, differences) = (expected(), differences());
    let mut wrong = Vec::new();
    let found: BTreeMap<_, _> = found.lines().map(method_and_outcome).collect();
    for (method, outcome) in &found {
        let of_stock = expected.get(*method).map(String::as_str);
        let wanted = differences.get(*method).filter(|_| !is_stock).map(|d| d.outcome.as_str()).or(of_stock);
        if wanted != Some(outcome) {
            wrong.push(format!("{method}): {outcome}, not {wanted:?}"));
        }
    }
    wrong.extend(expected.keys().filter(|method| !found.contains_key(method.as_str())).cloned());
    assert!(found.len() > 500 && wrong.is_empty(), "{} methods; wrong:\n{}", found.len(), wrong.join("\n"));
}

#[test]
fn the_page_of_compatibility_lists_the_differences() {
    let expected = expected();
    let mut table = String::from("| method | stock HBase 2.6.4 | Evenkeel | why |\n|---|---|---|---|\n");
    for (method, Difference { outcome, reason }) in differences() {
        let of_stock = expected.get(&method).unwrap_or_else(|| panic!("stock has no {method}"));
        assert_ne!(*of_stock, outcome, "{method} does not differ");
        table.push_str(&format!("| `{method})` | {of_stock} | {outcome} | {reason} |\n"));
    }
    let not_called = expected.values().filter(|outcome| outcome.starts_with("not called")).count();
    let counts = format!("{} methods, {not_called} of them not called", expected.len());
    let page = read(PAGE);
    assert!(page.contains(&table), "{PAGE} lacks this table:\n{table}");
    assert!(page.contains(&counts), "{PAGE} lacks {counts:?}");
}
