//! The machine and what runs on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::thread::{CpuSet, sched_setaffinity};

/// Pins this process, and threads it starts later, to a core.
///
/// # Errors
/// If there is no such core.
pub fn pin_this_process(core: usize) -> Result<(), String> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set).map_err(|e| format!("core {core}: {e}"))
}

/// A Java of this machine.
#[derive(Clone, Debug)]
pub struct Jdk {
    /// Its `java`.
    pub java: PathBuf,
    /// Its major version.
    pub major: u32,
    /// Its version text.
    pub version: String,
}

/// The newest Java among `JAVA_HOME`, the path, and the folders beside that on the path.
///
/// # Errors
/// If there is none.
pub fn newest_jdk() -> Result<Jdk, String> {
    let mut homes: Vec<PathBuf> = std::env::var_os("JAVA_HOME").map(PathBuf::from).into_iter().collect();
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&on_path).map(|folder| folder.join("java"));
    let real = on_path.filter_map(|java| fs::canonicalize(java).ok()).next();
    let home = real.as_deref().and_then(|java| Some(java.parent()?.parent()?.to_owned()));
    let beside = home.as_deref().and_then(Path::parent).map(Path::to_owned);
    homes.extend(home);
    for folder in beside.into_iter().chain([PathBuf::from("/usr/lib/jvm")]) {
        homes.extend(fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()));
    }
    let found = homes.iter().map(|home| home.join("bin/java")).filter(|java| java.is_file());
    found.filter_map(|java| jdk(&java)).max_by_key(|jdk| jdk.major).ok_or_else(|| "no java".to_owned())
}

fn jdk(java: &Path) -> Option<Jdk> {
    let output = Command::new(java).arg("-version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let major = text.split('"').nth(1)?.split(['.', '-', '+']).next()?.parse().ok()?;
    let version = text.lines().nth(1).unwrap_or_default().trim().to_owned();
    Some(Jdk { java: java.to_owned(), major, version })
}

/// Lines about the machine and the versions, for the top of a report.
pub fn facts(jdk: Option<&Jdk>) -> Vec<String> {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let model = model.trim_start_matches([' ', '\t', ':']);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib: u64 = memory.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or_default();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = info.lines().filter(|line| line.starts_with("processor")).count();
    let mut facts = vec![
        format!("{cores} cores, {model}, {} GiB, Linux {}", kib >> 20, kernel.trim()),
        format!(
            "Evenkeel {}, {}",
            said("git", &["rev-parse", "--short", "HEAD"]),
            said("rustc", &["--version"])
        ),
    ];
    if let Some(jdk) = jdk {
        facts.push(format!("stock HBase 2.6.4-hadoop3 on {}", jdk.version));
    }
    facts.push(format!("taken {}", said("date", &["-u", "+%F %H:%M UTC"])));
    facts
}

/// The machine's load average over one minute.
pub fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("unknown").to_owned()
}

fn said(command: &str, args: &[&str]) -> String {
    let output = Command::new(command).args(args).output();
    output.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned()).unwrap_or_default()
}
