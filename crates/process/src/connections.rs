//! [`DescriptorLimits`]: the maximum number of connections of each port, so that file descriptors
//! remain for WALs and store files, and the number of store files, so that descriptors remain for
//! WALs, flushes and compactions.
//!
//! At start, the process raises the soft limit of open files to the hard one. Connections may use
//! that limit minus [`kept_for_files`]; at most as many as fit into the memory reserve at
//! [`CONNECTION_BYTES`] each; and at most `evenkeel.ipc.server.connections.max`. The RegionServer
//! gets 5/8 of them, the master 2/8, the ZooKeeper endpoint 1/8, so that no port can use up those
//! of another.
//!
//! Clients may add store files while those take less than half of the descriptors that connections
//! cannot use ([`evenkeel_region::store::OpenFiles`]). The other half is for logs, flushes and
//! compactions, and for a change of a table, which opens the files of its regions a second time. A
//! quarter of it, an eighth of all, may be MOB files that reads have opened
//! ([`evenkeel_region::store::MobFileCache`]).

use std::time::Duration;

use evenkeel_common::length;
use evenkeel_common::{Configuration, Result, TimeUnit};
use evenkeel_rpc::{IdleConfig, RpcServerConfig};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::io_error;

/// Memory of an idle connection: its task, its socket's entry and its place in tables.
pub(crate) const CONNECTION_BYTES: u64 = 4 << 10;
/// Fewer connections are useless: the server starts with this many even if they do not fit.
const CONNECTIONS_MIN: u64 = 64;
/// The number of descriptors kept for files if a quarter of the limit is less.
const FILES_WANTED: u64 = 1024;
/// A lower limit of open files is reported in the log.
const DESCRIPTORS_WANTED: u64 = 4096;
/// The assumed limit if the system does not report one.
const DESCRIPTORS_DEFAULT: u64 = 1024;

const MAX: &str = "evenkeel.ipc.server.connections.max";
const HANDSHAKE: &str = "evenkeel.ipc.server.handshake.timeout";
const RECEIVE: &str = "evenkeel.ipc.server.receive.timeout";
const IDLE_THRESHOLD: &str = "hbase.ipc.client.idlethreshold";
const IDLE_TIME: &str = "hbase.ipc.client.connection.maxidletime";
const IDLE_SCAN: &str = "hbase.ipc.client.connection.idle-scan-interval.ms";
const IDLE_CLOSED: &str = "hbase.ipc.client.kill.max";

/// The parts of the file descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorLimits {
    /// Connections of the RegionServer's port.
    pub regionserver: usize,
    /// Connections of the master's port.
    pub master: usize,
    /// Connections of the ZooKeeper endpoint.
    pub zookeeper: usize,
    /// Open store files above which clients cannot add any.
    pub store_files: usize,
    /// MOB files that stay open.
    pub mob_files: usize,
}

impl DescriptorLimits {
    /// Computes the limits for a process with `descriptors` open files and a reserve of `reserve`
    /// bytes for connections.
    ///
    /// # Errors
    /// One line that names the key, its value and what was expected.
    pub fn new(conf: &Configuration, descriptors: u64, reserve: u64) -> Result<Self> {
        let possible =
            descriptors.saturating_sub(kept_for_files(descriptors)).min(reserve / CONNECTION_BYTES);
        let set =
            if conf.is_set(MAX) { Some(conf.get_u64_or(MAX, possible).map_err(io_error)?) } else { None };
        let all = set.map_or(possible, |set| set.min(possible)).max(CONNECTIONS_MIN);
        let part = |of: u64, eighths: u64| usize::try_from(of / 8 * eighths).unwrap_or(usize::MAX);
        let rest = descriptors.saturating_sub(all);
        Ok(Self {
            regionserver: part(all, 5),
            master: part(all, 2),
            zookeeper: part(all, 1),
            store_files: part(rest, 4),
            mob_files: part(rest, 1),
        })
    }
}

/// Returns the number of descriptors kept for WALs and store files: half of the limit; or
/// [`FILES_WANTED`] or a quarter of the limit, whichever is more, if that is less.
fn kept_for_files(descriptors: u64) -> u64 {
    (descriptors / 2).min(FILES_WANTED.max(descriptors / 4))
}

/// Raises the soft limit of open files to the hard one. Returns the limit.
pub fn raise_descriptors() -> u64 {
    let found = getrlimit(Resource::Nofile);
    if found.current < found.maximum || found.maximum.is_none() {
        let raised = Rlimit { current: found.maximum, maximum: found.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "the limit of open files (ulimit -n) cannot be raised");
        }
    }
    let now = getrlimit(Resource::Nofile).current.unwrap_or(DESCRIPTORS_DEFAULT);
    if now < DESCRIPTORS_WANTED {
        tracing::warn!(
            limit = now,
            kept_for_files = kept_for_files(now),
            "the limit of open files (ulimit -n) is low; connections are limited to what it leaves"
        );
    }
    now
}

