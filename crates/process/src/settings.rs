//! [`Settings`]: ports, directory and memory, from HBase's keys.

use std::net::IpAddr;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_block_cache::CacheConfig;
use evenkeel_common::length;
use evenkeel_common::{Configuration, HBaseError, Result, TimeUnit};
use evenkeel_fs::{Location, WRITE_BEHIND_BYTES};
use evenkeel_metrics::slow_log::WarnLimit;
use evenkeel_metrics::{LedgerConfig, SlowLogConfig};
use evenkeel_region::memstore::ChunkPoolConfig;
use evenkeel_region::region::split_policy::SplitConfig;
use evenkeel_region::region::{
    FlushPolicyConfig, PRECLOSE_FLUSH, RegionConfig, ReplicaReplication, TIMESTAMP_SLOP,
};
use evenkeel_rpc::RpcServerConfig;
use evenkeel_wal::{Compression, WalCompression, WalConfig};

use crate::io_error;
use crate::memory_plan::{MemoryPlan, NONCE_PART};
use evenkeel_regionserver::RegionServerConfig;
use evenkeel_regionserver::config::SCANNERS_MAX;
use evenkeel_regionserver::requests::scanners::SCANNER_BYTES;
use evenkeel_regionserver::slow_log_table::ENABLED;

/// The default of `hbase.rootdir`.
const ROOT_DEFAULT: &str = "./evenkeel-data";
/// The maximum number of slow requests that are kept: 2 KiB each, some MiB.
const LEDGER_KEPT_MAX: u64 = 4096;
/// The maximum number of threads that split logs.
const SPLITTER_THREADS_MAX: u64 = 256;
/// The assumed memory of the server if the machine does not report its memory.
const MEMORY_BYTES_DEFAULT: u64 = 2 << 30;

/// The settings that a standalone server reads at start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `hbase.rootdir`: its path in its file system.
    pub root: PathBuf,
    /// `hbase.regionserver.ipc.address`; the default is 127.0.0.1.
    pub bind_address: IpAddr,
    /// The host name that clients get: `hbase.unsafe.regionserver.hostname`, or the address.
    pub host: String,
    /// `hbase.zookeeper.property.clientPort`.
    pub zookeeper_port: u16,
    /// `hbase.master.port`.
    pub master_port: u16,
    /// `hbase.regionserver.port`.
    pub regionserver_port: u16,
    /// The block caches; their shares are shares of the memory.
    pub block_cache: CacheConfig,
    /// The pool of chunks for MemStores.
    pub chunks: ChunkPoolConfig,
    /// The limit of each part of the server's memory.
    pub memory: MemoryPlan,
    /// `hbase.server.hashNonce.gracePeriod`.
    pub nonce_grace_ms: i64,
    /// `evenkeel.memory.trim.period.ms`: how often unneeded memory is returned to the system; 0:
    /// never.
    pub memory_trim_period: Duration,
    /// `evenkeel.rootdir.lock.wait.ms`: how long a start waits for another process that has locked
    /// the directory.
    pub lock_wait: Duration,
    /// `hbase.regionserver.wal.max.splitters`: logs split concurrently.
    pub splitter_threads: usize,
    /// `hbase.regionserver.hlog.splitlog.buffersize`: the maximum bytes of edits in memory while
    /// logs are split, all threads together.
    pub split_buffer_bytes: u64,
    /// `evenkeel.shutdown.timeout.ms`: the time limit of a stop, after which the process ends with
    /// the stop unfinished.
    pub shutdown_timeout: Duration,
    /// `hbase.client.operation.timeout`: how long a client retries an operation, which is the
    /// minimum time that its nonce is kept.
    pub nonce_kept_ms: i64,
    /// Which slow requests are kept: the threshold `evenkeel.slow.request.ms`, and the number
    /// `hbase.regionserver.slowlog.ringbuffer.size`.
    pub ledger: LedgerConfig,
    /// HBase's log of slow and large responses: `hbase.ipc.warn.response.*` and
    /// `hbase.regionserver.slowlog.*`.
    pub slow_log: SlowLogConfig,
    /// Limits of regions.
    pub region: RegionConfig,
    /// Limits of the RegionServer.
    pub regionserver: RegionServerConfig,
}

