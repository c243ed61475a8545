//! [`ClusterSettings`]: how to find the cluster, and how often to report to the master.

use std::time::Duration;

use evenkeel_common::{Configuration, HBaseError, Result, TimeUnit, length};
use evenkeel_process::io_error;
use evenkeel_process::settings::splitter_threads;
use evenkeel_zookeeper::znodes::ZnodePaths;

use crate::hot_blocks::HotBlockSettings;

/// What a RegionServer of a cluster reads at start, besides
/// [`Settings`](evenkeel_process::Settings).
#[derive(Clone, Debug)]
pub struct ClusterSettings {
    /// `hbase.zookeeper.quorum`: servers as `host:port,host:port`.
    pub quorum: String,
    /// The paths of HBase's znodes.
    pub znodes: ZnodePaths,
    /// `zookeeper.session.timeout`: the requested timeout; ZooKeeper bounds it.
    pub session_timeout: Duration,
    /// `hbase.regionserver.msginterval`: how often the load is reported.
    pub report_interval: Duration,
    /// `hbase.rpc.timeout`: the timeout of one RPC to the master.
    pub rpc_timeout: Duration,
    /// `hbase.regionserver.executor.openregion.threads`: regions of user tables opened
    /// concurrently.
    pub opener_threads: usize,
    /// `hbase.regionserver.executor.openpriorityregion.threads`: regions of system tables.
    pub priority_opener_threads: usize,
    /// `hbase.regionserver.executor.closeregion.threads`: regions closed concurrently.
    pub closer_threads: usize,
    /// `hbase.regionserver.wal.max.splitters`: logs split concurrently.
    pub splitter_threads: usize,
    /// `evenkeel.regionserver.stop.move.timeout.ms`: how long a stop may take to move regions to
    /// other servers before it closes the rest; 0 closes them at once.
    pub move_timeout: Duration,
    /// Hot blocks of regions that move to and from other Evenkeel servers.
    pub hot_blocks: HotBlockSettings,
}

impl ClusterSettings {
    /// Reads the keys.
    ///
    /// # Errors
    /// Returns a one-line error that names the key, its value and the expected form.
    pub fn from(conf: &Configuration) -> Result<Self> {
        let ms = |key: &str, default: i64| {
            let ms = conf.get_time_or(key, TimeUnit::Milliseconds, default).map_err(io_error)?;
            u64::try_from(ms)
                .map(Duration::from_millis)
                .map_err(|_| io_error(conf.unusable(key, "0 or more")))
        };
        let threads = |key: &str, default: u64| {
            let count = conf.get_u64_or(key, default).map_err(io_error)?;
            Ok::<_, HBaseError>(length::index(count.clamp(1, THREADS_MAX)))
        };
        Ok(Self {
            quorum: quorum(conf)?,
            znodes: ZnodePaths::from_configuration(conf).map_err(io_error)?,
            session_timeout: ms("zookeeper.session.timeout", 90_000)?,
            report_interval: ms("hbase.regionserver.msginterval", 3_000)?.max(REPORT_INTERVAL_MIN),
            rpc_timeout: ms("hbase.rpc.timeout", 60_000)?.max(Duration::from_millis(1)),
            opener_threads: threads("hbase.regionserver.executor.openregion.threads", 3)?,
            priority_opener_threads: threads("hbase.regionserver.executor.openpriorityregion.threads", 3)?,
            closer_threads: threads("hbase.regionserver.executor.closeregion.threads", 3)?,
            splitter_threads: splitter_threads(conf)?,
            move_timeout: ms("evenkeel.regionserver.stop.move.timeout.ms", 30_000)?,
            hot_blocks: HotBlockSettings::from(conf)?,
        })
    }
}

/// The limit on threads of one kind.
const THREADS_MAX: u64 = 256;
/// The shortest interval of reports.
const REPORT_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// `hbase.zookeeper.quorum`, with `hbase.zookeeper.property.clientPort` for servers without a port.
fn quorum(conf: &Configuration) -> Result<String> {
    const KEY: &str = "hbase.zookeeper.quorum";
    let port = conf.get_port_or("hbase.zookeeper.property.clientPort", 2181).map_err(io_error)?;
    let servers = conf.get_str_or(KEY, "127.0.0.1".to_owned()).map_err(io_error)?;
    let with_port = |server: &str| match server.contains(':') {
        true => server.to_owned(),
        false => format!("{server}:{port}"),
    };
    let servers = servers.split(',').map(str::trim).filter(|server| !server.is_empty());
    let servers: Vec<_> = servers.map(with_port).collect();
    if servers.is_empty() {
        Err(io_error(conf.unusable(KEY, "host,host:port")))
    } else {
        Ok(servers.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quorum_servers_default_to_the_client_port() {
        let mut conf = Configuration::new();
        conf.set("hbase.zookeeper.quorum", "a, b:7 ,c");
        conf.set("hbase.zookeeper.property.clientPort", "99");
        assert_eq!(ClusterSettings::from(&conf).expect("valid").quorum, "a:99,b:7,c:99");
        conf.set("hbase.zookeeper.quorum", ",");
        assert!(ClusterSettings::from(&conf).is_err());
    }
}
