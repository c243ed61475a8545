//! [`Reporter`]: the calling thread while the load runs, and the report at its end.

use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime};

use super::{RunBarriers, RunContext, RunTimes, Target};
use crate::error::PeError;
use crate::host::CoreTimes;
use crate::report::{Interval, Progress, Report, ServerReport, Snapshot};
use crate::server::{ServerProcess, Usage, own_cpu_s};
use crate::stats::{Latencies, PeriodStats, Phase};
use evenkeel_common::clock;

/// The calling thread while the load runs.
pub(super) struct Reporter {
    run: Arc<RunContext>,
    server: Option<ServerProcess>,
    target: String,
    progress: Progress,
    /// Closes when no client has a request of the warm-up in flight.
    warmup_guard: mpsc::Receiver<Infallible>,
    seat: RunBarriers,
}

/// The sums of a phase.
#[derive(Default)]
struct Totals {
    part: PeriodStats,
    intervals: Vec<Interval>,
}

impl Reporter {
    pub(super) fn new(
        run: Arc<RunContext>,
        server: Option<ServerProcess>,
        target: &Target,
        warmup_guard: mpsc::Receiver<Infallible>,
        seat: RunBarriers,
    ) -> Self {
        let progress = Progress::new(run.options.progress, &target.name, &run.options);
        Self { run, server, target: target.name.clone(), progress, warmup_guard, seat }
    }

    #[allow(clippy::disallowed_methods, reason = "the start time of a report has fractions of a second")]
    pub(super) fn report(
        mut self,
        ended: &mpsc::Receiver<Result<(), PeError>>,
        mut notes: Vec<String>,
    ) -> Result<Report, PeError> {
        self.run.ready.wait();
        self.seat.wait();
        if !self.run.failed.load(Ordering::Relaxed)
            && let Ok(mut started) = self.run.started.lock()
        {
            *started = Some(self.run.begin());
        }
        let began = SystemTime::now();
        self.run.ready.wait();
        let times = self.run.started.lock().ok().and_then(|times| *times);
        let Some(times) = times else {
            let first = ended.iter().find_map(Result::err);
            return Err(first.unwrap_or_else(|| PeError::Local("a load thread ended".to_owned())));
        };
        let mut outcome = Ok(());
        let mut warmup = self.warm_up(times, ended, &mut outcome);
        let (before, own_before) = (self.usage(), own_cpu_s());
        let from = self.run.measured_from();
        let measured = self.follow(Phase::Measured, from, None, ended, &mut outcome);
        let (after, own_after) = (self.usage(), own_cpu_s());
        let seconds = clock::since(from).as_secs_f64();
        warmup.part.add(&self.drain(Phase::Warmup));
        outcome?;
        self.progress.end();
        let tally = measured.part.tally;
        notes.extend(Report::warnings(&tally, &self.run.options));
        Ok(Report {
            target: self.target.clone(),
            began_unix_s: began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
            options: (*self.run.options).clone(),
            notes,
            warmup: (times.warm_until > times.start).then(|| Latencies::of(&warmup.part.latency)),
            warmup_requests: warmup.part.tally.requests,
            seconds,
            tally,
            requests_per_s: tally.requests as f64 / seconds,
            rows_per_s: tally.rows as f64 / seconds,
            latency: Latencies::of(&measured.part.latency),
            service: Latencies::of(&measured.part.service),
            own_cpu_s: own_after - own_before,
            server: self.server_report(before.zip(after), &measured.intervals),
            intervals: measured.intervals,
            failures: self.run.failures.lock().map(|failures| failures.clone()).unwrap_or_default(),
            histogram: measured.part.latency,
        })
    }

    /// Reports the warm-up to its end; in a closed loop until its last request has ended.
    fn warm_up(
        &mut self,
        times: RunTimes,
        ended: &mpsc::Receiver<Result<(), PeError>>,
        outcome: &mut Result<(), PeError>,
    ) -> Totals {
        let totals = self.follow(Phase::Warmup, times.start, Some(times.warm_until), ended, outcome);
        if self.run.options.rate.is_none() {
            let Err(mpsc::RecvError) = self.warmup_guard.recv();
            self.seat.wait();
        }
        totals
    }

    /// Takes intervals until a phase's end, or until all threads ended.
    fn follow(
        &mut self,
        phase: Phase,
        start: Instant,
        end: Option<Instant>,
        ended: &mpsc::Receiver<Result<(), PeError>>,
        outcome: &mut Result<(), PeError>,
    ) -> Totals {
        let interval = Duration::from_secs_f64(self.run.options.interval);
        let (mut totals, mut from, mut before) = (Totals::default(), start, self.look());
        loop {
            let to = end.map_or(from + interval, |end| end.min(from + interval));
            let more = wait_until(to, ended, outcome);
            let now = clock::monotonic();
            let part = self.drain(phase);
            let after = self.look();
            if now > from {
                let point = Interval::new(start, (from, now), &part, (&before, &after));
                self.progress.show(phase, &point);
                totals.intervals.push(point);
            }
            totals.part.add(&part);
            (from, before) = (now, after);
            if !more || end.is_some_and(|end| now >= end) {
                return totals;
            }
        }
    }

    fn drain(&self, phase: Phase) -> PeriodStats {
        let mut sum = PeriodStats::default();
        self.run
            .recorders
            .iter()
            .for_each(|recorder| sum.add(&recorder.drain(phase, PeriodStats::default())));
        sum
    }

    fn usage(&self) -> Option<Usage> {
        self.server.as_ref().and_then(ServerProcess::usage)
    }

    fn look(&self) -> Snapshot {
        Snapshot { server: self.usage(), own_cpu_s: own_cpu_s(), cores: CoreTimes::now() }
    }

    fn server_report(&self, usage: Option<(Usage, Usage)>, intervals: &[Interval]) -> Option<ServerReport> {
        let (server, (before, after)) = (self.server.as_ref()?, usage?);
        let seen = intervals.iter().filter_map(|i| i.server_rss_bytes).max();
        Some(ServerReport::new(server, &before, &after, seen.unwrap_or(after.rss_bytes)))
    }
}

/// Waits for a time; returns false once all threads have ended.
fn wait_until(
    to: Instant,
    ended: &mpsc::Receiver<Result<(), PeError>>,
    outcome: &mut Result<(), PeError>,
) -> bool {
    loop {
        match ended.recv_timeout(to.saturating_duration_since(clock::monotonic())) {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => *outcome = Err(failure),
            Err(mpsc::RecvTimeoutError::Timeout) => return true,
            Err(mpsc::RecvTimeoutError::Disconnected) => return false,
        }
    }
}
