//! A whole server for tests: the real binary, on free ports of 127.0.0.1, with a private directory.
#![allow(dead_code, reason = "each test binary uses a part of it")]

pub mod raw;

use std::fs;
use std::future::Future;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use evenkeel_client::{ClientConfig, Connection};
use evenkeel_common::Configuration;

/// The time limit for a start or stop of a server.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the settings of a server that runs in the process of the test, with its directory below
/// `folder`.
pub fn in_process(folder: &Path, ports: [u16; 5], settings: &[(&str, &str)]) -> Configuration {
    let mut conf = Configuration::with_system_properties(Default::default());
    conf.set("hbase.rootdir", format!("file://{}", folder.join("hbase").display()));
    conf.set("hbase.tmp.dir", folder.join("tmp").display().to_string());
    PORT_KEYS.iter().zip(ports).for_each(|(key, port)| conf.set(*key, port.to_string()));
    settings.iter().for_each(|(key, value)| conf.set(*key, *value));
    conf
}

/// The settings that name the server's ports.
pub const PORT_KEYS: [&str; 5] = [
    "hbase.zookeeper.property.clientPort",
    "hbase.master.port",
    "hbase.regionserver.port",
    "hbase.master.info.port",
    "hbase.regionserver.info.port",
];

/// A server's directory and ports, and its process while it runs. Dropping it kills the process.
pub struct Server {
    folder: tempfile::TempDir,
    ports: [u16; 5],
    extra: Vec<(String, String)>,
    process: Option<Child>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("--- the server's log, its end ---\n{}", tail(&self.log(), 60));
        }
    }
}

impl Server {
    /// A stopped server, with extra settings.
    pub fn new(extra: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let extra = extra.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Self { folder, ports: free_ports(), extra, process: None }
    }

    /// A running server.
    pub fn started(extra: &[(&str, &str)]) -> Self {
        let mut server = Self::new(extra);
        server.start();
        server
    }

    /// The folder that holds the data directory and the logs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The data directory.
    pub fn root(&self) -> PathBuf {
        self.folder().join("hbase")
    }

    /// The text that the server printed since it was first started.
    pub fn screen(&self) -> String {
        fs::read_to_string(self.folder().join("out")).unwrap_or_default()
    }

