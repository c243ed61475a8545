//! [`run`]: one test on one cluster, from connecting to its [`Report`]; [`run_together`]: several
//! tests concurrently.
//!
//! A few threads generate the load. Each has a single-threaded runtime, a part of the clients, and
//! separate connections. On the path of a request they share only the counters of YCSB's inserts.
//! The calling thread is the reporter: once per interval it drains the threads' recorders and
//! samples the server.
//!
//! Threads connect, meet at a barrier, warm up, then run the measured part until rows or time are
//! used up. A request belongs to the phase in which it started. The phases are separated so that
//! neither affects the other's figures:
//!
//! - In a closed loop, clients send nothing after the end of the warm-up, and wait for each other.
//!   When the last request has ended, the server's CPU is read and the measured time starts.
//! - In an open loop, the measured time starts as scheduled. Arrivals of the warm-up that no client
//!   has taken by then are counted there and not sent. So every measured request was due in the
//!   measured time. The figures include the CPU of requests in flight, at most one per client.
//!
//! With `--rate`, requests that were due but not sent by the end are in the histogram with the time
//! they had waited; omitting them would hide a server that cannot keep up.

mod client;
mod reporter;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::{Duration, Instant};

use evenkeel_client::{ClientConfig, Connection};
use evenkeel_common::clock;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::LocalSet;

use self::client::Client;
use self::reporter::Reporter;
use crate::error::PeError;
use crate::options::Options;
use crate::pacer::Pacer;
use crate::report::Report;
use crate::server::ServerProcess;
use crate::stats::{Phase, Recorder, record};
use crate::table;
use crate::workload::{Shared, Worker};

/// A cluster to run against.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its name in reports.
    pub name: String,
    /// The client's settings for the connection.
    pub client: ClientConfig,
}

/// Runs a test: prepares the table, warms up, measures.
///
/// # Errors
/// [`PeError`] if there is no report. Failed requests are counted in the report.
pub fn run(target: &Target, options: &Options) -> Result<Report, PeError> {
    run_at(target, options, RunBarriers::default())
}

/// Runs several tests concurrently, each on separate threads. They start together when all tables
/// exist. Measurement in closed loops also starts together, after the last warm-up. The CPU in each
/// report, of the server and of this process, covers all tests.
#[allow(clippy::disallowed_methods, reason = "not a server's thread; if it panics, the run fails")]
pub fn run_together(tests: &[(&Target, &Options)]) -> Vec<Result<Report, PeError>> {
    let closed = tests.iter().filter(|(_, options)| options.rate.is_none()).count();
    let (start, window) = (Arc::new(Barrier::new(tests.len())), Arc::new(Barrier::new(closed)));
    let seat = |options: &Options| {
        let window = options.rate.is_none().then(|| window.clone());
        RunBarriers([start.clone()].into_iter().chain(window).collect())
    };
    std::thread::scope(|scope| {
        let begin = |&(target, options): &(_, _)| {
            let seat = seat(options);
            scope.spawn(move || run_at(target, options, seat))
        };
        let threads: Vec<_> = tests.iter().map(begin).collect();
        let lost = |_| Err(PeError::Local("a run's thread ended".to_owned()));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(lost)).collect()
    })
}

/// The barriers at which concurrent runs meet, in order. A run that fails passes the rest of them,
/// so that the others do not wait for it.
#[derive(Default)]
struct RunBarriers(VecDeque<Arc<Barrier>>);

impl RunBarriers {
    fn wait(&mut self) {
        if let Some(barrier) = self.0.pop_front() {
            barrier.wait();
        }
    }
}

impl Drop for RunBarriers {
    fn drop(&mut self) {
        while !self.0.is_empty() {
            self.wait();
        }
    }
}