impl Settings {
    /// Reads the settings.
    ///
    /// # Errors
    /// One line that names the key, its value and what was expected.
    pub fn from(conf: &Configuration) -> Result<Self> {
        let memory = memory_bytes(conf)?;
        let bind_address = bind_address(conf)?;
        let host = conf.get_trimmed("hbase.unsafe.regionserver.hostname").map_err(io_error)?;
        let mut regionserver = RegionServerConfig::from(conf, memory).map_err(io_error)?;
        let mut block_cache = CacheConfig::from_configuration(conf, memory).map_err(io_error)?;
        let memory = MemoryPlan::new(conf, memory, &mut block_cache, &mut regionserver)?;
        if !conf.is_set(SCANNERS_MAX) {
            regionserver.scanners_max = (memory.scanners / SCANNER_BYTES).max(1) as usize;
        }
        regionserver.memory_bytes_max = memory.sum();
        regionserver.scanner_bytes_max = memory.scanners;
        regionserver.system_scanner_bytes_max = memory.system_scanners;
        Ok(Self {
            root: root_location(conf)?.path().to_owned(),
            bind_address,
            host: host.unwrap_or_else(|| bind_address.to_string()),
            zookeeper_port: conf
                .get_port_or("hbase.zookeeper.property.clientPort", 2181)
                .map_err(io_error)?,
            master_port: conf.get_port_or("hbase.master.port", 16000).map_err(io_error)?,
            regionserver_port: conf.get_port_or("hbase.regionserver.port", 16020).map_err(io_error)?,
            block_cache,
            memory,
            chunks: ChunkPoolConfig::from_configuration(conf, regionserver.global_memstore_bytes)
                .map_err(io_error)?,
            nonce_grace_ms: conf
                .get_i64_or("hbase.server.hashNonce.gracePeriod", 1_800_000)
                .map_err(io_error)?,
            memory_trim_period: Duration::from_millis(
                conf.get_u64_or("evenkeel.memory.trim.period.ms", 10_000).map_err(io_error)?,
            ),
            lock_wait: Duration::from_millis(
                conf.get_u64_or("evenkeel.rootdir.lock.wait.ms", 5_000).map_err(io_error)?,
            ),
            splitter_threads: splitter_threads(conf)?,
            split_buffer_bytes: split_buffer_bytes(conf)?,
            shutdown_timeout: shutdown_timeout(conf)?,
            nonce_kept_ms: conf.get_i64_or("hbase.client.operation.timeout", 1_200_000).map_err(io_error)?,
            ledger: ledger_config(conf)?,
            slow_log: slow_log_config(conf)?,
            region: region_config(conf)?,
            regionserver,
        })
    }
}

impl Settings {
    /// Returns the maximum memory of nonces in bytes.
    pub fn nonce_bytes_max(&self) -> u64 {
        self.memory.memstore / NONCE_PART
    }
}

/// Returns `hbase.regionserver.wal.max.splitters`.
///
/// # Errors
/// One line about a value that is not a number.
pub fn splitter_threads(conf: &Configuration) -> Result<usize> {
    let count = conf.get_u64_or("hbase.regionserver.wal.max.splitters", 2).map_err(io_error)?;
    Ok(length::index(count.clamp(1, SPLITTER_THREADS_MAX)))
}

fn split_buffer_bytes(conf: &Configuration) -> Result<u64> {
    let key = "hbase.regionserver.hlog.splitlog.buffersize";
    positive(conf, key, conf.get_size_or(key, 128 << 20).map_err(io_error)?)
}

