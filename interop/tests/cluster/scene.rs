//! [`Scene`]: a cluster with its clients, and [`Load`], a writer whose every acknowledged row must
//! be there in the end.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use evenkeel_client::{
    Admin, ClientConfig, Connection, Get, Put, RegionInfo, RowResult, Scan, ServerName, TableName,
};
use interop::cluster::{Cluster, ClusterStorage, TIMEOUT};
use interop::{Server, ServerKind, java};
use tokio::runtime::Runtime;

use crate::histories::REGISTERS;

/// The table of the stock client.
pub const TABLE: &str = "story";
/// The table that is written to during the whole test.
pub const LOAD: &str = "load";
/// The pause of a writer between two rows.
const LOAD_PAUSE: Duration = Duration::from_millis(5);

/// The number of tests that run at a time, each with a cluster of ten processes, which mostly wait.
const TESTS_MAX: usize = 2;

static RUNNING_TESTS: Mutex<usize> = Mutex::new(0);
static TEST_ENDED: Condvar = Condvar::new();

/// Held by each test while it runs.
pub struct TestPermit(());

/// Waits until fewer than [`TESTS_MAX`] other tests run.
pub fn test_permit() -> TestPermit {
    let running = RUNNING_TESTS.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = TEST_ENDED.wait_while(running, |running| *running >= TESTS_MAX);
    *waited.unwrap_or_else(PoisonError::into_inner) += 1;
    TestPermit(())
}

impl Drop for TestPermit {
    fn drop(&mut self) {
        *RUNNING_TESTS.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        TEST_ENDED.notify_one();
    }
}

/// Returns the value of a step of the set-up.
///
/// # Panics
/// With the reason, if the step failed.
#[track_caller]
pub fn must<T>(result: Result<T, String>) -> T {
    result.unwrap_or_else(|why| panic!("{why}"))
}

/// A cluster, and a native client that administers it.
pub struct Scene {
    pub cluster: Cluster,
    pub runtime: Runtime,
    pub admin: Admin,
}

/// The kind of the tested server.
pub fn tested() -> ServerKind {
    match std::env::var("EVENKEEL_INTEROP_TARGET").as_deref() {
        Ok("stock") => ServerKind::Stock,
        _ => ServerKind::Evenkeel,
    }
}

/// Where the files of a cluster with one NameNode are.
pub fn storage() -> ClusterStorage {
    match std::env::var("EVENKEEL_CLUSTER_STORAGE").as_deref() {
        Ok("directory") => ClusterStorage::Directory,
        _ => ClusterStorage::Hdfs(3),
    }
}

pub fn connect(cluster: &Cluster, runtime: &Runtime) -> Connection {
    let config = ClientConfig::zookeeper("127.0.0.1", cluster.zookeeper_port(), "/hbase");
    runtime.block_on(Connection::connect(config)).expect("a connection")
}

/// A thread that writes rows in sequence, and retries each until it is acknowledged.
pub struct Load {
    stop: Arc<AtomicBool>,
    /// Milliseconds of the slowest write since this was last read.
    slowest_ms: Arc<AtomicU64>,
    acknowledged: Arc<AtomicU64>,
    thread: JoinHandle<u64>,
}

impl Load {
    pub fn start(cluster: &Cluster) -> Self {
        let (stop, slowest_ms) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let acknowledged = Arc::<AtomicU64>::default();
        let runtime = Runtime::new().expect("a runtime");
        let table = connect(cluster, &runtime).table(LOAD.parse().expect("legal"));
        let (ends, slowest) = (Arc::clone(&stop), Arc::clone(&slowest_ms));
        let counted = Arc::clone(&acknowledged);
        let run = move || {
            let mut rows = 0;
            while !ends.load(Ordering::Relaxed) {
                let began = Instant::now();
                let put = || Put::new(load_row(rows)).column("f", "q", load_value(rows));
                while let Err(error) = runtime.block_on(table.put(put())) {
                    println!("row {rows} of the load after {:?}: {error}", began.elapsed());
                    assert!(began.elapsed() < TIMEOUT, "row {rows} is not acknowledged");
                }
                let ms = u64::try_from(began.elapsed().as_millis()).expect("short");
                slowest.fetch_max(ms, Ordering::Relaxed);
                rows += 1;
                counted.store(rows, Ordering::Relaxed);
                sleep(LOAD_PAUSE);
            }
            rows
        };
        Self { stop, slowest_ms, acknowledged, thread: std::thread::spawn(run) }
    }

    pub fn take_slowest(&self) -> Duration {
        Duration::from_millis(self.slowest_ms.swap(0, Ordering::Relaxed))
    }

    /// Waits until further rows are acknowledged. Returns how long the slowest write took since
    /// [`Load::take_slowest`].
    pub fn wait_for_writes(&self, scene: &Scene, after: &str) -> Duration {
        let before = self.acknowledged.load(Ordering::Relaxed);
        scene.wait_for(&format!("writes after {after}"), || {
            (self.acknowledged.load(Ordering::Relaxed) > before + 20).then_some(())
        });
        self.take_slowest()
    }

