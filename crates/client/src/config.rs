//! [`ClientConfig`]: addresses, timeouts and retries, with HBase's defaults.
//!
//! ```no_run
//! use evenkeel_client::ClientConfig;
//! let by_hand = ClientConfig { retries: 3, ..ClientConfig::new(["localhost:16000"]) };
//! let by_zookeeper = ClientConfig::zookeeper("zk1,zk2:2182", 2181, "/hbase");
//! let as_the_cluster_says = ClientConfig::from_hbase_site("/etc/hbase/conf")?;
//! # Ok::<(), evenkeel_client::Error>(())
//! ```

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_common::config::{ConfigError, Configuration, TimeUnit};

use crate::error::{Error, Result};
use crate::rpc::{CellBlockCodec, Opener};

/// Java's `HConstants.DEFAULT_MASTER_PORT`.
const MASTER_PORT: i32 = 16000;

/// Where the client looks up the cluster's id, its master and the server of hbase:meta.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registry {
    /// The servers in [`ClientConfig::bootstrap`]: masters (`MasterRegistry`) or any servers
    /// (`RpcConnectionRegistry`).
    Rpc,
    /// A ZooKeeper ensemble (`ZKConnectionRegistry`).
    ZooKeeper {
        /// Its servers, `host:port,host:port`.
        quorum: String,
        /// HBase's root node (`zookeeper.znode.parent`).
        parent: String,
        /// The last part of the name of hbase:meta's node (`zookeeper.znode.metaserver`).
        meta_node: String,
    },
}

/// How to reach a cluster, with timeouts and retries. Each field names its key of `hbase-site.xml`.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Where the client looks up the cluster (`hbase.client.registry.impl`).
    pub registry: Registry,
    /// `host:port` of the masters or RegionServers that serve as the registry (`hbase.masters`,
    /// `hbase.client.bootstrap.servers`).
    pub bootstrap: Vec<String>,
    /// The user of the calls.
    pub user: String,
    /// The HBase version that the client reports to servers. A master takes the version of a
    /// RegionServer's connection for the server's version.
    pub version: String,
    /// Time to connect a socket (`hbase.ipc.client.socket.timeout.connect`).
    pub connect_timeout: Duration,
    /// Time of one call (`hbase.rpc.timeout`).
    pub rpc_timeout: Duration,
    /// Time of one operation with all its retries (`hbase.client.operation.timeout`), and of a
    /// procedure to finish.
    pub operation_timeout: Duration,
    /// Time of one call of a scan (`hbase.client.scanner.timeout.period`).
    pub scanner_timeout: Duration,
    /// How long a Get with [`crate::Consistency::Timeline`] waits for the primary replica before it
    /// also sends the Get to the others (`hbase.client.primaryCallTimeout.get`, in microseconds
    /// there).
    pub primary_get_timeout: Duration,
    /// The same for a scan, in each region (`hbase.client.replicaCallTimeout.scan`, in microseconds
    /// there).
    pub primary_scan_timeout: Duration,
    /// The first pause between tries (`hbase.client.pause`).
    pub pause: Duration,
    /// The first pause when a server reports that it is overloaded
    /// (`hbase.client.pause.server.overloaded`).
    pub pause_overloaded: Duration,
    /// Tries after the first (`hbase.client.retries.number`).
    pub retries: u32,
    /// Rows that a scan requests in one call, by default (`hbase.client.scanner.caching`).
    pub scanner_caching: u32,
    /// Bytes of results that a scan requests in one call (`hbase.client.scanner.max.result.size`).
    pub scanner_bytes_max: u64,
    /// Regions cached by one lookup in hbase:meta (`hbase.client.locate.prefetch.limit`).
    pub locate_prefetch: u32,
    /// Bytes of the largest response, both as received and after decompression. A larger one closes
    /// the connection.
    pub response_bytes_max: usize,
    /// Bytes of the largest cell that is sent; 0 for any (`hbase.client.keyvalue.maxsize`).
    pub cell_bytes_max: usize,
    /// Bytes that a [`crate::BufferedMutator`] buffers (`hbase.client.write.buffer`).
    pub write_buffer_bytes: usize,
    /// Sockets to each service of a server (`hbase.client.ipc.pool.size`).
    pub pool_size: usize,
    /// Calls in flight to one service of a server; further calls fail
    /// (`hbase.client.perserver.requests.threshold`).
    pub server_calls_max: usize,
    /// The compression of cell blocks in both directions (`hbase.client.rpc.compressor`).
    pub compressor: Option<CellBlockCodec>,
    /// Whether cells carry their tags (`hbase.client.rpc.codec` being `KeyValueCodecWithTags`).
    pub tags: bool,
    /// Establishes TLS or SASL on a socket. `None` uses sockets unchanged.
    pub opener: Option<Arc<dyn Opener>>,
}

