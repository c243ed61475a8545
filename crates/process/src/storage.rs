//! The file systems of a server, selected by `hbase.rootdir`.
//!
//! | setting | effect on HDFS |
//! |---|---|
//! | `hbase.rootdir` | an `hdfs:` URI, or a path when `fs.defaultFS` is one |
//! | `hbase.regionserver.hlog.blocksize`, `.replication` | block size and replication of a log |
//! | `hbase.regionserver.wal.roll.on.sync.ms` | a log unacknowledged for this time breaks |
//! | `evenkeel.wal.datanode.stall.ms` | a log breaks if one DataNode is behind for this time |
//! | `hbase.lease.recovery.timeout` | time limit for the recovery of a dead server's file |
//! | `hbase.regionserver.checksum.verify` | false: HDFS's checksums are verified as well |
//!
//! `evenkeel_hdfs::settings` lists Hadoop's settings.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_common::{Configuration, HBaseError, Result, TimeUnit};
use evenkeel_fs::{FileSystem, HdfsClient, HdfsSettings, LocalFileSystem, Location, bulk_permission};

use crate::{io_error, settings};

/// The smallest block size that a NameNode accepts (`dfs.namenode.fs-limits.min-block-size`).
const BLOCK_BYTES_MIN: u64 = 1 << 20;
/// Block sizes must be multiples of a checksum chunk.
const CHUNK_BYTES: u64 = 512;
/// The time in milliseconds for which one DataNode of a log may be behind all others.
const STALL_MS: i64 = 50;

/// Returns the file system of `hbase.rootdir`.
///
/// # Errors
/// One line about an invalid setting.
pub fn root_file_system(conf: &Configuration) -> Result<Arc<dyn FileSystem>> {
    file_system(conf, &settings::root_location(conf)?)
}

/// Returns the file system of a location, with the settings for servers.
///
/// # Errors
/// As [`root_file_system`].
pub fn file_system(conf: &Configuration, location: &Location) -> Result<Arc<dyn FileSystem>> {
    open(conf, location, hdfs_settings(conf, location)?)
}

/// Returns the file system of a location that a client has named. A call on it is tried on each
/// NameNode, and once more: a client must not hold a handler for all retries of a server.
///
/// # Errors
/// As [`root_file_system`].
pub fn other_file_system(conf: &Configuration, location: &Location) -> Result<Arc<dyn FileSystem>> {
    open(conf, location, other_settings(conf, location)?)
}

fn other_settings(conf: &Configuration, location: &Location) -> Result<Option<HdfsSettings>> {
    let of_hdfs = hdfs_settings(conf, location)?;
    Ok(of_hdfs.map(|of_hdfs| {
        let retries = u32::try_from(of_hdfs.namenodes.len()).unwrap_or(u32::MAX);
        HdfsSettings { attempts_max: of_hdfs.attempts_max.min(retries), ..of_hdfs }
    }))
}

/// Returns true if a location is in the file system of `hbase.rootdir`, perhaps under another name:
/// without an authority, or by the address of a NameNode (HBase's `FSUtils.isSameHdfs`). Waits for
/// the lookup of hosts unless the names show it.
///
/// # Errors
/// As [`root_file_system`].
pub fn is_root_file_system(conf: &Configuration, location: &Location) -> Result<bool> {
    let root = settings::root_location(conf)?;
    let (Location::Hdfs { .. }, Location::Hdfs { .. }) = (&root, location) else {
        return Ok(root.is_beside(location));
    };
    if location.authority().is_empty() || root.is_beside(location) {
        return Ok(true);
    }
    let namenodes =
        |at| hdfs_settings(conf, at).map(|found| found.map_or(Vec::new(), |found| found.namenodes));
    let (own, other) = (namenodes(&root)?, namenodes(location)?);
    if own.iter().any(|own| other.iter().any(|other| own.eq_ignore_ascii_case(other))) {
        return Ok(true);
    }
    let other = addresses(&other);
    Ok(addresses(&own).iter().any(|own| other.contains(own)))
}

/// Returns the addresses of those NameNodes whose hosts are found.
fn addresses(namenodes: &[String]) -> Vec<SocketAddr> {
    let found = namenodes.iter().filter_map(|namenode| namenode.to_socket_addrs().ok()).flatten();
    found.map(|found| SocketAddr::new(canonical(found.ip()), found.port())).collect()
}

