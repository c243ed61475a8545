//! The commands of this crate work, end to end, in their short forms.
//!
//! | module | command |
//! |---|---|
//! | (this file) | `soak`: it finds no anomaly on a sound server, and it finds lost writes |
//! | [`hfile_report`] | `hfile_report` |
//! | [`measure`] | `measure` |
//! | [`report`] | `report` |
//!
//! The soak takes longest and waits most of that time. Its test is the first by name, so the others
//! run beside it.

mod hfile_report;
mod measure;
mod report;

use std::path::Path;
use std::process::{Command, Output};

/// Seconds of the soak in `cargo test`; `EVENKEEL_SOAK_SECONDS` sets others.
const SECONDS: f64 = 60.0;

fn soak(options: &[&str], out: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_soak"));
    command.args(options).arg("--out").arg(out);
    command.output().expect("it starts")
}

#[test]
fn a_soak_run_finds_no_violation() {
    let seconds = std::env::var("EVENKEEL_SOAK_SECONDS").ok().and_then(|text| text.parse().ok());
    let minutes = (seconds.unwrap_or(SECONDS) / 60.0).to_string();
    let mut options = vec!["--minutes", &minutes];
    let seed = std::env::var("EVENKEEL_TEST_SEED");
    options.extend(seed.iter().flat_map(|seed| ["--seed", seed.as_str()]));
    // Anomalies stay in this folder when the test fails. A short and a long soak may run at once.
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("soak-{minutes}"));
    let run = soak(&options, &out);
    let (text, why) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{text}\n{why}\nkept in {}", out.display());
    println!("{text}");
    let csv = std::fs::read_to_string(out.join("process.csv")).expect("samples");
    assert!(csv.lines().count() > 10, "memory was sampled:\n{csv}");
    for made in ["| rows written and acknowledged | ", "| operations in linearizable histories | "] {
        let count = text.split(made).nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
        assert!(count.is_some_and(|count| count > 1_000), "{made}: too few to prove anything\n{text}");
    }
}

#[test]
fn lost_writes_are_found() {
    let out = tempfile::tempdir().expect("a folder");
    let run = soak(&["--durability", "SKIP_WAL", "--seed", "5", "--minutes", "0.5"], out.path());
    let why = String::from_utf8_lossy(&run.stderr);
    assert!(!run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
    assert!(why.contains("acknowledged") || why.contains("linearizable"), "{why}");
    let kept = std::fs::read_dir(out.path()).expect("the folder").flatten();
    let anomaly = kept.map(|entry| entry.path()).find(|path| path.is_dir()).expect("an anomaly is kept");
    for part in ["what.txt", "server.log", "hbase"] {
        assert!(anomaly.join(part).exists(), "{part}");
    }
}
