//! [`Client`]: one client, from its warm-up to its last row.

use std::convert::Infallible;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Instant;

use super::{RunContext, RunTimes};
use crate::pacer::Pacer;
use crate::stats::{Phase, Recorder, record};
use crate::workload::{RowOutcome, Worker};
use evenkeel_common::clock;

/// Consecutive failures after which a client stops.
const FAILURES_MAX: u32 = 10;

/// One client.
pub(super) struct Client {
    pub(super) run: Arc<RunContext>,
    pub(super) thread: usize,
    pub(super) number: usize,
    pub(super) times: RunTimes,
    pub(super) pacer: Option<Rc<Pacer>>,
    /// Held until its last request of the warm-up has ended.
    pub(super) warmup_guard: Option<mpsc::Sender<Infallible>>,
}

impl Client {
    pub(super) async fn run(mut self, mut worker: Worker) {
        self.warm_up(&mut worker).await;
        self.warmup_guard = None;
        let Some(window) = self.run.window().await else { return };
        let mut cycle = 0;
        while window.end.is_some() || cycle < self.run.options.cycles {
            worker.rewind();
            if !self.pass(&mut worker, Phase::Measured, window.end).await {
                break;
            }
            cycle += 1;
        }
        self.finish(&mut worker, Phase::Measured).await;
    }

    /// Runs rows until the warm-up's end. Arrivals that no client has taken by then are not sent.
    async fn warm_up(&self, worker: &mut Worker) {
        let until = self.times.warm_until;
        if until <= self.times.start {
            return;
        }
        while self.pass(worker, Phase::Warmup, Some(until)).await {}
        self.finish(worker, Phase::Warmup).await;
        if let Some(pacer) = &self.pacer {
            self.run.record_missed(self.thread, pacer, until, Phase::Warmup);
        }
    }

    async fn finish(&self, worker: &mut Worker, phase: Phase) {
        match worker.finish().await {
            Ok(done) => self.recorder().record(phase, |part| part.tally.add(&done.tally)),
            Err(error) => self.fail(phase, &error.to_string()),
        }
    }

    /// Runs the client's rows once; returns false if it must stop.
    async fn pass(&self, worker: &mut Worker, phase: Phase, end: Option<Instant>) -> bool {
        let options = &self.run.options;
        let ((first, last), every) = (options.range(self.number), options.sampling_interval());
        let (mut due, mut failures) = (None, 0);
        for i in (first..last).filter(|i| i % every == 0) {
            if end.is_some_and(|end| clock::monotonic() >= end) {
                return false;
            }
            if let Some(pacer) = &self.pacer
                && worker.begins_request()
            {
                due = pacer.arrival(end).await;
                if due.is_none() {
                    return false;
                }
            }
            let sent = clock::monotonic();
            match worker.row(i).await {
                Ok(done) => {
                    let measure = phase == Phase::Warmup || i - first > options.measure_after;
                    self.record(phase, &done, due.unwrap_or(sent), sent, measure);
                    failures = 0;
                }
                Err(error) => {
                    self.fail(phase, &error.to_string());
                    failures += 1;
                    if failures >= FAILURES_MAX {
                        return false;
                    }
                }
            }
        }
        true
    }

    fn record(&self, phase: Phase, done: &RowOutcome, due: Instant, sent: Instant, measure: bool) {
        let now = clock::monotonic();
        let latency = now.saturating_duration_since(due);
        let threshold = self.run.options.latency_threshold;
        self.recorder().record(phase, |part| {
            part.tally.add(&done.tally);
            part.tally.rows += 1;
            if !done.sent {
                return;
            }
            part.tally.requests += 1;
            if measure {
                record(&mut part.latency, latency);
                record(&mut part.service, now.saturating_duration_since(sent));
                let over = threshold > 0 && latency.as_millis() >= u128::from(threshold);
                part.tally.over_threshold += u64::from(over);
            }
        });
    }

    fn fail(&self, phase: Phase, why: &str) {
        self.recorder().record(phase, |part| {
            part.tally.rows += 1;
            part.tally.errors += 1;
        });
        self.run.note_failure(self.number, why.to_owned());
    }

    fn recorder(&self) -> &Recorder {
        &self.run.recorders[self.thread]
    }
}