fn positive(conf: &Configuration, key: &str, value: i64) -> Result<u64> {
    match u64::try_from(value) {
        Ok(value) if value > 0 => Ok(value),
        _ => Err(io_error(conf.unusable(key, "more than 0"))),
    }
}

/// Returns `hbase.regionserver.ipc.address`. The default is loopback; HBase's is all addresses.
fn bind_address(conf: &Configuration) -> Result<IpAddr> {
    const KEY: &str = "hbase.regionserver.ipc.address";
    let set = if conf.is_set(KEY) { conf.get_trimmed(KEY).map_err(io_error)? } else { None };
    match set.as_deref() {
        None | Some("localhost") => Ok(IpAddr::from([127, 0, 0, 1])),
        Some(address) => address.parse().map_err(|_| io_error(conf.unusable(KEY, "an IP address"))),
    }
}

/// Returns the location that `hbase.rootdir` names.
///
/// # Errors
/// One line about a value that names no file system.
pub fn root_location(conf: &Configuration) -> Result<Location> {
    const KEY: &str = "hbase.rootdir";
    if !conf.is_set(KEY) {
        return Ok(Location::Local(PathBuf::from(ROOT_DEFAULT)));
    }
    let text = conf.get_str_or(KEY, ROOT_DEFAULT.into()).map_err(io_error)?;
    let location = Location::of_setting(conf, &text);
    location.map_err(|_| io_error(conf.unusable(KEY, "a local directory, or a file: or hdfs: URI")))
}

/// Where `hbase.wal.dir` is; `None` if logs are below the root directory. As in HBase
/// (`CommonFSUtils.isValidWALRootDir`), it is not below the root directory; nor is the root
/// directory in a directory of logs.
///
/// # Errors
/// One line about a value that names no file system, or a directory that is not apart.
pub fn wal_location(conf: &Configuration) -> Result<Option<Location>> {
    const KEY: &str = "hbase.wal.dir";
    let Some(text) = conf.get_trimmed(KEY).map_err(io_error)?.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let usable = "a directory apart from hbase.rootdir, local or by a file: or hdfs: URI";
    let location = Location::of_setting(conf, &text).map_err(|_| io_error(conf.unusable(KEY, usable)))?;
    let root = root_location(conf)?;
    if !location.is_beside(&root) {
        return Ok(Some(location));
    }
    let (dir, root) = (normalized(location.path()), normalized(root.path()));
    if dir == root {
        return Ok(None);
    }
    let first = root.strip_prefix(&dir).ok().and_then(|below| below.components().next());
    let is_in_logs = first.is_some_and(|first| WAL_ROOT_DIRS.iter().any(|name| first.as_os_str() == *name));
    if dir.starts_with(&root) || is_in_logs {
        return Err(io_error(conf.unusable(KEY, usable)));
    }
    Ok(Some(location))
}

/// The directories that a server creates below `hbase.wal.dir`.
const WAL_ROOT_DIRS: [&str; 6] = ["WALs", "oldWALs", "corrupt", "data", "MasterData", "MasterProcWALs"];

