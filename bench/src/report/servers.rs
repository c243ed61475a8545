//! The servers of the reports, one at a time on their core, and [`Session`], the operations on one.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use evenkeel_client::{ClientConfig, Connection, Error};
use evenkeel_common::TableName;
use evenkeel_pe::server::ServerProcess;
use evenkeel_pe::{Options, PeError, Report, Target, run, run_together};
use interop::cluster::RegionServerProcess;
use interop::server::{Server, StockJvm, evenkeel_binary, start_evenkeel_as, start_stock_as};

use super::machine::{Jdk, newest_jdk, pin_this_process};
use super::output::Results;
use super::plan::Plan;

/// The longest wait for a server to become idle.
const IDLE_WAIT: Duration = Duration::from_secs(120);
/// The same in a bounded report.
const IDLE_WAIT_BOUNDED: Duration = Duration::from_secs(30);
/// The longest wait for the request of a flush and its compactions: a flush procedure of HBase that
/// loses its event never ends.
const FLUSH_WAIT: Duration = Duration::from_secs(180);
/// Seconds of warm-up and of measurement of a row that begins after the end of a bounded report.
const CUT_S: f64 = 1.0;
/// CPU share below which a server counts as idle.
const IDLE_CORES: f64 = 0.15;
/// The share of the heap for index and bloom blocks.
const L1_SHARE: &str = "0.2";

/// One of the compared servers: Evenkeel, or stock HBase with one of its garbage collectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ServerVariant {
    /// Evenkeel.
    Evenkeel,
    /// Stock HBase on G1.
    StockG1,
    /// Stock HBase on generational ZGC.
    StockZgc,
}

impl ServerVariant {
    /// The server by its name on the command line: `evenkeel`, `stock-g1` or `g1`, `stock-zgc` or
    /// `zgc`.
    pub fn of_name(name: &str) -> Option<Self> {
        let known =
            |variant: &Self| variant.name() == name || variant.name().strip_prefix("stock-") == Some(name);
        [Self::Evenkeel, Self::StockG1, Self::StockZgc].into_iter().find(known)
    }

    /// Returns true if it has a JIT compiler and needs a long warm-up.
    pub fn is_jvm(self) -> bool {
        self != Self::Evenkeel
    }

    /// Its name on the command line and in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Evenkeel => "evenkeel",
            Self::StockG1 => "stock-g1",
            Self::StockZgc => "stock-zgc",
        }
    }

    /// Its name in tables.
    pub fn title(self) -> &'static str {
        match self {
            Self::Evenkeel => "Evenkeel",
            Self::StockG1 => "HBase, G1",
            Self::StockZgc => "HBase, ZGC",
        }
    }
}

/// The environment of a report's rows.
pub struct ReportContext {
    /// The options.
    pub plan: Plan,
    /// The newest JDK, if a stock server is requested.
    pub jdk: Option<Jdk>,
    binary: PathBuf,
    /// The deadline of a bounded report.
    end: Option<Instant>,
}

/// Settings by key.
pub type Settings = Vec<(String, String)>;

