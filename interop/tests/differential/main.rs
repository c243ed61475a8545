//! The same work on a stock server and on the tested one: compares answers and metrics.
//!
//! | module | contents |
//! |---|---|
//! | [`server_metrics`] | names, types and values of `/jmx` and `/prometheus` after a known load |
//!
//! Random operations on random tables (`evenkeel.interop.differential.Differential`) are in this
//! file. Their test sorts first by name, since stock HBase shows some metrics of a region only
//! after 45 s. With `EVENKEEL_INTEROP_TARGET=stock` both sides are the one stock server, which must
//! agree with itself. Variables change the form of the run:
//!
//! | variable | meaning |
//! |---|---|
//! | `EVENKEEL_INTEROP_OPS` | the number of operations; 0: without end, until a difference |
//! | `EVENKEEL_INTEROP_MINUTES` | the run ends with the first table that ends after this time |
//! | `EVENKEEL_INTEROP_SEED` | the seed of all tables and operations |
//! | `EVENKEEL_INTEROP_TABLE` | the number of the first table, as a failed run reports it |

#![forbid(unsafe_code)]

mod server_metrics;

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use interop::{Server, java, start_stock_with_info, target_with};

/// Operations of the form that CI runs.
const OPERATIONS: u64 = 60_000;
/// The time that this form may take on a busy machine.
const DEADLINE_SECS: u64 = 1800;

/// Settings of the stock server: the form of ZSTD that needs no native library, and short periods
/// of the chores that remove the parents of splits and merges, until which it refuses further ones.
const STOCK_SETTINGS: [(&str, &str); 4] = [
    NO_NORMALIZER,
    ("hbase.io.compress.zstd.codec", "org.apache.hadoop.hbase.io.compress.zstd.ZstdCodec"),
    ("hbase.hfile.compaction.discharger.interval", "1000"),
    ("hbase.catalogjanitor.interval", "2000"),
];

/// A normalizer flushes a region that it finds too large, even if there is no row to split it at;
/// the two servers would do so at different times.
const NO_NORMALIZER: (&str, &str) = ("hbase.normalizer.period", "0");

/// The stock server that all tests compare with.
fn reference() -> &'static Server {
    static REFERENCE: OnceLock<Result<Server, String>> = OnceLock::new();
    let own = STOCK_SETTINGS.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let stock = REFERENCE.get_or_init(|| start_stock_with_info(&own));
    stock.as_ref().unwrap_or_else(|why| panic!("no stock server: {why}"))
}

/// The tested server.
fn tested() -> &'static Server {
    static TESTED: OnceLock<Server> = OnceLock::new();
    match std::env::var("EVENKEEL_INTEROP_TARGET").as_deref() {
        Ok("stock") => reference(),
        _ => TESTED.get_or_init(|| target_with(&[NO_NORMALIZER])),
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

/// The seconds after which a run is stuck.
fn deadline_secs(ops: u64, minutes: u64) -> u64 {
    match (ops, minutes) {
        (0, 0) => u64::MAX,
        _ => DEADLINE_SECS.max(ops / 20) + 60 * minutes,
    }
}

#[test]
fn random_operations() {
    let _turn = turn();
    let minutes = number("EVENKEEL_INTEROP_MINUTES", 0);
    let ops = number("EVENKEEL_INTEROP_OPS", if minutes == 0 { OPERATIONS } else { 0 });
    let (seed, table) = (number("EVENKEEL_INTEROP_SEED", 1), number("EVENKEEL_INTEROP_TABLE", 0));
    let numbers = [("--ops", ops), ("--minutes", minutes), ("--seed", seed), ("--table", table)];
    let mut args: Vec<String> =
        numbers.into_iter().flat_map(|(name, value)| [name.to_owned(), value.to_string()]).collect();
    // Without B both tables are on A's server.
    args.extend(arguments('A', reference()));
    if !std::ptr::eq(reference(), tested()) {
        args.extend(arguments('B', tested()));
    }
    let run = java("evenkeel.interop.differential.Differential", &args)
        .label("differential")
        .deadline_secs(deadline_secs(ops, minutes))
        .run();
    let output = run.unwrap_or_else(|why| panic!("{why}"));
    println!("{}", output.stdout);
    assert!(output.success, "seed {seed}: {}\n{}\n{}", output.end, output.stdout, output.stderr);
}
