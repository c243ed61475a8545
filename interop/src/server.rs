//! Servers for tests: Evenkeel or stock HBase standalone, on free ports of 127.0.0.1, with separate
//! data.
//!
//! A server is started under a small shell script that ends it when its standard input closes. The
//! test process holds the other end, so the server stops when the [`Server`] is dropped, and also
//! when the process ends, by a panic, an exit without drops (a server in a static) or a kill. Its
//! files are in `work/run/NAME.PID`; a later process removes them if that PID no longer exists.

pub(crate) mod shared_classes;

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::toolchain::ForeignClient;
use crate::{home, toolchain, work};

/// Runs "$@", prints its pid, and ends it (TERM, after 20 s KILL) once standard input closes.
/// Always reaps it, so that its CPU is counted among the children's: reports compute the CPU of
/// other processes from it.
const GUARD: &str = r#"
"$@" </dev/null &
child=$!
echo $child
exec >/dev/null
cat >/dev/null
kill $child 2>/dev/null
for i in $(seq 100); do kill -0 $child 2>/dev/null || exit 0; sleep 0.2; done
kill -9 $child
wait $child
"#;

/// Files of `conf` in a stock server's configuration folder, and their names there.
const STOCK_CONF: [(&str, &str); 2] = [
    ("log4j2-server.properties", "log4j2.properties"),
    ("hadoop-metrics2-hbase.properties", "hadoop-metrics2-hbase.properties"),
];

/// As [`STOCK_CONF`], for a server that logs with log4j 1.
const OLD_CONF: [(&str, &str); 1] = [("log4j-old-server.properties", "log4j.properties")];

/// The timeout of a start; a stock server needs about 15 s on two free cores.
pub(crate) const START: Duration = Duration::from_secs(180);

/// Whose server it is, standalone or a RegionServer of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// Evenkeel.
    Evenkeel,
    /// Stock HBase 2.6.4.
    Stock,
}

/// A server to test against: started here, or at a given address.
pub struct Server {
    name: String,
    settings: BTreeMap<String, String>,
    folder: Option<PathBuf>,
    guard: Option<(Child, Option<ChildStdin>)>,
    pid: u32,
}

impl Server {
    /// A process that [`spawn`] started.
    pub(crate) fn of(
        name: &str,
        settings: BTreeMap<String, String>,
        folder: PathBuf,
        (guard, pid): ((Child, Option<ChildStdin>), u32),
    ) -> Self {
        Self { name: name.to_owned(), settings, folder: Some(folder), guard: Some(guard), pid }
    }

    /// Its description, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The settings a client needs to reach it through any of the three registries.
    pub fn client_settings(&self) -> Vec<(String, String)> {
        let keys = [
            "hbase.zookeeper.quorum",
            "hbase.zookeeper.property.clientPort",
            "zookeeper.znode.parent",
            "hbase.masters",
            "hbase.client.bootstrap.servers",
        ];
        keys.iter()
            .filter_map(|&key| self.settings.get(key).map(|value| (key.to_owned(), value.clone())))
            .collect()
    }

    /// A folder with an `hbase-site.xml` for clients, for tools without settings on their command
    /// line.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn client_conf(&self) -> Result<PathBuf, String> {
        let folder = work().join("run").join(format!("client.{}.{}", std::process::id(), next()));
        write_site(&folder, &self.client_settings())?;
        Ok(folder)
    }

    /// The folder of its data and logs, if it was started here.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Its process id; 0 if it was not started here.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// A setting it was started with.
    pub fn setting(&self, key: &str) -> Option<&str> {
        self.settings.get(key).map(String::as_str)
    }

    /// A page of the region server's info port, such as `/jmx`.
    ///
    /// # Errors
    /// If the server has no info port, or does not answer with status 200.
    pub fn page(&self, path: &str) -> Result<String, String> {
        let port = self.setting("hbase.regionserver.info.port").and_then(|port| port.parse().ok());
        http_get(port.ok_or_else(|| format!("{} has no info port", self.name))?, path)
    }

    /// Waits until it ends by itself, as after a client's request to shut down.
    ///
    /// # Panics
    /// If it was not started here, or lives for longer than a start may take.
    pub fn wait_for_end(self) {
        assert!(self.guard.is_some(), "{} is not ours", self.name);
        let start = Instant::now();
        while is_alive(self.pid) {
            assert!(start.elapsed() < START, "{} does not end", self.name);
            sleep(Duration::from_millis(50));
        }
    }

    /// Kills it by `kill -9` and waits for its end.
    ///
    /// # Panics
    /// If it was not started here, or cannot be killed.
    pub fn kill(self) {
        assert!(self.guard.is_some(), "{} is not ours to kill", self.name);
        let killed = Command::new("kill").args(["-9", &self.pid.to_string()]).status();
        assert!(killed.is_ok_and(|status| status.success()), "{} cannot be killed", self.name);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some((guard, stdin)) = &mut self.guard {
            drop(stdin.take());
            let _ = guard.wait();
        }
    }
}

