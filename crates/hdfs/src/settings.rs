//! [`Settings`]: read from `core-site.xml` and `hdfs-site.xml`, under Hadoop's names.
//!
//! | key | default | |
//! |---|---|---|
//! | `fs.defaultFS` | | a URI: `hdfs://host:port`, or `hdfs://nameservice` |
//! | `dfs.nameservices`, `dfs.ha.namenodes.<ns>` | | names of the NameNodes of a name service |
//! | `dfs.namenode.rpc-address.<ns>.<nn>` | | their addresses |
//! | `dfs.client.failover.max.attempts` | 15 | retries of one call |
//! | `dfs.client.failover.sleep.base.millis` | 500 | the pause between them, doubled each time |
//! | `dfs.client.failover.sleep.max.millis` | 15000 | the longest pause |
//! | `ipc.client.connect.timeout` | 2000 | milliseconds; Hadoop's 20 s are too long for a log |
//! | `ipc.client.rpc-timeout.ms` | 15000 | timeout of one call on one NameNode; Hadoop has 120 s |
//! | `dfs.replication`, `dfs.blocksize` | 3, 128 MiB | of new files; a log has twice that |
//! | `fs.permissions.umask-mode` | 022 | taken from 666 for files and 777 for directories |
//! | `dfs.client.socket-timeout` | 60000 | timeout of a read from a DataNode, in milliseconds |
//! | `dfs.client.use.datanode.hostname` | false | connects to DataNodes by name |
//! | `dfs.client.hedged.read.threadpool.size` | 0 | concurrent hedged reads; 0 disables them |
//! | `dfs.client.hedged.read.threshold.millis` | 500 | wait before a second replica is read too |
//! | `dfs.client.read.shortcircuit` | false | local replicas are read by the DataNode's files |
//! | `dfs.domain.socket.path` | | the DataNode's UNIX domain socket; `_PORT` is its port |
//! | `dfs.client.read.shortcircuit.streams.cache.size` | 256 | blocks whose files are kept open |
//! | `dfs.client.read.shortcircuit.streams.cache.expiry.ms` | 300000 | how long, if unused |
//! | `dfs.client.read.short.circuit.replica.stale.threshold.ms` | 1800000 | how long at most |
//! | `dfs.domain.socket.disable.interval.seconds` | 600 | a socket that failed is not tried |
//!
//! Durations of `ipc.client.*` and `dfs.client.*` may have Hadoop's unit suffixes. A timeout of 0,
//! which is none in Hadoop, and longer ones are [`TIMEOUT_MAX`]: every wait ends.

use std::time::Duration;

use evenkeel_common::{ConfigError, Configuration, TimeUnit};

use crate::block::short_circuit::ShortCircuitSettings;
use crate::error::{HdfsError, Result};

/// The port of a NameNode in a URI without one.
pub const NAMENODE_PORT: u16 = 8020;

/// The longest timeout and pause, also for those that are unlimited in Hadoop.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// The longest time for which files of replicas are kept, or a path of a socket is not tried.
const KEPT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// The largest block: twice of it is the size of a log's block, a signed number in Hadoop.
const BLOCK_BYTES_MAX: u64 = i64::MAX.unsigned_abs() / 2;

