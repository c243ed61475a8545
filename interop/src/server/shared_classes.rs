//! [`flags`]: an archive of the classes that a stock server loads. A JVM of a test maps it instead
//! of reading and verifying these classes, which saves a third of the CPU of a start and more.
//!
//! A stock server runs once and lists the classes that it loads; then a JVM writes the archive,
//! `work/shared-classes/archive.jsa`. The archive is valid for class paths that begin with the jars
//! in `work/lib`, so all folders come after these. A JVM ignores an archive of another JDK or of
//! other jars.

use std::process::Command;
use std::sync::OnceLock;

use super::{StockJvm, start_stock_as};
use crate::{toolchain, work};

/// The flags with which a JVM uses the archive. None if it cannot be made: a JVM without it does
/// the same in more time.
pub(crate) fn flags() -> Vec<String> {
    static FLAGS: OnceLock<Vec<String>> = OnceLock::new();
    let made = || match make() {
        Ok(flag) => vec![flag],
        Err(why) => {
            eprintln!("there is no archive of shared classes: {why}");
            Vec::new()
        }
    };
    FLAGS.get_or_init(made).clone()
}

fn make() -> Result<String, String> {
    let folder = toolchain::fill_from_jars("shared-classes", |to| {
        let list = to.join("classes");
        let mut jvm = StockJvm::without_archive();
        jvm.flags.push(format!("-XX:DumpLoadedClassList={}", list.display()));
        drop(start_stock_as(&jvm, &[])?);
        let mut java = Command::new(toolchain::java_command());
        java.args(toolchain::jvm_flags()).arg("-Xshare:dump");
        java.arg(format!("-XX:SharedClassListFile={}", list.display()));
        java.arg(format!("-XX:SharedArchiveFile={}", to.join("archive.jsa").display()));
        java.arg("-cp").arg(work().join("lib").join("*"));
        toolchain::tool(java, "a JDK 17 or later (java)")
    })?;
    Ok(format!("-XX:SharedArchiveFile={}", folder.join("archive.jsa").display()))
}