/// The server that all tests of this process share: Evenkeel, or the one that
/// `EVENKEEL_INTEROP_TARGET` names.
///
/// # Panics
/// If it cannot be started; the message names what is missing.
pub fn target() -> &'static Server {
    static TARGET: OnceLock<Result<Server, String>> = OnceLock::new();
    let server = TARGET.get_or_init(|| start_target(&[]));
    server.as_ref().unwrap_or_else(|why| panic!("no server to test against: {why}"))
}

/// Starts a server of the kind that `EVENKEEL_INTEROP_TARGET` names, with extra settings. A server
/// at an address is used as it is.
///
/// # Panics
/// As [`target`].
pub fn target_with(own: &[(&str, &str)]) -> Server {
    start_target(own).unwrap_or_else(|why| panic!("no server to test against: {why}"))
}

fn start_target(own: &[(&str, &str)]) -> Result<Server, String> {
    let mut settings = shared_settings();
    settings.extend(own.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    match std::env::var("EVENKEEL_INTEROP_TARGET").as_deref() {
        Err(_) | Ok("" | "evenkeel") => start_evenkeel_with(&settings),
        Ok("stock") => start_stock_with(&settings),
        Ok(address) => at(address),
    }
}

/// The settings of the shared server: what checks need, and `EVENKEEL_INTEROP_SETTINGS`, which is
/// `key=value[,key=value...]`.
fn shared_settings() -> Vec<(String, String)> {
    const OF_CHECKS: [(&str, &str); 2] =
        [("hbase.ipc.warn.response.size", "200000"), ("hbase.regionserver.slowlog.buffer.enabled", "true")];
    let text = std::env::var("EVENKEEL_INTEROP_SETTINGS").unwrap_or_default();
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    OF_CHECKS.into_iter().chain(pairs).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// Starts Evenkeel standalone: `evenkeel start` with its ports and root directory given by `-D`.
///
/// The binary is `EVENKEEL_BIN`, or the one that Cargo builds for the profile of this test.
///
/// # Errors
/// If it does not build, does not start, or does not open its ports in time.
pub fn start_evenkeel() -> Result<Server, String> {
    start_evenkeel_with(&[])
}

/// As [`start_evenkeel`], with extra settings, such as another `hbase.rootdir`.
///
/// # Errors
/// As [`start_evenkeel`].
pub fn start_evenkeel_with(own: &[(String, String)]) -> Result<Server, String> {
    start_evenkeel_as(&evenkeel_binary()?, &[], own)
}

/// As [`start_evenkeel_with`], for a given binary under a given command, such as `taskset -c 0`.
///
/// # Errors
/// As [`start_evenkeel`].
pub fn start_evenkeel_as(
    binary: &Path,
    under: &[String],
    own: &[(String, String)],
) -> Result<Server, String> {
    let folder = run_folder("evenkeel")?;
    let ports = Ports::free()?;
    let mut settings = settings(&folder, &ports);
    settings.extend(own.iter().cloned());
    let ports = ports.or_as_set(&settings);
    let mut command = under.to_vec();
    command.extend([binary.display().to_string(), "start".to_owned()]);
    command.extend(settings.iter().map(|(key, value)| format!("-D{key}={value}")));
    let guard = spawn(&command, &folder.join("server.log"))?;
    let server = Server {
        name: "Evenkeel".into(),
        settings: with_client(settings, &ports),
        folder: Some(folder),
        guard: Some(guard.0),
        pid: guard.1,
    };
    for port in [ports.zookeeper, ports.master, ports.regionserver] {
        wait_until(&server, guard.1, || TcpStream::connect(("127.0.0.1", port)).is_ok())?;
    }
    Ok(server)
}

/// Starts stock HBase 2.6.4 standalone: one JVM with master, region server and ZooKeeper.
///
/// # Errors
/// If the jars cannot be fetched, or it does not start in time.
pub fn start_stock() -> Result<Server, String> {
    start_stock_with(&[])
}

/// As [`start_stock`], with extra settings, such as another `hbase.rootdir`.
///
/// # Errors
/// As [`start_stock`].
pub fn start_stock_with(own: &[(String, String)]) -> Result<Server, String> {
    start_stock_as(&StockJvm::small(), own)
}

/// The JVM of a stock server.
#[derive(Clone, Debug)]
pub struct StockJvm {
    /// The `java` to run.
    pub java: PathBuf,
    /// Flags besides [`toolchain::jvm_flags`]: heap, collector.
    pub flags: Vec<String>,
    /// A command to run it under, such as `taskset -c 0`.
    pub under: Vec<String>,
}

impl StockJvm {
    /// The JVM of tests: little memory, few threads, and only the quick compiler (C1), because most
    /// servers of tests live for seconds: a start needs half the CPU. C1 also keeps the messages of
    /// exceptions, which C2 omits from the ones that it throws often, and which tests read.
    pub fn small() -> Self {
        let mut jvm = Self::without_archive();
        jvm.flags.extend(shared_classes::flags());
        jvm
    }

    /// As [`StockJvm::small`], without the archive of [`shared_classes`].
    pub(crate) fn without_archive() -> Self {
        let flags = ["-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];
        let flags = flags.map(str::to_owned).to_vec();
        Self { java: toolchain::java_command(), flags, under: Vec::new() }
    }
}

/// As [`start_stock_with`], with its info ports, which [`Server::page`] reads. It has no pages of
/// HTML.
///
/// # Errors
/// As [`start_stock`].
pub fn start_stock_with_info(own: &[(String, String)]) -> Result<Server, String> {
    start_stock_in(&StockJvm::small(), own, true)
}

/// As [`start_stock_with`], in a given JVM.
///
/// # Errors
/// As [`start_stock`].
pub fn start_stock_as(jvm: &StockJvm, own: &[(String, String)]) -> Result<Server, String> {
    start_stock_in(jvm, own, false)
}

fn start_stock_in(jvm: &StockJvm, own: &[(String, String)], has_info: bool) -> Result<Server, String> {
    let folder = run_folder("stock")?;
    let ports = Ports::free()?;
    let mut settings = settings(&folder, &ports);
    // A stop often takes the ZooKeeper of the process away from its region server, which then needs
    // 20 s for its retries.
    settings.insert("zookeeper.recovery.retry.intervalmill".into(), "100".into());
    settings.extend(own.iter().cloned());
    let ports = ports.or_as_set(&settings);
    let conf = folder.join("conf");
    if has_info {
        // The published jars lack the pages, whose folders the info servers look for.
        make_folders(&conf.join("hbase-webapps"), &["master", "regionserver", "static"])?;
    } else {
        settings.insert("hbase.master.info.port".into(), "-1".into());
        settings.insert("hbase.regionserver.info.port".into(), "-1".into());
    }
    write_site(&conf, &settings.iter().map(|(k, v)| (k.clone(), v.clone())).collect::<Vec<_>>())?;
    copy_stock_conf(&conf)?;
    let mut command = jvm.under.clone();
    command.push(jvm.java.display().to_string());
    command.extend(toolchain::jvm_flags());
    let log = folder.join("hbase.log");
    command.extend(jvm.flags.iter().cloned());
    command.push(format!("-Devenkeel.log.file={}", log.display()));
    command.extend(["-cp".into(), toolchain::server_class_path(&conf)?]);
    command.extend(["org.apache.hadoop.hbase.master.HMaster".into(), "start".into()]);
    let guard = spawn(&command, &folder.join("server.log"))?;
    let server = Server {
        name: "stock HBase".into(),
        settings: with_client(settings, &ports),
        folder: Some(folder),
        guard: Some(guard.0),
        pid: guard.1,
    };
    wait_until(&server, guard.1, || {
        fs::read_to_string(&log).is_ok_and(|text| text.contains("completed initialization"))
    })?;
    Ok(server)
}

/// Starts an HBase of an older version standalone, as [`start_stock`]: its jars are those of
/// `version`, whose artifact is `hbase-server`. It writes store files of version 2.
///
/// # Errors
/// As [`start_stock`].
pub fn start_old_with(version: &ForeignClient, own: &[(String, String)]) -> Result<Server, String> {
    let folder = run_folder("old")?;
    let ports = Ports::free()?;
    let mut settings = settings(&folder, &ports);
    let old = [
        ("hfile.format.version", "2"),
        ("hbase.localcluster.assign.random.ports", "false"),
        ("hbase.master.info.port", "-1"),
        ("hbase.regionserver.info.port", "-1"),
    ];
    settings.extend(old.map(|(key, value)| (key.to_owned(), value.to_owned())));
    settings.extend(own.iter().cloned());
    let ports = ports.or_as_set(&settings);
    let conf = folder.join("conf");
    write_site(&conf, &settings.iter().map(|(k, v)| (k.clone(), v.clone())).collect::<Vec<_>>())?;
    copy_conf(&conf, &OLD_CONF)?;
    let log = folder.join("hbase.log");
    let jvm = StockJvm::without_archive();
    let mut command = vec![jvm.java.display().to_string()];
    command.extend(toolchain::jvm_flags());
    command.extend(jvm.flags);
    command.push(format!("-Devenkeel.log.file={}", log.display()));
    command.extend(["-cp".into(), format!("{}:{}", conf.display(), version.class_path()?)]);
    command.extend(["OldServer".into(), "start".into()]);
    let guard = spawn(&command, &folder.join("server.log"))?;
    let server = Server {
        name: format!("HBase {}", version.version),
        settings: with_client(settings, &ports),
        folder: Some(folder),
        guard: Some(guard.0),
        pid: guard.1,
    };
    wait_until(&server, guard.1, || {
        fs::read_to_string(&log).is_ok_and(|text| text.contains("completed initialization"))
    })?;
    Ok(server)
}

fn make_folders(parent: &Path, names: &[&str]) -> Result<(), String> {
    names.iter().try_for_each(|name| {
        let folder = parent.join(name);
        fs::create_dir_all(&folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))
    })
}

/// The body of a page over HTTP/1.0 of a port of 127.0.0.1.
///
/// # Errors
/// If the port does not answer within 10 s, or answers with another status than 200.
pub(crate) fn http_get(port: u16, path: &str) -> Result<String, String> {
    let exchange = || {
        let mut socket = TcpStream::connect(("127.0.0.1", port))?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(socket, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
        let mut text = String::new();
        socket.read_to_string(&mut text).map(|_| text)
    };
    let answer = exchange().map_err(|e: std::io::Error| format!("{path} of port {port}: {e}"))?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.contains(" 200 ") => Ok(body.to_owned()),
        _ => Err(format!("{path} of port {port}: {}", answer.lines().next().unwrap_or_default())),
    }
}

/// Copies the files that every stock server's configuration folder has.
pub(crate) fn copy_stock_conf(conf: &Path) -> Result<(), String> {
    copy_conf(conf, &STOCK_CONF)
}

fn copy_conf(conf: &Path, files: &[(&str, &str)]) -> Result<(), String> {
    for (from, to) in files {
        let from = home().join("conf").join(from);
        fs::copy(&from, conf.join(to)).map_err(|e| format!("cannot copy {}: {e}", from.display()))?;
    }
    Ok(())
}

/// A server somewhere: `host:zkport`, then `,key=value` for ports other than the defaults.
fn at(address: &str) -> Result<Server, String> {
    let mut parts = address.split(',');
    let place = parts.next().unwrap_or_default();
    let (host, port) = place.rsplit_once(':').ok_or_else(|| format!("`{place}` is not host:zkport"))?;
    let mut settings = BTreeMap::from([
        ("hbase.zookeeper.quorum".to_owned(), host.to_owned()),
        ("hbase.zookeeper.property.clientPort".to_owned(), port.to_owned()),
        ("hbase.masters".to_owned(), format!("{host}:16000")),
        ("hbase.client.bootstrap.servers".to_owned(), format!("{host}:16020")),
    ]);
    for part in parts {
        let (key, value) = part.split_once('=').ok_or_else(|| format!("`{part}` is not key=value"))?;
        settings.insert(key.to_owned(), value.to_owned());
    }
    Ok(Server { name: address.to_owned(), settings, folder: None, guard: None, pid: 0 })
}

/// Free ports, below those that the system gives to outgoing connections (32768 and up), one of
/// which could take a port before the server does. No two calls of a process get the same one.
pub(crate) fn free_ports() -> impl Iterator<Item = u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(211);
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let candidates = std::iter::repeat_with(move || {
        let at = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        u16::try_from(10_000 + at % 20_000).unwrap_or_default()
    });
    candidates.take(20_000).filter(is_free)
}

struct Ports {
    zookeeper: u16,
    master: u16,
    regionserver: u16,
    master_info: u16,
    regionserver_info: u16,
}

impl Ports {
    fn free() -> Result<Ports, String> {
        let mut numbers = free_ports();
        let mut next = || numbers.next().ok_or("no free port from 10,000 to 30,000");
        Ok(Ports {
            zookeeper: next()?,
            master: next()?,
            regionserver: next()?,
            master_info: next()?,
            regionserver_info: next()?,
        })
    }
}

impl Ports {
    /// The settings of these ports, except those in `settings`.
    fn or_as_set(self, settings: &BTreeMap<String, String>) -> Ports {
        let set = |key: &str, port| settings.get(key).and_then(|p| p.parse().ok()).unwrap_or(port);
        Ports {
            zookeeper: set("hbase.zookeeper.property.clientPort", self.zookeeper),
            master: set("hbase.master.port", self.master),
            regionserver: set("hbase.regionserver.port", self.regionserver),
            ..self
        }
    }
}

fn settings(folder: &Path, ports: &Ports) -> BTreeMap<String, String> {
    let pairs = [
        ("hbase.cluster.distributed", "false".to_owned()),
        ("hbase.rootdir", format!("file://{}/hbase", folder.display())),
        ("hbase.tmp.dir", format!("{}/tmp", folder.display())),
        ("hbase.zookeeper.quorum", "127.0.0.1".to_owned()),
        ("hbase.zookeeper.property.clientPort", ports.zookeeper.to_string()),
        ("hbase.zookeeper.property.dataDir", format!("{}/zookeeper", folder.display())),
        ("hbase.unsafe.stream.capability.enforce", "false".to_owned()),
        ("hbase.master.hostname", "localhost".to_owned()),
        ("hbase.regionserver.hostname", "localhost".to_owned()),
        ("hbase.master.ipc.address", "127.0.0.1".to_owned()),
        ("hbase.regionserver.ipc.address", "127.0.0.1".to_owned()),
        ("hbase.master.info.bindAddress", "127.0.0.1".to_owned()),
        ("hbase.regionserver.info.bindAddress", "127.0.0.1".to_owned()),
        ("hbase.master.port", ports.master.to_string()),
        ("hbase.regionserver.port", ports.regionserver.to_string()),
        ("hbase.master.info.port", ports.master_info.to_string()),
        ("hbase.regionserver.info.port", ports.regionserver_info.to_string()),
        // So that the bean of users is compared, too.
        ("hbase.regionserver.user.metrics.enabled", "true".to_owned()),
    ];
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn with_client(mut settings: BTreeMap<String, String>, ports: &Ports) -> BTreeMap<String, String> {
    settings.insert("hbase.masters".into(), format!("127.0.0.1:{}", ports.master));
    settings.insert("hbase.client.bootstrap.servers".into(), format!("127.0.0.1:{}", ports.regionserver));
    settings
}

pub(crate) fn write_site(folder: &Path, settings: &[(String, String)]) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))?;
    write_site_file(&folder.join("hbase-site.xml"), settings)
}