/// The settings of one client, for one name service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `host:port` of the NameNodes of the name service, in the order in which they are tried.
    pub namenodes: Vec<String>,
    /// The user as which the client acts.
    pub user: String,
    /// The maximum of retries of one call.
    pub attempts_max: u32,
    /// The base of the pause between retries; doubled each time.
    pub retry_pause: Duration,
    /// The longest pause between retries.
    pub retry_pause_max: Duration,
    /// The timeout of a connect, to NameNodes and DataNodes.
    pub connect_timeout: Duration,
    /// The timeout of one call on one NameNode.
    pub call_timeout: Duration,
    /// The timeout of one read or write on a DataNode's socket.
    pub socket_timeout: Duration,
    /// Replicas of a new file.
    pub replication: u16,
    /// Bytes of a block of a new file.
    pub block_bytes: u64,
    /// Replicas of a new log.
    pub log_replication: u16,
    /// Bytes of the one block of a log, which should be rolled well before it is full.
    pub log_block_bytes: u64,
    /// Permission bits that new files and directories do not get.
    pub umask: u32,
    /// True if DataNodes are addressed by host name instead of IP address.
    pub use_datanode_hostname: bool,
    /// The maximum of concurrent hedged reads; 0 disables them.
    pub hedged_reads_max: usize,
    /// How long the first replica may take to answer before a second one is read too.
    pub hedged_threshold: Duration,
    /// Short-circuit reads; `None` disables them.
    pub short_circuit: Option<ShortCircuitSettings>,
    /// How long a packet of a log may stay without an acknowledgement.
    pub ack_timeout: Duration,
    /// How long one DataNode of a log may lack an acknowledgement that all others have sent, before
    /// the log breaks; `None`: for `ack_timeout`.
    pub stall_timeout: Option<Duration>,
    /// What each DataNode of a chain adds to `socket_timeout`: `READ_TIMEOUT_EXTENSION` of
    /// `HdfsConstants`.
    pub chain_timeout_extension: Duration,
    /// The maximum of attempts to create a block.
    pub create_attempts_max: u32,
    /// The delay between the failure of a file and the recovery of its lease.
    pub recovery_delay: Duration,
    /// How long the recovery of another client's file may take.
    pub recovery_timeout: Duration,
}

impl Settings {
    /// Returns the defaults for NameNodes at these `host:port`s.
    pub fn of_namenodes(namenodes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            namenodes: namenodes.into_iter().map(Into::into).collect(),
            user: user(),
            attempts_max: 15,
            retry_pause: Duration::from_millis(500),
            retry_pause_max: Duration::from_secs(15),
            connect_timeout: Duration::from_secs(2),
            call_timeout: Duration::from_secs(15),
            socket_timeout: Duration::from_secs(60),
            replication: 3,
            block_bytes: 128 << 20,
            log_replication: 3,
            log_block_bytes: 256 << 20,
            umask: 0o022,
            use_datanode_hostname: false,
            hedged_reads_max: 0,
            hedged_threshold: Duration::from_millis(500),
            short_circuit: None,
            ack_timeout: Duration::from_secs(10),
            stall_timeout: None,
            chain_timeout_extension: Duration::from_secs(5),
            create_attempts_max: 10,
            recovery_delay: Duration::from_secs(35),
            recovery_timeout: Duration::from_secs(900),
        }
    }

    /// Reads the settings for the name service of `uri`, such as `hdfs://ns/hbase`; a URI without
    /// an authority means `fs.defaultFS`.
    ///
    /// # Errors
    /// `InvalidInput` if the URI is not an HDFS URI, its name service has no NameNodes, a value is
    /// malformed, or short-circuit reads are enabled without a path of a socket.
    pub fn for_uri(conf: &Configuration, uri: &str) -> Result<Self> {
        let authority = match authority_of(uri)? {
            Some(authority) => authority,
            None => default_authority(conf)?,
        };
        let mut settings = Self::of_namenodes(namenodes(conf, &authority)?);
        settings.read(conf).map_err(|e| invalid(e.to_string()))?;
        Ok(settings)
    }

    /// Returns how long a chain of this many DataNodes may take to create a block, or to make
    /// progress with one (`DFSClient.getDatanodeReadTimeout`).
    pub(crate) fn chain_timeout(&self, datanodes: usize) -> Duration {
        let datanodes = u32::try_from(datanodes).unwrap_or(u32::MAX);
        self.socket_timeout.saturating_add(self.chain_timeout_extension.saturating_mul(datanodes))
    }

    fn read(&mut self, conf: &Configuration) -> std::result::Result<(), ConfigError> {
        let ms = |key: &str, default: Duration| {
            let default_ms = i64::try_from(default.as_millis()).unwrap_or(i64::MAX);
            let value = conf.get_time_or(key, TimeUnit::Milliseconds, default_ms)?;
            u64::try_from(value)
                .map(|ms| Duration::from_millis(ms).min(TIMEOUT_MAX))
                .map_err(|_| conf.unusable(key, "a time of 0 or more"))
        };
        let timeout = |key: &str, default: Duration| {
            ms(key, default).map(|timeout| if timeout.is_zero() { TIMEOUT_MAX } else { timeout })
        };
        self.retry_pause = ms("dfs.client.failover.sleep.base.millis", self.retry_pause)?;
        self.retry_pause_max = ms("dfs.client.failover.sleep.max.millis", self.retry_pause_max)?;
        self.connect_timeout = timeout("ipc.client.connect.timeout", self.connect_timeout)?;
        self.call_timeout = timeout("ipc.client.rpc-timeout.ms", self.call_timeout)?;
        self.socket_timeout = timeout("dfs.client.socket-timeout", self.socket_timeout)?;
        self.hedged_threshold = ms("dfs.client.hedged.read.threshold.millis", self.hedged_threshold)?;
        let count = |key: &str, default: u64| conf.get_u64_or(key, default);
        self.attempts_max = small(count("dfs.client.failover.max.attempts", self.attempts_max.into())?);
        let hedged = count("dfs.client.hedged.read.threadpool.size", 0)?;
        self.hedged_reads_max = usize::try_from(hedged).unwrap_or(usize::MAX);
        let replication = count("dfs.replication", self.replication.into())?;
        self.replication = u16::try_from(replication)
            .ok()
            .filter(|&replicas| replicas > 0)
            .ok_or_else(|| conf.unusable("dfs.replication", "1 to 65535"))?;
        if let Some(text) = conf.get_trimmed("dfs.blocksize")? {
            self.block_bytes = bytes_of(&text).ok_or_else(|| conf.unusable("dfs.blocksize", "a size"))?;
        }
        (self.log_replication, self.log_block_bytes) = (self.replication, 2 * self.block_bytes);
        self.umask = conf.get_umask_or("fs.permissions.umask-mode", self.umask)?;
        self.use_datanode_hostname = conf.get_bool_or("dfs.client.use.datanode.hostname", false)?;
        self.short_circuit = short_circuit(conf)?;
        Ok(())
    }
}