impl ClientConfig {
    /// HBase's defaults for the cluster to which these `host:port` belong.
    pub fn new<S: Into<String>>(bootstrap: impl IntoIterator<Item = S>) -> Self {
        Self {
            registry: Registry::Rpc,
            bootstrap: bootstrap.into_iter().map(Into::into).collect(),
            user: std::env::var("USER").unwrap_or_else(|_| "evenkeel".to_owned()),
            version: "2.6.4".to_owned(),
            connect_timeout: Duration::from_secs(10),
            rpc_timeout: Duration::from_secs(60),
            operation_timeout: Duration::from_secs(1200),
            scanner_timeout: Duration::from_secs(60),
            primary_get_timeout: Duration::from_millis(10),
            primary_scan_timeout: Duration::from_secs(1),
            pause: Duration::from_millis(100),
            pause_overloaded: Duration::from_millis(100),
            retries: 15,
            scanner_caching: i32::MAX as u32,
            scanner_bytes_max: 2 << 20,
            locate_prefetch: 10,
            response_bytes_max: 512 << 20,
            cell_bytes_max: 10 << 20,
            write_buffer_bytes: 2 << 20,
            pool_size: 1,
            server_calls_max: usize::MAX,
            compressor: None,
            tags: false,
            opener: None,
        }
    }

    /// HBase's defaults for the cluster below the node `parent` of a ZooKeeper ensemble. `port` is
    /// the port of the servers of `quorum` (`host,host:port`) that name none.
    pub fn zookeeper(quorum: &str, port: u16, parent: &str) -> Self {
        let server = |server: &str| match server.rsplit_once(':') {
            Some((_, digits)) if digits.bytes().all(|b| b.is_ascii_digit()) => server.to_owned(),
            _ => format!("{server}:{port}"),
        };
        let servers: Vec<_> =
            quorum.split(',').map(str::trim).filter(|s| !s.is_empty()).map(server).collect();
        let (quorum, parent) = (servers.join(","), parent.to_owned());
        let meta_node = "meta-region-server".to_owned();
        let registry = Registry::ZooKeeper { quorum, parent, meta_node };
        Self { registry, ..Self::new(Vec::<String>::new()) }
    }

    /// Reads `hbase-site.xml` in a folder.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if the file is missing or a setting is invalid.
    pub fn from_hbase_site(folder: impl AsRef<Path>) -> Result<Self> {
        let conf = Configuration::load(Some(folder.as_ref()), &[]).map_err(unusable)?;
        Self::from_configuration(&conf)
    }

    /// Takes HBase's settings. The default registry is ZooKeeper, as in HBase 2.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if a setting is invalid.
    pub fn from_configuration(conf: &Configuration) -> Result<Self> {
        let base = Self::of_registry(conf)?;
        base.with_settings(conf).map_err(unusable)
    }

    fn of_registry(conf: &Configuration) -> Result<Self> {
        let class = conf.get_str_or("hbase.client.registry.impl", "ZKConnectionRegistry".into());
        let class = class.map_err(unusable)?;
        match class.rsplit('.').next().unwrap_or_default() {
            "ZKConnectionRegistry" | "ZKAsyncRegistry" => of_zookeeper(conf).map_err(unusable),
            "MasterRegistry" => Ok(Self::new(masters(conf).map_err(unusable)?)),
            "RpcConnectionRegistry" => {
                let servers = conf.get_list("hbase.client.bootstrap.servers").map_err(unusable)?;
                match servers.is_empty() {
                    true => Ok(Self::new(masters(conf).map_err(unusable)?)),
                    false => Ok(Self::new(servers)),
                }
            }
            _ => Err(Error::InvalidArgument(format!("hbase.client.registry.impl {class} is not known"))),
        }
    }