/// Writes a file of settings in Hadoop's format.
pub(crate) fn write_site_file(path: &Path, settings: &[(String, String)]) -> Result<(), String> {
    let mut xml = String::from("<?xml version=\"1.0\"?>\n<configuration>\n");
    for (key, value) in settings {
        xml.push_str(&format!("  <property><name>{key}</name><value>{value}</value></property>\n"));
    }
    xml.push_str("</configuration>\n");
    fs::write(path, xml).map_err(|e| format!("cannot write {}: {e}", path.display()))
}

/// Starts a command under the guard; its output goes to `log`.
pub(crate) fn spawn(command: &[String], log: &Path) -> Result<((Child, Option<ChildStdin>), u32), String> {
    let log_file = fs::File::create(log).map_err(|e| format!("cannot write {}: {e}", log.display()))?;
    // The script writes to standard output, and its child to standard error, which is the log file.
    let script = GUARD.replacen("</dev/null &", "</dev/null >&2 &", 1);
    let mut guard = Command::new("/bin/sh")
        .args(["-c", &script, "guard"])
        .args(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log_file)
        .spawn()
        .map_err(|e| format!("cannot start /bin/sh: {e}"))?;
    let stdin = guard.stdin.take();
    let mut pid = String::new();
    let said = guard.stdout.take().map(|out| BufReader::new(out).read_line(&mut pid));
    match (said, pid.trim().parse()) {
        (Some(Ok(_)), Ok(pid)) => Ok(((guard, stdin), pid)),
        _ => Err(format!("the guard of {command:?} did not say a pid")),
    }
}

