//! Store files with HBase's classes and with ours, on the same files, in one run:
//! `docs/benchmarks/hfile.md`.
//!
//! `cargo run --release -p evenkeel-bench --bin hfile_report -- [--option value] ...`
//!
//! | option | default | |
//! |---|---|---|
//! | `--cells` | 150000 | cells of each file that is written and read |
//! | `--times` | 4 | writes and reads of each file in a round |
//! | `--seeks` | 200000 | seeks in cached blocks |
//! | `--grow` | 1024 | MiB of the file that is grown and opened |
//! | `--opens` | 200 | opens of that file |
//! | `--rows` | 200000 | rows of 10 KB to compact (1500000: full workload, 30 GB of disk) |
//! | `--warm-ups`, `--rounds` | 4, 3 | warm-up rounds, and measured rounds |
//! | `--only` | | rows whose name contains this |
//! | `--dir` | `target/hfile_report` | the directory of the files |
//! | `--out` | `docs/benchmarks/hfile.md` | the report; `-` for standard output |
//!
//! Needs what the tests of `interop` need: a JDK 17 and Maven.

#![forbid(unsafe_code)]

use std::path::PathBuf;

use evenkeel_bench::hfile_report::{Outcome, Sizes, run};

fn main() -> Outcome<()> {
    let mut sizes = Sizes {
        cells: 150_000,
        times: 4,
        seeks: 200_000,
        grow_mib: (256, 1024),
        opens: 200,
        compact_rows: 200_000,
        warm_ups: 4,
        rounds: 3,
        only: None,
        dir: PathBuf::from("target/hfile_report"),
    };
    let mut out = "docs/benchmarks/hfile.md".to_owned();
    let args: Vec<String> = std::env::args().skip(1).collect();
    for pair in args.chunks(2) {
        let [option, value] = pair else { return Err(format!("{pair:?} has no value").into()) };
        match option.as_str() {
            "--cells" => sizes.cells = value.parse()?,
            "--times" => sizes.times = value.parse()?,
            "--seeks" => sizes.seeks = value.parse()?,
            "--grow" => sizes.grow_mib.1 = value.parse()?,
            "--opens" => sizes.opens = value.parse()?,
            "--rows" => sizes.compact_rows = value.parse()?,
            "--warm-ups" => sizes.warm_ups = value.parse()?,
            "--rounds" => sizes.rounds = value.parse()?,
            "--only" => sizes.only = Some(value.clone()),
            "--dir" => sizes.dir = value.into(),
            "--out" => out.clone_from(value),
            _ => return Err(format!("{option} is not an option").into()),
        }
    }
    sizes.grow_mib.0 = sizes.grow_mib.0.min(sizes.grow_mib.1 / 4);
    sizes.dir = std::path::absolute(&sizes.dir)?.join(std::process::id().to_string());
    let head = head(&args, &sizes);
    let report = head + &run(sizes)?;
    match out.as_str() {
        "-" => println!("{report}"),
        path => std::fs::write(path, report)?,
    }
    Ok(())
}

/// The command, machine and versions.
fn head(args: &[String], sizes: &Sizes) -> String {
    let first_line = |path: &str, key: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        text.lines()
            .find_map(|line| line.strip_prefix(key))
            .map(|v| v.trim_start_matches([' ', '\t', ':']).to_owned())
    };
    let cpu = first_line("/proc/cpuinfo", "model name").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = first_line("/proc/loadavg", "").unwrap_or_default();
    format!(
        "# Store files beside stock HBase's classes\n\n\
         `cargo run --release -p evenkeel-bench --bin hfile_report{}{}` wrote this.\n\n\
         Stock is HBase 2.6.4's own writer, reader and compaction tool in one JVM (G1, 3 GB); ours runs in the process of\n\
         the report. Both have the same cells and files, alternating; {} measured rounds after {} of warm-up; the minimum\n\
         CPU of each. CPU is user and system of the whole process; the JVM's includes its compiler and collector.\n\n\
         Files of {} cells: 16-byte rows of three columns, 100-byte values, half random; 64 KiB blocks, CRC32C, a ROW bloom\n\
         filter. MB count the cells as KeyValues. Machine: {cores} x {cpu}, load {load} at the start.\n",
        if args.is_empty() { "" } else { " -- " },
        args.join(" "),
        sizes.rounds,
        sizes.warm_ups,
        sizes.cells,
    )
}
