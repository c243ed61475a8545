//! A stock cluster of separate processes: HDFS or one local directory, ZooKeeper, an HMaster, and
//! RegionServers of either kind, each killed and started separately.
//!
//! On HDFS every process has `core-site.xml` and `hdfs-site.xml` in its configuration directory,
//! and logs have a directory of their own.
//!
//! Stock HBase takes a `file:` root directory with `hbase.cluster.distributed=true` once
//! `hbase.unsafe.stream.capability.enforce` is false: all processes share the machine's files.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::server::{
    START, Server, ServerKind, StockJvm, copy_stock_conf, free_ports, run_folder, spawn, wait_until,
    write_site,
};
use crate::{HdfsCluster, evenkeel_binary, java, toolchain};

/// The session timeout: the time after which a killed server counts as dead.
const SESSION_MS: u32 = 6_000;

/// Where the files of a cluster are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterStorage {
    /// A NameNode and this many DataNodes.
    Hdfs(usize),
    /// A pair of NameNodes and this many DataNodes.
    HdfsPair(usize),
    /// A local directory.
    Directory,
}

/// How the process of a RegionServer is started.
#[derive(Clone, Debug)]
pub enum RegionServerProcess {
    /// HBase's server in this JVM.
    Stock(StockJvm),
    /// Evenkeel's, by a command that ends with its binary: `taskset -c 0 evenkeel`.
    Evenkeel(Vec<String>),
}

/// A running cluster, without its RegionServers.
pub struct Cluster {
    folder: PathBuf,
    settings: BTreeMap<String, String>,
    of_master: BTreeMap<String, String>,
    /// The current master, and the number of those before it.
    master: Option<Server>,
    earlier_masters: u32,
    zookeeper: Option<Server>,
    hdfs: Option<HdfsCluster>,
}

impl Cluster {
    /// Starts ZooKeeper and a master, which waits for its first RegionServer.
    ///
    /// # Errors
    /// If the jars cannot be fetched, or a process does not start.
    pub fn start(storage: ClusterStorage) -> Result<Self, String> {
        Self::start_with(storage, &[])
    }