pub(crate) fn wait_until(server: &Server, pid: u32, ready: impl Fn() -> bool) -> Result<(), String> {
    let start = Instant::now();
    while !ready() {
        let alive = is_alive(pid);
        if !alive || start.elapsed() > START {
            let why = if alive { "is not ready after 180 s" } else { "ended while starting" };
            return Err(format!("{} {why}; the end of its log:\n{}", server.name, log_tail(server)));
        }
        sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Returns false for a process that has ended, even if its guard has not reaped it yet.
fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
}

fn log_tail(server: &Server) -> String {
    let Some(folder) = &server.folder else { return String::new() };
    let logs = ["server.log", "hbase.log"];
    let texts = logs.iter().filter_map(|log| fs::read_to_string(folder.join(log)).ok());
    let tails: Vec<String> = texts
        .map(|text| {
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(25)..].join("\n")
        })
        .collect();
    tails.join("\n")
}

fn next() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A new folder under `work/run`; folders of ended processes are removed.
pub(crate) fn run_folder(name: &str) -> Result<PathBuf, String> {
    let runs = work().join("run");
    for entry in fs::read_dir(&runs).into_iter().flatten().flatten() {
        let file_name = entry.file_name().to_string_lossy().into_owned();
        let pid = file_name.split('.').nth(1).unwrap_or_default().to_owned();
        if !pid.is_empty() && !Path::new("/proc").join(&pid).exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    let folder = runs.join(format!("{name}.{}.{}", std::process::id(), next()));
    fs::create_dir_all(&folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))?;
    Ok(folder)
}

