//! [`CoreTimes`]: the use of this machine's cores, from `/proc/stat`.
//!
//! On a virtual machine a second can be slow because the host gave the cores to other guests. Linux
//! counts that time as stolen, in ticks of 10 ms, so a share of a second on two cores is precise to
//! half a per cent.

use std::fs;

use serde::Serialize;

/// Clock ticks of all cores since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CoreTimes {
    /// All.
    pub all: f64,
    /// In which a core was busy, or kept by the hypervisor.
    pub busy: f64,
    /// In which a core was idle while a process waited for a disk.
    pub io_wait: f64,
    /// In which a runnable core was kept by the hypervisor.
    pub stolen: f64,
}

/// Parts of the time of all cores, between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostShares {
    /// Kept by the hypervisor.
    pub stolen: f64,
    /// Idle while a process waited for a disk.
    pub io_wait: f64,
}

impl CoreTimes {
    /// Reads them; `None` if there is no `/proc/stat`.
    pub fn now() -> Option<Self> {
        Self::of(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Parses the first line of `/proc/stat`: user nice system idle iowait irq softirq steal.
    /// (Guest time is included in user time.) `None` for any other line.
    pub fn of(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<f64> = line.split_whitespace().take(8).map_while(|n| n.parse().ok()).collect();
        let [_, _, _, idle, io_wait, _, _, stolen] = ticks[..] else { return None };
        let all: f64 = ticks.iter().sum();
        Some(Self { all, busy: all - idle - io_wait, io_wait, stolen })
    }

    /// The shares of the time since an earlier reading; `None` if no tick has passed.
    pub fn since(&self, before: &Self) -> Option<HostShares> {
        let all = self.all - before.all;
        // The kernel's iowait counter can decrease.
        let share = |from: f64, to: f64| ((to - from) / all).clamp(0.0, 1.0);
        (all > 0.0).then(|| HostShares {
            stolen: share(before.stolen, self.stolen),
            io_wait: share(before.io_wait, self.io_wait),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_all_cores_is_read() {
        let stat = "cpu  10 1 5 70 4 3 2 5 9 9\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        let read = CoreTimes { all: 100.0, busy: 26.0, io_wait: 4.0, stolen: 5.0 };
        assert_eq!(CoreTimes::of(stat), Some(read));
        for other in ["", "cpux", "cpu0 1 1 1 1 1 1 1 1", "cpu  1 2 3 4 5 6 7", "cpu  1 2 3 4 5 6 x 8"] {
            assert_eq!(CoreTimes::of(other), None, "{other}");
        }
    }

    #[test]
    fn shares_are_of_the_time_between_two_looks() {
        let at = |all, io_wait, stolen| CoreTimes { all, busy: 0.0, io_wait, stolen };
        let shares = at(300.0, 12.0, 15.0).since(&at(100.0, 10.0, 5.0));
        assert_eq!(shares, Some(HostShares { stolen: 0.05, io_wait: 0.01 }));
        assert_eq!(
            at(300.0, 9.0, 5.0).since(&at(100.0, 10.0, 5.0)),
            Some(HostShares { stolen: 0.0, io_wait: 0.0 })
        );
        assert_eq!(at(300.0, 9.0, 5.0).since(&at(300.0, 9.0, 5.0)), None, "no tick");
    }
}
