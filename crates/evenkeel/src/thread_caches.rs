//! The size of glibc's caches of freed blocks, of which each thread has one (*tcache*).
//!
//! By default a cache holds seven freed blocks of each of 64 sizes up to 1 KiB: up to 230 KiB,
//! which no other thread can use and trimming does not release. A server has about 180 threads, so
//! up to 40 MiB remain allocated after a peak, beyond the memory plan. [`BLOCKS`] blocks of each
//! size take a third of that.
//!
//! glibc reads this tunable from the environment when a process starts, and `mallopt(3)` cannot
//! change it. So a server executes itself again with the variable, once, before it starts threads
//! or opens files. The process id stays. If `GLIBC_TUNABLES` is set, its value applies: the second
//! start finds it set, and so does a start by an operator who has chosen a value.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// The variable that glibc reads; other C libraries ignore it.
const TUNABLES: &str = "GLIBC_TUNABLES";
/// Freed blocks of each size that a thread keeps.
const BLOCKS: usize = 2;

/// Executes this process again with small caches, unless `GLIBC_TUNABLES` is set. Returns if it is,
/// or if the binary cannot be executed, as when an upgrade has replaced it: the server then runs
/// with large caches.
pub fn limit() {
    if std::env::var_os(TUNABLES).is_some() {
        return;
    }
    let mut arguments = std::env::args_os();
    let (Ok(binary), Some(name)) = (std::env::current_exe(), arguments.next()) else { return };
    let mut command = Command::new(binary);
    command.arg0(name).args(arguments).env(TUNABLES, format!("glibc.malloc.tcache_count={BLOCKS}"));
    let _replaced = command.exec();
}
