//! The least that `evenkeel pe` can measure on a machine: a server that answers every Get at once, with one cell.
//!
//! `floor VALUE_BYTES SECONDS` prints its address for `--target=`, and ends after so many seconds. Its table is
//! `TestTable`, which `pe` takes without `--table`.

#[path = "../tests/fake/mod.rs"]
mod fake;

use std::time::Duration;

fn main() {
    let mut numbers = std::env::args().skip(1).map(|arg| arg.parse::<u64>().expect("a number"));
    let mut next = |default| numbers.next().unwrap_or(default);
    let (value_bytes, seconds) = (next(200), next(60));
    let (server, target) = fake::fake(fake::Stalls::Never, value_bytes as usize);
    println!("{}", target.client.bootstrap.join(","));
    std::thread::sleep(Duration::from_secs(seconds));
    server.shutdown(Duration::from_secs(1));
}