/// Returns the time limits of input in both phases of a connection: the handshake, and a request.
///
/// # Errors
/// One line that names the key, its value and what was expected.
pub fn timeouts(conf: &Configuration) -> Result<(Duration, Duration)> {
    let time = |key: &str, default_ms| {
        let ms = conf.get_time_or(key, TimeUnit::Milliseconds, default_ms).map_err(io_error)?;
        match u64::try_from(ms) {
            Ok(ms @ 1..) => Ok(Duration::from_millis(ms)),
            _ => Err(io_error(conf.unusable(key, "more than 0"))),
        }
    };
    Ok((time(HANDSHAKE, 20_000)?, time(RECEIVE, 30_000)?))
}

/// Applies the settings for idle and slow connections.
///
/// # Errors
/// One line that names the key, its value and what was expected.
pub fn set_connections(conf: &Configuration, config: &mut RpcServerConfig) -> Result<()> {
    (config.handshake_timeout, config.receive_timeout) = timeouts(conf)?;
    let default = IdleConfig::default();
    let count = |key: &str, default: usize| {
        let count = conf.get_u64_or(key, default as u64).map_err(io_error)?;
        Ok::<_, evenkeel_common::HBaseError>(usize::try_from(count).unwrap_or(usize::MAX))
    };
    let ms = |key: &str, default: Duration| {
        let ms = conf
            .get_time_or(key, TimeUnit::Milliseconds, length::whole_ms(default) as i64)
            .map_err(io_error)?;
        u64::try_from(ms).map_err(|_| io_error(conf.unusable(key, "0 or more")))
    };
    config.idle = IdleConfig {
        threshold: count(IDLE_THRESHOLD, default.threshold)?,
        time_max: Duration::from_millis(ms(IDLE_TIME, default.time_max / 2)?.saturating_mul(2)),
        closed_max: count(IDLE_CLOSED, default.closed_max)?,
        scan_interval: Duration::from_millis(ms(IDLE_SCAN, default.scan_interval)?),
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(pairs: &[(&str, &str)]) -> Configuration {
        let mut conf = Configuration::with_system_properties(Default::default());
        pairs.iter().for_each(|(key, value)| conf.set(*key, *value));
        conf
    }

    #[test]
    fn connection_limits_fit_the_descriptors_and_the_reserve() {
        let all = |pairs: &[(&str, &str)], descriptors, reserve| {
            let limits = DescriptorLimits::new(&conf(pairs), descriptors, reserve).expect("valid");
            assert!(limits.regionserver > limits.master && limits.master > limits.zookeeper);
            (limits.regionserver + limits.master + limits.zookeeper) as u64
        };
        let much = 1 << 40;
        assert_eq!(all(&[], 256, much), 128);
        assert_eq!(all(&[], 1024, much), 512);
        assert_eq!(all(&[], 4096, much), 3072);
        assert_eq!(all(&[], 1 << 20, much), 3 << 18);
        assert_eq!(all(&[], 1 << 20, 8 << 20), 2048, "what fits into 8 MiB");
        assert_eq!(all(&[], 20, 0), CONNECTIONS_MIN);
        assert_eq!(all(&[(MAX, "800")], 1 << 20, much), 800);
        assert_eq!(all(&[(MAX, "800")], 1024, much), 512, "no more than are possible");
    }

    #[test]
    fn clients_may_add_store_files_in_the_descriptors_that_connections_leave() {
        let store_files = |descriptors, reserve| {
            DescriptorLimits::new(&conf(&[]), descriptors, reserve).expect("valid").store_files
        };
        assert_eq!(store_files(256, 1 << 40), 64);
        assert_eq!(store_files(1 << 20, 1 << 40), 1 << 17);
        assert_eq!(store_files(1 << 20, 8 << 20), 4 * ((1 << 17) - 256), "connections are few");
        assert_eq!(store_files(20, 0), 0);
        let limits = DescriptorLimits::new(&conf(&[]), 4096, 1 << 40).expect("valid");
        assert_eq!((limits.store_files, limits.mob_files), (512, 128));
    }

    #[test]
    fn connection_timeouts_and_idle_limits_are_configurable() {
        let read = |pairs: &[(&str, &str)]| {
            let mut config = RpcServerConfig::at(([127, 0, 0, 1], 0).into());
            set_connections(&conf(pairs), &mut config).map(|()| config)
        };
        assert_eq!(read(&[]).expect("valid").idle, IdleConfig::default());
        let set =
            [(IDLE_TIME, "70"), (IDLE_THRESHOLD, "3"), (IDLE_CLOSED, "2"), (IDLE_SCAN, "9"), (RECEIVE, "8")];
        let config = read(&set).expect("valid");
        let expected = IdleConfig {
            threshold: 3,
            time_max: Duration::from_millis(140),
            closed_max: 2,
            scan_interval: Duration::from_millis(9),
        };
        assert_eq!((config.idle, config.receive_timeout), (expected, Duration::from_millis(8)));
        assert!(read(&[(RECEIVE, "0")]).is_err() && read(&[(IDLE_TIME, "-1")]).is_err());
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        raise_descriptors();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }
}
