//! The server under test: a process that the soak kills, stops, and gives disk faults.
//!
//! The process is the soak's binary, called with [`SERVE`]. It runs a whole standalone server over
//! a [`FaultyFileSystem`] on the local one, and reads commands from its standard input:
//!
//! | line | effect |
//! |---|---|
//! | `fault NAME` | a fault of [`DiskFault`] starts |
//! | `clear_faults` | all faults end |
//! | `stop` | an orderly stop, as at SIGTERM |
//!
//! It prints `ready` when it answers and `stop requested: REASON` when it stops on an error. It
//! exits when its standard input closes, so that it never outlives the soak.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use evenkeel_client::ClientConfig;
use evenkeel_common::Configuration;
use evenkeel_fs::{Fault, FaultyFileSystem, LocalFileSystem, Op};
use evenkeel_standalone::Standalone;

/// The argument that makes the binary a server; settings as `key=value` follow.
pub const SERVE: &str = "--serve";

/// The command by which all faults end.
const CLEAR_FAULTS: &str = "clear_faults";

/// The timeout of a start, replay included.
const START_MAX: Duration = Duration::from_secs(90);
/// The timeout of an orderly stop.
const STOP_MAX: Duration = Duration::from_secs(90);
/// The exit status of a server that stopped on an error, as when its log fails.
const STOPPED_ITSELF: u8 = 3;
/// Begins the line of a server that requests its own stop; the reason follows.
const STOP_REQUESTED: &str = "stop requested:";

/// A disk fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFault {
    /// No space left.
    Full,
    /// Some writes and syncs of logs fail.
    LogErrors,
    /// A write of a log stops in the middle.
    TornLog,
    /// Some writes below the data directory fail.
    StoreErrors,
    /// Some reads below the data directory fail.
    ReadErrors,
    /// Every sync takes 200 ms.
    SlowSyncs,
    /// Every read takes 5 ms.
    SlowReads,
}

impl DiskFault {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Full,
        Self::LogErrors,
        Self::TornLog,
        Self::StoreErrors,
        Self::ReadErrors,
        Self::SlowSyncs,
        Self::SlowReads,
    ];

    fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|disk| format!("{disk:?}") == name)
    }

    fn faults(self) -> Vec<Fault> {
        use std::io::ErrorKind::{Other, StorageFull};
        let each = |ops: &[Op], path: &str, change: &dyn Fn(Fault) -> Fault| {
            ops.iter().map(|op| change(Fault::on(*op, path))).collect()
        };
        let writes = [Op::Create, Op::Append, Op::Flush, Op::Sync, Op::Rename, Op::Mkdirs];
        match self {
            Self::Full => each(&writes[..2], "", &|f| f.always().fails(StorageFull)),
            Self::LogErrors => {
                each(&[Op::Append, Op::Flush, Op::Sync], "/WALs/", &|f| f.times(2).fails(Other))
            }
            Self::TornLog => each(&[Op::Append], "/WALs/", &|f| f.writes_half(Other)),
            Self::StoreErrors => each(&writes, "/data/", &|f| f.times(5).fails(Other)),
            Self::ReadErrors => each(&[Op::Open, Op::Read], "/data/", &|f| f.times(20).fails(Other)),
            Self::SlowSyncs => {
                each(&[Op::Flush, Op::Sync], "", &|f| f.always().delays(Duration::from_millis(200)))
            }
            Self::SlowReads => each(&[Op::Read], "", &|f| f.always().delays(Duration::from_millis(5))),
        }
    }
}

/// Runs the server; `words` are its settings.
pub fn serve(words: &[String]) -> ExitCode {
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    let mut conf = Configuration::with_system_properties(Default::default());
    for (key, value) in words.iter().filter_map(|word| word.split_once('=')) {
        conf.set(key, value);
    }
    let fs = FaultyFileSystem::new(LocalFileSystem::new());
    let (sender, told) = mpsc::channel::<String>();
    let stops = sender.clone();
    let stop = Arc::new(move |reason: &str| drop(stops.send(format!("{STOP_REQUESTED} {reason}"))));
    let server = match Standalone::start_on(Arc::new(fs.clone()), conf, stop) {
        Ok(server) => server,
        Err(error) => {
            eprintln!("the server does not start: {error}");
            return ExitCode::FAILURE;
        }
    };
    std::thread::spawn(move || {
        std::io::stdin().lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
        // The soak has exited.
        std::process::exit(9);
    });
    println!("ready");
    for line in told {
        match line.split_once(' ') {
            Some(("fault", name)) => {
                DiskFault::of_name(name).into_iter().flat_map(DiskFault::faults).for_each(|f| fs.inject(f));
            }
            _ if line.starts_with(STOP_REQUESTED) => {
                println!("{line}");
                let stopped = server.stop();
                eprintln!("{line}; then {stopped:?}");
                return ExitCode::from(STOPPED_ITSELF);
            }
            _ if line == CLEAR_FAULTS => fs.clear(),
            _ => {
                let stopped = server.stop();
                if let Err(error) = &stopped {
                    eprintln!("the stop failed: {error}");
                }
                return if stopped.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
            }
        }
    }
    ExitCode::FAILURE
}

