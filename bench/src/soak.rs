//! A soak test: hours of mixed load on a whole server under faults, checked against models.
//!
//! ```text
//! cargo run --release -p evenkeel-bench --bin soak -- [--minutes 120] [--seed N] [--out DIR]
//!     [--durability SKIP_WAL]
//! ```
//!
//! With the durability `SKIP_WAL`, a kill loses writes, and the soak must report it: that proves
//! that the soak can fail.
//!
//! The run is a sequence of *epochs* of 6 to 20 s. In each, workers read and write ([`registers`],
//! [`owned_rows`]), an administrator changes tables and regions ([`schema_changes`]), and one or
//! two *faults* occur: `kill -9`, SIGSTOP for some seconds, an orderly restart, a disk that is
//! full, fails or is slow ([`process::DiskFault`]), or a kill during a disk fault. Then all faults
//! end, the workers stop, and everything is checked:
//!
//! - rows with an owner show one complete write, from the last acknowledged to the last attempted
//!   one;
//! - histories of shared rows are linearizable ([`interop::history`]), and the rows keep their last
//!   read state;
//! - bulk loads are complete or absent, snapshots and restores show the right rows;
//! - deleted data never reappears;
//! - every table is served, without a restart, and leftovers can be removed;
//! - memory and descriptors stay below [`RESIDENT_MIB_MAX`] and [`DESCRIPTORS_MAX`].
//!
//! Any violation is an *anomaly*. It is saved in a separate folder, with the seed, the history, the
//! log and the data directory; the run continues with a new directory. A seed repeats the choices
//! of a run, not its timing.
//!
//! The report (`soak.md` below `--out`) has the counts, the anomalies, and plots of memory,
//! descriptors and threads.
//!
//! | module | contents |
//! |---|---|
//! | [`process`] | the server's process and its disk faults |
//! | [`owned_rows`] | workers that own their rows |
//! | [`schema_changes`] | the administrator |
//! | [`process_sampler`] | memory and descriptors over time |

pub mod owned_rows;
pub mod process;
pub mod process_sampler;
pub mod schema_changes;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_client::{ClientConfig, Connection, Error};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor};
use interop::registers::{self, Registers};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rustix::process::Signal;

use self::owned_rows::OwnedRows;
use self::process::{DiskFault, Server};
use self::process_sampler::ProcessSampler;
use self::schema_changes::{KINDS, SchemaChanges};

/// The table of rows with an owner.
const ROWS: &str = "rows";
/// The table of rows that all workers share.
const REGISTERS: &str = "registers";
/// The table of bulk loads.
const LOADED: &str = "loaded";
/// The table whose family is deleted and added.
const SCHEMA: &str = "schema";
/// The table that is truncated, deleted and created.
const SCRATCH: &str = "scratch";

/// The server's memory, in MiB.
const MEMORY_MIB: u64 = 384;
/// The limit of resident memory: the server's memory, its code and stacks, and the allocator's
/// reserve.
pub const RESIDENT_MIB_MAX: f64 = MEMORY_MIB as f64 + 256.0;
/// The limit of descriptors: files of a few dozen regions, logs, connections.
pub const DESCRIPTORS_MAX: f64 = 2_000.0;
/// The timeout of one change of the administrator.
const CHANGE_MAX: Duration = Duration::from_secs(20);
/// Epochs on one directory.
const EPOCHS: u64 = 60;
/// Anomalies after which the run ends.
const ANOMALIES_MAX: usize = 8;
/// A run of this duration makes each kind of change many times.
const ALL_CHANGES_AFTER: Duration = Duration::from_secs(300);
/// The report keeps the server's log of a restart that takes longer.
const SLOW_RESTART: Duration = Duration::from_secs(5);

/// The options of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The duration.
    pub time: Duration,
    /// The seed of all choices.
    pub seed: u64,
    /// The directory of the report and the anomalies.
    pub out: PathBuf,
    /// `DURABILITY` of the tables.
    pub durability: String,
}

