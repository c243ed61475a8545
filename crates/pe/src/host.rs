//! [`CoreTimes`]: what the cores of this machine did, by `/proc/stat`, read beside the load.
//!
//! On a virtual machine a second can be bad because the host gave the cores to others: Linux counts that time as stolen. It
//! counts in ticks, a hundredth of a second each, so in a second of two cores a share is known to half a per cent.

use std::fs;

use serde::Serialize;

/// Clock ticks of all cores together since the machine began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CoreTimes {
    /// All.
    pub all: f64,
    /// In which a core did something, or a hypervisor kept it.
    pub busy: f64,
    /// In which a core had nothing to do, and some process of it waited for a disk.
    pub io_wait: f64,
    /// In which there was something to do and the hypervisor kept the core.
    pub stolen: f64,
}

/// Parts of the time of all cores, between 0 and 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HostShares {
    /// The hypervisor gave it to others.
    pub stolen: f64,
    /// Idle, with some process waiting for a disk.
    pub io_wait: f64,
}

impl CoreTimes {
    /// Up to now; `None` where there is no `/proc/stat`.
    pub fn now() -> Option<Self> {
        Self::of(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// By the first line of `/proc/stat`: user nice system idle iowait irq softirq steal. (The guests' time behind them is in
    /// the user's.) `None` when it is no such line.
    pub fn of(stat: &str) -> Option<Self> {
        let line = stat.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<f64> = line.split_whitespace().take(8).map_while(|n| n.parse().ok()).collect();
        let [_, _, _, idle, io_wait, _, _, stolen] = ticks[..] else { return None };
        let all: f64 = ticks.iter().sum();
        Some(Self { all, busy: all - idle - io_wait, io_wait, stolen })
    }

    /// The shares of the time between an earlier look and this one; `None` when no tick lies between.
    pub fn since(&self, before: &Self) -> Option<HostShares> {
        let all = self.all - before.all;
        // The kernel takes back some of what it counted as waiting.
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
