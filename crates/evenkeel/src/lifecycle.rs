//! The lifecycle of the server's process: start, run, stop, and their time limits.
//!
//! The main thread only waits for events, so that it can always end the process:
//!
//! | event | during the start | while it runs | during the stop |
//! |---|---|---|---|
//! | SIGTERM, SIGINT | exit at once | stop | a second signal: exit at once |
//! | a stop request: a user, a failed log, a dead thread | stop after the start | stop | |
//! | `evenkeel.shutdown.timeout.ms` has passed | | | exit; the log names what did not finish |
//!
//! Acknowledged writes are in the write-ahead log before a stop begins, so an interrupted stop
//! loses no data: the next start replays the log. A start may be interrupted anywhere, too.
//! `start`, `stop` and `signals` are separate threads. A thread that hangs on a dead disk does not
//! keep the process alive: the main thread ends it with `exit`.
//!
//! # Exit status
//! | | |
//! |---|---|
//! | 0 | stopped, everything flushed |
//! | 1 | could not start, could not flush everything, or stopped after a fatal error |
//! | 3 | an interrupted stop: by its timeout, or by a second signal |
//!
//! Standard output and error may be closed, full, or pipes without a reader: none of these ends or
//! blocks the server ([`crate::log`]). SIGPIPE is ignored, as in every Rust program.
//!
//! # What a supervisor receives
//! systemd is notified when the server answers and when its stop begins ([`crate::sd_notify`]).
//!
//! # What an operator sees
//! The start screen, on standard output, then the log. Log lines of the start are held until the
//! screen is printed, up to [`SCREEN_HOLD_MAX`]. If the log goes to a file, a fatal error goes to
//! standard error as well.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use evenkeel_cluster::ClusterServer;
use evenkeel_common::clock;
use evenkeel_common::thread::{self, Supervisor};
use evenkeel_common::{Configuration, HBaseError};
use evenkeel_standalone::{ConfigurationSource, LogLevels, ProcessControl, Standalone, StopProgress};

use crate::log::Log;
use crate::sd_notify;

/// The exit status of an interrupted stop.
const EXIT_INTERRUPTED: i32 = 3;
/// The timeout for the last lines of the log, and for the start screen.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum time that log lines are held for the start screen.
const SCREEN_HOLD_MAX: Duration = Duration::from_secs(3);

/// The parts of the process that a running server may change or reload.
pub struct ReloadSources {
    /// The levels of the log.
    pub levels: Arc<dyn LogLevels>,
    /// The source of the settings.
    pub settings: ConfigurationSource,
}

/// The kinds of server that this process can run.
pub trait Server: Send + Sized + 'static {
    /// Starts the server; returns when it answers.
    ///
    /// # Errors
    /// A message of one line that names the obstacle.
    fn start(conf: Configuration, process: ProcessControl) -> Result<Self, HBaseError>;

    /// The text shown to the operator after a start.
    fn screen(&self) -> String;

    /// A summary of the started server, in one line.
    fn summary(&self) -> String;

    /// The time limit of a stop.
    fn shutdown_timeout(&self) -> Duration;

    /// Stops the server.
    ///
    /// # Errors
    /// The steps that did not finish, or the reason why the server had to stop.
    fn stop(self, progress: &StopProgress) -> Result<(), HBaseError>;
}

impl Server for Standalone {
    fn start(conf: Configuration, process: ProcessControl) -> Result<Self, HBaseError> {
        Self::start_with(conf, process)
    }

    fn screen(&self) -> String {
        self.screen()
    }

    fn summary(&self) -> String {
        self.summary()
    }

    fn shutdown_timeout(&self) -> Duration {
        self.shutdown_timeout()
    }

    fn stop(self, progress: &StopProgress) -> Result<(), HBaseError> {
        self.stop_with(progress)
    }
}

impl Server for ClusterServer {
    fn start(conf: Configuration, process: ProcessControl) -> Result<Self, HBaseError> {
        ClusterServer::start(conf, process)
    }

    fn screen(&self) -> String {
        self.screen()
    }

    fn summary(&self) -> String {
        self.summary()
    }

    fn shutdown_timeout(&self) -> Duration {
        self.shutdown_timeout()
    }