/// The Evenkeel binary: `EVENKEEL_BIN`, or the one that Cargo builds for the profile of the caller.
///
/// # Errors
/// If it does not build; the message has the compiler's output.
pub fn evenkeel_binary() -> Result<PathBuf, String> {
    match std::env::var_os("EVENKEEL_BIN") {
        Some(binary) => Ok(PathBuf::from(binary)),
        None => built_evenkeel(),
    }
}

/// Builds the package `evenkeel` for the profile of this program, which its path contains (a test
/// is in `deps` there, a program is not).
fn built_evenkeel() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|e| format!("this program has no path: {e}"))?;
    let of_test = program.parent().is_some_and(|folder| folder.ends_with("deps"));
    let profile_folder =
        program.ancestors().nth(1 + usize::from(of_test)).ok_or("this program is not in a target folder")?;
    let target_folder = profile_folder.parent().ok_or("this program is not in a target folder")?;
    let profile = match profile_folder.file_name().unwrap_or_default().to_string_lossy().as_ref() {
        "debug" => "dev".to_owned(),
        other => other.to_owned(),
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "-q", "-p", "evenkeel", "--profile", &profile, "--target-dir"]).arg(target_folder);
    let output = build.current_dir(home()).output().map_err(|e| format!("cannot run cargo: {e}"))?;
    if !output.status.success() {
        return Err(format!("evenkeel does not build:\n{}", String::from_utf8_lossy(&output.stderr)));
    }
    Ok(profile_folder.join("evenkeel"))
}