/// Returns the settings of short-circuit reads if they are enabled. HDFS's client refuses to start
/// without a path, too.
fn short_circuit(conf: &Configuration) -> std::result::Result<Option<ShortCircuitSettings>, ConfigError> {
    const PATH: &str = "dfs.domain.socket.path";
    const READ: &str = "dfs.client.read.shortcircuit";
    if !conf.get_bool_or(READ, false)? {
        return Ok(None);
    }
    let path = conf.get_trimmed(PATH)?.filter(|path| !path.is_empty());
    let path = path.ok_or_else(|| conf.unusable(PATH, "the path of a socket for short-circuit reads"))?;
    let time = |key: &str, unit: TimeUnit, default: Duration| -> std::result::Result<Duration, ConfigError> {
        let default_ms = i64::try_from(default.as_millis()).unwrap_or(i64::MAX);
        let default = if unit == TimeUnit::Seconds { default_ms / 1000 } else { default_ms };
        let value = u64::try_from(conf.get_time_or(key, unit, default)?);
        let value = value.map_err(|_| conf.unusable(key, "a time of 0 or more"))?;
        let time =
            if unit == TimeUnit::Seconds { Duration::from_secs(value) } else { Duration::from_millis(value) };
        Ok(time.min(KEPT_MAX))
    };
    let ms = TimeUnit::Milliseconds;
    let default = ShortCircuitSettings::at(path);
    let replicas_max = conf.get_u64_or(
        "dfs.client.read.shortcircuit.streams.cache.size",
        u64::try_from(default.replicas_max).unwrap_or(u64::MAX),
    )?;
    let unused_for = time("dfs.client.read.shortcircuit.streams.cache.expiry.ms", ms, default.unused_for)?;
    let stale_after =
        time("dfs.client.read.short.circuit.replica.stale.threshold.ms", ms, default.stale_after)?;
    let path_disabled_for =
        time("dfs.domain.socket.disable.interval.seconds", TimeUnit::Seconds, default.path_disabled_for)?;
    Ok(Some(ShortCircuitSettings {
        replicas_max: usize::try_from(replicas_max).unwrap_or(usize::MAX),
        unused_for,
        stale_after,
        path_disabled_for,
        ..default
    }))
}

