//! The short form of the report on store files: every command on both sides, on files of a few
//! cells. The report itself fails when the sides do not read the same cells, or a compaction loses
//! any.

use evenkeel_bench::hfile_report::{Sizes, run};

#[test]
fn both_implementations_agree_on_every_command() {
    let dir = tempfile::tempdir().expect("temp dir");
    let sizes = Sizes {
        cells: 2000,
        times: 1,
        seeks: 100,
        grow_mib: (1, 4),
        opens: 2,
        compact_rows: 300,
        warm_ups: 0,
        rounds: 1,
        only: None,
        dir: dir.path().join("files"),
    };
    let report = run(sizes).unwrap_or_else(|why| panic!("{why}"));
    let rows = |title: &str| -> Vec<Vec<String>> {
        let (_, section) = report.split_once(&format!("\n## {title}")).expect(title);
        let table = section.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
        let rows = table.take_while(|line| line.starts_with('|'));
        rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
            .collect()
    };
    for (title, count, columns) in [
        ("Sequential read", 30, 8),
        ("Sequential write", 30, 8),
        ("Seeks in cached blocks", 5, 6),
        ("Memory while writing", 2, 3),
        ("Open", 1, 4),
        ("Major compaction of 300 rows of 10 KB", 2, 6),
    ] {
        let table = rows(title);
        assert_eq!(table.len(), count, "{title}:\n{report}");
        assert!(table.iter().all(|row| row.len() == columns), "{title}:\n{report}");
    }
    let resident = |row: &[String]| row[2].trim_end_matches(" MiB").parse::<u64>().expect("a number");
    assert!(rows("Memory while writing").iter().all(|row| resident(row) > 1), "{report}");
    assert!(!dir.path().join("files").exists(), "files are removed");
}