impl Options {
    /// Parses a command line.
    ///
    /// # Errors
    /// The unknown word.
    pub fn of_words(words: &[String]) -> Result<Self, String> {
        let seed = rand::rng().random_range(1..1_000_000_000);
        let (out, durability) = (PathBuf::from("target/soak"), "USE_DEFAULT".to_owned());
        let mut options = Self { time: Duration::from_secs(7200), seed, out, durability };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--minutes" => {
                    let minutes: f64 = value()?.parse().map_err(|e| format!("--minutes: {e}"))?;
                    options.time = Duration::try_from_secs_f64(minutes * 60.0).map_err(|e| e.to_string())?;
                }
                "--seed" => options.seed = value()?.parse().map_err(|e| format!("--seed: {e}"))?,
                "--out" => options.out = PathBuf::from(value()?),
                "--durability" => options.durability.clone_from(value()?),
                other => {
                    return Err(format!(
                        "{other}? soak [--minutes M] [--seed N] [--out DIR] [--durability D]"
                    ));
                }
            }
        }
        Ok(options)
    }
}

/// Why a step of a worker or of the administrator failed.
pub enum FailedStep {
    /// An anomaly.
    Anomaly(String),
    /// The server could not do it at this time.
    Refused(String),
}

impl From<Error> for FailedStep {
    fn from(error: Error) -> Self {
        Self::Refused(error.to_string())
    }
}

impl FailedStep {
    /// The message about a step on a table of a sound server, where each failure is an anomaly.
    fn of(self, table: &str) -> String {
        match self {
            Self::Anomaly(what) => what,
            Self::Refused(why) => format!("{table} cannot be read: {why}"),
        }
    }
}

/// The state that tasks of an epoch share.
#[derive(Default)]
pub struct Running {
    over: Arc<AtomicBool>,
    starts: AtomicU64,
}

impl Running {
    /// Returns true if the workers must stop.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// The number of server starts in the epoch.
    pub fn starts(&self) -> u64 {
        self.starts.load(Ordering::SeqCst)
    }
}

/// A family that keeps one version.
fn family(name: &str) -> ColumnFamilyDescriptor {
    // Names here are literals of one letter.
    ColumnFamilyDescriptor::new(name.as_bytes()).unwrap_or_else(|e| unreachable!("{name}: {e}"))
}

/// A restart after a fault.
struct Restart {
    /// The time until the process exited: zero if it was killed.
    exit: Duration,
    /// The time from the start of the process until it answers.
    start: Duration,
    /// The server's log meanwhile if both times exceed [`SLOW_RESTART`] together.
    log: Option<String>,
}

/// The observations of a run.
#[derive(Default)]
struct Report {
    epochs: u64,
    faults: BTreeMap<String, u64>,
    changes: BTreeMap<&'static str, [u64; 2]>,
    refusals: BTreeMap<&'static str, String>,
    owned: [u64; 2],
    registers: [u64; 2],
    restarts: Vec<Restart>,
    anomalies: Vec<String>,
}

/// Runs a soak. The report is written even if there are anomalies.
///
/// # Errors
/// The anomalies, one per line; or, in a run of at least [`ALL_CHANGES_AFTER`], the changes that
/// were never made; or the error that ended the run.
pub fn run(options: &Options) -> Result<(), String> {
    let out = &options.out;
    fs::create_dir_all(out).map_err(|e| format!("{}: {e}", out.display()))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|e| e.to_string())?;
    let (mut report, watch, end) =
        (Report::default(), ProcessSampler::start(), Instant::now() + options.time);
    println!("soak: seed {}, {:?}", options.seed, options.time);
    for directory in 0.. {
        if Instant::now() >= end || report.anomalies.len() >= ANOMALIES_MAX {
            break;
        }
        let seed = options.seed.wrapping_add(directory);
        let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
        let mut soak = Soak::new(folder.path(), seed, &options.durability, &watch)?;
        let lived = runtime.block_on(soak.run_epochs(end, &mut report));
        soak.add_to(&mut report);
        if let Err(what) = lived {
            let name = format!("anomaly-{seed}");
            println!("soak: ANOMALY, kept in {}: {}", out.join(&name).display(), first_lines(&what));
            soak.save_anomaly(&out.join(&name), &what).map_err(|e| format!("{name}: {e}"))?;
            report.anomalies.push(format!("seed {seed}: {what}"));
        }
    }
    watch.write(out).map_err(|e| e.to_string())?;
    let text = report.markdown(options, &watch);
    fs::write(out.join("soak.md"), &text).map_err(|e| e.to_string())?;
    for (n, log) in report.restarts.iter().filter_map(|restart| restart.log.as_ref()).enumerate() {
        fs::write(out.join(format!("slow-restart-{n}.log")), log).map_err(|e| e.to_string())?;
    }
    println!("{text}");
    let never = report.changes_never_made();
    match report.anomalies.is_empty() {
        true if options.time >= ALL_CHANGES_AFTER && !never.is_empty() => {
            Err(format!("changes that were never made: {}", never.join(", ")))
        }
        true => Ok(()),
        false => Err(report.anomalies.iter().map(|a| first_lines(a)).collect::<Vec<_>>().join("\n")),
    }
}