/// Returns one address for all addresses of this machine, on each of which a NameNode may listen.
fn canonical(address: IpAddr) -> IpAddr {
    let address = address.to_canonical();
    let is_own = address.is_loopback() || address.is_unspecified() || UdpSocket::bind((address, 0)).is_ok();
    if is_own { Ipv4Addr::LOCALHOST.into() } else { address }
}

fn hdfs_settings(conf: &Configuration, location: &Location) -> Result<Option<HdfsSettings>> {
    location.hdfs_settings(conf).map_err(|e| HBaseError::io(e.to_string()))
}

fn open(
    conf: &Configuration,
    location: &Location,
    of_hdfs: Option<HdfsSettings>,
) -> Result<Arc<dyn FileSystem>> {
    let Some(of_hdfs) = of_hdfs else {
        let permission = bulk_permission(conf).map_err(|e| HBaseError::io(e.to_string()))?;
        let fs = LocalFileSystem::new().with_write_behind(settings::write_behind_bytes(conf)?);
        return Ok(Arc::new(fs.with_bulk_permission(permission)));
    };
    let client = HdfsClient::new(of_servers(conf, of_hdfs)?)?;
    let fs = location.hdfs_file_system(conf, client).map_err(|e| HBaseError::io(e.to_string()))?;
    Ok(Arc::new(fs))
}

fn of_servers(conf: &Configuration, of_hdfs: HdfsSettings) -> Result<HdfsSettings> {
    let ms = |key: &str, default: Duration| {
        let default = evenkeel_common::length::whole_ms(default) as i64;
        let ms = conf.get_time_or(key, TimeUnit::Milliseconds, default).map_err(io_error)?;
        Ok::<_, HBaseError>(Duration::from_millis(ms.max(1).unsigned_abs()))
    };
    Ok(HdfsSettings {
        stall_timeout: stall_timeout(conf)?,
        log_replication: log_replication(conf, of_hdfs.log_replication)?,
        log_block_bytes: log_block_bytes(conf, of_hdfs.log_block_bytes)?,
        ack_timeout: ms("hbase.regionserver.wal.roll.on.sync.ms", of_hdfs.ack_timeout)?,
        recovery_timeout: ms("hbase.lease.recovery.timeout", of_hdfs.recovery_timeout)?,
        ..of_hdfs
    })
}

/// A time of 0 disables it.
fn stall_timeout(conf: &Configuration) -> Result<Option<Duration>> {
    let ms = conf.get_time_or("evenkeel.wal.datanode.stall.ms", TimeUnit::Milliseconds, STALL_MS);
    let ms = u64::try_from(ms.map_err(io_error)?).unwrap_or(0);
    Ok((ms > 0).then(|| Duration::from_millis(ms)))
}

fn log_replication(conf: &Configuration, default: u16) -> Result<u16> {
    const KEY: &str = "hbase.regionserver.hlog.replication";
    let replicas = conf.get_u64_or(KEY, default.into()).map_err(io_error)?;
    let replicas = u16::try_from(replicas).ok().filter(|&replicas| replicas > 0);
    replicas.ok_or_else(|| io_error(conf.unusable(KEY, "1 to 65535")))
}