fn run_at(target: &Target, options: &Options, seat: RunBarriers) -> Result<Report, PeError> {
    let setup = runtime()?;
    let (notes, server) = setup.block_on(prepare(target, options))?;
    drop(setup);
    let options = Arc::new(options.clone());
    let threads = thread_count(&options);
    let run = Arc::new(RunContext {
        shared: Arc::new(Shared::new(options.clone())),
        options: options.clone(),
        client: ClientConfig { tags: target.client.tags || options.use_tags, ..target.client.clone() },
        recorders: (0..threads).map(|_| Recorder::default()).collect(),
        ready: Barrier::new(threads + 1),
        started: Mutex::new(None),
        window: watch::Sender::new(None),
        failed: AtomicBool::new(false),
        failures: Mutex::new(Vec::new()),
    });
    let (done, ended) = mpsc::channel();
    let (warming, warmed) = mpsc::channel();
    for thread in 0..threads {
        let (run, done, warming) = (run.clone(), done.clone(), warming.clone());
        let body = move || {
            let outcome = run.thread(thread, warming);
            let _ = done.send(outcome);
        };
        evenkeel_common::thread::spawn(format!("load-{thread}"), body)?;
    }
    drop((done, warming));
    Reporter::new(run, server, target, warmed, seat).report(&ended, notes)
}

fn runtime() -> Result<Runtime, PeError> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

fn thread_count(options: &Options) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let asked = if options.threads > 0 { options.threads } else { (cores / 2).max(1) };
    asked.min(options.clients)
}

/// Connects once, prepares the table, and finds the server's process.
async fn prepare(
    target: &Target,
    options: &Options,
) -> Result<(Vec<String>, Option<ServerProcess>), PeError> {
    let probe = ClientConfig { retries: target.client.retries.min(3), ..target.client.clone() };
    let connection = Connection::connect(probe).await.map_err(|e| PeError::Cluster(e.to_string()))?;
    let mut notes = table::prepare(&connection, options).await?;
    let server = match options.server_pid {
        Some(pid) => ServerProcess::of_pid(pid),
        None => local_server(&connection, options).await,
    };
    if options.server_pid.is_some() && server.is_none() {
        notes.push("--serverPid: there is no such process".to_owned());
    }
    Ok((notes, server))
}

/// The process that serves the table's first region, if it is on this machine.
async fn local_server(connection: &Connection, options: &Options) -> Option<ServerProcess> {
    let table = options.table.parse().ok()?;
    let at = connection.locate(&table, b"", false).await.ok()?;
    let address = at.server.host_port();
    let addresses = tokio::net::lookup_host(address).await.ok()?;
    let here =
        |a: std::net::SocketAddr| a.ip().is_loopback() || std::net::UdpSocket::bind((a.ip(), 0)).is_ok();
    let local = addresses.into_iter().find(|a| here(*a))?;
    ServerProcess::listening_on(local.port())
}

/// The state that the threads of a run share.
struct RunContext {
    options: Arc<Options>,
    shared: Arc<Shared>,
    client: ClientConfig,
    recorders: Vec<Recorder>,
    ready: Barrier,
    /// The start of the load, set between the two barriers.
    started: Mutex<Option<RunTimes>>,
    /// The measured part, once its start is known.
    window: watch::Sender<Option<Window>>,
    failed: AtomicBool,
    failures: Mutex<Vec<String>>,
}

/// The start of the load and the end of the warm-up.
#[derive(Clone, Copy, Debug)]
struct RunTimes {
    start: Instant,
    warm_until: Instant,
}

/// The measured part: until its end, or until the rows are done.
#[derive(Clone, Copy, Debug)]
struct Window {
    from: Instant,
    end: Option<Instant>,
}

impl RunContext {
    /// Starts the load. In an open loop this determines the start of the measured part.
    fn begin(&self) -> RunTimes {
        let start = clock::monotonic();
        let warm_until = start + Duration::from_secs_f64(self.options.warmup.max(0.0));
        if self.options.rate.is_some() {
            self.open_window(warm_until);
        }
        RunTimes { start, warm_until }
    }