fn first_lines(text: &str) -> String {
    text.lines().take(3).collect::<Vec<_>>().join(" / ").chars().take(600).collect()
}

/// A server with its directory, from its first start on.
struct Soak<'a> {
    server: Server,
    rng: StdRng,
    watch: &'a ProcessSampler,
    durability: &'a str,
    owned: OwnedRows,
    registers: Registers,
    changes: SchemaChanges,
}

impl<'a> Soak<'a> {
    fn new(folder: &Path, seed: u64, durability: &'a str, watch: &'a ProcessSampler) -> Result<Self, String> {
        let mut rng = StdRng::seed_from_u64(seed);
        let cache = folder.join("cache").display().to_string();
        let engine = ["offheap".to_owned(), format!("file:{cache}"), format!("mmap:{cache}")];
        let settings = [
            ("evenkeel.memory.size", format!("{MEMORY_MIB}m")),
            ("hbase.bucketcache.ioengine", engine[rng.random_range(0..engine.len())].clone()),
            ("hbase.bucketcache.size", "16".to_owned()),
            ("hbase.rs.cacheblocksonwrite", rng.random::<bool>().to_string()),
            ("hbase.regionserver.wal.enablecompression", rng.random::<bool>().to_string()),
            ("hbase.regionserver.hlog.blocksize", "1048576".to_owned()),
            ("hbase.hstore.compaction.min", "3".to_owned()),
            ("hbase.master.hfilecleaner.ttl", "1000".to_owned()),
            ("hbase.master.logcleaner.ttl", "1000".to_owned()),
            ("hbase.master.cleaner.interval", "5000".to_owned()),
            ("hbase.catalogjanitor.interval", "3000".to_owned()),
        ];
        Ok(Self {
            server: Server::new(folder, &settings)?,
            rng,
            watch,
            durability,
            owned: OwnedRows::default(),
            registers: Registers::new(),
            changes: SchemaChanges::new(folder),
        })
    }

    /// Runs epochs until the time is over.
    async fn run_epochs(&mut self, end: Instant, report: &mut Report) -> Result<(), String> {
        self.start()?;
        self.create_tables().await?;
        for epoch in 0..EPOCHS {
            if Instant::now() >= end {
                break;
            }
            let began = Instant::now();
            let disasters =
                self.epoch(epoch, report).await.map_err(|what| format!("epoch {epoch}: {what}"))?;
            report.epochs += 1;
            println!("soak: epoch {} ({disasters:?}) in {:.1?}", report.epochs, began.elapsed());
        }
        self.server.stop().map_err(|e| format!("the last stop: {e}"))
    }

    fn start(&mut self) -> Result<(), String> {
        self.watch.follow(None);
        self.server.start()?;
        self.watch.follow(self.server.pid());
        Ok(())
    }