/// Pairs as settings.
pub fn settings(pairs: &[(&str, &str)]) -> Settings {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// HBase's settings for an Evenkeel with the same bytes for each part: its memory is HBase's heap
/// plus off-heap memory, so shares of the heap become smaller shares.
fn in_one_budget(own: &Settings, heap_mib: u64, cache_mib: u64) -> Settings {
    let is_off_heap = |(key, value): &(String, String)| {
        key == "hbase.bucketcache.ioengine" && (value == "offheap" || value == "heap")
    };
    let memory_mib = heap_mib + if own.iter().any(is_off_heap) { cache_mib } else { 0 };
    let mut shares = [("hfile.block.cache.size", 0.4), ("hbase.regionserver.global.memstore.size", 0.4)];
    let mut all = settings(&[("evenkeel.memory.size", &format!("{memory_mib}m"))]);
    for (key, value) in own {
        match (shares.iter_mut().find(|(share, _)| share == key), value.parse()) {
            (Some(share), Ok(of_heap)) => share.1 = of_heap,
            _ => all.push((key.clone(), value.clone())),
        }
    }
    let of_memory = |share: f64| format!("{:.6}", share * heap_mib as f64 / memory_mib as f64);
    all.extend(shares.iter().map(|(key, share)| ((*key).to_owned(), of_memory(*share))));
    all
}

impl ReportContext {
    /// Builds the server, finds a JDK, and moves this process to the load's core.
    ///
    /// # Errors
    /// A message about the missing part.
    pub fn new(plan: &Plan) -> Result<Self, String> {
        let binary = evenkeel_binary()?;
        let stock = plan.servers.iter().any(|variant| *variant != ServerVariant::Evenkeel);
        let jdk = if stock { Some(newest_jdk()?) } else { None };
        pin_this_process(plan.load_core)?;
        let end = plan.minutes.map(|minutes| Instant::now() + Duration::from_secs_f64(minutes * 60.0));
        Ok(Self { plan: plan.clone(), jdk, binary, end })
    }

    /// Returns true if the deadline of a bounded report has passed.
    fn is_late(&self) -> bool {
        self.end.is_some_and(|end| Instant::now() > end)
    }

    /// Starts a server with the common settings, a block cache of this size, and settings of the
    /// row.
    ///
    /// Both sides have it as an off-heap bucket cache for data blocks, beside a fifth of the heap
    /// for index and bloom blocks.
    ///
    /// # Errors
    /// The error if it does not start.
    pub fn start(
        &self,
        variant: ServerVariant,
        cache_mib: u64,
        own: &Settings,
    ) -> Result<Session<'_>, String> {
        self.start_as_set(variant, cache_mib, &with_off_heap_cache(cache_mib, own))
    }

    /// Starts a server with only these and the common settings. Evenkeel has the same bytes where
    /// HBase has shares of its heap.
    ///
    /// # Errors
    /// The error if it does not start.
    pub fn start_as_set(
        &self,
        variant: ServerVariant,
        cache_mib: u64,
        own: &Settings,
    ) -> Result<Session<'_>, String> {
        self.start_with(variant, cache_mib, &self.all_settings(variant, cache_mib, own)?)
    }

    /// The settings of a server: the common ones, and these. Evenkeel has the same bytes where
    /// HBase has shares of its heap.
    fn all_settings(
        &self,
        variant: ServerVariant,
        cache_mib: u64,
        own: &Settings,
    ) -> Result<Settings, String> {
        let mut all = common_settings()?;
        match variant {
            ServerVariant::Evenkeel => all.extend(in_one_budget(own, self.plan.heap_mib, cache_mib)),
            _ => all.extend(own.iter().cloned()),
        }
        Ok(all)
    }

    /// The process of a RegionServer of a cluster, and its settings, with an off-heap cache as
    /// [`ReportContext::start`].
    ///
    /// # Errors
    /// A message about the missing part.
    pub(super) fn region_server(
        &self,
        variant: ServerVariant,
        own: &Settings,
    ) -> Result<(RegionServerProcess, Settings), String> {
        let cache_mib = self.plan.cache_mib;
        let all = self.all_settings(variant, cache_mib, &with_off_heap_cache(cache_mib, own))?;
        let mut under = self.under();
        let process = match variant {
            ServerVariant::Evenkeel => {
                under.push(self.binary.display().to_string());
                RegionServerProcess::Evenkeel(under)
            }
            ServerVariant::StockG1 => RegionServerProcess::Stock(self.jvm("g1", cache_mib, under)?),
            ServerVariant::StockZgc => RegionServerProcess::Stock(self.jvm("zgc", cache_mib, under)?),
        };
        Ok((process, all))
    }

    /// The command that confines a server to its core.
    fn under(&self) -> Vec<String> {
        ["taskset", "-c", &self.plan.server_core.to_string()].map(str::to_owned).to_vec()
    }

    fn start_with(
        &self,
        variant: ServerVariant,
        direct_mib: u64,
        all: &Settings,
    ) -> Result<Session<'_>, String> {
        let under = self.under();
        let server = match variant {
            ServerVariant::Evenkeel => start_evenkeel_as(&self.binary, &under, all)?,
            ServerVariant::StockG1 => start_stock_as(&self.jvm("g1", direct_mib, under)?, all)?,
            ServerVariant::StockZgc => start_stock_as(&self.jvm("zgc", direct_mib, under)?, all)?,
        };
        Session::new(self, variant, server)
    }

    fn jvm(&self, collector: &str, direct_mib: u64, under: Vec<String>) -> Result<StockJvm, String> {
        let jdk = self.jdk.as_ref().ok_or("no java")?;
        let heap = self.plan.heap_mib;
        let mut flags = vec![
            format!("-Xms{heap}m"),
            format!("-Xmx{heap}m"),
            format!("-XX:MaxDirectMemorySize={}m", direct_mib + 1024),
        ];
        if jdk.major >= 24 {
            flags.push("--enable-native-access=ALL-UNNAMED".to_owned());
            flags.push("--sun-misc-unsafe-memory-access=allow".to_owned());
        }
        if collector == "zgc" && (21..23).contains(&jdk.major) {
            flags.push("-XX:+ZGenerational".to_owned());
        }
        let lines = read_conf(&format!("{collector}.jvm"))?;
        flags.extend(lines.lines().filter(|line| line.starts_with('-')).map(str::to_owned));
        Ok(StockJvm { java: jdk.java.clone(), flags, under })
    }
}

