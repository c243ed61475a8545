//! The stock Java side: HBase 2.6.4's own client, shell and tools, run against Evenkeel by `cargo test`, and a stock
//! HBase server to run the same tests against, because a test that stock HBase does not pass tests our idea of HBase.
//!
//! Three rooms, each on top of the one before:
//! - [`toolchain`]: Maven copies the jars once into `interop/work`, `javac` compiles `src/main/java` once, both under a
//!   file lock and both again only when the files they read have changed.
//! - [`java`]: one run of a Java main with a deadline, its output kept in a file.
//! - [`server`]: Evenkeel or stock HBase on free ports, with data of its own under `interop/work/run`, ended with the
//!   process that started it, however that ends.
//!
//! [`target`] is the server that the tests of one binary share; `EVENKEEL_INTEROP_TARGET` names it (see README.md).
//! Nothing here skips: what cannot run fails and says what is missing.

pub mod java;
pub mod server;
pub mod toolchain;

pub use java::{Finished, JavaRun, java};
pub use server::{
    Server, evenkeel_binary, start_evenkeel, start_evenkeel_with, start_stock, start_stock_with, target,
};

use std::path::{Path, PathBuf};

/// The folder of this crate, where the Java sources and the `pom.xml` files lie.
pub fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Where jars, classes and the data of servers go; ignored by git.
pub fn work() -> PathBuf {
    home().join("work")
}

/// Runs groups of `evenkeel.interop.Checks` against the shared target and fails with the lines that failed.
///
/// # Panics
/// When a check failed, or the run could not be made.
pub fn checks(registry: &str, groups: &[&str]) {
    checks_on(target(), registry, groups);
}

/// As [`checks`], against a server of one's own.
///
/// # Panics
/// As [`checks`].
pub fn checks_on(server: &Server, registry: &str, groups: &[&str]) {
    let mut args = vec!["--registry".to_owned(), registry.to_owned()];
    args.extend(groups.iter().map(|&group| group.to_owned()));
    args.extend(server.client_settings().into_iter().map(|(key, value)| format!("-D{key}={value}")));
    let label = format!("checks-{registry}-{}", groups.join("-"));
    let run = java("evenkeel.interop.Checks", &args).label(&label).deadline_secs(900).run();
    let output = run.unwrap_or_else(|why| panic!("{why}"));
    println!("{}", output.stdout);
    assert!(output.success, "{} against {}:\n{}", label, server.name(), output.failures());
}