fn log_block_bytes(conf: &Configuration, default: u64) -> Result<u64> {
    let default = i64::try_from(default).unwrap_or(i64::MAX);
    let bytes = conf.get_size_or("hbase.regionserver.hlog.blocksize", default).map_err(io_error)?;
    Ok(bytes.unsigned_abs().max(BLOCK_BYTES_MIN).next_multiple_of(CHUNK_BYTES))
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
    fn the_scheme_of_the_root_directory_chooses() {
        let is_remote = |pairs: &[(&str, &str)]| root_file_system(&conf(pairs)).map(|fs| fs.is_remote());
        assert_eq!(is_remote(&[]), Ok(false));
        assert_eq!(is_remote(&[("hbase.rootdir", "hdfs://127.0.0.1:1/hbase")]), Ok(true));
        let default_fs = ("fs.defaultFS", "hdfs://127.0.0.1:1");
        assert_eq!(is_remote(&[default_fs, ("hbase.rootdir", "/hbase")]), Ok(true));
        assert_eq!(is_remote(&[default_fs, ("hbase.rootdir", "file:///hbase")]), Ok(false));
        let error = is_remote(&[("hbase.rootdir", "s3://bucket/hbase")]).expect_err("no such file system");
        assert!(error.message().contains("hbase.rootdir"), "{error}");
    }

    #[test]
    fn the_root_file_system_has_several_names() {
        let is_root = |conf: &Configuration, text: &str| {
            is_root_file_system(conf, &Location::parse(text).expect("usable")).expect(text)
        };
        let of_service = conf(&[
            ("hbase.rootdir", "hdfs://ek/hbase"),
            ("dfs.nameservices", "ek,other"),
            ("dfs.ha.namenodes.ek", "nn1,nn2"),
            ("dfs.namenode.rpc-address.ek.nn1", "127.0.0.1:1"),
            ("dfs.namenode.rpc-address.ek.nn2", "nn2.invalid"),
            ("dfs.namenode.rpc-address.other", "192.0.2.1:1"),
        ]);
        let same = [
            "ek",
            "",
            "127.0.0.1:1",
            "localhost:1",
            "0.0.0.0:1",
            "[::ffff:127.0.0.1]:01",
            "NN2.invalid:8020",
        ];
        for authority in same {
            assert!(is_root(&of_service, &format!("hdfs://{authority}/x")), "{authority}");
        }
        for other in ["hdfs://other/x", "hdfs://127.0.0.1:2/x", "hdfs://192.0.2.1:1/x", "file:///hbase", "/x"]
        {
            assert!(!is_root(&of_service, other), "{other}");
        }
        let local = conf(&[("hbase.rootdir", "file:///hbase")]);
        assert_eq!(["/x", "hdfs://127.0.0.1:1/x"].map(|text| is_root(&local, text)), [true, false]);
    }

    #[test]
    fn the_checksums_of_hdfs_are_verified_as_configured() {
        let root = ("hbase.rootdir", "hdfs://127.0.0.1:1/hbase");
        let trusts_callers = |verify: &str| {
            let conf = conf(&[root, ("hbase.regionserver.checksum.verify", verify)]);
            let of_server = format!("{:?}", root_file_system(&conf).expect("made"));
            let location = settings::root_location(&conf).expect("a location");
            let of_tool = format!("{:?}", location.file_system(&conf).expect("made"));
            [of_server, of_tool].map(|fs| fs.contains("trusts_callers: true"))
        };
        assert_eq!((trusts_callers("true"), trusts_callers("false")), ([true, true], [false, false]));
    }

    #[test]
    fn a_call_on_a_clients_file_system_is_tried_a_few_times() {
        let retries = |of_service: &str, max: &str| {
            let conf = conf(&[
                ("dfs.nameservices", "one,two"),
                ("dfs.namenode.rpc-address.one", "127.0.0.1:1"),
                ("dfs.ha.namenodes.two", "a,b"),
                ("dfs.namenode.rpc-address.two.a", "127.0.0.1:1"),
                ("dfs.namenode.rpc-address.two.b", "127.0.0.1:2"),
                ("dfs.client.failover.max.attempts", max),
            ]);
            let location = Location::parse(of_service).expect("usable");
            other_settings(&conf, &location).expect("usable").expect("of HDFS").attempts_max
        };
        assert_eq!([retries("hdfs://one/x", "15"), retries("hdfs://two/x", "15")], [1, 2]);
        assert_eq!(retries("hdfs://two/x", "0"), 0);
    }

    #[test]
    fn logs_have_hbases_settings() {
        let of = |pairs: &[(&str, &str)]| {
            let settings = of_servers(&conf(pairs), HdfsSettings::of_namenodes(["nn:8020"]));
            settings.map(|s| (s.log_replication, s.log_block_bytes, s.ack_timeout.as_millis()))
        };
        assert_eq!(of(&[]), Ok((3, 256 << 20, 10_000)));
        let set = [
            ("hbase.regionserver.hlog.replication", "2"),
            ("hbase.regionserver.hlog.blocksize", "1000"),
            ("hbase.regionserver.wal.roll.on.sync.ms", "3000"),
        ];
        assert_eq!(of(&set), Ok((2, 1 << 20, 3_000)));
        assert!(of(&[("hbase.regionserver.hlog.replication", "0")]).is_err());
    }

    #[test]
    fn the_limit_of_stalls_is_read() {
        let stall_ms = |value: &[&str]| {
            let pairs: Vec<_> = value.iter().map(|ms| ("evenkeel.wal.datanode.stall.ms", *ms)).collect();
            let settings = of_servers(&conf(&pairs), HdfsSettings::of_namenodes(["nn:8020"]));
            settings.expect("read").stall_timeout.map(|timeout| timeout.as_millis())
        };
        assert_eq!([stall_ms(&[]), stall_ms(&["80"])], [Some(50), Some(80)]);
        assert_eq!([stall_ms(&["0"]), stall_ms(&["-1"])], [None, None]);
    }
}