/// The absolute path without `.` and `..`, as Hadoop's `Path` has it.
fn normalized(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut plain = PathBuf::new();
    for part in absolute.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

/// Returns the total memory that the server may use: `evenkeel.memory.size`, or half of the
/// machine's memory. It corresponds to HBase's heap size.
fn memory_bytes(conf: &Configuration) -> Result<u64> {
    const KEY: &str = "evenkeel.memory.size";
    let half = machine_memory_bytes().map_or(MEMORY_BYTES_DEFAULT, |bytes| bytes / 2);
    let bytes = conf.get_size_or(KEY, half as i64).map_err(io_error)?;
    if bytes < 64 << 20 { Err(io_error(conf.unusable(KEY, "at least 64m"))) } else { Ok(bytes as u64) }
}

/// Returns `evenkeel.hstore.write.behind.size`: store files are written back to the disk in pieces
/// of this size while they are written; 0 for no write-behind.
///
/// # Errors
/// One line that names the key, its value and what was expected.
pub fn write_behind_bytes(conf: &Configuration) -> Result<u64> {
    const KEY: &str = "evenkeel.hstore.write.behind.size";
    let bytes = conf.get_size_or(KEY, WRITE_BEHIND_BYTES as i64).map_err(io_error)?;
    u64::try_from(bytes).map_err(|_| io_error(conf.unusable(KEY, "0 or more")))
}

/// Returns `evenkeel.shutdown.timeout.ms`. The default is a minute: longer than flushes take on a
/// working disk, and less than systemd's 90 s (`DefaultTimeoutStopSec`), so that the process can
/// report what did not finish.
fn shutdown_timeout(conf: &Configuration) -> Result<Duration> {
    const KEY: &str = "evenkeel.shutdown.timeout.ms";
    let ms = conf.get_u64_or(KEY, 60_000).map_err(io_error)?;
    if ms == 0 { Err(io_error(conf.unusable(KEY, "more than 0"))) } else { Ok(Duration::from_millis(ms)) }
}

fn ledger_config(conf: &Configuration) -> Result<LedgerConfig> {
    const SLOW: &str = "evenkeel.slow.request.ms";
    let default = LedgerConfig::default();
    let slow_ms = u64::try_from(default.slow.as_millis()).unwrap_or(u64::MAX);
    let slow = Duration::from_millis(conf.get_u64_or(SLOW, slow_ms).map_err(io_error)?);
    Ok(LedgerConfig { slow, kept: slow_requests_kept(conf)? })
}

fn slow_requests_kept(conf: &Configuration) -> Result<usize> {
    const KEY: &str = "hbase.regionserver.slowlog.ringbuffer.size";
    let default = LedgerConfig::default().kept as u64;
    Ok(length::index(conf.get_u64_or(KEY, default).map_err(io_error)?.clamp(1, LEDGER_KEPT_MAX)))
}

fn slow_log_config(conf: &Configuration) -> Result<SlowLogConfig> {
    // As in HBase, the limit of scans defaults to that of other calls, and a negative limit means
    // none.
    let limit = |key: &str, key_of_scans: &str, default: i64| -> Result<WarnLimit> {
        let calls = conf.get_i64_or(key, default).map_err(io_error)?;
        let scans = conf.get_i64_or(key_of_scans, calls).map_err(io_error)?;
        Ok(WarnLimit { calls: u64::try_from(calls).ok(), scans: u64::try_from(scans).ok() })
    };
    const TIME: [&str; 2] = ["hbase.ipc.warn.response.time", "hbase.ipc.warn.response.time.scan"];
    const SIZE: [&str; 2] = ["hbase.ipc.warn.response.size", "hbase.ipc.warn.response.size.scan"];
    Ok(SlowLogConfig {
        time_ms: limit(TIME[0], TIME[1], 10_000)?,
        bytes: limit(SIZE[0], SIZE[1], 100 << 20)?,
        is_kept: conf.get_bool_or("hbase.regionserver.slowlog.buffer.enabled", false).map_err(io_error)?,
        kept: slow_requests_kept(conf)?,
        waiting_for_table: calls_waiting_for_table(conf)?,
    })
}

fn calls_waiting_for_table(conf: &Configuration) -> Result<usize> {
    if !conf.get_bool_or(ENABLED, false).map_err(io_error)? {
        return Ok(0);
    }
    let size = conf.get_u64_or("hbase.regionserver.slowlog.systable.queue.size", 1000).map_err(io_error)?;
    Ok(length::index(size.clamp(1, LEDGER_KEPT_MAX)))
}

fn machine_memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kb| kb * 1024)
}