/// A server's directory and settings, and its process while it runs. Dropping it kills the process.
pub struct Server {
    folder: PathBuf,
    ports: [u16; 3],
    settings: Vec<(String, String)>,
    process: Option<(Child, ChildStdin)>,
    /// True if the running process announced that it stops on an error.
    stops_itself: Arc<AtomicBool>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Server {
    /// A stopped server, with a private folder.
    ///
    /// # Errors
    /// The system's error.
    pub fn new(folder: &Path, settings: &[(&str, String)]) -> Result<Self, String> {
        let held = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0"));
        let mut ports = [0; 3];
        for (port, listener) in ports.iter_mut().zip(&held) {
            let listener = listener.as_ref().map_err(ToString::to_string)?;
            *port = listener.local_addr().map_err(|e| e.to_string())?.port();
        }
        let mut all = vec![
            ("hbase.rootdir".to_owned(), format!("file://{}", folder.join("hbase").display())),
            ("hbase.tmp.dir".to_owned(), folder.join("tmp").display().to_string()),
        ];
        let keys = ["hbase.zookeeper.property.clientPort", "hbase.master.port", "hbase.regionserver.port"];
        all.extend(keys.iter().zip(ports).map(|(key, port)| ((*key).to_owned(), port.to_string())));
        all.extend(settings.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
        let stops_itself = Arc::default();
        Ok(Self { folder: folder.to_owned(), ports, settings: all, process: None, stops_itself })
    }

    /// The data directory.
    pub fn root(&self) -> PathBuf {
        self.folder.join("hbase")
    }

    /// The log of all its processes.
    pub fn log(&self) -> PathBuf {
        self.folder.join("server.log")
    }

    /// The length of that log.
    pub fn log_bytes(&self) -> u64 {
        std::fs::metadata(self.log()).map_or(0, |log| log.len())
    }

    /// The part of that log behind an offset.
    pub fn log_since(&self, offset: u64) -> String {
        let log = std::fs::read(self.log()).unwrap_or_default();
        let behind = usize::try_from(offset).ok().and_then(|offset| log.get(offset..));
        String::from_utf8_lossy(behind.unwrap_or_default()).into_owned()
    }

    /// The running process.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(|(process, _)| process.id())
    }

    /// Settings of a client.
    pub fn client(&self) -> ClientConfig {
        ClientConfig {
            rpc_timeout: Duration::from_secs(10),
            operation_timeout: Duration::from_secs(60),
            pause: Duration::from_millis(20),
            retries: 100,
            ..ClientConfig::new([format!("127.0.0.1:{}", self.ports[1])])
        }
    }

    /// Starts it and waits until it answers.
    ///
    /// # Errors
    /// The error if it does not.
    pub fn start(&mut self) -> Result<(), String> {
        self.kill();
        let log = File::options().create(true).append(true).open(self.log()).map_err(|e| e.to_string())?;
        let binary = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut command = Command::new(binary);
        command.arg(SERVE).args(self.settings.iter().map(|(key, value)| format!("{key}={value}")));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut process = command.spawn().map_err(|e| e.to_string())?;
        let (Some(stdin), Some(stdout)) = (process.stdin.take(), process.stdout.take()) else {
            return Err("a process without pipes".to_owned());
        };
        let (ready, is_ready) = mpsc::channel();
        self.stops_itself = Arc::default();
        let stops = Arc::clone(&self.stops_itself);
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                match line.as_str() {
                    "ready" => drop(ready.send(())),
                    _ => stops.store(true, Ordering::Relaxed),
                }
            }
        });
        self.process = Some((process, stdin));
        match is_ready.recv_timeout(START_MAX) {
            Ok(()) => Ok(()),
            Err(mpsc::RecvTimeoutError::Timeout) => Err(format!("the server is not up after {START_MAX:?}")),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err("the server ended while it started".to_owned()),
        }
    }

    /// Returns true if it runs and has not announced a stop.
    pub fn runs(&mut self) -> bool {
        let stops = self.stops_itself.load(Ordering::Relaxed);
        !stops
            && self.process.as_mut().is_some_and(|(p, _)| p.try_wait().is_ok_and(|status| status.is_none()))
    }

    /// Starts a fault of its disk.
    pub fn fault(&mut self, disk: DiskFault) {
        self.tell(&format!("fault {disk:?}"));
    }

    /// Ends all faults of its disk.
    pub fn clear_faults(&mut self) {
        self.tell(CLEAR_FAULTS);
    }

    /// An error means that the process has exited, which [`Server::runs`] detects.
    fn tell(&mut self, line: &str) {
        if let Some((_, stdin)) = &mut self.process {
            drop(writeln!(stdin, "{line}"));
        }
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some((mut process, _)) = self.process.take() {
            drop(process.kill());
            drop(process.wait());
        }
    }

    /// SIGSTOP or SIGCONT.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = self.pid().and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed()));
        if let Some(pid) = pid {
            let _gone_already = rustix::process::kill_process(pid, signal);
        }
    }

    /// An orderly stop.
    ///
    /// # Errors
    /// If it does not exit in time, or exits with a failure.
    pub fn stop(&mut self) -> Result<(), String> {
        self.tell("stop");
        self.ended()
    }

    /// Waits for the exit of a process that stops.
    ///
    /// # Errors
    /// As [`Server::stop`].
    pub fn ended(&mut self) -> Result<(), String> {
        let Some((process, _)) = &mut self.process else { return Ok(()) };
        let deadline = Instant::now() + STOP_MAX;
        while Instant::now() < deadline {
            if let Some(status) = process.try_wait().map_err(|e| e.to_string())? {
                self.process = None;
                let itself = status.code() == Some(i32::from(STOPPED_ITSELF));
                return if status.success() || itself {
                    Ok(())
                } else {
                    Err(format!("it ended with {status}"))
                };
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("it did not end within {STOP_MAX:?} of the request to stop"))
    }
}