    async fn create_tables(&mut self) -> Result<(), String> {
        let admin = self.connect(100).await?.admin();
        let splits = ["40", "80", "c0"].map(Bytes::from);
        for (name, families, splits) in [
            (ROWS, &["a", "b"][..], &splits[..]),
            (REGISTERS, &["a", "b"], &splits[1..2]),
            (LOADED, &["a", "b"], &splits[..1]),
            (SCHEMA, &["f", "x"], &[]),
            (SCRATCH, &["f"], &[]),
        ] {
            let table = TableDescriptor::new(name.parse().map_err(|e| format!("{name}: {e}"))?);
            let table = table.with("MEMSTORE_FLUSHSIZE", "1048576").with("DURABILITY", self.durability);
            let table = families.iter().fold(table, |table, name| table.with_family(family(name)));
            admin.create_table(&table, splits).await.map_err(|e| format!("create {name}: {e}"))?;
        }
        Ok(())
    }

    async fn connect(&self, retries: u32) -> Result<Connection, String> {
        let config = ClientConfig { retries, ..self.server.client() };
        Connection::connect(config).await.map_err(|e| format!("no connection: {e}"))
    }

    /// Runs the load and the faults, then checks everything. Returns the names of the faults.
    async fn epoch(&mut self, epoch: u64, report: &mut Report) -> Result<Vec<String>, String> {
        let running = Arc::new(Running::default());
        let (patient, once) = (self.connect(100).await?, self.connect(0).await?);
        let once_table = once.table(REGISTERS.parse().map_err(|e| format!("{e}"))?);
        let registers = self.registers.start(epoch, &once_table, &running.over, &mut self.rng);
        let rows = patient.table(ROWS.parse().map_err(|e| format!("{e}"))?);
        let owned = self.owned.start(&rows, &running, &mut self.rng);

        let config = ClientConfig { operation_timeout: CHANGE_MAX, retries: 3, ..self.server.client() };
        let changing = Connection::connect(config).await.map_err(|e| format!("no connection: {e}"))?;
        let (mut rng, disasters) = (StdRng::seed_from_u64(self.rng.random()), self.plan_disasters());
        let (server, watch) = (&mut self.server, self.watch);
        let strike = async {
            let struck = apply_faults(&disasters, server, watch, &running, &mut report.restarts).await;
            running.over.store(true, Ordering::Relaxed);
            struck
        };
        let changes = self.changes.run(&changing, &self.owned, &running, &mut rng);
        let (struck, changed) = tokio::join!(strike, changes);
        struck?;
        for disaster in &disasters {
            *report.faults.entry(disaster.name()).or_default() += 1;
        }
        changed?;
        for task in owned {
            task.await.map_err(|e| format!("a worker panicked: {e}"))??;
        }
        self.check(registers).await?;
        Ok(disasters.iter().map(Fault::name).collect())
    }

    async fn check(&mut self, registers: registers::Epoch) -> Result<(), String> {
        let fresh = self.connect(100).await?;
        // Calls in flight in the server, whose replies were lost, end in this time.
        tokio::time::sleep(Duration::from_millis(500)).await;
        self.registers
            .verify(registers, &fresh.table(REGISTERS.parse().map_err(|e| format!("{e}"))?))
            .await?;
        let rows = fresh.table(ROWS.parse().map_err(|e| format!("{e}"))?);
        self.owned.verify(&rows, &self.owned.low()).await.map_err(|failure| failure.of(ROWS))?;
        self.changes.verify(&fresh).await?;
        let Some(most) = self.watch.most() else { return Ok(()) };
        match most.resident_mib <= RESIDENT_MIB_MAX && most.descriptors <= DESCRIPTORS_MAX {
            true => Ok(()),
            false => Err(format!("the server uses too much memory, descriptors or threads: {most:?}")),
        }
    }

    fn plan_disasters(&mut self) -> Vec<Fault> {
        let count = self.rng.random_range(1..=2);
        (0..count).map(|_| Fault::random(&mut self.rng)).collect()
    }