    /// The log of the server since it was first started.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder().join("err")).unwrap_or_default()
    }

    /// The log, once it contains `text`: the log is written after the screen.
    pub fn log_with(&self, text: &str) -> String {
        let deadline = Instant::now() + TIMEOUT;
        while !self.log().contains(text) {
            assert!(Instant::now() < deadline, "{text:?} is not in the log");
            sleep(Duration::from_millis(10));
        }
        self.log()
    }

    /// The status and the body of a page of the RegionServer's info port; `None` if it does not
    /// respond.
    pub fn page(&self, path: &str) -> Option<(u16, String)> {
        let address = ("127.0.0.1", self.port("hbase.regionserver.info.port"));
        let mut stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(TIMEOUT)).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\nhost: x\r\n\r\n").ok()?;
        let mut response = String::new();
        stream.read_to_string(&mut response).ok()?;
        let (head, body) = response.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    /// The port of a setting.
    pub fn port(&self, key: &str) -> u16 {
        let at = PORT_KEYS.iter().position(|k| *k == key).expect("a port's key");
        self.ports[at]
    }

    /// The bootstrap address for clients.
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port("hbase.master.port"))
    }

    /// The settings that it runs with.
    pub fn settings(&self) -> Vec<(String, String)> {
        let mut settings = vec![
            ("hbase.rootdir".to_owned(), format!("file://{}", self.root().display())),
            ("hbase.tmp.dir".to_owned(), self.folder().join("tmp").display().to_string()),
            ("evenkeel.log.format".to_owned(), "text".to_owned()),
        ];
        settings.extend(
            PORT_KEYS.iter().zip(self.ports).map(|(key, port)| ((*key).to_owned(), port.to_string())),
        );
        settings.extend(self.extra.iter().cloned());
        settings
    }

    /// Sets a setting for the next start.
    pub fn set(&mut self, key: &str, value: &str) {
        self.extra.retain(|(known, _)| known != key);
        self.extra.push((key.to_owned(), value.to_owned()));
    }

    /// The command that starts it, with the settings in `more` last.
    pub fn command(&self, more: &[(&str, &str)]) -> Command {
        let mut command = Command::new(binary());
        command.arg("start").env_remove("HBASE_CONF_DIR").stdin(Stdio::null());
        let more = more.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        for (key, value) in self.settings().into_iter().chain(more) {
            command.arg("-D").arg(format!("{key}={value}"));
        }
        command
    }

    /// Starts it and waits until it has printed its screen.
    pub fn start(&mut self) {
        let command = self.command(&[]);
        self.start_as(command);
    }

    /// As [`Server::start`], with a file size limit of this many KiB, and without the signal at the
    /// limit.
    pub fn start_limited(&mut self, file_kib: u32) {
        let command = self.limited(file_kib);
        self.start_as(command);
    }

    /// As [`Server::start`], with this hard limit of open files, and half of it as the soft limit.
    pub fn start_with_descriptors(&mut self, count: u32) {
        let command = self.under(&format!("ulimit -Sn {}; ulimit -Hn {count}", count / 2));
        self.start_as(command);
    }

    fn limited(&self, file_kib: u32) -> Command {
        self.under(&format!("trap '' XFSZ; ulimit -f {file_kib}"))
    }

    /// The command that starts it in a shell with these limits.
    fn under(&self, limits: &str) -> Command {
        let server = self.command(&[]);
        let mut command = Command::new("bash");
        command.arg("-c").arg(format!("{limits}; exec \"$@\"")).arg("bash");
        command
            .arg(server.get_program())
            .args(server.get_args())
            .env_remove("HBASE_CONF_DIR")
            .stdin(Stdio::null());
        command
    }

    fn start_as(&mut self, command: Command) {
        let before = self.screen().len();
        self.spawn(command);
        self.wait_for_screen(before);
    }

    /// Waits until it has printed more than `before` bytes of standard output.
    pub fn wait_for_screen(&mut self, before: usize) {
        let deadline = Instant::now() + TIMEOUT;
        // The screen is printed once the server answers.
        while self.screen().len() == before {
            let process = self.process.as_mut().expect("spawned");
            if let Some(status) = process.try_wait().expect("a child's status") {
                panic!("the server ended with {status} while it started:\n{}", tail(&self.log(), 40));
            }
            assert!(Instant::now() < deadline, "no screen in time:\n{}", tail(&self.log(), 40));
            sleep(Duration::from_millis(10));
        }
    }

    /// Starts it without waiting.
    pub fn spawn(&mut self, command: Command) {
        let open = |name| fs::File::options().create(true).append(true).open(self.folder().join(name));
        let (out, err) = (open("out").expect("a file"), open("err").expect("a file"));
        self.spawn_onto(command, out, err);
    }

    /// Starts it with redirected output, without waiting.
    pub fn spawn_onto(&mut self, mut command: Command, out: impl Into<Stdio>, err: impl Into<Stdio>) {
        self.process = Some(command.stdout(out).stderr(err).spawn().expect("the binary starts"));
    }

    /// As [`Server::start_limited`], with redirected output; waits until it listens.
    pub fn start_limited_onto(&mut self, file_kib: u32, out: impl Into<Stdio>, err: impl Into<Stdio>) {
        let command = self.limited(file_kib);
        self.spawn_onto(command, out, err);
        let (port, deadline) = (self.port("hbase.regionserver.port"), Instant::now() + TIMEOUT);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(self.runs() && Instant::now() < deadline, "it does not listen");
            sleep(Duration::from_millis(10));
        }
    }

    /// Starts it with an environment variable, without waiting.
    pub fn spawn_with(&mut self, variable: &str, value: &str) {
        let mut command = self.command(&[]);
        command.env(variable, value);
        self.spawn(command);
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.process.as_ref().expect("it runs").id()
    }

    /// Sends a signal, by its name without SIG.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.pid().to_string()).status();
        assert!(sent.expect("kill").success());
    }

    /// Waits until it exits without a signal from the test.
    pub fn exit(&mut self) -> ExitStatus {
        let mut process = self.process.take().expect("a running server");
        exit_of(&mut process).unwrap_or_else(|| {
            let _ = process.kill();
            let _ = process.wait();
            panic!("the server does not end:\n{}", tail(&self.log(), 40))
        })
    }

    /// kill -9; waits until the process has ended.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// SIGTERM; waits for the exit.
    pub fn terminate(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.exit()
    }

    /// The resident memory of the running server, in bytes (Linux).
    pub fn resident_bytes(&self) -> u64 {
        self.status_bytes("VmRSS:")
    }

    /// Bytes of its resident memory that no file backs (Linux).
    pub fn anonymous_bytes(&self) -> u64 {
        self.status_bytes("RssAnon:")
    }

    /// A size from the running server's `/proc/PID/status`.
    fn status_bytes(&self, key: &str) -> u64 {
        let pid = self.process.as_ref().expect("it runs").id();
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the kernel tells");
        let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("a process with memory");
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kib << 10
    }

    /// The number of open descriptors of the running server (Linux), without store files: they come
    /// and go with flushes and compactions.
    pub fn descriptors(&self) -> usize {
        let pid = self.process.as_ref().expect("it runs").id();
        let all = fs::read_dir(format!("/proc/{pid}/fd")).expect("the kernel tells");
        let is_store_file = |path: &Path| path.to_str().is_some_and(|path| path.contains("/hbase/data/"));
        let target = |entry: std::io::Result<fs::DirEntry>| fs::read_link(entry.ok()?.path()).ok();
        all.filter_map(target).filter(|path| !is_store_file(path)).count()
    }

    /// Returns true if it runs.
    pub fn runs(&mut self) -> bool {
        self.process.as_mut().is_some_and(|p| p.try_wait().is_ok_and(|status| status.is_none()))
    }

    /// Connects a client, with timeouts for tests.
    pub async fn connect(&self) -> Connection {
        Connection::connect(config(&self.bootstrap())).await.expect("the server answers")
    }
}

