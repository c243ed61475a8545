//! [`Seconds`]: the bad seconds of a row, and those that the host caused.
//!
//! The goal is that no second has a P99 above [`BAD_TIMES`] that of the median second. On a virtual
//! machine on a shared host, some seconds are bad because the host took the cores: `/proc/stat`
//! counts that time as stolen, and the load records it for each second. A backlog outlasts its
//! cause, so the second after a stolen one is classified separately.

use std::fmt::Write as _;

use evenkeel_pe::report::Interval;

/// A second is bad if its P99 is more than this multiple of the median second's.
const BAD_TIMES: f64 = 5.0;

/// The stolen share of all cores' time from which a second counts as caused by the host.
const STOLEN_MIN: f64 = 0.05;

/// Classes of seconds by stolen share: name and upper bound.
const CLASSES: [(&str, f64); 4] = [
    ("none", f64::MIN_POSITIVE),
    ("below 2 %", 0.02),
    ("2 to 5 %", STOLEN_MIN),
    ("5 % or more", f64::INFINITY),
];

/// A second, or an interval of another length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Second {
    at_s: f64,
    p99_us: f64,
    /// Shares of all cores' time: stolen, and idle with a process waiting for a disk. `None` if
    /// unknown.
    host: Option<(f64, f64)>,
}

impl Second {
    fn of(interval: &Interval) -> Self {
        let host = interval.host.map(|host| (host.stolen, host.io_wait));
        Self { at_s: interval.at_s, p99_us: interval.latency.p99_us, host }
    }

    fn is_stolen(&self) -> bool {
        self.host.is_some_and(|(stolen, _)| stolen >= STOLEN_MIN)
    }

    fn class(&self) -> Option<usize> {
        let (stolen, _) = self.host?;
        CLASSES.iter().position(|(_, end)| stolen < *end)
    }
}

/// The seconds of a row on one server, in order; at least one.
pub struct Seconds {
    all: Vec<Second>,
    median_us: f64,
}

impl Seconds {
    /// From a report's intervals; `None` if there are none.
    pub fn of(intervals: &[Interval]) -> Option<Self> {
        Self::new(intervals.iter().map(Second::of).collect())
    }

    fn new(all: Vec<Second>) -> Option<Self> {
        let median_us = median(&all)?;
        Some(Self { all, median_us })
    }

    /// Returns when the bad seconds begin, in seconds after the measurement's begin.
    pub fn bad_at_s(&self) -> Vec<f64> {
        self.all.iter().filter(|second| self.is_bad(second)).map(|second| second.at_s).collect()
    }

    /// Text: the worst and the median second; the bad seconds, and those caused by the host; a
    /// table by stolen share.
    pub fn markdown(&self, server: &str) -> String {
        let mut out = String::new();
        if let Some(worst) = self.worst(|_| true) {
            let (worst, median_us) = (self.describe(worst), self.median_us);
            let _ = writeln!(out, "\n{server}: the worst second {worst} ({median_us:.0} µs).");
        }
        match self.all.iter().any(|second| second.host.is_some()) {
            true => self.write_stolen_shares(&mut out),
            false => out.push_str(
                "The share that the host gave to other machines is unknown: this system has no `/proc/stat`, or it counts nothing.\n",
            ),
        }
        out
    }

    fn write_stolen_shares(&self, out: &mut String) {
        self.write_bad_seconds(out);
        out.push_str(
            "\n| stolen | seconds | idle, waiting for a disk | median of their P99, µs | worst, µs | bad |\n|---|---|---|---|---|---|\n",
        );
        for (class, (name, _)) in CLASSES.iter().enumerate() {
            let seconds: Vec<_> =
                self.all.iter().filter(|second| second.class() == Some(class)).copied().collect();
            let Some(median_us) = median(&seconds) else { continue };
            let io_wait: f64 = seconds.iter().filter_map(|second| Some(second.host?.1)).sum();
            let worst_us = seconds.iter().map(|second| second.p99_us).fold(0.0, f64::max);
            let bad = seconds.iter().filter(|second| self.is_bad(second)).count();
            let _ = writeln!(
                out,
                "| {name} | {} | {:.1} % | {median_us:.0} | {worst_us:.0} | {bad} |",
                seconds.len(),
                100.0 * io_wait / seconds.len() as f64
            );
        }
    }

    fn write_bad_seconds(&self, out: &mut String) {
        let [bad, stolen, after] = self.bad();
        if bad == 0 {
            let _ = writeln!(out, "No second has a P99 above {BAD_TIMES} times the median second's.");
            return;
        }
        let percent = 100.0 * STOLEN_MIN;
        let _ = write!(
            out,
            "{bad} seconds have a P99 above {BAD_TIMES} times the median second's: {percent:.0} % or more of all cores' time was \
             stolen in {stolen} of them, and in the second before {after} others. "
        );
        let _ = match self.worst(|at| !self.is_caused_by_host(at)) {
            Some(worst) => writeln!(out, "The worst of the other seconds {}.", self.describe(worst)),
            None => writeln!(out, "There is no other second."),
        };
    }

    fn describe(&self, second: &Second) -> String {
        let stolen =
            second.host.map_or_else(String::new, |(stolen, _)| format!(" ({:.1} % stolen)", 100.0 * stolen));
        format!(
            "begins at {:.0} s{stolen}, its P99 is {:.0} µs, {:.1} times the median second's",
            second.at_s,
            second.p99_us,
            second.p99_us / self.median_us
        )
    }

