//! The same work on a stock server and on the tested one: compares answers and metrics.
//!
//! | module | contents |
//! |---|---|
//! | [`server_metrics`] | names, types and values of `/jmx` and `/prometheus` after a known load |
//!
//! Random operations (`evenkeel.interop.differential.Differential`) are in this file. Their test
//! sorts first by name, since stock HBase shows some metrics of a region only after 45 s.
//! `EVENKEEL_INTEROP_OPS` and `EVENKEEL_INTEROP_SEED` change their length and seed. With
//! `EVENKEEL_INTEROP_TARGET=stock` both sides are the one stock server, which must agree with
//! itself.

#![forbid(unsafe_code)]

mod server_metrics;

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use interop::{Server, java, start_stock_with_info, target};

/// The stock server that all tests compare with.
fn reference() -> &'static Server {
    static REFERENCE: OnceLock<Result<Server, String>> = OnceLock::new();
    let stock = REFERENCE.get_or_init(start_stock_with_info);
    stock.as_ref().unwrap_or_else(|why| panic!("no stock server: {why}"))
}

/// The tested server.
fn tested() -> &'static Server {
    match std::env::var("EVENKEEL_INTEROP_TARGET").as_deref() {
        Ok("stock") => reference(),
        _ => target(),
    }
}

/// Tests take turns, because the requests of one would appear in the metrics of the other.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

fn arguments(letter: char, server: &Server) -> impl Iterator<Item = String> {
    server.client_settings().into_iter().map(move |(key, value)| format!("-{letter}{key}={value}"))
}

fn run(seed: u64, ops: u64) {
    let mut args = vec!["--ops".to_owned(), ops.to_string(), "--seed".to_owned(), seed.to_string()];
    // Without B both tables are on A's server.
    args.extend(arguments('A', reference()));
    if !std::ptr::eq(reference(), tested()) {
        args.extend(arguments('B', tested()));
    }
    let run = java("evenkeel.interop.differential.Differential", &args)
        .label("differential")
        .deadline_secs(900)
        .run();
    let output = run.unwrap_or_else(|why| panic!("{why}"));
    assert!(output.success, "{}\n{}\n{}", output.end, output.stdout, output.stderr);
}

#[test]
fn random_operations() {
    let _turn = turn();
    run(number("EVENKEEL_INTEROP_SEED", 1), number("EVENKEEL_INTEROP_OPS", 20_000));
}
