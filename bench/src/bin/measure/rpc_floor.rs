//! `rpc_floor [VALUE_BYTES [SECONDS]]`: the minimum latency and CPU that `evenkeel pe` can measure
//! on a machine. A server that answers every Get immediately, with one cell, prints its address for
//! `--target=` and stops after SECONDS. Its table is `TestTable`, which is `pe`'s default.

#[path = "../../../../crates/pe/tests/fake/mod.rs"]
mod fake;

use std::time::Duration;

use crate::{Outcome, number};

pub fn run(args: &[String]) -> Outcome {
    let (value_bytes, seconds) = (number(args, 0, 200)?, number(args, 1, 60)?);
    let (server, target) = fake::fake(fake::Stalls::Never, value_bytes);
    println!("{}", target.client.bootstrap.join(","));
    std::thread::sleep(Duration::from_secs(seconds));
    server.shutdown(Duration::from_secs(1));
    Ok(())
}