    fn is_bad(&self, second: &Second) -> bool {
        second.p99_us > BAD_TIMES * self.median_us
    }

    /// Returns true if cores were stolen in a second or in the one before.
    fn is_caused_by_host(&self, at: usize) -> bool {
        self.all[at.saturating_sub(1)..=at].iter().any(Second::is_stolen)
    }

    fn worst(&self, among: impl Fn(usize) -> bool) -> Option<&Second> {
        let seconds = self.all.iter().enumerate().filter(|(at, _)| among(*at)).map(|(_, second)| second);
        seconds.max_by(|a, b| a.p99_us.total_cmp(&b.p99_us))
    }

    /// The numbers of bad seconds, of those with stolen time, and of the others after such a
    /// second.
    fn bad(&self) -> [usize; 3] {
        let bad: Vec<_> = (0..self.all.len()).filter(|at| self.is_bad(&self.all[*at])).collect();
        let stolen = bad.iter().filter(|at| self.all[**at].is_stolen()).count();
        let hosts = bad.iter().filter(|at| self.is_caused_by_host(**at)).count();
        [bad.len(), stolen, hosts - stolen]
    }
}

/// The median second's P99.
fn median(seconds: &[Second]) -> Option<f64> {
    let mut all: Vec<f64> = seconds.iter().map(|second| second.p99_us).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}

/// The figures of each interval as CSV.
pub fn csv(intervals: &[Interval]) -> String {
    let mut out = String::from(
        "at_s,seconds,requests,p50_us,p99_us,max_us,stolen,io_wait,sent_p99_us,server_cores,load_cores\n",
    );
    for i in intervals {
        let [stolen, io_wait] = match i.host {
            Some(host) => [host.stolen, host.io_wait].map(|share| format!("{share:.4}")),
            None => Default::default(),
        };
        let server = i.server_cores.map_or_else(String::new, |cores| format!("{cores:.3}"));
        let l = &i.latency;
        let _ = writeln!(
            out,
            "{:.3},{:.3},{},{:.0},{:.0},{:.0},{stolen},{io_wait},{:.0},{server},{:.3}",
            i.at_s, i.seconds, i.requests, l.p50_us, l.p99_us, l.max_us, i.service.p99_us, i.own_cores
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(p99_us_and_stolen: &[(f64, f64)]) -> Seconds {
        let second = |(at, (p99_us, stolen)): (usize, &(f64, f64))| Second {
            at_s: at as f64,
            p99_us: *p99_us,
            host: Some((*stolen, 0.25)),
        };
        Seconds::new(p99_us_and_stolen.iter().enumerate().map(second).collect()).expect("some")
    }

    #[test]
    fn slow_seconds_are_classified_by_stolen_time() {
        // The median is 10: bad are 60 (stolen), 70 (after it), 80 and 51 (neither); 50 is not, nor
        // is the stolen 12.
        let all = seconds(&[
            (10.0, 0.0),
            (60.0, 0.05),
            (70.0, 0.01),
            (10.0, 0.03),
            (80.0, 0.049),
            (50.0, 0.0),
            (51.0, 0.0),
            (10.0, 0.0),
            (9.0, 0.0),
            (8.0, 0.0),
            (7.0, 0.0),
            (12.0, 0.5),
            (10.0, 0.0),
        ]);
        assert_eq!((all.median_us, all.bad()), (10.0, [4, 1, 1]));
        let text = all.markdown("Evenkeel");
        let lines = [
            "the worst second begins at 4 s (4.9 % stolen), its P99 is 80 µs, 8.0 times",
            "8.0 times the median second's (10 µs).\n4 seconds have a P99 above 5 times the median second's: 5 % or more of \
             all cores' time was stolen in 1 of them, and in the second before 1 others",
            "The worst of the other seconds begins at 4 s (4.9 % stolen), its P99 is 80 µs",
            "| none | 8 | 25.0 % | 10 | 51 | 1 |\n",
            "| below 2 % | 1 | 25.0 % | 70 | 70 | 1 |\n",
            "| 2 to 5 % | 2 | 25.0 % | 80 | 80 | 1 |\n",
            "| 5 % or more | 2 | 25.0 % | 60 | 60 | 1 |\n",
        ];
        lines.iter().for_each(|line| assert!(text.contains(line), "{line} is not in\n{text}"));
    }

    #[test]
    fn the_worst_second_without_stolen_time_is_reported() {
        let text = seconds(&[(90.0, 0.2), (8.0, 0.0), (5.0, 0.0), (6.0, 0.0)]).markdown("Evenkeel");
        assert!(
            text.contains("The worst of the other seconds begins at 3 s (0.0 % stolen), its P99 is 6 µs"),
            "{text}"
        );
        let all = [(90.0, 0.2), (8.0, 0.1), (8.0, 0.1), (8.0, 0.0)];
        assert!(seconds(&all).markdown("Evenkeel").contains("There is no other second."));
        assert!(seconds(&all[1..]).markdown("Evenkeel").contains("No second has a P99 above 5 times"));
    }

    #[test]
    fn unknown_stolen_time_is_reported() {
        let second = Second { at_s: 0.0, p99_us: 1.0, host: None };
        let text = Seconds::new(vec![second]).expect("one").markdown("Evenkeel");
        assert!(
            text.contains("is unknown") && text.contains("the worst second begins at 0 s, its P99 is 1 µs"),
            "{text}"
        );
        assert!(!text.contains("stolen") && Seconds::new(Vec::new()).is_none());
    }
}