    /// As [`Cluster::start`], with extra settings of all processes.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub fn start_with(storage: ClusterStorage, own: &[(&str, &str)]) -> Result<Self, String> {
        Self::start_with_settings(storage, own, &[])
    }

    /// As [`Cluster::start_with`], with settings of `hdfs-site.xml`.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub fn start_with_settings(
        storage: ClusterStorage,
        own: &[(&str, &str)],
        of_hdfs: &[(&str, &str)],
    ) -> Result<Self, String> {
        let folder = run_folder("cluster")?;
        let zookeeper_port = free_port()?;
        let mut settings = settings(&folder, zookeeper_port);
        settings.extend(own.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        let zookeeper = zookeeper(&folder, zookeeper_port)?;
        let hdfs = match storage {
            ClusterStorage::Directory => None,
            ClusterStorage::Hdfs(datanodes) => Some(HdfsCluster::start(datanodes, of_hdfs)?),
            ClusterStorage::HdfsPair(datanodes) => Some(HdfsCluster::start_pair(datanodes, of_hdfs)?),
        };
        if let Some(hdfs) = &hdfs {
            copy_hadoop_conf(hdfs, &folder)?;
            settings.insert("hbase.rootdir".into(), format!("hdfs://{}/hbase", hdfs.authority()));
            settings.insert("hbase.wal.dir".into(), format!("hdfs://{}/wals", hdfs.authority()));
            settings.remove("hbase.unsafe.stream.capability.enforce");
        }
        let mut of_master = settings.clone();
        of_master.insert("hbase.master.port".into(), free_port()?.to_string());
        // Its log has blocks of twice that, and a NameNode counts one for each block being written.
        of_master.insert("hbase.master.store.region.flush.size".into(), (4 << 20).to_string());
        let mut cluster = Self {
            folder,
            settings,
            of_master,
            master: None,
            earlier_masters: 0,
            zookeeper: Some(zookeeper),
            hdfs,
        };
        cluster.start_master()?;
        Ok(cluster)
    }

    fn start_master(&mut self) -> Result<(), String> {
        let class = [HMASTER, "start"];
        self.master =
            Some(stock(&self.folder, &self.master_name(), &self.of_master, &class, &small_jvm(384))?);
        Ok(())
    }

    fn master_name(&self) -> String {
        format!("master{}", self.earlier_masters)
    }

    /// Kills the master by `kill -9` and starts another one at its address. Returns when it serves
    /// its clients.
    ///
    /// # Errors
    /// If it does not in three minutes.
    pub fn replace_master(&mut self) -> Result<(), String> {
        if let Some(master) = self.master.take() {
            master.kill();
        }
        self.earlier_masters += 1;
        self.start_master()?;
        self.wait_for_master()
    }

    /// Kills ZooKeeper by `kill -9` and starts it on its data and port.
    ///
    /// # Errors
    /// If it does not start in three minutes.
    pub fn restart_zookeeper(&mut self) -> Result<(), String> {
        if let Some(zookeeper) = self.zookeeper.take() {
            zookeeper.kill();
        }
        self.zookeeper = Some(zookeeper(&self.folder, self.zookeeper_port())?);
        Ok(())
    }

    /// Takes the cluster down by HBase's command, as `stop-hbase.sh` does.
    ///
    /// # Errors
    /// If the command fails.
    pub fn shut_down(&self) -> Result<(), String> {
        let class_path = toolchain::server_class_path(&self.folder.join(self.master_name()))?;
        let run = java(HMASTER, &["stop", "--shutDownCluster"].map(str::to_owned))
            .class_path(class_path)
            .label("shut-down")
            .run()?;
        if run.success { Ok(()) } else { Err(run.failures()) }
    }

    /// The HDFS of the cluster, if it is on one.
    pub fn hdfs(&self) -> Option<&HdfsCluster> {
        self.hdfs.as_ref()
    }

    /// The HDFS of the cluster, if it is on one, to end and start its servers.
    pub fn hdfs_mut(&mut self) -> Option<&mut HdfsCluster> {
        self.hdfs.as_mut()
    }

    /// Waits until the master serves its clients: then a RegionServer has hbase:meta.
    ///
    /// # Errors
    /// After three minutes.
    pub fn wait_for_master(&self) -> Result<(), String> {
        let log = self.folder.join(format!("{}.log", self.master_name()));
        let is_up = || fs::read_to_string(&log).is_ok_and(|text| text.contains("completed initialization"));
        let master = self.master.as_ref().ok_or("there is no master")?;
        wait_until(master, master.pid(), is_up)
    }

    /// The log of a RegionServer that was started under this name, with what it has printed.
    ///
    /// # Errors
    /// If there is none.
    pub fn log(&self, name: &str) -> Result<String, String> {
        let logs = [self.folder.join(name).join("server.log"), self.folder.join(format!("{name}.log"))];
        let texts: Vec<String> = logs.iter().filter_map(|log| fs::read_to_string(log).ok()).collect();
        if texts.is_empty() {
            return Err(format!("{name} has no log in {}", self.folder.display()));
        }
        Ok(texts.concat())
    }

    /// A folder with an `hbase-site.xml` for clients.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn client_conf(&self) -> Result<PathBuf, String> {
        let folder = self.folder.join("client");
        write_site(&folder, &self.client_settings())?;
        add_hadoop_conf(&self.folder, &folder)?;
        Ok(folder)
    }

    /// The settings that a client needs.
    pub fn client_settings(&self) -> Vec<(String, String)> {
        let keys = ["hbase.zookeeper.quorum", "hbase.zookeeper.property.clientPort"];
        keys.iter().filter_map(|key| Some(((*key).to_owned(), self.settings.get(*key)?.clone()))).collect()
    }

    /// The port of ZooKeeper.
    pub fn zookeeper_port(&self) -> u16 {
        self.settings
            .get("hbase.zookeeper.property.clientPort")
            .and_then(|port| port.parse().ok())
            .unwrap_or(0)
    }

    /// Starts a RegionServer, with extra settings; returns when its port accepts.
    ///
    /// # Errors
    /// If it does not start in three minutes.
    pub fn start_regionserver(
        &self,
        kind: ServerKind,
        name: &str,
        own: &[(&str, &str)],
    ) -> Result<Server, String> {
        let process = match kind {
            ServerKind::Stock => RegionServerProcess::Stock(small_jvm(384)),
            ServerKind::Evenkeel => {
                RegionServerProcess::Evenkeel(vec![evenkeel_binary()?.display().to_string()])
            }
        };
        self.start_regionserver_as(&process, name, own)
    }

    /// As [`Cluster::start_regionserver`], in a given process.
    ///
    /// # Errors
    /// As [`Cluster::start_regionserver`].
    pub fn start_regionserver_as(
        &self,
        process: &RegionServerProcess,
        name: &str,
        own: &[(&str, &str)],
    ) -> Result<Server, String> {
        let port = free_port()?;
        let mut settings = self.settings.clone();
        settings.insert("hbase.regionserver.port".into(), port.to_string());
        settings.extend(own.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        let server = match process {
            RegionServerProcess::Stock(jvm) => {
                let class = ["org.apache.hadoop.hbase.regionserver.HRegionServer", "start"];
                stock(&self.folder, name, &settings, &class, jvm)?
            }
            RegionServerProcess::Evenkeel(command) => self.evenkeel(name, settings, command.clone())?,
        };
        let pid = server.pid();
        wait_until(&server, pid, || TcpStream::connect(("127.0.0.1", port)).is_ok())?;
        Ok(server)
    }

    /// Starts a RegionServer of Evenkeel whose thread of this name panics, which only a build with
    /// debug assertions does. Returns at once.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_with_a_panic_of(&self, thread: &str) -> Result<Server, String> {
        let mut settings = self.settings.clone();
        for key in ["hbase.regionserver.port", "hbase.regionserver.info.port"] {
            settings.insert(key.into(), free_port()?.to_string());
        }
        let panics = format!("EVENKEEL_TEST_PANIC={thread}");
        let command = vec!["env".to_owned(), panics, evenkeel_binary()?.display().to_string()];
        self.evenkeel(&format!("without-{thread}"), settings, command)
    }

    fn evenkeel(
        &self,
        name: &str,
        settings: BTreeMap<String, String>,
        mut command: Vec<String>,
    ) -> Result<Server, String> {
        command.push("regionserver".to_owned());
        let folder = self.folder.join(name);
        write_site(&folder, &settings.iter().map(|(k, v)| (k.clone(), v.clone())).collect::<Vec<_>>())?;
        add_hadoop_conf(&self.folder, &folder)?;
        command.push(format!("--config={}", folder.display()));
        if !settings.contains_key(MEMORY) {
            command.push(format!("-D{MEMORY}=256m"));
        }
        let guard = spawn(&command, &folder.join("server.log"))?;
        Ok(Server::of("Evenkeel", settings, folder, guard))
    }
}

