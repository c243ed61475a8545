//! HBase's load tool: it must run to its end, and the rows that it reports as written must exist.

#![forbid(unsafe_code)]

use interop::{Finished, java, target, toolchain};

const ROWS_PER_CLIENT: usize = 2500;
const CLIENTS: usize = 4;

fn run(class: &str, args: &[&str]) -> Finished {
    let conf = target().client_conf().expect("a client configuration");
    let class_path = toolchain::client_class_path().unwrap_or_else(|why| panic!("{why}"));
    let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
    let run = java(class, &args).class_path(format!("{}:{class_path}", conf.display())).deadline_secs(240);
    let finished = run.run().unwrap_or_else(|why| panic!("{why}"));
    assert!(
        finished.success,
        "{class} {args:?} over {}: {}\n{}",
        target().name(),
        finished.end,
        finished.stderr
    );
    finished
}

fn evaluate(table: &str, options: &[&str], command: &str) {
    let (rows, table, clients) =
        (format!("--rows={ROWS_PER_CLIENT}"), format!("--table={table}"), CLIENTS.to_string());
    let mut args = vec!["--nomapred", &rows, &table];
    args.extend(options);
    args.extend([command, &clients]);
    let finished = run("org.apache.hadoop.hbase.PerformanceEvaluation", &args);
    let ended =
        finished.stderr.matches("Finished class org.apache.hadoop.hbase.PerformanceEvaluation").count();
    assert_eq!(ended, CLIENTS, "clients that finished {command}:\n{}", finished.stderr);
}

fn count(table: &str) -> usize {
    let output = run("evenkeel.interop.tables.RowCount", &[table]).stdout;
    output.trim().parse().unwrap_or_else(|_| panic!("a number of rows, got {output}"))
}

#[test]
fn sequential_write_then_reads() {
    let table = "PeSequential";
    evaluate(table, &["--presplit=4"], "sequentialWrite");
    assert_eq!(count(table), ROWS_PER_CLIENT * CLIENTS);
    evaluate(table, &["--presplit=4"], "randomRead");
    evaluate(table, &["--presplit=4", "--multiGet=50"], "randomRead");
    evaluate(table, &["--presplit=4", "--caching=100"], "scan");
    assert_eq!(count(table), ROWS_PER_CLIENT * CLIENTS);
}

#[test]
fn batched_and_random_writes() {
    let table = "PeBatched";
    evaluate(
        table,
        &["--autoFlush=true", "--multiPut=100", "--families=2", "--columns=3"],
        "sequentialWrite",
    );
    assert_eq!(count(table), ROWS_PER_CLIENT * CLIENTS);
    evaluate(table, &["--families=2", "--columns=3"], "randomWrite");
    assert_eq!(count(table), ROWS_PER_CLIENT * CLIENTS);
    evaluate(table, &["--families=2", "--columns=3"], "increment");
}