    fn stop(self, progress: &StopProgress) -> Result<(), HBaseError> {
        self.stop_with(progress)
    }
}

enum Event<S> {
    Started(Result<Box<S>, String>),
    Signal(&'static str),
    StopRequested(String),
    /// A thread of the process itself has died.
    ThreadDied(String),
    Stopped(Result<(), String>),
}

/// Holds log lines for the start screen, unless the log goes to a file.
pub fn hold_for_screen(log: &Log) {
    if !log.is_file() {
        log.hold(SCREEN_HOLD_MAX);
    }
}

/// Runs a server until it has stopped; returns the exit status.
pub fn run<S: Server>(conf: Configuration, log: &Log, sources: ReloadSources) -> ExitCode {
    match supervise::<S>(conf, log, sources) {
        Ok(()) => {
            log.drain(DRAIN_TIMEOUT);
            ExitCode::SUCCESS
        }
        Err(message) => failed(&message, log),
    }
}

/// Reports why the process ends. If the log goes to a file, the line also goes to standard error,
/// which a person or a supervisor reads first.
fn report_fatal(message: &str, log: &Log) {
    let line = format!("evenkeel: {message}\n");
    if log.is_file() {
        tracing::error!("{message}");
        log.drain(DRAIN_TIMEOUT);
        print("last-line", line, io::stderr());
    } else {
        log.append(line.as_bytes());
        log.drain(DRAIN_TIMEOUT);
    }
}

/// Logs a fatal error; returns the exit status.
pub fn failed(message: &str, log: &Log) -> ExitCode {
    report_fatal(message, log);
    ExitCode::FAILURE
}

fn supervise<S: Server>(conf: Configuration, log: &Log, sources: ReloadSources) -> Result<(), String> {
    let (sender, events) = channel();
    watch_signals(&sender)?;
    let (server, asked) = started::<S>(conf, (&sender, &events), log, sources)?;
    print("screen", server.screen() + "\n", io::stdout());
    log.release();
    sd_notify::ready(&server.summary());
    let limit = server.shutdown_timeout();
    let event = asked.map_or_else(|| events.recv(), Ok);
    let (reason, mut signals, mut failure) = match event {
        Ok(Event::Signal(name)) => (name.to_owned(), 1, None),
        Ok(Event::ThreadDied(reason)) => (reason.clone(), 0, Some(reason)),
        Ok(Event::StopRequested(reason)) => (reason, 0, None),
        _ => ("all senders of stop requests have ended".to_owned(), 0, None),
    };
    tracing::info!(reason, "stop requested");
    sd_notify::stopping(&reason);
    let deadline = clock::monotonic() + limit;
    let progress = stop(*server, &sender)?;
    loop {
        match events.recv_timeout(deadline.saturating_duration_since(clock::monotonic())) {
            Ok(Event::Stopped(outcome)) => return outcome.and(failure.map_or(Ok(()), Err)),
            Ok(Event::ThreadDied(reason)) => failure = failure.or(Some(reason)),
            Ok(Event::Signal(name)) => {
                signals += 1;
                if signals > 1 {
                    abort_stop(&format!("a second signal, {name}"), &progress, log);
                }
            }
            Ok(Event::StopRequested(_) | Event::Started(_)) => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                abort_stop(&format!("the stop took {} ms", limit.as_millis()), &progress, log);
            }
        }
    }
}

