//! [`run`]: one test on one cluster, from connecting to its [`Report`].
//!
//! Load is made by a few threads, each with a single-threaded runtime, its share of the clients and connections of its
//! own; nothing is shared between them on the way of a request but counters of YCSB's inserts. The calling thread is the
//! reporter: once an interval it empties the threads' recorders and looks at the server.
//!
//! Time: threads connect, meet at a barrier, run the warm-up until its end, then the measured part until rows or time are
//! used up. A request belongs to the phase it began in. With `--rate`, requests that were due but never sent when time was
//! up are in the histogram with the time they had waited by then: leaving them out would hide a server that cannot keep up.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::time::{Duration, Instant, SystemTime};

use evenkeel_client::{ClientConfig, Connection};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

use crate::failure::Failure;
use crate::options::Options;
use crate::pacer::Pacer;
use crate::report::{Interval, Progress, Report, ServerReport};
use crate::server::{ServerProcess, Usage, own_cpu_s};
use crate::stats::{Latencies, Part, Phase, Recorder, record};
use crate::table;
use crate::workload::{Done, Shared, Worker};

/// Failures one after the other at which a client gives up.
const FAILURES_MAX: u32 = 10;

/// A cluster to run against.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its name in reports.
    pub name: String,
    /// How to reach it.
    pub client: ClientConfig,
}

/// Runs a test: sees to the table, warms up, measures.
///
/// # Errors
/// [`Failure`], when there is nothing to report. Requests that failed are counted in the report.
pub fn run(target: &Target, options: &Options) -> Result<Report, Failure> {
    let setup = runtime()?;
    let (notes, server) = setup.block_on(prepare(target, options))?;
    drop(setup);
    let options = Arc::new(options.clone());
    let threads = thread_count(&options);
    let run = Arc::new(Run {
        shared: Arc::new(Shared::new(options.clone())),
        options: options.clone(),
        client: ClientConfig { tags: target.client.tags || options.use_tags, ..target.client.clone() },
        recorders: (0..threads).map(|_| Recorder::default()).collect(),
        ready: Barrier::new(threads + 1),
        started: Mutex::new(None),
        failed: AtomicBool::new(false),
        failures: Mutex::new(Vec::new()),
    });
    let (done, ended) = mpsc::channel();
    for thread in 0..threads {
        let (run, done) = (run.clone(), done.clone());
        let body = move || {
            let outcome = run.thread(thread);
            let _ = done.send(outcome);
        };
        std::thread::Builder::new().name(format!("load-{thread}")).spawn(body)?;
    }
    drop(done);
    Reporter::new(run, server, target).report(&ended, notes)
}

fn runtime() -> Result<Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

fn thread_count(options: &Options) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let asked = if options.threads > 0 { options.threads } else { (cores / 2).max(1) };
    asked.min(options.clients)
}