/// A file of `bench/conf`.
fn read_conf(name: &str) -> Result<String, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("conf").join(name);
    fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
}

/// Settings of a row on a server with an off-heap cache for data blocks.
fn with_off_heap_cache(cache_mib: u64, own: &Settings) -> Settings {
    let mut all = settings(&[
        ("hbase.bucketcache.ioengine", "offheap"),
        ("hbase.bucketcache.size", &cache_mib.to_string()),
        ("hfile.block.cache.size", L1_SHARE),
    ]);
    all.extend(own.iter().cloned());
    all
}

/// Settings of every server of every report.
pub(super) fn common_settings() -> Result<Settings, String> {
    let text = read_conf("server.properties")?;
    let pairs = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('='));
    Ok(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
}

/// A running server and the rows measured on it.
pub struct Session<'a> {
    /// The environment of the report.
    pub context: &'a ReportContext,
    /// What the server is.
    pub variant: ServerVariant,
    target: Target,
    process: ServerProcess,
    /// True if a row has been measured on it.
    warm: AtomicBool,
    server: Server,
}

impl<'a> Session<'a> {
    fn new(context: &'a ReportContext, variant: ServerVariant, server: Server) -> Result<Self, String> {
        let masters = server.setting("hbase.masters").ok_or("a server without a master")?.to_owned();
        Self::of_server(context, variant, server, ClientConfig::new([masters]))
    }

    /// The rows on a server that clients reach by this configuration.
    ///
    /// # Errors
    /// If the server has ended.
    pub(super) fn of_server(
        context: &'a ReportContext,
        variant: ServerVariant,
        server: Server,
        mut client: ClientConfig,
    ) -> Result<Self, String> {
        // A stock master answers some time before it assigns regions.
        client.retries = 30;
        let process = ServerProcess::of_pid(server.pid() as i32).ok_or("the server is gone")?;
        let target = Target { name: variant.title().to_owned(), client };
        Ok(Self { context, variant, target, process, warm: AtomicBool::new(false), server })
    }

    /// Restarts the same variant without data, with another cache and settings of the row; in a
    /// short run keeps the running one.
    ///
    /// # Errors
    /// The error if it does not start.
    pub fn restarted(self, cache_mib: u64, own: &Settings) -> Result<Self, String> {
        let (context, variant) = (self.context, self.variant);
        if context.plan.short {
            return Ok(self);
        }
        drop(self);
        context.start(variant, cache_mib, own)
    }

    /// Runs `evenkeel pe` with a line of options until its rows are done, to load data.
    ///
    /// # Errors
    /// The error of the first failure.
    pub fn load(&self, line: &str) -> Result<Report, String> {
        self.run(self.options(line)?)
    }

    /// Parses a line of options for one load thread and this server's process.
    ///
    /// # Errors
    /// A message about an invalid line.
    pub fn options(&self, line: &str) -> Result<Options, String> {
        let options = Options::of_line(line).map_err(|why| format!("{line}: {why}"))?;
        Ok(Options { threads: 1, server_pid: Some(self.process.pid()), ..options })
    }

    /// Runs options.
    ///
    /// # Errors
    /// The error of the run, or of a failed request.
    pub fn run(&self, options: Options) -> Result<Report, String> {
        self.outcome(run(&self.target, &options), &options)
    }

    /// Runs loads that are measured at the same time; returns a report for each.
    ///
    /// # Errors
    /// The error of the run, or of a failed request.
    pub fn run_all(&self, loads: &[Options]) -> Result<Vec<Report>, String> {
        let targets: Vec<_> = loads.iter().map(|options| (&self.target, options)).collect();
        let reports = run_together(&targets).into_iter().zip(loads);
        reports.map(|(report, options)| self.outcome(report, options)).collect()
    }

    /// How clients reach the server.
    pub(super) fn client(&self) -> &ClientConfig {
        &self.target.client
    }

    /// Ends the server by `kill -9`.
    pub(super) fn kill(self) {
        self.server.kill();
    }

    /// The server's process.
    pub fn pid(&self) -> i32 {
        self.process.pid()
    }

    fn outcome(&self, report: Result<Report, PeError>, options: &Options) -> Result<Report, String> {
        let report = report.map_err(|failure| format!("{}: {failure}", self.variant.title()))?;
        match report.failures.first() {
            Some(failure) => Err(format!("{}, {}: {failure}", self.variant.title(), options.command)),
            None => Ok(report),
        }
    }

    /// Measures a row of the report for the plan's time.
    ///
    /// # Errors
    /// The error of the first failure.
    pub fn measure(
        &self,
        results: &mut Results,
        row: &str,
        title: &str,
        line: &str,
    ) -> Result<Report, String> {
        let options = self.options(line)?;
        self.measure_options(results, row, title, line, options)
    }

