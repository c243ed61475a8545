//! [`OtherLoad`]: the part of the machine's CPU time that went to other processes.
//!
//! The load average is unsuitable: it includes threads of the report's server that wait for its one
//! core, and a report that ended a minute ago. So the figure comes from `/proc`: the busy time of
//! all cores, less the CPU of this process and its descendants, ended ones included, and less that
//! of the kernel's threads, which work for all processes. The remainder is other processes,
//! interrupts, and time taken by the hypervisor.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use evenkeel_pe::host::CoreTimes;

/// The share of all cores' time used by others above which a report states that it must not be
/// quoted.
pub const OTHERS_MAX: f64 = 0.05;

/// The ancestor of all threads of the kernel.
const KTHREADD: u32 = 2;

/// Clock ticks since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Ticks {
    /// All cores together.
    all: f64,
    /// Ticks in which a core was busy, or kept by the hypervisor.
    busy: f64,
    /// CPU of this process, its descendants, and the kernel's threads.
    own: f64,
}

/// The share of others before the report and since its start.
#[derive(Clone, Debug)]
pub struct OtherLoad {
    before: Option<f64>,
    start: Option<Ticks>,
}

impl OtherLoad {
    /// Samples the machine for a while before the report starts.
    pub fn start(length: Duration) -> Self {
        let first = Ticks::now();
        std::thread::sleep(length);
        let start = Ticks::now();
        Self { before: share(first, start), start }
    }

    /// The share of all cores' time that others used before the report started, and since; `None`
    /// without `/proc`.
    pub fn shares(&self) -> [Option<f64>; 2] {
        [self.before, share(self.start, Ticks::now())]
    }

    /// Returns true if others used more than [`OTHERS_MAX`], before or since.
    pub fn is_disturbed(&self) -> bool {
        self.shares().into_iter().flatten().any(|share| share > OTHERS_MAX)
    }
}

/// The share of others between two samples.
fn share(from: Option<Ticks>, to: Option<Ticks>) -> Option<f64> {
    let (from, to) = from.zip(to)?;
    let (all, busy, own) = (to.all - from.all, to.busy - from.busy, to.own - from.own);
    (all > 0.0).then(|| ((busy - own) / all).max(0.0))
}

impl Ticks {
    fn now() -> Option<Self> {
        let CoreTimes { all, busy, .. } = CoreTimes::now()?;
        let processes = fs::read_dir("/proc").ok()?.flatten();
        let stat = |entry: fs::DirEntry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            of_process(pid, &fs::read_to_string(entry.path().join("stat")).ok()?)
        };
        Some(Self { all, busy, own: descendant_ticks(&processes.filter_map(stat).collect::<Vec<_>>()) })
    }
}

/// A process: its id, its parent's id, and its ticks, with those of children it has waited for.
type Process = (u32, u32, f64);

fn of_process(pid: u32, stat: &str) -> Option<Process> {
    // After the name, which is in brackets: state, parent, and from the 12th on user, system,
    // children's user, system.
    let fields: Vec<&str> = stat.get(stat.rfind(')')? + 1..)?.split_whitespace().collect();
    let ticks = fields.get(11..15)?.iter().map_while(|n| n.parse::<f64>().ok()).sum();
    Some((pid, fields.get(1)?.parse().ok()?, ticks))
}

/// The ticks of this process, its descendants, and the kernel's threads.
fn descendant_ticks(processes: &[Process]) -> f64 {
    let parents: HashMap<u32, u32> = processes.iter().map(|(pid, parent, _)| (*pid, *parent)).collect();
    let own = std::process::id();
    let descends = |pid: u32| {
        // A chain of parents has at most as many links as there are processes, even if /proc
        // changes while it is read.
        std::iter::successors(Some(pid), |pid| parents.get(pid).copied())
            .take(parents.len())
            .any(|p| p == own || p == KTHREADD)
    };
    processes.iter().filter(|(pid, ..)| descends(*pid)).map(|(.., ticks)| ticks).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::Instant;

    #[test]
    fn lines_of_proc_are_read() {
        assert_eq!(of_process(7, "7 (a) b) S 3 7 7 0 -1 4 1 2 3 4 30 12 5 3 20 0"), Some((7, 3, 50.0)));
        assert!(of_process(7, "7 (a) S 3").is_none());
    }

    #[test]
    fn other_load_is_the_total_minus_own_load() {
        let at = |all, busy, own| Some(Ticks { all, busy, own });
        assert_eq!(share(at(100.0, 50.0, 20.0), at(300.0, 150.0, 110.0)), Some(0.05));
        assert_eq!(share(at(0.0, 0.0, 0.0), at(100.0, 10.0, 11.0)), Some(0.0), "ticks are rounded");
        assert_eq!(
            (share(None, at(1.0, 1.0, 1.0)), share(at(1.0, 1.0, 1.0), at(1.0, 1.0, 1.0))),
            (None, None)
        );
        let own = std::process::id();
        let all =
            [(own, 1, 1.0), (own + 1, own, 2.0), (own + 2, own + 1, 4.0), (own + 3, 1, 8.0), (2, 0, 16.0)];
        assert_eq!(descendant_ticks(&all), 23.0);
        let circle = [(own, 1, 1.0), (own + 1, own + 2, 2.0), (own + 2, own + 1, 4.0)];
        assert_eq!(descendant_ticks(&circle), 1.0);
    }

    /// A grandchild that used CPU and has exited, such as a server under its wrapper script.
    #[test]
    fn cpu_of_exited_descendants_counts_as_own() {
        let (start, before) = (Instant::now(), Ticks::now().expect("/proc"));
        let grown = || Ticks::now().expect("/proc").own - before.own;
        let burn = "sh -c 'i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done' & wait";
        let mut child = Command::new("sh").args(["-c", burn]).stdout(Stdio::null()).spawn().expect("a shell");
        assert!(child.wait().expect("ends").success());
        let (gone, seconds) = (grown(), start.elapsed().as_secs_f64());
        assert!(gone >= 5.0, "{gone} ticks in {seconds} s");
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        assert!(gone <= 110.0 * cores * (seconds + 0.1), "{gone} ticks in {seconds} s");
    }
}
