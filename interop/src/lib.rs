//! The stock Java side: HBase 2.6.4's client, shell and tools, run against Evenkeel by `cargo
//! test`, and a stock HBase server for the same tests: a test that stock HBase does not pass is
//! wrong.
//!
//! The modules, each on top of the previous ones:
//! - [`toolchain`]: Maven copies the jars into `interop/work`, and `javac` compiles
//!   `src/main/java`, both under a file lock. Each runs once, and again only if its inputs have
//!   changed.
//! - [`server`]: Evenkeel or stock HBase on free ports, with separate data under
//!   `interop/work/run`, stopped when the process that started it ends, in any way; the archive of
//!   classes with which a JVM starts faster;
//! - [`java`]: one run of a Java main with a deadline, its output kept in a file;
//! - [`cluster`]: a stock cluster of separate processes, and RegionServers in it;
//! - [`hdfs`]: a NameNode and DataNodes of stock HDFS, which tests kill and restart.
//!
//! Beside them, for a server or a cluster of any kind:
//! - [`history`]: histories of rows, and the check that they are linearizable;
//! - [`registers`]: workers on shared rows, which make these histories.
//!
//! The binaries `hfile_tool` and `wal_tool` are Evenkeel's side of the test `exchange`: they write
//! and read the store files and WALs that stock HBase's classes read and write.
//!
//! [`target`] is the server that the tests of one binary share; `EVENKEEL_INTEROP_TARGET` names it
//! (see README.md). No test is skipped: a test that cannot run fails with the name of the missing
//! part.

#![forbid(unsafe_code)]

pub mod cluster;
pub mod hdfs;
pub mod history;
pub mod java;
pub mod registers;
pub mod server;
pub mod toolchain;

pub use hdfs::HdfsCluster;
pub use java::{Finished, JavaRun, java};
pub use server::{
    Server, ServerKind, evenkeel_binary, start_evenkeel, start_evenkeel_with, start_old_with, start_stock,
    start_stock_with, start_stock_with_info, target, target_with,
};

use std::path::{Path, PathBuf};

/// The folder of this crate, with the Java sources and the `pom.xml` files.
pub fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder of jars, classes and servers' data; ignored by git.
pub fn work() -> PathBuf {
    home().join("work")
}

/// Runs groups of `evenkeel.interop.checks.Checks` against the shared target and fails with the
/// lines of the failed checks.
///
/// # Panics
/// If a check fails, or the run fails.
pub fn checks(registry: &str, groups: &[&str]) {
    checks_on(target(), registry, groups);
}

/// As [`checks`], against a given server.
///
/// # Panics
/// As [`checks`].
pub fn checks_on(server: &Server, registry: &str, groups: &[&str]) {
    let mut args = vec!["--registry".to_owned(), registry.to_owned()];
    args.extend(groups.iter().map(|&group| group.to_owned()));
    args.extend(server.client_settings().into_iter().map(|(key, value)| format!("-D{key}={value}")));
    let label = format!("checks-{registry}-{}", groups.join("-"));
    let run = java("evenkeel.interop.checks.Checks", &args).label(&label).deadline_secs(900).run();
    let output = run.unwrap_or_else(|why| panic!("{why}"));
    println!("{}", output.stdout);
    assert!(output.success, "{} against {}:\n{}", label, server.name(), output.failures());
}