/// The path of the server's binary: the one built with the tests, or `EVENKEEL_TEST_SERVER`, to
/// test another one.
fn binary() -> PathBuf {
    let other = std::env::var_os("EVENKEEL_TEST_SERVER").map(PathBuf::from);
    other.unwrap_or_else(|| env!("CARGO_BIN_EXE_evenkeel").into())
}

/// A client's settings with timeouts for tests.
pub fn config(bootstrap: &str) -> ClientConfig {
    ClientConfig {
        rpc_timeout: Duration::from_secs(20),
        operation_timeout: TIMEOUT,
        pause: Duration::from_millis(20),
        retries: 60,
        ..ClientConfig::new([bootstrap])
    }
}

/// Waits for a process to end; `None` after the timeout.
pub fn exit_of(process: &mut Child) -> Option<ExitStatus> {
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        if let Some(status) = process.try_wait().expect("a child's status") {
            return Some(status);
        }
        sleep(Duration::from_millis(10));
    }
    None
}

/// Runs a future on a runtime of two threads.
pub fn block_on<F: Future>(future: F) -> F::Output {
    runtime().block_on(future)
}

/// A runtime of two threads.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// The seed of a random test: `EVENKEEL_TEST_SEED`, or a random one. It is printed, so a failure
/// can be repeated.
pub fn seed() -> u64 {
    let given = std::env::var("EVENKEEL_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| u64::from(std::process::id()) << 32 | u64::from(now_ns()));
    println!("EVENKEEL_TEST_SEED={seed}");
    seed
}

fn now_ns() -> u32 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |t| t.subsec_nanos())
}

/// The last lines of a text.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Ports without a listener. Each call in a process returns different ones.
pub fn free_ports() -> [u16; 5] {
    // Below the ephemeral ports for outgoing connections (32768 and up), one of which could take a
    // port before the server does.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(211);
    let free = || loop {
        let at = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(10_000 + at % 20_000).expect("below 30,000");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    };
    [(); 5].map(|()| free())
}