    /// Ends the load and reads every written row.
    pub fn end(self, scene: &Scene) {
        self.stop.store(true, Ordering::Relaxed);
        let rows = self.thread.join().expect("the load went on");
        let table = connect(&scene.cluster, &scene.runtime).table(LOAD.parse().expect("legal"));
        let gets = (0..rows).map(|row| Get::new(load_row(row)));
        for (row, found) in scene.runtime.block_on(table.get_all(gets)).into_iter().enumerate() {
            let (found, expected) = (found.expect("read"), load_value(row as u64));
            assert_eq!(found.value("f", "q"), Some(expected.as_bytes()), "row {row} of {rows} of the load");
        }
        println!("all {rows} acknowledged rows of the load are there");
    }
}

/// Returns a row; rows are spread over all regions, like those of `ClusterRows`.
pub fn load_row(number: u64) -> String {
    format!("row-{}-{number:06}", number % 4)
}

pub fn load_value(number: u64) -> String {
    format!("load {number}")
}

impl Scene {
    pub fn new(cluster: Cluster) -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let admin = connect(&cluster, &runtime).admin();
        Self { cluster, runtime, admin }
    }

    /// Runs commands of `ClusterRows` by the stock client. Returns their digests.
    pub fn client(&self, commands: &str) -> Vec<String> {
        self.client_for(commands, 200)
    }

    /// As [`Scene::client`], for commands that may take longer.
    pub fn client_for(&self, commands: &str, deadline_secs: u64) -> Vec<String> {
        let mut args: Vec<String> = commands.split(' ').map(str::to_owned).collect();
        args.extend(self.cluster.client_settings().iter().map(|(key, value)| format!("-D{key}={value}")));
        let run = java("evenkeel.interop.tables.ClusterRows", &args).label("cluster-rows");
        let run = run.deadline_secs(deadline_secs).run();
        let run = run.unwrap_or_else(|why| panic!("{why}"));
        assert!(run.success, "{commands}: {}", run.failures());
        run.stdout.lines().filter_map(|line| line.strip_prefix("DIGEST ")).map(str::to_owned).collect()
    }

    /// Compares the table with the last of `written`, then runs commands. Returns the digests.
    pub fn check(&self, written: &[String], commands: &str, after: &str) -> Vec<String> {
        let digests = self.client(&format!("digest {TABLE} + {commands} + digest {TABLE}"));
        assert_eq!(digests.first(), written.last(), "after {after}");
        digests
    }

    pub fn live(&self) -> Vec<ServerName> {
        self.runtime.block_on(self.admin.live_servers()).unwrap_or_default()
    }

    /// Waits until the master lists a server that this process started; returns its name.
    pub fn name_of(&self, server: &Server) -> ServerName {
        let port: u16 = server.setting("hbase.regionserver.port").and_then(|p| p.parse().ok()).expect("set");
        self.wait_for("the server to be live", || {
            self.live().into_iter().filter(|s| s.port == port).max_by_key(|s| s.start_code)
        })
    }

    pub fn regions(&self, table: &str) -> Vec<(RegionInfo, Option<ServerName>)> {
        let table: TableName = table.parse().expect("legal");
        let regions = self.runtime.block_on(self.admin.regions(&table)).unwrap_or_default();
        regions.into_iter().map(|region| (region.region, region.server)).collect()
    }

    pub fn wait_for<T>(&self, what: &str, found: impl Fn() -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = found() {
                return found;
            }
            assert!(began.elapsed() < TIMEOUT, "waited in vain for {what}");
            sleep(Duration::from_millis(200));
        }
    }

    /// Returns true if hbase:slowlog has a call to a region of this table.
    pub fn has_slow_calls_of(&self, table: &str) -> bool {
        let connection = connect(&self.cluster, &self.runtime);
        let slow_log = connection.table("hbase:slowlog".parse().expect("legal"));
        let column = Scan::new().column("info", "region_name");
        let region = format!("{table},");
        let is_of_table = |row: &RowResult| {
            row.value("info", "region_name").is_some_and(|name| name.starts_with(region.as_bytes()))
        };
        self.runtime.block_on(async {
            let mut rows = slow_log.scan(column);
            while let Ok(Some(row)) = rows.next().await {
                if is_of_table(&row) {
                    return true;
                }
            }
            false
        })
    }

    /// Moves each region until it is at its target: a master that has just registered a server may
    /// move a region back.
    pub fn move_table(&self, table: &str, to: &ServerName) {
        self.wait_for("the regions to be there", || {
            let regions = self.regions(table);
            let elsewhere: Vec<_> = regions.iter().filter(|(_, at)| at.as_ref() != Some(to)).collect();
            for (region, _) in &elsewhere {
                if let Err(error) = self.runtime.block_on(self.admin.move_region(region, Some(to))) {
                    println!("{} is not moved yet: {error}", region.encoded_name());
                }
            }
            (!regions.is_empty() && elsewhere.is_empty()).then_some(())
        });
    }

    /// Moves the tables that are written to during the whole test.
    pub fn move_load(&self, to: &ServerName) {
        [LOAD, REGISTERS].iter().for_each(|table| self.move_table(table, to));
    }

    pub fn wait_until_gone(&self, name: &ServerName) {
        self.wait_for("the master to give the server up", || (!self.live().contains(name)).then_some(()));
    }
}

pub fn signal(server: &Server, name: &str) {
    let sent = Command::new("kill").args([name, &server.pid().to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "{name}");
}

/// Returns false for a zombie process. Asks for the state, since the command line of a process is
/// empty not only of a zombie, but also for a moment of each `exec`.
pub fn is_running(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with(['Z', 'X']))
}