    fn with_settings(self, conf: &Configuration) -> std::result::Result<Self, ConfigError> {
        let ms = |key: &str, default: Duration| {
            let time = conf.get_time_or(
                key,
                TimeUnit::Milliseconds,
                i64::try_from(default.as_millis()).unwrap_or(i64::MAX),
            )?;
            Ok::<_, ConfigError>(Duration::from_millis(u64::try_from(time).unwrap_or_default()))
        };
        let count = |key: &str, default: u64| -> std::result::Result<usize, ConfigError> {
            let number = conf.get_i64_or(key, i64::try_from(default).unwrap_or(i64::MAX))?;
            Ok(usize::try_from(number).unwrap_or_default())
        };
        let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let us = |key: &str, default: Duration| {
            let time = conf.get_i64_or(key, i64::try_from(default.as_micros()).unwrap_or(i64::MAX))?;
            Ok::<_, ConfigError>(Duration::from_micros(u64::try_from(time).unwrap_or_default()))
        };
        let pause = ms("hbase.client.pause", self.pause)?;
        let compressor = conf.get_trimmed("hbase.client.rpc.compressor")?;
        let known = |class: &String| CellBlockCodec::by_class_name(class);
        if compressor.is_some() && compressor.as_ref().and_then(known).is_none() {
            return Err(conf.unusable("hbase.client.rpc.compressor", "GzipCodec, SnappyCodec or Lz4Codec"));
        }
        let codec = conf.get_str_or("hbase.client.rpc.codec", String::new())?;
        Ok(Self {
            user: conf.get_str_or("hbase.client.user", self.user)?,
            connect_timeout: ms("hbase.ipc.client.socket.timeout.connect", self.connect_timeout)?,
            rpc_timeout: ms("hbase.rpc.timeout", self.rpc_timeout)?,
            operation_timeout: ms("hbase.client.operation.timeout", self.operation_timeout)?,
            scanner_timeout: ms("hbase.client.scanner.timeout.period", self.scanner_timeout)?,
            primary_get_timeout: us("hbase.client.primaryCallTimeout.get", self.primary_get_timeout)?,
            primary_scan_timeout: us("hbase.client.replicaCallTimeout.scan", self.primary_scan_timeout)?,
            pause,
            pause_overloaded: ms("hbase.client.pause.server.overloaded", pause)?,
            retries: small(count("hbase.client.retries.number", self.retries.into())?),
            scanner_caching: small(
                count("hbase.client.scanner.caching", self.scanner_caching.into())?.max(1),
            ),
            scanner_bytes_max: count("hbase.client.scanner.max.result.size", self.scanner_bytes_max)? as u64,
            locate_prefetch: small(count("hbase.client.locate.prefetch.limit", self.locate_prefetch.into())?),
            cell_bytes_max: count("hbase.client.keyvalue.maxsize", self.cell_bytes_max as u64)?,
            write_buffer_bytes: count("hbase.client.write.buffer", self.write_buffer_bytes as u64)?,
            pool_size: count("hbase.client.ipc.pool.size", self.pool_size as u64)?.max(1),
            server_calls_max: count("hbase.client.perserver.requests.threshold", i32::MAX as u64)?,
            compressor: compressor.as_ref().and_then(known),
            tags: codec.ends_with("KeyValueCodecWithTags"),
            ..self
        })
    }
}

fn of_zookeeper(conf: &Configuration) -> std::result::Result<ClientConfig, ConfigError> {
    let quorum = conf.get_str("hbase.zookeeper.quorum")?;
    let port = conf.get_port("hbase.zookeeper.property.clientPort")?;
    let mut config = ClientConfig::zookeeper(&quorum, port, &conf.get_str("zookeeper.znode.parent")?);
    if let Registry::ZooKeeper { meta_node, .. } = &mut config.registry {
        *meta_node = conf.get_str_or("zookeeper.znode.metaserver", std::mem::take(meta_node))?;
    }
    Ok(config)
}