    fn open_window(&self, from: Instant) {
        let duration = self.options.duration;
        let end = (duration > 0.0).then(|| from + Duration::from_secs_f64(duration));
        self.window.send_replace(Some(Window { from, end }));
    }

    /// Sets the start of the measured part to the current time, unless it is set.
    fn measured_from(&self) -> Instant {
        let known = self.window.borrow().map(|window| window.from);
        known.unwrap_or_else(|| {
            let now = clock::monotonic();
            self.open_window(now);
            now
        })
    }

    /// Waits until the measured part may begin.
    async fn window(&self) -> Option<Window> {
        self.window.subscribe().wait_for(Option::is_some).await.ok().and_then(|window| *window)
    }

    /// Runs one load thread.
    fn thread(self: &Arc<Self>, thread: usize, warming: mpsc::Sender<Infallible>) -> Result<(), PeError> {
        let built = runtime().and_then(|runtime| {
            let workers = runtime.block_on(self.workers(thread))?;
            Ok((runtime, workers))
        });
        if built.is_err() {
            self.failed.store(true, Ordering::Relaxed);
        }
        self.ready.wait();
        self.ready.wait();
        let (runtime, workers) = built?;
        let times = self.started.lock().ok().and_then(|times| *times);
        let Some(times) = times else { return Ok(()) };
        LocalSet::new().block_on(&runtime, self.drive(thread, workers, times, warming))
    }

    /// The clients of a thread, on the connections of a thread.
    async fn workers(&self, thread: usize) -> Result<Vec<Worker>, PeError> {
        let (threads, connections) = (self.recorders.len(), self.options.connections());
        let mine: Vec<usize> = (thread..self.options.clients).step_by(threads).collect();
        let mut open: Vec<Option<Connection>> = vec![None; connections];
        let mut workers = Vec::with_capacity(mine.len());
        for client in mine {
            let slot = &mut open[client % connections];
            let connection = match slot {
                Some(connection) => connection.clone(),
                None => slot.insert(Connection::connect(self.client.clone()).await?).clone(),
            };
            workers.push(Worker::new(&self.shared, connection, client)?);
        }
        Ok(workers)
    }

    async fn drive(
        self: &Arc<Self>,
        thread: usize,
        workers: Vec<Worker>,
        times: RunTimes,
        warmup_guard: mpsc::Sender<Infallible>,
    ) -> Result<(), PeError> {
        let share = workers.len() as f64 / self.options.clients as f64;
        let pacer = match self.options.rate {
            Some(rate) => Some(Pacer::new(rate * share, self.options.poisson, times.start)?),
            None => None,
        };
        let timer = pacer.clone().map(|pacer| tokio::task::spawn_local(pacer.run()));
        let threads = self.recorders.len();
        let mut tasks = tokio::task::JoinSet::new();
        for (i, worker) in workers.into_iter().enumerate() {
            let client = Client {
                run: self.clone(),
                thread,
                number: thread + i * threads,
                times,
                pacer: pacer.clone(),
                warmup_guard: Some(warmup_guard.clone()),
            };
            tasks.spawn_local(client.run(worker));
        }
        drop(warmup_guard);
        while tasks.join_next().await.is_some() {}
        if let Some(timer) = timer {
            timer.abort();
        }
        let end = self.window.borrow().and_then(|window| window.end);
        if let (Some(pacer), Some(end)) = (&pacer, end) {
            self.record_missed(thread, pacer, end, Phase::Measured);
        }
        Ok(())
    }

    /// Records the arrivals before a phase's end that no client took.
    fn record_missed(&self, thread: usize, pacer: &Pacer, end: Instant, phase: Phase) {
        let missed = pacer.missed(end);
        self.recorders[thread].record(phase, |part| {
            missed.iter().for_each(|due| record(&mut part.latency, end.saturating_duration_since(*due)));
        });
    }

    fn note_failure(&self, client: usize, failure: String) {
        if let Ok(mut failures) = self.failures.lock()
            && failures.len() < 5
        {
            failures.push(format!("client {client}: {failure}"));
        }
    }
}