fn region_config(conf: &Configuration) -> Result<RegionConfig> {
    let lock_ms =
        conf.get_time_or("hbase.rowlock.wait.duration", TimeUnit::Milliseconds, 30_000).map_err(io_error)?;
    let cell_bytes_max = conf.get_size_or("hbase.server.keyvalue.maxsize", 10 << 20).map_err(io_error)?;
    let (flush, times) = ("hbase.hregion.memstore.flush.size", "hbase.hregion.memstore.block.multiplier");
    Ok(RegionConfig {
        flush_bytes: positive(conf, flush, conf.get_size_or(flush, 128 << 20).map_err(io_error)?)?,
        block_multiplier: positive(conf, times, conf.get_i64_or(times, 4).map_err(io_error)?)?,
        row_lock_wait: Duration::from_millis(lock_ms.max(0) as u64),
        cell_bytes_max: length::index(cell_bytes_max.max(0).unsigned_abs()),
        timestamp_slop_ms: conf.get_i64_or(TIMESTAMP_SLOP, i64::MAX).map_err(io_error)?,
        split: SplitConfig::from_configuration(conf).map_err(io_error)?,
        flush_policy: FlushPolicyConfig::from_configuration(conf).map_err(io_error)?,
        preclose_flush_bytes: conf.get_i64(PRECLOSE_FLUSH).map_err(io_error)?,
        replication: ReplicaReplication::from_configuration(conf).map_err(io_error)?,
        changed: Arc::default(),
    })
}

/// Applies the settings of an RPC server's sockets, and of its calls' timeouts.
///
/// # Errors
/// One line that names the key, its value and what was expected.
pub fn set_sockets(conf: &Configuration, config: &mut RpcServerConfig) -> Result<()> {
    const TIMEOUT_MIN: &str = "hbase.ipc.min.client.request.timeout";
    let default_ms = length::whole_ms(config.client_timeout_min) as i64;
    let ms = conf.get_time_or(TIMEOUT_MIN, TimeUnit::Milliseconds, default_ms).map_err(io_error)?;
    config.client_timeout_min = Duration::from_millis(ms.max(0) as u64);
    config.tcp_no_delay = conf.get_bool_or("hbase.ipc.server.tcpnodelay", true).map_err(io_error)?;
    config.tcp_keep_alive = conf.get_bool_or("hbase.ipc.server.tcpkeepalive", true).map_err(io_error)?;
    Ok(())
}

/// Returns the WAL settings of a server whose MemStores may take `memstore_bytes`.
///
/// # Errors
/// One line that names the key, its value and what was expected.
pub fn wal_config(conf: &Configuration, memstore_bytes: u64) -> Result<WalConfig> {
    let default = WalConfig::default();
    let block = 2 * conf.get_size_or("dfs.blocksize", 128 << 20).map_err(io_error)?;
    let block = conf.get_size_or("hbase.regionserver.hlog.blocksize", block).map_err(io_error)?;
    let times = conf.get_f64_or("hbase.regionserver.logroll.multiplier", 0.5).map_err(io_error)?;
    let period = conf.get_time_or("hbase.regionserver.logroll.period", TimeUnit::Milliseconds, 3_600_000);
    let time = |key: &str, default: Duration| {
        let default = length::whole_ms(default) as i64;
        conf.get_time_or(key, TimeUnit::Milliseconds, default).map(|ms| ms.max(0) as u64).map_err(io_error)
    };
    let slow_sync = time("hbase.regionserver.hlog.slowsync.ms", default.slow_sync)?;
    let slow_sync = time("hbase.regionserver.wal.slowsync.ms", Duration::from_millis(slow_sync))?;
    let sync_timeout = time("hbase.regionserver.hlog.sync.timeout", default.sync_timeout)?;
    let sync_timeout = time("hbase.regionserver.wal.sync.timeout", Duration::from_millis(sync_timeout))?;
    let interval = Duration::from_millis(default.slow_sync_roll_interval_ms as u64);
    let threshold = u64::from(default.slow_sync_roll_threshold);
    let threshold =
        conf.get_u64_or("hbase.regionserver.wal.slowsync.roll.threshold", threshold).map_err(io_error)?;
    let roll_bytes = length::whole((block as f64 * times).max(1.0));
    // As in HBase's AbstractFSWAL: WALs may hold the edits in memory, and an equal amount of
    // flushed edits among them.
    let logs_max = (memstore_bytes.saturating_mul(2) / roll_bytes).max(LOGS_MAX_LEAST);
    Ok(WalConfig {
        slow_sync: Duration::from_millis(slow_sync),
        sync_timeout: Duration::from_millis(sync_timeout),
        roll_on_sync: Duration::from_millis(time(
            "hbase.regionserver.wal.roll.on.sync.ms",
            default.roll_on_sync,
        )?),
        slow_sync_roll_threshold: u32::try_from(threshold).unwrap_or(u32::MAX),
        slow_sync_roll_interval_ms: time("hbase.regionserver.wal.slowsync.roll.interval.ms", interval)?
            as i64,
        roll_bytes,
        roll_period_ms: period.map_err(io_error)?,
        hsync: conf.get_bool_or("hbase.wal.hsync", false).map_err(io_error)?,
        logs_max: length::index(
            conf.get_u64_or("hbase.regionserver.maxlogs", logs_max).map_err(io_error)?.max(1),
        ),
        compression: wal_compression(conf)?,
        ..default
    })
}