/// The addresses in `hbase.masters`, whose entries may lack a port; without the setting, this
/// host's master.
fn masters(conf: &Configuration) -> std::result::Result<Vec<String>, ConfigError> {
    let port = conf.get_i32_or("hbase.master.port", MASTER_PORT)?;
    let masters = conf.get_list("hbase.masters")?;
    let with_port = |m: String| if m.contains(':') { m } else { format!("{m}:{port}") };
    match masters.is_empty() {
        true => Ok(vec![format!("{}:{port}", conf.get_str_or("hbase.master.hostname", "localhost".into())?)]),
        false => Ok(masters.into_iter().map(with_port).collect()),
    }
}

fn unusable(error: ConfigError) -> Error {
    Error::InvalidArgument(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(pairs: &[(&str, &str)]) -> Configuration {
        let mut conf = Configuration::new();
        pairs.iter().for_each(|(key, value)| conf.set(*key, *value));
        conf
    }

    fn config(pairs: &[(&str, &str)]) -> ClientConfig {
        ClientConfig::from_configuration(&conf(pairs)).expect("usable")
    }

    #[test]
    fn registries_are_chosen_as_in_hbase() {
        let quorum = [("hbase.zookeeper.quorum", "a, b:7"), ("hbase.zookeeper.property.clientPort", "5")];
        let Registry::ZooKeeper { quorum, parent, .. } = config(&quorum).registry else {
            panic!("ZooKeeper")
        };
        assert_eq!((quorum.as_str(), parent.as_str()), ("a:5,b:7", "/hbase"));
        let masters = [
            ("hbase.client.registry.impl", "org.apache.hadoop.hbase.client.MasterRegistry"),
            ("hbase.masters", "x,y:3"),
        ];
        assert_eq!(config(&masters).bootstrap, ["x:16000", "y:3"]);
        let rpc = [
            ("hbase.client.registry.impl", "org.apache.hadoop.hbase.client.RpcConnectionRegistry"),
            ("hbase.client.bootstrap.servers", "r:16020"),
        ];
        assert_eq!(
            (config(&rpc).bootstrap, config(&rpc).registry),
            (vec!["r:16020".to_owned()], Registry::Rpc)
        );
        let unknown = conf(&[("hbase.client.registry.impl", "com.example.Other")]);
        assert!(ClientConfig::from_configuration(&unknown).is_err());
    }

    #[test]
    fn settings_take_the_place_of_defaults() {
        let config = config(&[
            ("hbase.rpc.timeout", "7s"),
            ("hbase.client.pause", "5"),
            ("hbase.client.primaryCallTimeout.get", "2500"),
            ("hbase.client.retries.number", "2"),
            ("hbase.client.ipc.pool.size", "3"),
            ("hbase.client.rpc.compressor", "org.apache.hadoop.io.compress.GzipCodec"),
            ("hbase.client.rpc.codec", "org.apache.hadoop.hbase.codec.KeyValueCodecWithTags"),
        ]);
        assert_eq!((config.rpc_timeout, config.pause), (Duration::from_secs(7), Duration::from_millis(5)));
        assert_eq!(config.primary_get_timeout, Duration::from_micros(2500));
        assert_eq!(config.primary_scan_timeout, Duration::from_secs(1));
        assert_eq!((config.pause_overloaded, config.retries), (Duration::from_millis(5), 2));
        assert_eq!((config.pool_size, config.compressor, config.tags), (3, Some(CellBlockCodec::Gzip), true));
        assert_eq!(
            (config.operation_timeout, config.scanner_bytes_max),
            (Duration::from_secs(1200), 2 << 20)
        );
        let unknown = conf(&[("hbase.client.rpc.compressor", "com.example.Codec")]);
        assert!(ClientConfig::from_configuration(&unknown).is_err());
    }
}
