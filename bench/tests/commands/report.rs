//! The reports' commands work: their short forms, end to end.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// Runs a short report into a folder; returns its text.
fn short(report: &str, options: &[&str], out: &Path) -> String {
    let run = Command::new(env!("CARGO_BIN_EXE_report"))
        .args([report, "--short", &format!("--out={}", out.display())])
        .args(options)
        .output()
        .expect("it starts");
    assert!(run.status.success(), "{report}: {}\n{}", run.status, String::from_utf8_lossy(&run.stderr));
    std::fs::read_to_string(out.join(format!("{report}.md"))).expect("a report")
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

/// Checks that the plots shown in a report exist, and that every plot or histogram belongs to one
/// of its rows.
fn assert_files_fit(text: &str, out: &Path, report: &str) {
    let mut shown: Vec<_> = text.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    shown.sort_unstable();
    let files = std::fs::read_dir(out.join(report)).expect("its folder").flatten();
    let names: Vec<_> = files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
    let plots = names.iter().filter(|name| name.ends_with(".svg")).map(|name| format!("{report}/{name}"));
    let mut plots: Vec<_> = plots.collect();
    plots.sort_unstable();
    assert_eq!(shown, plots);
    for name in names.iter().filter(|name| name.ends_with(".hgrm")) {
        let row = name.trim_end_matches("-evenkeel.hgrm").trim_end_matches("-stock-g1.hgrm");
        assert!(shown.contains(&&*format!("{report}/{row}-time.svg")), "{name} is of no row");
    }
}

/// Checks that a row has a column of hits, and that this number of servers counted hits in it.
fn assert_hits(text: &str, row: &str, count: usize) {
    let section =
        text.split("\n## ").find(|section| section.lines().next().is_some_and(|title| title.contains(row)));
    let section = section.unwrap_or_else(|| panic!("{row} is missing:\n{text}"));
    assert!(section.contains(" hits % |\n"), "{section}");
    let servers: Vec<_> = section
        .lines()
        .filter(|l| ["| HBase, G1 |", "| Evenkeel |"].iter().any(|s| l.starts_with(s)))
        .collect();
    assert_eq!(servers.len(), count, "{section}");
    for line in servers {
        let hits: f64 =
            line.trim_end_matches(" |").rsplit(' ').next().and_then(|n| n.parse().ok()).expect("a figure");
        assert!(hits > 0.0 && hits <= 100.0, "{line}");
    }
}

#[test]
fn the_read_path_beside_stock_hbase() {
    let folder = folder();
    let stale = folder.path().join("read-path");
    std::fs::create_dir(&stale).expect("a folder");
    for name in ["multi-get-10-time.svg", "get-rate.svg", "get-stock-zgc.hgrm", "notes.txt"] {
        std::fs::write(stale.join(name), "of an earlier report").expect("written");
    }
    let text = short("read-path", &[], folder.path());
    assert_files_fit(&text, folder.path(), "read-path");
    assert!(!stale.join("get-stock-zgc.hgrm").exists() && stale.join("notes.txt").exists());
    assert!(text.contains("- others used "), "{text}");
    for row in ["Get, all in cache", "Get at half", "multi-get of 100", "about half", "all filtered"] {
        assert!(text.contains(row), "{row} is missing:\n{text}");
    }
    for row in ["6. Get of 1 KB by zipf", "beside a scan of the table", "6. that scan"] {
        assert_hits(&text, row, 2);
    }
    assert_eq!(text.matches("| HBase, G1 |").count(), text.matches("| Evenkeel |").count());
    for section in ["6. Hit ratio at equal memory, by policy", "One load process and a server's core"] {
        assert!(text.contains(section), "{section} is missing:\n{text}");
    }
    assert!(!text.contains("NaN"), "every ratio has both sides:\n{text}");
    let histogram = std::fs::read_to_string(stale.join("get-evenkeel.hgrm")).expect("a histogram");
    assert!(histogram.contains("Total count"));
    assert!(std::fs::read_to_string(stale.join("get-time.svg")).expect("a plot").starts_with("<svg"));
}

#[test]
fn the_switches_of_stock_hbase() {
    let folder = folder();
    let text = short("metrics-switches", &["--servers=g1"], folder.path());
    assert!(text.contains("HBase, G1: server CPU by switches") && !text.contains("NaN"), "{text}");
    for row in ["single Get, cached", "row of a multi-get", "row of a scan", "single Put"] {
        let row = text.lines().find(|line| line.starts_with(&format!("| {row}"))).expect("a row");
        let figures = row.split('|').filter_map(|cell| cell.trim().parse::<f64>().ok());
        assert_eq!(figures.filter(|figure| *figure > 0.0).count(), 5, "{row}");
    }
}

/// On HDFS, with ZooKeeper and an HMaster; one DataNode is stopped for ten seconds.
#[test]
fn the_report_of_a_cluster_on_evenkeel() {
    let folder = folder();
    let text = short("cluster", &["--servers=evenkeel"], folder.path());
    assert_files_fit(&text, folder.path(), "cluster");
    for row in
        ["1. Put, one caller, hsync", "3. Get, from DataNodes", "5. those Puts", "6. Puts, 500 a second"]
    {
        assert!(text.contains(&format!("\n## {row}")), "{row} is missing:\n{text}");
    }
    // Every Put of the ten seconds and of those around them counts.
    let stopped = text.split("## Puts while a DataNode is stopped").nth(1).expect("the section");
    let line = stopped.lines().find(|line| line.starts_with("| Evenkeel |")).expect("a line");
    let puts: u64 =
        line.trim_end_matches(" |").rsplit(' ').next().and_then(|n| n.parse().ok()).expect("a count");
    assert!((7_000..8_000).contains(&puts), "{line}");
    let trips: Vec<_> = text.lines().filter(|line| line.starts_with("| Evenkeel, h")).collect();
    assert!(trips.len() == 2 && !text.contains("NaN"), "{text}");
}

#[test]
fn the_other_reports_on_evenkeel() {
    for (report, row) in [
        ("write-path", "Puts at half"),
        ("ycsb", "workload F"),
        ("scan-flood", "beside 100 scanners"),
        ("deploys", "mostly misses"),
    ] {
        let folder = folder();
        let text = short(report, &["--servers=evenkeel"], folder.path());
        assert_files_fit(&text, folder.path(), report);
        assert!(text.contains(row) && text.contains("| Evenkeel |"), "{report}:\n{text}");
        if report == "deploys" {
            for row in [
                "4, file; all in cache",
                "4, files (two); few",
                "4, mmap; many",
                "5, META blocks only; mostly",
            ] {
                assert!(text.contains(&format!("\n## deploy {row}")), "{row} is missing:\n{text}");
            }
            ["kept unpacked; many", "kept compressed; many"]
                .iter()
                .for_each(|row| assert_hits(&text, row, 1));
        }
    }
}