/// Returns the compression of WAL entries. Encryption is rejected: a server that is configured to
/// encrypt must not write plain text.
fn wal_compression(conf: &Configuration) -> Result<Option<WalCompression>> {
    let on = |key: &str, default| conf.get_bool_or(key, default).map_err(io_error);
    if on(WAL_ENCRYPTION, false)? {
        return Err(HBaseError::io(format!("{WAL_ENCRYPTION}: encrypted WALs are not supported")));
    }
    if !on("hbase.regionserver.wal.enablecompression", false)? {
        return Ok(None);
    }
    let values = if on("hbase.regionserver.wal.value.enablecompression", false)? {
        let name = conf.get_trimmed(WAL_VALUE_CODEC).map_err(io_error)?.unwrap_or_else(|| "GZ".into());
        let known = Compression::from_name(&name);
        Some(known.ok_or_else(|| HBaseError::io(format!("{WAL_VALUE_CODEC}: no codec {name}")))?)
    } else {
        None
    };
    let zstd_codec = conf.get_trimmed("hbase.io.compress.zstd.codec").map_err(io_error)?;
    Ok(Some(WalCompression {
        tags: on("hbase.regionserver.wal.tags.enablecompression", true)?,
        values,
        zstd_framed: zstd_codec.is_some_and(|class| class.starts_with("org.apache.hadoop.hbase.")),
    }))
}

/// The minimum limit of closed WALs that wait for flushes, however small the memory is.
const LOGS_MAX_LEAST: u64 = 32;