/// Starts the server; also returns a stop request that arrived meanwhile.
fn started<S: Server>(
    conf: Configuration,
    (sender, events): (&Sender<Event<S>>, &Receiver<Event<S>>),
    log: &Log,
    ReloadSources { levels, settings }: ReloadSources,
) -> Result<(Box<S>, Option<Event<S>>), String> {
    let (tell, ask) = (sender.clone(), sender.clone());
    let start = move || {
        let stop = Arc::new(move |reason: &str| drop(ask.send(Event::StopRequested(reason.to_owned()))));
        let process = ProcessControl { stop, log_levels: levels, settings };
        let started = S::start(conf, process).map(Box::new);
        drop(tell.send(Event::Started(started.map_err(|error| error.message().to_owned()))));
        Ok(())
    };
    let supervisor = death_supervisor(sender);
    thread::spawn_essential("start", &supervisor, start).map_err(|error| error.to_string())?;
    let mut asked: Option<(Event<S>, Instant)> = None;
    let reason_of = |asked: Option<(Event<S>, Instant)>| match asked {
        Some((Event::StopRequested(reason) | Event::ThreadDied(reason), _)) => reason,
        _ => "the start ended without a result".to_owned(),
    };
    loop {
        let event = match &asked {
            Some((_, by)) => events.recv_timeout(by.saturating_duration_since(clock::monotonic())),
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match event {
            Ok(Event::Started(Ok(server))) => return Ok((server, asked.map(|(event, _)| event))),
            Ok(Event::Started(Err(message))) if asked.is_none() => return Err(message),
            Ok(Event::Started(Err(message))) => return Err(format!("{}; {message}", reason_of(asked))),
            Ok(Event::Signal(name)) => {
                tracing::info!(signal = name, "stopped during the start");
                log.drain(DRAIN_TIMEOUT);
                std::process::exit(EXIT_INTERRUPTED);
            }
            Ok(event @ (Event::StopRequested(_) | Event::ThreadDied(_))) => {
                asked.get_or_insert((event, clock::monotonic() + START_TIMEOUT_AFTER_STOP_REQUEST));
            }
            Ok(Event::Stopped(_)) => {}
            Err(_) => return Err(reason_of(asked)),
        }
    }
}

/// The time limit of a start after a stop request: the start may wait for the thread that died.
const START_TIMEOUT_AFTER_STOP_REQUEST: Duration = Duration::from_secs(10);

/// Stops the server on a separate thread.
fn stop<S: Server>(server: S, sender: &Sender<Event<S>>) -> Result<StopProgress, String> {
    let (progress, tell) = (StopProgress::default(), sender.clone());
    let of_stop = progress.clone();
    let stop = move || {
        let outcome = server.stop(&of_stop).map_err(|error| error.message().to_owned());
        drop(tell.send(Event::Stopped(outcome)));
        Ok(())
    };
    let failed = sender.clone();
    let supervisor = Supervisor::new(move |death| drop(failed.send(Event::Stopped(Err(death.to_string())))));
    thread::spawn_essential("stop", &supervisor, stop).map_err(|error| error.to_string())?;
    Ok(progress)
}

/// Ends the process immediately. Writes that are not in store files are in the write-ahead log.
fn abort_stop(why: &str, progress: &StopProgress, log: &Log) -> ! {
    let step = progress.step();
    let line = format!("stopped unfinished, after {why}: {step} did not end; the next start replays the log");
    report_fatal(&line, log);
    std::process::exit(EXIT_INTERRUPTED)
}

fn death_supervisor<S: Server>(sender: &Sender<Event<S>>) -> Supervisor {
    let sender = sender.clone();
    Supervisor::new(move |death| drop(sender.send(Event::ThreadDied(death.to_string()))))
}

/// Prints to standard output or error. Does not wait for a blocked one longer than
/// [`DRAIN_TIMEOUT`].
fn print(thread: &'static str, text: String, mut out: impl Write + Send + 'static) {
    let (tell, told) = channel();
    let print = move || {
        let _nobody_looks = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        let _nobody_waits = tell.send(());
    };
    if thread::spawn(thread, print).is_ok() {
        let _ended = told.recv_timeout(DRAIN_TIMEOUT);
    }
}

/// Sends an event for each SIGTERM and SIGINT that arrives after this returns.
fn watch_signals<S: Server>(events: &Sender<Event<S>>) -> Result<(), String> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    let (mut terminate, mut interrupt) = {
        let _entered = runtime.enter();
        let hear = |kind| signal(kind).map_err(|error| format!("no signal handler: {error}"));
        (hear(SignalKind::terminate())?, hear(SignalKind::interrupt())?)
    };
    let sender = events.clone();
    let wait = move || {
        runtime.block_on(async {
            loop {
                let name = tokio::select! {
                    Some(()) = terminate.recv() => "SIGTERM",
                    Some(()) = interrupt.recv() => "SIGINT",
                    else => return Err("the signal streams have ended".to_owned()),
                };
                if sender.send(Event::Signal(name)).is_err() {
                    return Ok(());
                }
            }
        })
    };
    thread::spawn_essential("signals", &death_supervisor(events), wait).map(drop).map_err(|e| e.to_string())
}