    /// As [`Session::measure`], with given options; the line is only printed.
    ///
    /// # Errors
    /// The error of the first failure.
    pub fn measure_options(
        &self,
        results: &mut Results,
        row: &str,
        title: &str,
        line: &str,
        options: Options,
    ) -> Result<Report, String> {
        eprintln!("{}: {title}: {line}", self.variant.title());
        if self.context.is_late() {
            results.add_header_line(&format!(
                "{}, row {row}: cut to {CUT_S} s, because the time was used up.",
                self.variant.title()
            ));
        }
        let report = self.run(self.timed(options, self.context.plan.seconds))?;
        results.add(row, title, line, self.variant, report.clone());
        Ok(report)
    }

    /// Sets the plan's warm-up, longer for the first row on this process, and the measured seconds;
    /// both are [`CUT_S`] after the deadline of a bounded report.
    pub fn timed(&self, options: Options, seconds: f64) -> Options {
        let plan = &self.context.plan;
        let first = !self.warm.swap(true, Ordering::Relaxed);
        let warmup = if first { plan.first_warmup_of(self.variant) } else { plan.warmup };
        let (warmup, duration) = match self.context.is_late() {
            true => (warmup.min(CUT_S), seconds.min(CUT_S)),
            false => (warmup, seconds),
        };
        Options { warmup, duration, ..options }
    }

    /// Flushes and compacts a table and waits until the server is idle.
    ///
    /// # Errors
    /// The error of the first failure.
    pub fn settle(&self, table: &str) -> Result<(), String> {
        let settled = self.flush(table, true).map(drop);
        self.wait_idle();
        settled
    }

    /// Flushes a table, and compacts it if requested; returns the encoded names of its regions.
    ///
    /// # Errors
    /// The error of the first failure.
    pub fn flush(&self, table: &str, compact: bool) -> Result<Vec<String>, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let flushing = async {
            let table: TableName = table.parse().map_err(|_| Error::InvalidArgument(table.to_owned()))?;
            let admin = Connection::connect(self.target.client.clone()).await?.admin();
            admin.flush_table(&table).await?;
            let regions = admin.regions(&table).await?;
            for region in regions.iter().filter(|_| compact) {
                admin.compact_region(&region.region, true).await?;
            }
            Ok(regions.iter().map(|region| region.region.encoded_name().to_owned()).collect())
        };
        let bounded = async { tokio::time::timeout(FLUSH_WAIT, flushing).await };
        let flushed = runtime.map_err(|e| e.to_string())?.block_on(bounded);
        let late = |_| format!("{}: {table} is not flushed after {FLUSH_WAIT:?}", self.variant.title());
        flushed.map_err(late)?.map_err(|e: Error| e.to_string())
    }

    /// The server's log.
    pub fn log(&self) -> String {
        let logs = ["server.log", "hbase.log"].iter();
        let folder = self.server.folder();
        logs.filter_map(|log| fs::read_to_string(folder?.join(log)).ok()).collect()
    }

    /// Waits until the server uses little CPU for a second.
    pub fn wait_idle(&self) {
        let (start, step) =
            (Instant::now(), Duration::from_secs(if self.context.plan.short { 0 } else { 1 }));
        let longest = if self.context.plan.minutes.is_some() { IDLE_WAIT_BOUNDED } else { IDLE_WAIT };
        let step = step.max(Duration::from_millis(200));
        let cpu = || self.process.usage().map_or(0.0, |usage| usage.cpu_s);
        loop {
            let before = cpu();
            std::thread::sleep(step);
            let cores = (cpu() - before) / step.as_secs_f64();
            if cores < IDLE_CORES || start.elapsed() > longest || self.context.plan.short {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_off_heap_cache_counts_in_the_memory_budget() {
        let own = [
            ("hbase.bucketcache.ioengine", "offheap"),
            ("hbase.bucketcache.size", "1024"),
            ("hfile.block.cache.size", "0.2"),
        ];
        let set = |own: &[(&str, &str)]| {
            let all = in_one_budget(&settings(own), 1024, 1024);
            let value =
                |key: &str| all.iter().find(|(known, _)| known == key).map(|(_, value)| value.clone());
            ["evenkeel.memory.size", "hfile.block.cache.size", "hbase.regionserver.global.memstore.size"]
                .map(value)
        };
        let texts = |values: [&str; 3]| values.map(|text| Some(text.to_owned()));
        assert_eq!(set(&own), texts(["2048m", "0.100000", "0.200000"]));
        assert_eq!(set(&own[1..]), texts(["1024m", "0.200000", "0.400000"]), "none without its engine");
    }
}
