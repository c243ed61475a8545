//! The reports' commands work: their short forms, end to end.

use std::path::PathBuf;
use std::process::Command;

/// Runs a short report; its text and the folder of its files.
fn short(report: &str, options: &[&str]) -> (String, PathBuf) {
    let out = tempfile::tempdir().expect("a folder").keep();
    let run = Command::new(env!("CARGO_BIN_EXE_report"))
        .args([report, "--short", &format!("--out={}", out.display())])
        .args(options)
        .output()
        .expect("it starts");
    assert!(run.status.success(), "{report}: {}\n{}", run.status, String::from_utf8_lossy(&run.stderr));
    let text = std::fs::read_to_string(out.join(format!("{report}.md"))).expect("a report");
    (text, out.join(report))
}

#[test]
fn the_read_path_beside_stock_hbase() {
    let (text, folder) = short("read-path", &[]);
    for row in ["Get, all in cache", "Get at half", "multi-get of 100", "about half", "all filtered"] {
        assert!(text.contains(row), "{row} is missing:\n{text}");
    }
    assert_eq!(text.matches("| HBase, G1 |").count(), text.matches("| Evenkeel |").count());
    for section in ["6. Hit ratio at equal memory", "One load process and a server's core"] {
        assert!(text.contains(section), "{section} is missing:\n{text}");
    }
    assert!(!text.contains("NaN"), "every ratio has both sides:\n{text}");
    let histogram = std::fs::read_to_string(folder.join("get-evenkeel.hgrm")).expect("a histogram");
    assert!(histogram.contains("Total count"));
    assert!(std::fs::read_to_string(folder.join("get-time.svg")).expect("a plot").starts_with("<svg"));
}

#[test]
fn the_other_reports_on_evenkeel() {
    for (report, row) in
        [("write-path", "Puts at half"), ("ycsb", "workload F"), ("deploys", "mostly misses")]
    {
        let (text, _) = short(report, &["--servers=evenkeel"]);
        assert!(text.contains(row) && text.contains("| Evenkeel |"), "{report}:\n{text}");
    }
}
