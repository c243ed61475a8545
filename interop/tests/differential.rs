//! The same random operations on two servers, with every answer compared
//! (`evenkeel.interop.Differential`).
//!
//! `EVENKEEL_INTEROP_OPS` and `EVENKEEL_INTEROP_SEED` change the length and the seed. With
//! `EVENKEEL_INTEROP_TARGET=stock` both tables are on one stock server, whose answers must be the
//! same for both.

#![forbid(unsafe_code)]

use interop::{Server, java, start_stock, target};

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

fn arguments(letter: char, server: &Server) -> impl Iterator<Item = String> {
    server.client_settings().into_iter().map(move |(key, value)| format!("-{letter}{key}={value}"))
}

fn run(seed: u64, ops: u64) {
    let mut args = vec!["--ops".to_owned(), ops.to_string(), "--seed".to_owned(), seed.to_string()];
    let tested = target();
    // A is the reference.
    let reference =
        (tested.name() != "stock HBase").then(|| start_stock().unwrap_or_else(|why| panic!("{why}")));
    match &reference {
        Some(stock) => args.extend(arguments('A', stock).chain(arguments('B', tested))),
        None => args.extend(arguments('A', tested)),
    }
    let run = java("evenkeel.interop.Differential", &args).label("differential").deadline_secs(900).run();
    let output = run.unwrap_or_else(|why| panic!("{why}"));
    assert!(output.success, "{}\n{}\n{}", output.end, output.stdout, output.stderr);
}

#[test]
fn random_operations() {
    run(number("EVENKEEL_INTEROP_SEED", 1), number("EVENKEEL_INTEROP_OPS", 20_000));
}