/// Reaches the cluster once, sees to the table, and finds the server's process.
async fn prepare(
    target: &Target,
    options: &Options,
) -> Result<(Vec<String>, Option<ServerProcess>), Failure> {
    let probe = ClientConfig { retries: target.client.retries.min(3), ..target.client.clone() };
    let connection = Connection::connect(probe).await.map_err(|e| Failure::Cluster(e.to_string()))?;
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

/// The process that serves the table's first region, when it is on this machine.
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

/// What the threads of a run share.
struct Run {
    options: Arc<Options>,
    shared: Arc<Shared>,
    client: ClientConfig,
    recorders: Vec<Recorder>,
    ready: Barrier,
    /// When the load began, set between the two barriers.
    started: Mutex<Option<Times>>,
    failed: AtomicBool,
    failures: Mutex<Vec<String>>,
}

/// When the phases begin and end.
#[derive(Clone, Copy, Debug)]
struct Times {
    start: Instant,
    measured: Instant,
    end: Option<Instant>,
}

impl Times {
    fn new(options: &Options) -> Self {
        let start = Instant::now();
        let measured = start + Duration::from_secs_f64(options.warmup.max(0.0));
        let end = (options.duration > 0.0).then(|| measured + Duration::from_secs_f64(options.duration));
        Self { start, measured, end }
    }
}

impl Run {
    /// The life of one load thread.
    fn thread(self: &Arc<Self>, thread: usize) -> Result<(), Failure> {
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
        LocalSet::new().block_on(&runtime, self.drive(thread, workers, times))
    }

    /// The clients of a thread, on the connections of a thread.
    async fn workers(&self, thread: usize) -> Result<Vec<Worker>, Failure> {
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
        times: Times,
    ) -> Result<(), Failure> {
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
            };
            tasks.spawn_local(client.live(worker));
        }
        while tasks.join_next().await.is_some() {}
        if let Some(timer) = timer {
            timer.abort();
        }
        if let (Some(pacer), Some(end)) = (&pacer, times.end) {
            self.note_missed(thread, pacer, end);
        }
        Ok(())
    }

    fn note_missed(&self, thread: usize, pacer: &Pacer, end: Instant) {
        let missed = pacer.missed(end);
        self.recorders[thread].note(Phase::Measured, |part| {
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

/// One client's life.
struct Client {
    run: Arc<Run>,
    thread: usize,
    number: usize,
    times: Times,
    pacer: Option<Rc<Pacer>>,
}

impl Client {
    async fn live(self, mut worker: Worker) {
        if self.times.measured > self.times.start {
            while self.pass(&mut worker, Phase::Warmup, Some(self.times.measured)).await {}
            self.finish(&mut worker, Phase::Warmup).await;
            if self.pacer.is_none() {
                tokio::time::sleep_until(self.times.measured.into()).await;
            }
        }
        let mut cycle = 0;
        while self.times.end.is_some() || cycle < self.run.options.cycles {
            worker.rewind();
            if !self.pass(&mut worker, Phase::Measured, self.times.end).await {
                break;
            }
            cycle += 1;
        }
        self.finish(&mut worker, Phase::Measured).await;
    }

    async fn finish(&self, worker: &mut Worker, phase: Phase) {
        match worker.finish().await {
            Ok(done) => self.recorder().note(phase, |part| part.tally.add(&done.tally)),
            Err(error) => self.fail(phase, &error.to_string()),
        }
    }

    /// Runs the client's rows once; false when it is to stop.
    async fn pass(&self, worker: &mut Worker, phase: Phase, end: Option<Instant>) -> bool {
        let options = &self.run.options;
        let ((first, last), every) = (options.range(self.number), options.every());
        let (mut due, mut failures) = (None, 0);
        for i in (first..last).filter(|i| i % every == 0) {
            if end.is_some_and(|end| Instant::now() >= end) {
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
            let sent = Instant::now();
            match worker.row(i).await {
                Ok(done) => {
                    let measure = phase == Phase::Warmup || i - first > options.measure_after;
                    self.note(phase, &done, due.unwrap_or(sent), sent, measure);
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

    fn note(&self, phase: Phase, done: &Done, due: Instant, sent: Instant, measure: bool) {
        let now = Instant::now();
        let latency = now.saturating_duration_since(due);
        let threshold = self.run.options.latency_threshold;
        self.recorder().note(phase, |part| {
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
        self.recorder().note(phase, |part| {
            part.tally.rows += 1;
            part.tally.errors += 1;
        });
        self.run.note_failure(self.number, why.to_owned());
    }

    fn recorder(&self) -> &Recorder {
        &self.run.recorders[self.thread]
    }
}

/// The calling thread while the load runs.
struct Reporter {
    run: Arc<Run>,
    server: Option<ServerProcess>,
    target: String,
    progress: Progress,
}

/// What a phase came to.
#[derive(Default)]
struct Totals {
    part: Part,
    intervals: Vec<Interval>,
}

impl Reporter {
    fn new(run: Arc<Run>, server: Option<ServerProcess>, target: &Target) -> Self {
        let progress = Progress::new(run.options.progress, &target.name, &run.options);
        Self { run, server, target: target.name.clone(), progress }
    }

    fn report(
        mut self,
        ended: &mpsc::Receiver<Result<(), Failure>>,
        notes: Vec<String>,
    ) -> Result<Report, Failure> {
        self.run.ready.wait();
        if !self.run.failed.load(Ordering::Relaxed)
            && let Ok(mut started) = self.run.started.lock()
        {
            *started = Some(Times::new(&self.run.options));
        }
        let began = SystemTime::now();
        self.run.ready.wait();
        let times = self.run.started.lock().ok().and_then(|times| *times);
        let Some(times) = times else {
            let first = ended.iter().find_map(Result::err);
            return Err(first.unwrap_or_else(|| Failure::Local("a load thread ended".to_owned())));
        };
        let mut outcome = Ok(());
        let warmup = self.follow(Phase::Warmup, times.start, Some(times.measured), ended, &mut outcome);
        let (before, own_before) = (self.usage(), own_cpu_s());
        let measured = self.follow(Phase::Measured, times.measured, None, ended, &mut outcome);
        let (after, own_after) = (self.usage(), own_cpu_s());
        let seconds = times.measured.elapsed().as_secs_f64();
        outcome?;
        self.progress.end();
        let tally = measured.part.tally;
        Ok(Report {
            target: self.target.clone(),
            began_unix_s: began.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
            options: (*self.run.options).clone(),
            notes,
            warmup: (times.measured > times.start).then(|| Latencies::of(&warmup.part.latency)),
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

    /// Takes intervals until a phase's end, or until all threads ended.
    fn follow(
        &mut self,
        phase: Phase,
        start: Instant,
        end: Option<Instant>,
        ended: &mpsc::Receiver<Result<(), Failure>>,
        outcome: &mut Result<(), Failure>,
    ) -> Totals {
        let interval = Duration::from_secs_f64(self.run.options.interval);
        let (mut totals, mut from, mut usage) = (Totals::default(), start, self.usage());
        loop {
            let to = end.map_or(from + interval, |end| end.min(from + interval));
            let more = wait_until(to, ended, outcome);
            let now = Instant::now();
            let part = self.drain(phase);
            let used = self.usage();
            if now > from {
                let point = Interval::new(start, (from, now), &part, usage.zip(used));
                self.progress.show(phase, &point);
                totals.intervals.push(point);
            }
            totals.part.add(&part);
            (from, usage) = (now, used);
            if !more || end.is_some_and(|end| now >= end) {
                return totals;
            }
        }
    }

    fn drain(&self, phase: Phase) -> Part {
        let mut sum = Part::default();
        self.run.recorders.iter().for_each(|recorder| sum.add(&recorder.drain(phase, Part::default())));
        sum
    }

    fn usage(&self) -> Option<Usage> {
        self.server.as_ref().and_then(ServerProcess::usage)
    }

    fn server_report(&self, usage: Option<(Usage, Usage)>, intervals: &[Interval]) -> Option<ServerReport> {
        let (server, (before, after)) = (self.server.as_ref()?, usage?);
        let seen = intervals.iter().filter_map(|i| i.server_rss_bytes).max();
        Some(ServerReport::new(server, &before, &after, seen.unwrap_or(after.rss_bytes)))
    }
}

/// Waits for a time; false once all threads have ended.
fn wait_until(
    to: Instant,
    ended: &mpsc::Receiver<Result<(), Failure>>,
    outcome: &mut Result<(), Failure>,
) -> bool {
    loop {
        match ended.recv_timeout(to.saturating_duration_since(Instant::now())) {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => *outcome = Err(failure),
            Err(mpsc::RecvTimeoutError::Timeout) => return true,
            Err(mpsc::RecvTimeoutError::Disconnected) => return false,
        }
    }
}