const HMASTER: &str = "org.apache.hadoop.hbase.master.HMaster";
const MEMORY: &str = "evenkeel.memory.size";
const HADOOP_CONF: [&str; 2] = ["core-site.xml", "hdfs-site.xml"];

/// Puts the settings of HDFS into the folder of the cluster.
fn copy_hadoop_conf(hdfs: &HdfsCluster, folder: &Path) -> Result<(), String> {
    HADOOP_CONF.iter().try_for_each(|name| copy(&hdfs.conf().join(name), &folder.join(name)))
}

/// Gives a process the settings of HDFS, if the cluster has them.
fn add_hadoop_conf(folder: &Path, conf: &Path) -> Result<(), String> {
    let there = HADOOP_CONF.iter().filter(|name| folder.join(name).is_file());
    there.into_iter().try_for_each(|name| copy(&folder.join(name), &conf.join(name)))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    fs::copy(from, to).map(drop).map_err(|e| format!("cannot copy {}: {e}", from.display()))
}

/// A port that is free on loopback.
///
/// # Errors
/// If none is.
pub fn free_port() -> Result<u16, String> {
    free_ports().next().ok_or_else(|| "no free port".to_owned())
}

fn settings(folder: &Path, zookeeper_port: u16) -> BTreeMap<String, String> {
    let pairs = [
        ("hbase.cluster.distributed", "true".to_owned()),
        ("hbase.rootdir", format!("file://{}/hbase", folder.display())),
        ("hbase.tmp.dir", format!("{}/tmp", folder.display())),
        ("hbase.zookeeper.quorum", "127.0.0.1".to_owned()),
        ("hbase.zookeeper.property.clientPort", zookeeper_port.to_string()),
        ("zookeeper.session.timeout", SESSION_MS.to_string()),
        ("hbase.unsafe.stream.capability.enforce", "false".to_owned()),
        ("hbase.master.hostname", "localhost".to_owned()),
        ("hbase.regionserver.hostname", "localhost".to_owned()),
        ("hbase.unsafe.regionserver.hostname", "localhost".to_owned()),
        ("hbase.master.ipc.address", "127.0.0.1".to_owned()),
        ("hbase.regionserver.ipc.address", "127.0.0.1".to_owned()),
        ("hbase.master.info.port", "-1".to_owned()),
        ("hbase.regionserver.info.port", "-1".to_owned()),
        ("hbase.regionserver.msginterval", "1000".to_owned()),
        // How long a master waits for an answer of a server that is stopped and has hbase:meta.
        ("hbase.rpc.timeout", "10000".to_owned()),
        ("hbase.regionserver.slowlog.buffer.enabled", "true".to_owned()),
        ("hbase.regionserver.slowlog.systable.enabled", "true".to_owned()),
        ("hbase.slowlog.systable.chore.duration", "1000".to_owned()),
        // The test places the regions.
        ("hbase.balancer.period", "3600000".to_owned()),
    ];
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn zookeeper(folder: &Path, port: u16) -> Result<Server, String> {
    let conf = folder.join("zoo.cfg");
    let text = format!(
        "tickTime=1000\ndataDir={}/zookeeper\nclientPort={port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n",
        folder.display()
    );
    fs::write(&conf, text).map_err(|e| format!("cannot write {}: {e}", conf.display()))?;
    let conf = conf.display().to_string();
    let class = ["org.apache.zookeeper.server.quorum.QuorumPeerMain", &conf];
    let server = stock(folder, "zookeeper", &BTreeMap::new(), &class, &small_jvm(96))?;
    let pid = server.pid();
    wait_until(&server, pid, || TcpStream::connect(("127.0.0.1", port)).is_ok())?;
    Ok(server)
}

/// The JVM of a process of tests.
fn small_jvm(heap_mib: u32) -> StockJvm {
    let heap = format!("-Xmx{heap_mib}m");
    let mut jvm = StockJvm::small();
    jvm.flags.push(heap);
    jvm
}

/// Starts a stock process in `folder/name`, with its log in `name.log` beside that folder.
fn stock(
    folder: &Path,
    name: &str,
    settings: &BTreeMap<String, String>,
    class: &[&str],
    jvm: &StockJvm,
) -> Result<Server, String> {
    let conf = folder.join(name);
    write_site(&conf, &settings.iter().map(|(k, v)| (k.clone(), v.clone())).collect::<Vec<_>>())?;
    copy_stock_conf(&conf)?;
    add_hadoop_conf(folder, &conf)?;
    let mut command = jvm.under.clone();
    command.push(jvm.java.display().to_string());
    command.extend(toolchain::jvm_flags());
    command.extend(jvm.flags.iter().cloned());
    command.push(format!("-Devenkeel.log.file={}.log", conf.display()));
    command.extend(["-cp".into(), toolchain::server_class_path(&conf)?]);
    command.extend(class.iter().map(|&arg| arg.to_owned()));
    let guard = spawn(&command, &conf.join("server.log"))?;
    Ok(Server::of(&format!("stock {name}"), settings.clone(), conf, guard))
}

/// The time limit of a test's wait for the cluster.
pub const TIMEOUT: Duration = START;