const WAL_ENCRYPTION: &str = "hbase.regionserver.wal.encryption";
const WAL_VALUE_CODEC: &str = "hbase.regionserver.wal.value.compression.type";

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Result<Settings> {
        let mut conf = Configuration::with_system_properties(Default::default());
        pairs.iter().for_each(|(key, value)| conf.set(*key, *value));
        Settings::from(&conf)
    }

    #[test]
    fn the_defaults_are_hbases_ports_on_loopback() {
        let s = settings(&[]).expect("valid");
        assert_eq!((s.zookeeper_port, s.master_port, s.regionserver_port), (2181, 16000, 16020));
        assert_eq!((s.root, s.bind_address.is_loopback()), (PathBuf::from("./evenkeel-data"), true));
    }

    #[test]
    fn socket_options_and_minimum_call_timeout_are_hbases() {
        let sockets = |pairs: &[(&str, &str)]| {
            let mut conf = Configuration::with_system_properties(Default::default());
            pairs.iter().for_each(|(key, value)| conf.set(*key, *value));
            let mut config = RpcServerConfig::at(([127, 0, 0, 1], 0).into());
            set_sockets(&conf, &mut config)?;
            Ok::<_, HBaseError>((
                config.tcp_no_delay,
                config.tcp_keep_alive,
                config.client_timeout_min.as_millis(),
            ))
        };
        assert_eq!(sockets(&[]), Ok((true, true, 20)));
        assert_eq!(sockets(&[("hbase.ipc.server.tcpnodelay", "false")]), Ok((false, true, 20)));
        assert_eq!(sockets(&[("hbase.ipc.server.tcpkeepalive", "false")]), Ok((true, false, 20)));
        assert_eq!(sockets(&[("hbase.ipc.min.client.request.timeout", "70")]), Ok((true, true, 70)));
        assert!(sockets(&[("hbase.ipc.min.client.request.timeout", "x")]).is_err());
    }

    #[test]
    fn slow_sync_limits_follow_hbases_settings() {
        let mut conf = Configuration::with_system_properties(Default::default());
        let slow = |conf: &Configuration| {
            let config = wal_config(conf, 0).expect("valid");
            let (slow, roll) = (config.slow_sync.as_millis(), config.roll_on_sync.as_millis());
            (slow, roll, config.slow_sync_roll_threshold, config.slow_sync_roll_interval_ms)
        };
        assert_eq!(slow(&conf), (100, 10_000, 100, 60_000));
        conf.set("hbase.regionserver.hlog.slowsync.ms", "70");
        assert_eq!(slow(&conf).0, 70, "the name of old");
        conf.set("hbase.regionserver.wal.slowsync.ms", "50");
        conf.set("hbase.regionserver.wal.roll.on.sync.ms", "400");
        conf.set("hbase.regionserver.wal.slowsync.roll.threshold", "7");
        conf.set("hbase.regionserver.wal.slowsync.roll.interval.ms", "1000");
        assert_eq!(slow(&conf), (50, 400, 7, 1000));
    }

    #[test]
    fn the_sync_timeout_follows_hbases_settings() {
        let mut conf = Configuration::with_system_properties(Default::default());
        let timeout = |conf: &Configuration| wal_config(conf, 0).expect("valid").sync_timeout.as_millis();
        assert_eq!(timeout(&conf), 300_000);
        conf.set("hbase.regionserver.hlog.sync.timeout", "70");
        assert_eq!(timeout(&conf), 70, "the name of old");
        conf.set("hbase.regionserver.wal.sync.timeout", "50");
        assert_eq!(timeout(&conf), 50);
    }

    #[test]
    fn the_log_limit_follows_the_memory_size() {
        let mut conf = Configuration::with_system_properties(Default::default());
        let logs = |conf: &Configuration, gib: u64| wal_config(conf, gib << 30).expect("valid").logs_max;
        assert_eq!((logs(&conf, 1), logs(&conf, 2), logs(&conf, 8)), (32, 32, 128));
        conf.set("hbase.regionserver.hlog.blocksize", "64m");
        assert_eq!(logs(&conf, 2), 128);
        conf.set("hbase.regionserver.maxlogs", "7");
        assert_eq!(logs(&conf, 8), 7);
    }

    #[test]
    fn logs_are_compressed_as_configured_and_never_encrypted() {
        let config = |pairs: &[(&str, &str)]| {
            let mut conf = Configuration::with_system_properties(Default::default());
            pairs.iter().for_each(|(key, value)| conf.set(*key, *value));
            wal_config(&conf, 0).map(|config| config.compression)
        };
        let on = ("hbase.regionserver.wal.enablecompression", "true");
        let values = ("hbase.regionserver.wal.value.enablecompression", "true");
        assert_eq!(config(&[values]), Ok(None));
        assert_eq!(config(&[on]), Ok(Some(WalCompression::default())));
        let gz = config(&[on, values, ("hbase.regionserver.wal.tags.enablecompression", "false")]);
        let expected = WalCompression { tags: false, values: Some(Compression::Gz), zstd_framed: false };
        assert_eq!(gz, Ok(Some(expected)));
        let unknown = config(&[on, values, (WAL_VALUE_CODEC, "zip")]).expect_err("no such codec");
        assert!(unknown.message().starts_with(WAL_VALUE_CODEC), "{unknown}");
        let encrypted = config(&[(WAL_ENCRYPTION, "true")]).expect_err("refused");
        assert!(encrypted.message().starts_with(WAL_ENCRYPTION), "{encrypted}");
    }

    #[test]
    fn root_directories_may_be_uris() {
        for text in ["/a/b", "file:///a/b", "file:/a/b", "hdfs://nn/a/b"] {
            assert_eq!(settings(&[("hbase.rootdir", text)]).expect("valid").root, PathBuf::from("/a/b"));
        }
        let error = settings(&[("hbase.rootdir", "s3://bucket/hbase")]).expect_err("no such file system");
        assert!(error.message().contains("hbase.rootdir"), "{error}");
    }

    #[test]
    fn the_wal_directory_may_differ_from_the_root() {
        let of = |dir: &str| {
            let mut conf = Configuration::new();
            conf.set("hbase.rootdir", "hdfs://nn/hbase");
            conf.set("hbase.wal.dir", dir);
            wal_location(&conf).map(|location| location.map(|location| location.to_string()))
        };
        assert_eq!(wal_location(&Configuration::new()), Ok(None));
        for same in ["", "hdfs://nn/hbase", "hdfs://nn/hbase/"] {
            assert_eq!(of(same), Ok(None), "{same}");
        }
        for other in ["hdfs://nn/wals", "hdfs://other/hbase/wals", "/wals"] {
            assert_eq!(of(other), Ok(Some(other.to_owned())));
        }
        assert!(of("hdfs://nn/hbase/wals").is_err_and(|e| e.message().contains("hbase.wal.dir")));
    }

    #[test]
    fn a_local_wal_directory_is_apart_from_the_root() {
        let of = |root: &str, dir: &str| {
            let mut conf = Configuration::new();
            conf.set("hbase.rootdir", root);
            conf.set("hbase.wal.dir", dir);
            wal_location(&conf).map(|location| location.map(|location| location.path().to_owned()))
        };
        for (root, same) in [("/a/hbase", "file:///a/hbase/"), ("/a/hbase", "/a/./b/../hbase"), ("./x", "x")]
        {
            assert_eq!(of(root, same), Ok(None), "{root} {same}");
        }
        for (root, apart) in
            [("/a/hbase", "/a/wals"), ("/a/hbase", "/a"), ("/a/hbase", "/a/hbase-wals"), ("x", "y")]
        {
            assert_eq!(of(root, apart), Ok(Some(apart.into())), "{root} {apart}");
        }
        for (root, within) in
            [("/a", "/a/wals"), ("./x", "x/wals"), ("/a", "/b/../a/c"), ("/a/data/hbase", "/a")]
        {
            assert!(
                of(root, within).is_err_and(|e| e.message().contains("hbase.wal.dir")),
                "{root} {within}"
            );
        }
    }

    #[test]
    fn the_write_behind_size_is_configurable() {
        let bytes = |value: &str| {
            let mut conf = Configuration::new();
            conf.set("evenkeel.hstore.write.behind.size", value);
            write_behind_bytes(&conf)
        };
        assert_eq!(write_behind_bytes(&Configuration::new()), Ok(WRITE_BEHIND_BYTES));
        assert_eq!((bytes("0"), bytes("4m")), (Ok(0), Ok(4 << 20)));
        assert!(bytes("-1").is_err_and(|e| e.message().contains("evenkeel.hstore.write.behind.size")));
    }

    #[test]
    fn a_bad_value_names_its_key() {
        for key in ["hbase.master.port", "hbase.hregion.memstore.flush.size", "evenkeel.memory.size"] {
            let error = settings(&[(key, "x")]).expect_err("bad");
            assert!(error.message().contains(key), "{error}");
        }
        assert!(settings(&[("evenkeel.memory.size", "1m")]).is_err());
    }
}