    fn add_to(&self, report: &mut Report) {
        for (kind, [made, refused]) in &self.changes.counts {
            let sums = report.changes.entry(kind).or_default();
            (sums[0], sums[1]) = (sums[0] + made, sums[1] + refused);
        }
        report.refusals.extend(self.changes.refusals.clone());
        for i in 0..2 {
            report.owned[i] += self.owned.counts[i].load(Ordering::Relaxed);
            report.registers[i] += self.registers.operations[i];
        }
    }

    /// Kills the server and keeps its log and its directory.
    fn save_anomaly(&mut self, folder: &Path, what: &str) -> std::io::Result<()> {
        // The state that a debugger would show first: where the threads are.
        if let Some(pid) = self.server.pid() {
            fs::create_dir_all(folder)?;
            fs::write(folder.join("threads.txt"), threads(pid))?;
        }
        self.server.kill();
        fs::create_dir_all(folder)?;
        fs::write(folder.join("what.txt"), what)?;
        if self.server.log().exists() {
            fs::copy(self.server.log(), folder.join("server.log"))?;
        }
        copy_all(&self.server.root(), &folder.join("hbase"))
    }
}

/// Names and wait channels of a process's threads.
fn threads(pid: u32) -> String {
    let mut text = String::new();
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    for task in tasks {
        let of = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let _ = writeln!(text, "{:20} {}", of("comm").trim(), of("wchan"));
    }
    text
}

fn copy_all(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)?.flatten() {
        match entry.file_type()?.is_dir() {
            true => copy_all(&entry.path(), &to.join(entry.file_name()))?,
            false => drop(fs::copy(entry.path(), to.join(entry.file_name()))?),
        }
    }
    Ok(())
}

/// A fault during an epoch.
#[derive(Clone, Copy, Debug)]
struct Fault {
    /// The time without a fault before it.
    calm: Duration,
    kind: FaultKind,
    /// Its duration.
    lasts: Duration,
}

#[derive(Clone, Copy, Debug)]
enum FaultKind {
    Kill,
    Restart,
    Freeze,
    DiskFault(DiskFault),
    /// A kill during a disk fault.
    DiskAndKill(DiskFault),
}

impl Fault {
    fn random(rng: &mut StdRng) -> Self {
        let disk = DiskFault::ALL[rng.random_range(0..DiskFault::ALL.len())];
        let kind = match rng.random_range(0..10) {
            0..3 => FaultKind::Kill,
            3 => FaultKind::Restart,
            4 => FaultKind::Freeze,
            5..9 => FaultKind::DiskFault(disk),
            _ => FaultKind::DiskAndKill(disk),
        };
        let ms = |rng: &mut StdRng, range| Duration::from_millis(rng.random_range(range));
        Self { calm: ms(rng, 2_000..7_000), kind, lasts: ms(rng, 300..4_000) }
    }

    fn name(&self) -> String {
        match self.kind {
            FaultKind::Kill => "kill -9".to_owned(),
            FaultKind::Restart => "restart".to_owned(),
            FaultKind::Freeze => "SIGSTOP".to_owned(),
            FaultKind::DiskFault(disk) => format!("disk: {disk:?}"),
            FaultKind::DiskAndKill(disk) => format!("disk: {disk:?}, then kill -9"),
        }
    }
}