fn small(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn invalid(what: impl Into<String>) -> HdfsError {
    HdfsError::Transport(std::io::Error::new(std::io::ErrorKind::InvalidInput, what.into()))
}

/// Returns the user that Hadoop's simple authentication would use.
fn user() -> String {
    let of = |variable: &str| std::env::var(variable).ok().filter(|name| !name.is_empty());
    of("HADOOP_USER_NAME").or_else(|| of("USER")).or_else(|| of("LOGNAME")).unwrap_or_else(|| "hbase".into())
}

/// Parses the size of a block with an optional Hadoop suffix: `k`, `m`, `g`, `t`, `p`, `e`, powers
/// of 1024.
fn bytes_of(text: &str) -> Option<u64> {
    let lower = text.trim().to_ascii_lowercase();
    let (digits, shift) = match lower.strip_suffix(['k', 'm', 'g', 't', 'p', 'e']) {
        None => (lower.as_str(), 0),
        Some(digits) => {
            let power = lower.chars().last().and_then(|suffix| "kmgtpe".find(suffix))?;
            (digits, 10 * (power + 1))
        }
    };
    let count: u64 = digits.trim().parse().ok()?;
    let bytes = u128::from(count) << shift;
    u64::try_from(bytes).ok().filter(|&bytes| bytes > 0 && bytes <= BLOCK_BYTES_MAX)
}

/// Returns the authority of an HDFS URI; `None` for a bare path or `hdfs:///path`.
fn authority_of(uri: &str) -> Result<Option<String>> {
    if uri.starts_with('/') {
        return Ok(None);
    }
    let rest = uri.strip_prefix("hdfs://").ok_or_else(|| invalid(format!("{uri} is not a URI of HDFS")))?;
    let authority = rest.split('/').next().unwrap_or_default();
    Ok(Some(authority.to_owned()).filter(|authority| !authority.is_empty()))
}

fn default_authority(conf: &Configuration) -> Result<String> {
    let key = "fs.defaultFS";
    let uri = conf.get_trimmed(key).map_err(|e| invalid(e.to_string()))?;
    let uri = uri.ok_or_else(|| invalid(format!("{key} is not set, and the path names no NameNode")))?;
    authority_of(&uri)?.ok_or_else(|| invalid(format!("{key} {uri} names no NameNode")))
}

/// Returns the path of a URI: the part after scheme and authority, or `/` if it is empty.
pub fn path_of(uri: &str) -> &str {
    let rest = uri.strip_prefix("hdfs://").unwrap_or(uri);
    rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("/")
}

/// Returns the `host:port`s of a name service, or of the one NameNode that the authority names.
fn namenodes(conf: &Configuration, authority: &str) -> Result<Vec<String>> {
    let text = |key: String| conf.get_trimmed(&key).map_err(|e| invalid(e.to_string()));
    let with_port = |address: String| match address.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => address,
        _ => format!("{address}:{NAMENODE_PORT}"),
    };
    let services = text("dfs.nameservices".into())?.unwrap_or_default();
    if !services.split(',').any(|service| service.trim() == authority) {
        return Ok(vec![with_port(authority.to_owned())]);
    }
    let Some(ids) = text(format!("dfs.ha.namenodes.{authority}"))? else {
        let key = format!("dfs.namenode.rpc-address.{authority}");
        let address = text(key.clone())?.ok_or_else(|| invalid(format!("{key} is not set")))?;
        return Ok(vec![with_port(address)]);
    };
    let ids = ids.split(',').map(str::trim).filter(|id| !id.is_empty());
    ids.map(|id| {
        let key = format!("dfs.namenode.rpc-address.{authority}.{id}");
        text(key.clone())?.map(with_port).ok_or_else(|| invalid(format!("{key} is not set")))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(pairs: &[(&str, &str)]) -> Configuration {
        let mut conf = Configuration::new();
        pairs.iter().for_each(|(key, value)| conf.set(*key, *value));
        conf
    }

    #[test]
    fn a_uri_names_its_namenode() {
        let settings = Settings::for_uri(&conf(&[]), "hdfs://nn.example:9000/hbase").expect("read");
        assert_eq!(settings.namenodes, ["nn.example:9000"]);
        let settings = Settings::for_uri(&conf(&[]), "hdfs://nn.example/hbase").expect("read");
        assert_eq!(settings.namenodes, ["nn.example:8020"]);
        assert_eq!(path_of("hdfs://nn.example:9000/hbase/x"), "/hbase/x");
        assert_eq!(path_of("hdfs://nn.example:9000"), "/");
        assert_eq!(path_of("/hbase"), "/hbase");
        assert!(Settings::for_uri(&conf(&[]), "s3://bucket/hbase").is_err());
        assert!(Settings::for_uri(&conf(&[]), "/hbase").is_err(), "without fs.defaultFS");
    }

    #[test]
    fn a_name_service_names_its_namenodes_in_order() {
        let conf = conf(&[
            ("fs.defaultFS", "hdfs://ek"),
            ("dfs.nameservices", "other, ek"),
            ("dfs.ha.namenodes.ek", "nn1, nn2"),
            ("dfs.namenode.rpc-address.ek.nn1", "a:8020"),
            ("dfs.namenode.rpc-address.ek.nn2", "b"),
            ("dfs.blocksize", "64m"),
            ("dfs.client.socket-timeout", "5s"),
            ("dfs.replication", "2"),
        ]);
        let settings = Settings::for_uri(&conf, "/hbase").expect("read");
        assert_eq!(settings.namenodes, ["a:8020", "b:8020"]);
        assert_eq!((settings.block_bytes, settings.replication), (64 << 20, 2));
        assert_eq!((settings.log_block_bytes, settings.log_replication), (128 << 20, 2));
        assert_eq!(settings.socket_timeout, Duration::from_secs(5));
    }

    #[test]
    fn short_circuit_reads_need_a_socket() {
        let read = |pairs: &[(&str, &str)]| Settings::for_uri(&conf(pairs), "hdfs://nn:9000/x");
        let path = ("dfs.domain.socket.path", "/run/hdfs/dn._PORT");
        assert_eq!(read(&[path]).expect("disabled").short_circuit, None);
        let enabled = ("dfs.client.read.shortcircuit", "true");
        let error = read(&[enabled]).expect_err("no socket").to_string();
        assert!(error.contains("dfs.domain.socket.path"), "{error}");
        let default = ShortCircuitSettings::at("/run/hdfs/dn._PORT");
        assert_eq!(read(&[enabled, path]).expect("read").short_circuit.as_ref(), Some(&default));
        let all = read(&[
            enabled,
            path,
            ("dfs.client.read.shortcircuit.streams.cache.size", "7"),
            ("dfs.client.read.shortcircuit.streams.cache.expiry.ms", "9"),
            ("dfs.client.read.short.circuit.replica.stale.threshold.ms", "8"),
            ("dfs.domain.socket.disable.interval.seconds", "6"),
        ]);
        let expected = ShortCircuitSettings {
            replicas_max: 7,
            unused_for: Duration::from_millis(9),
            stale_after: Duration::from_millis(8),
            path_disabled_for: Duration::from_secs(6),
            ..default
        };
        assert_eq!(all.expect("read").short_circuit, Some(expected));
    }

    #[test]
    fn no_timeout_is_unlimited_or_immediate() {
        const KEYS: [&str; 3] =
            ["ipc.client.connect.timeout", "ipc.client.rpc-timeout.ms", "dfs.client.socket-timeout"];
        let read = |pairs: &[(&str, &str)]| Settings::for_uri(&conf(pairs), "hdfs://nn/hbase");
        for value in ["0", "9223372036854775807", "106751991167d"] {
            let settings = read(&KEYS.map(|key| (key, value))).expect("read");
            let timeouts = [settings.connect_timeout, settings.call_timeout, settings.socket_timeout];
            assert_eq!(timeouts, [TIMEOUT_MAX; 3], "{value}");
        }
        let pause = read(&[("dfs.client.failover.sleep.base.millis", "0")]).expect("read").retry_pause;
        assert!(pause.is_zero(), "no pause is none");
        let disabled = read(&[
            ("dfs.client.read.shortcircuit", "true"),
            ("dfs.domain.socket.path", "/run/hdfs/dn"),
            ("dfs.domain.socket.disable.interval.seconds", "9223372036854775807"),
        ]);
        let short_circuit = disabled.expect("read").short_circuit.expect("enabled");
        assert_eq!(short_circuit.path_disabled_for, KEPT_MAX);
    }

    #[test]
    fn sizes_have_hadoops_suffixes() {
        assert_eq!(bytes_of("134217728"), Some(128 << 20));
        assert_eq!(bytes_of("128M"), Some(128 << 20));
        assert_eq!(bytes_of("1g"), Some(1 << 30));
        assert_eq!(bytes_of("3e"), Some(3 << 60));
        assert_eq!((bytes_of("8e"), bytes_of("16e")), (None, None));
        assert_eq!(bytes_of("0"), None);
        assert_eq!(bytes_of("m"), None);
    }
}
