//! [`PeriodicSinks`]: sinks that write the records of a registry periodically.
//!
//! Each sink has its own thread `metrics-sink`, so a sink that waits for its server delays no other
//! sink, and no counting thread. A failed write is logged; further failures are not, until a write
//! succeeds. A panic in a round is logged, and the next round follows. A round that takes longer
//! than the period delays the next one; missed rounds are not made up for.
//!
//! # Bounds
//! A round holds the records of one collection and their text. Every wait of a sink for a peer has
//! a time limit. Dropping [`PeriodicSinks`] waits for the rounds in progress.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use evenkeel_common::clock::Clock;
use evenkeel_common::thread;

use crate::record::Record;
use crate::registry::Registry;
use crate::sink::file::{FileSink, RollingFileSink};
use crate::sink::ganglia::GangliaSink;
use crate::sink::graphite::GraphiteSink;
use crate::sink::properties::{SinkSettings, SinkType};

/// The data of one round.
#[derive(Clone, Copy, Debug)]
pub struct Round<'a> {
    /// When the records were collected, in milliseconds since 1970.
    pub timestamp_ms: i64,
    /// The name of this machine, which is a tag of every record.
    pub hostname: &'a str,
    /// The records of metrics2 that the sink's context selects.
    pub records: &'a [&'a Record],
}

/// Writes records somewhere.
pub trait Sink: Send {
    /// Writes the records of a round.
    ///
    /// # Errors
    /// I/O errors of the file or the peer. The next round retries from the start.
    fn put(&mut self, round: &Round<'_>) -> io::Result<()>;
}

/// The running sinks. Dropping it stops them.
#[derive(Debug)]
pub struct PeriodicSinks {
    /// Dropping the senders stops the threads.
    stops: Vec<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

/// One sink and its thread's state.
struct Runner {
    name: String,
    context: Option<String>,
    sink: Box<dyn Sink>,
    registry: Arc<Registry>,
    clock: Arc<dyn Clock>,
    hostname: String,
    /// Whether the last write failed and was logged.
    is_failing: bool,
}

impl PeriodicSinks {
    /// Starts a thread per sink. Files and connections are opened when the first period has passed.
    ///
    /// # Errors
    /// I/O errors of starting a thread.
    pub fn start(
        settings: &[SinkSettings],
        registry: &Arc<Registry>,
        hostname: &str,
        clock: &Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let mut all = Self { stops: Vec::new(), threads: Vec::new() };
        for sink in settings {
            let runner = Runner {
                name: sink.name.clone(),
                context: sink.context.clone(),
                sink: sink_of(&sink.sink_type),
                registry: Arc::clone(registry),
                clock: Arc::clone(clock),
                hostname: hostname.to_owned(),
                is_failing: false,
            };
            let (stop, stopped) = channel();
            let period = sink.period;
            all.stops.push(stop);
            all.threads.push(thread::spawn("metrics-sink", move || runner.run(period, &stopped))?);
        }
        Ok(all)
    }
}

impl Drop for PeriodicSinks {
    fn drop(&mut self) {
        self.stops.clear();
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

fn sink_of(sink_type: &SinkType) -> Box<dyn Sink> {
    match sink_type.clone() {
        SinkType::File { filename } => Box::new(FileSink::new(filename)),
        SinkType::RollingFile { basepath, source, roll_interval } => {
            Box::new(RollingFileSink::new(basepath, source, roll_interval))
        }
        SinkType::Graphite { server, prefix } => Box::new(GraphiteSink::new(server, prefix)),
        SinkType::Ganglia { servers } => Box::new(GangliaSink::new(servers)),
    }
}

impl Runner {
    fn run(mut self, period: Duration, stopped: &Receiver<()>) {
        while stopped.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
            let what = format!("sink {}", self.name);
            thread::catch_and_log(what, || self.round());
        }
    }

    fn round(&mut self) {
        let records = self.registry.collect();
        let is_wanted = |record: &&Record| {
            record.is_metrics2() && self.context.as_deref().is_none_or(|context| context == record.context)
        };
        let records: Vec<&Record> = records.iter().filter(is_wanted).collect();
        let timestamp_ms = self.clock.now_ms();
        let round = Round { timestamp_ms, hostname: &self.hostname, records: &records };
        let outcome = self.sink.put(&round);
        self.log(outcome);
    }

    fn log(&mut self, outcome: io::Result<()>) {
        match outcome {
            Ok(()) if self.is_failing => tracing::info!(sink = self.name, "the metrics sink writes again"),
            Err(error) if !self.is_failing => {
                tracing::warn!(sink = self.name, %error, "the metrics sink cannot write");
                self.is_failing = true;
                return;
            }
            Err(_) => return,
            Ok(()) => {}
        }
        self.is_failing = false;
    }
}