/// Applies faults in sequence; at the end the server runs and its disk is sound.
async fn apply_faults(
    faults: &[Fault],
    server: &mut Server,
    watch: &ProcessSampler,
    running: &Running,
    restarts: &mut Vec<Restart>,
) -> Result<(), String> {
    for disaster in faults {
        tokio::time::sleep(disaster.calm).await;
        if !server.runs() {
            return Err("the server stopped by itself, with nothing wrong".to_owned());
        }
        tokio::task::block_in_place(|| apply_fault(disaster, server))?;
        if !server.runs() {
            restarts.push(tokio::task::block_in_place(|| start_again(server, watch, running))?);
        }
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    if !server.runs() {
        // A log that failed under a fault may end the server some moments later.
        restarts.push(tokio::task::block_in_place(|| start_again(server, watch, running))?);
    }
    Ok(())
}

/// Waits until a server that stops on an error has exited, and starts it again.
fn start_again(server: &mut Server, watch: &ProcessSampler, running: &Running) -> Result<Restart, String> {
    let (log_from, began) = (server.log_bytes(), Instant::now());
    server.ended()?;
    let exit = began.elapsed();
    watch.follow(None);
    running.starts.fetch_add(1, Ordering::SeqCst);
    server.start()?;
    running.starts.fetch_add(1, Ordering::SeqCst);
    watch.follow(server.pid());
    let start = began.elapsed() - exit;
    let log = (exit + start > SLOW_RESTART).then(|| server.log_since(log_from));
    Ok(Restart { exit, start, log })
}

fn apply_fault(fault: &Fault, server: &mut Server) -> Result<(), String> {
    match fault.kind {
        FaultKind::Kill => server.kill(),
        FaultKind::Restart => server.stop()?,
        FaultKind::Freeze => {
            server.signal(Signal::STOP);
            std::thread::sleep(fault.lasts);
            server.signal(Signal::CONT);
        }
        FaultKind::DiskFault(disk) => {
            server.fault(disk);
            std::thread::sleep(fault.lasts);
            server.clear_faults();
        }
        FaultKind::DiskAndKill(disk) => {
            server.fault(disk);
            std::thread::sleep(fault.lasts);
            server.kill();
        }
    }
    Ok(())
}

impl Report {
    /// Returns the kinds of changes of which none was made.
    fn changes_never_made(&self) -> Vec<&'static str> {
        let is_made = |kind: &&str| self.changes.get(*kind).is_some_and(|[made, _]| *made > 0);
        KINDS.into_iter().filter(|kind| !is_made(kind)).collect()
    }

    fn markdown(&self, options: &Options, watch: &ProcessSampler) -> String {
        let mut out = format!(
            "# Soak\n\nSeed {}, {:.1} minutes, {} epochs.\n\n",
            options.seed,
            options.time.as_secs_f64() / 60.0,
            self.epochs
        );
        let _ = writeln!(out, "| what | count |\n|---|---|");
        let _ = writeln!(out, "| rows written and acknowledged | {} |", self.owned[0]);
        let _ = writeln!(out, "| rows read under load and checked | {} |", self.owned[1]);
        let _ = writeln!(out, "| operations in linearizable histories | {} |", self.registers[0]);
        let _ = writeln!(out, "| operations without a response | {} |", self.registers[1]);
        for (name, count) in &self.faults {
            let _ = writeln!(out, "| {name} | {count} |");
        }
        if let Some(most) = watch.most() {
            let _ = writeln!(out, "| maximum memory, MiB | {:.0} |", most.resident_mib);
            let _ = writeln!(out, "| maximum descriptors | {} |", most.descriptors);
        }
        let exits = self.restarts.iter().map(|restart| restart.exit).collect::<Vec<_>>();
        let starts = self.restarts.iter().map(|restart| restart.start).collect::<Vec<_>>();
        for (name, times) in [("exits", exits), ("starts", starts)] {
            let mut times: Vec<u128> = times.iter().map(Duration::as_millis).collect();
            times.sort_unstable();
            if let (Some(median), Some(longest)) = (times.get(times.len() / 2), times.last()) {
                let _ = writeln!(out, "| {name} at restarts: median, longest, ms | {median}, {longest} |");
            }
        }
        let _ = writeln!(out, "\n| change | made | not made | the last reason |\n|---|---|---|---|");
        for (kind, [made, refused]) in &self.changes {
            let why = self.refusals.get(kind).map_or("", |why| why.lines().next().unwrap_or_default());
            let why: String = why.replace('|', "/").chars().take(120).collect();
            let _ = writeln!(out, "| {kind} | {made} | {refused} | {why} |");
        }
        let _ = writeln!(out, "\n![memory](memory.svg)\n![descriptors](descriptors.svg)\n");
        match self.anomalies.is_empty() {
            true => out.push_str("No anomaly.\n"),
            false => self.anomalies.iter().for_each(|a| {
                let _ = writeln!(out, "- {}", first_lines(a));
            }),
        }
        out
    }
}
