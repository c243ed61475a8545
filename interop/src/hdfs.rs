//! Stock HDFS for tests: one or two NameNodes, and DataNodes of Hadoop 3.4, each in a separate JVM,
//! so that each can be killed, stopped and restarted.
//!
//! Two NameNodes share their edits through a directory, and [`HdfsCluster::activate`] makes one of
//! them active.
//!
//! They listen on free ports of 127.0.0.1 and end with the test process; see [`crate::server`].

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::server::{StockJvm, free_ports, http_get, run_folder, spawn, write_site_file};
use crate::{home, toolchain};

/// The timeout of a start; a cluster needs about 10 s on two free cores.
const START: Duration = Duration::from_secs(240);

const NAMENODE: &str = "org.apache.hadoop.hdfs.server.namenode.NameNode";
const DATANODE: &str = "org.apache.hadoop.hdfs.server.datanode.DataNode";

/// The name service of a pair of NameNodes.
const PAIR: &str = "pair";

/// NameNodes and their DataNodes.
pub struct HdfsCluster {
    folder: PathBuf,
    namenodes: Vec<NameNode>,
    datanodes: Vec<DataNode>,
}

struct NameNode {
    /// The ports of RPC and HTTP.
    ports: [u16; 2],
    process: Option<Process>,
}

struct DataNode {
    /// The ports of data transfer, RPC and HTTP.
    ports: [u16; 3],
    process: Option<Process>,
}

struct Process {
    guard: Child,
    stdin: Option<ChildStdin>,
    pid: u32,
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.guard.wait();
    }
}

impl HdfsCluster {
    /// Formats and starts a cluster with one NameNode; `own` are settings of its `hdfs-site.xml`.
    ///
    /// # Errors
    /// If the jars cannot be fetched, or it does not start in time.
    pub fn start(datanodes: usize, own: &[(&str, &str)]) -> Result<Self, String> {
        Self::start_with(1, datanodes, own)
    }

    /// As [`HdfsCluster::start`], with a pair of NameNodes, the first of which is active.
    ///
    /// # Errors
    /// As [`HdfsCluster::start`].
    pub fn start_pair(datanodes: usize, own: &[(&str, &str)]) -> Result<Self, String> {
        Self::start_with(2, datanodes, own)
    }

    fn start_with(namenodes: usize, datanodes: usize, own: &[(&str, &str)]) -> Result<Self, String> {
        let folder = run_folder("hdfs")?;
        let mut ports = free_ports();
        let mut port = || ports.next().ok_or("no free port");
        let (mut heads, mut nodes) = (Vec::new(), Vec::new());
        for _ in 0..namenodes {
            heads.push(NameNode { ports: [port()?, port()?], process: None });
        }
        for _ in 0..datanodes {
            nodes.push(DataNode { ports: [port()?, port()?, port()?], process: None });
        }
        let mut cluster = Self { folder, namenodes: heads, datanodes: nodes };
        cluster.write_conf(own)?;
        cluster.format()?;
        for index in 0..namenodes {
            cluster.start_namenode(index)?;
        }
        if cluster.is_pair() {
            cluster.activate(0)?;
        }
        for index in 0..datanodes {
            cluster.spawn_datanode(index)?;
        }
        for index in 0..datanodes {
            cluster.wait_for_datanode(index)?;
        }
        Ok(cluster)
    }

    /// `host:port` of the first NameNode.
    pub fn address(&self) -> String {
        self.namenode_address(0)
    }

    /// The authority of its URIs: `host:port` of the NameNode, or the name service of the pair.
    pub fn authority(&self) -> String {
        if self.is_pair() { PAIR.to_owned() } else { self.address() }
    }

    fn is_pair(&self) -> bool {
        self.namenodes.len() > 1
    }

    fn namenode_address(&self, index: usize) -> String {
        format!("127.0.0.1:{}", self.namenodes[index].ports[0])
    }

    /// The folder of its data and logs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder with `core-site.xml` and `hdfs-site.xml`.
    pub fn conf(&self) -> PathBuf {
        self.folder.join("conf")
    }

    /// The DataNode that listens on this port for data transfer.
    pub fn datanode_at(&self, transfer_port: u16) -> Option<usize> {
        self.datanodes.iter().position(|node| node.ports[0] == transfer_port)
    }

    /// Kills a DataNode by `kill -9`.
    pub fn kill_datanode(&mut self, index: usize) {
        if let Some(process) = self.datanodes[index].process.take() {
            signal(process.pid, "-KILL");
        }
    }

    /// Stops a DataNode by SIGSTOP, or continues it. Returns when all its threads have stopped: a
    /// thread runs on for a while after the signal is sent.
    pub fn freeze_datanode(&self, index: usize, frozen: bool) {
        let Some(process) = &self.datanodes[index].process else { return };
        signal(process.pid, if frozen { "-STOP" } else { "-CONT" });
        let deadline = Instant::now() + Duration::from_secs(10);
        while frozen && !is_stopped(process.pid) {
            assert!(Instant::now() < deadline, "process {} runs on", process.pid);
            sleep(Duration::from_millis(5));
        }
    }

    /// Starts all servers that do not run.
    ///
    /// # Errors
    /// If one does not start in time.
    pub fn start_missing(&mut self) -> Result<(), String> {
        for index in 0..self.namenodes.len() {
            if self.namenodes[index].process.is_none() {
                self.start_namenode(index)?;
            }
        }
        let missing = (0..self.datanodes.len()).filter(|&index| self.datanodes[index].process.is_none());
        missing.collect::<Vec<_>>().into_iter().try_for_each(|index| self.start_datanode(index))
    }

    /// Restarts a DataNode, on its data and ports.
    ///
    /// # Errors
    /// If it does not start in time.
    pub fn start_datanode(&mut self, index: usize) -> Result<(), String> {
        self.spawn_datanode(index)?;
        self.wait_for_datanode(index)
    }

    /// Kills a NameNode by `kill -9`.
    pub fn kill_namenode(&mut self, index: usize) {
        if let Some(process) = self.namenodes[index].process.take() {
            signal(process.pid, "-KILL");
        }
    }

    /// Starts a NameNode, on its data and port. One of a pair is a standby then.
    ///
    /// # Errors
    /// If it does not start in time.
    pub fn start_namenode(&mut self, index: usize) -> Result<(), String> {
        let name = format!("namenode{index}");
        let process = self.spawn_java(&name, 160, NAMENODE, &self.id_of(index))?;
        let port = self.namenodes[index].ports[0];
        self.namenodes[index].process = Some(process);
        self.wait_until(&name, || TcpStream::connect(("127.0.0.1", port)).is_ok())
    }

    /// Makes a NameNode of the pair active by `hdfs haadmin`. The other one must be dead or a
    /// standby.
    ///
    /// # Errors
    /// If it does not become active.
    pub fn activate(&self, index: usize) -> Result<(), String> {
        let name = format!("nn{index}");
        let args = ["-transitionToActive", "--forceactive", &name];
        self.run("haadmin", "org.apache.hadoop.hdfs.tools.DFSHAAdmin", &args).map(drop)
    }

    /// Puts the active NameNode into safe mode, or ends it.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn set_safe_mode(&self, on: bool) -> Result<(), String> {
        let args = ["-safemode", if on { "enter" } else { "leave" }];
        self.run("dfsadmin", "org.apache.hadoop.hdfs.tools.DFSAdmin", &args).map(drop)
    }

    /// The arguments by which a NameNode of a pair knows which one it is.
    fn id_of(&self, index: usize) -> Vec<String> {
        match self.is_pair() {
            true => vec!["-D".to_owned(), format!("dfs.ha.namenode.id=nn{index}")],
            false => Vec::new(),
        }
    }

    /// A metric of a DataNode by its name in `/jmx`, such as `FsyncCount`.
    ///
    /// # Errors
    /// If the DataNode does not answer, or does not have it.
    pub fn datanode_metric(&self, index: usize, name: &str) -> Result<u64, String> {
        let query = "Hadoop:service=DataNode,name=DataNodeActivity*";
        let text = http_get(self.datanodes[index].ports[2], &format!("/jmx?qry={query}"))?;
        let key = format!("\"{name}\" : ");
        let at = text.find(&key).ok_or_else(|| format!("{name} is not in {text}"))? + key.len();
        let digits: String = text[at..].chars().take_while(char::is_ascii_digit).collect();
        digits.parse().map_err(|e| format!("{name}: {e}"))
    }

    /// Runs Hadoop's `hdfs dfs` with these arguments; returns its output.
    ///
    /// # Errors
    /// If it fails.
    pub fn shell(&self, args: &[&str]) -> Result<Vec<u8>, String> {
        self.run("shell", "org.apache.hadoop.fs.FsShell", args)
    }

    /// What `hdfs storagepolicies` says about a file or directory.
    ///
    /// # Errors
    /// If it fails.
    pub fn storage_policy(&self, path: &str) -> Result<String, String> {
        let class = "org.apache.hadoop.hdfs.tools.StoragePolicyAdmin";
        let output = self.run("storagepolicies", class, &["-getStoragePolicy", "-path", path])?;
        Ok(String::from_utf8_lossy(&output).into_owned())
    }

    /// Runs a command of Hadoop, whose log has this name.
    fn run(&self, name: &str, class: &str, args: &[&str]) -> Result<Vec<u8>, String> {
        let mut command = Command::new(toolchain::java_command());
        command.args(self.java_args(name, 256)?).arg(class).args(args);
        let output = command.output().map_err(|e| format!("cannot run java: {e}"))?;
        match output.status.success() {
            true => Ok(output.stdout),
            false => Err(format!("{class} {args:?}: {}", String::from_utf8_lossy(&output.stderr))),
        }
    }

    fn write_conf(&self, own: &[(&str, &str)]) -> Result<(), String> {
        let (conf, folder) = (self.conf(), self.folder.display());
        // The published jars lack the web pages, but the servers require their folders.
        for name in ["webapps/hdfs", "webapps/datanode"] {
            fs::create_dir_all(conf.join(name)).map_err(|e| format!("cannot make {name}: {e}"))?;
        }
        let core = [
            ("fs.defaultFS".to_owned(), format!("hdfs://{}", self.authority())),
            ("hadoop.tmp.dir".to_owned(), format!("{folder}/tmp")),
        ];
        write_site_file(&conf.join("core-site.xml"), &core)?;
        let hdfs = [
            ("dfs.replication", "3".to_owned()),
            // A NameNode counts a whole block of each open log against the free space: with the
            // default of 128 MiB, a test that starts many servers would need tens of GiB.
            ("dfs.blocksize", (4 << 20).to_string()),
            ("dfs.namenode.secondary.http-address", "127.0.0.1:0".to_owned()),
            ("dfs.namenode.datanode.registration.ip-hostname-check", "false".to_owned()),
            ("dfs.datanode.hostname", "localhost".to_owned()),
            ("dfs.permissions.enabled", "false".to_owned()),
            ("dfs.namenode.safemode.extension", "0".to_owned()),
            ("dfs.heartbeat.interval", "1".to_owned()),
            ("dfs.namenode.redundancy.considerLoad", "false".to_owned()),
        ];
        let hdfs = hdfs.into_iter().map(|(key, value)| (key.to_owned(), value));
        let hdfs = hdfs.chain(self.namenode_settings());
        let own = own.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        write_site_file(&conf.join("hdfs-site.xml"), &hdfs.chain(own).collect::<Vec<_>>())?;
        let from = home().join("conf/log4j2-server.properties");
        fs::copy(&from, conf.join("log4j2.properties"))
            .map(drop)
            .map_err(|e| format!("cannot copy {}: {e}", from.display()))
    }

    /// The settings of a program that uses it.
    pub fn client_settings(&self) -> Vec<(String, String)> {
        let default = ("fs.defaultFS".to_owned(), format!("hdfs://{}", self.authority()));
        std::iter::once(default).chain(self.namenode_settings()).collect()
    }

    /// The addresses and directories of the NameNodes.
    fn namenode_settings(&self) -> Vec<(String, String)> {
        let folder = self.folder.display();
        let mut settings = Vec::new();
        for (index, node) in self.namenodes.iter().enumerate() {
            let suffix = if self.is_pair() { format!(".{PAIR}.nn{index}") } else { String::new() };
            let mut set = |key: &str, value| settings.push((format!("dfs.namenode.{key}{suffix}"), value));
            set("name.dir", format!("file://{}", self.name_dir(index).display()));
            set("rpc-address", self.namenode_address(index));
            set("http-address", format!("127.0.0.1:{}", node.ports[1]));
        }
        if self.is_pair() {
            let pair = [
                ("dfs.nameservices".to_owned(), PAIR.to_owned()),
                (format!("dfs.ha.namenodes.{PAIR}"), "nn0,nn1".to_owned()),
                ("dfs.namenode.shared.edits.dir".to_owned(), format!("file://{folder}/edits")),
                (
                    format!("dfs.client.failover.proxy.provider.{PAIR}"),
                    "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider".to_owned(),
                ),
                ("dfs.ha.fencing.methods".to_owned(), "shell(/bin/true)".to_owned()),
                ("dfs.ha.standby.checkpoints".to_owned(), "false".to_owned()),
                ("dfs.ha.log-roll.period".to_owned(), "2".to_owned()),
                ("dfs.ha.tail-edits.period".to_owned(), "1".to_owned()),
            ];
            settings.extend(pair);
        }
        settings
    }

    fn name_dir(&self, index: usize) -> PathBuf {
        self.folder.join(format!("namenode{index}"))
    }

    /// Formats the first NameNode. A second one begins with a copy of its directory.
    fn format(&self) -> Result<(), String> {
        let id = self.id_of(0);
        let mut args: Vec<&str> = id.iter().map(String::as_str).collect();
        args.extend(["-format", "-nonInteractive", "-force"]);
        self.run("format", NAMENODE, &args)?;
        for index in 1..self.namenodes.len() {
            let (from, to) = (self.name_dir(0).join("current"), self.name_dir(index).join("current"));
            let entries = fs::read_dir(&from).and_then(|entries| {
                fs::create_dir_all(&to)?;
                entries.collect::<Result<Vec<_>, _>>()
            });
            for entry in entries.map_err(|e| format!("cannot copy {}: {e}", from.display()))? {
                let copied = fs::copy(entry.path(), to.join(entry.file_name()));
                copied.map_err(|e| format!("cannot copy {}: {e}", entry.path().display()))?;
            }
        }
        Ok(())
    }

    fn java_args(&self, name: &str, heap_mib: u32) -> Result<Vec<String>, String> {
        let mut args = toolchain::jvm_flags();
        args.extend(StockJvm::small().flags);
        args.push(format!("-Xmx{heap_mib}m"));
        args.push(format!("-Devenkeel.log.file={}", self.log(name).display()));
        args.extend(["-cp".to_owned(), toolchain::server_class_path(&self.conf())?]);
        Ok(args)
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.log"))
    }

    fn spawn_java(&self, name: &str, heap_mib: u32, class: &str, more: &[String]) -> Result<Process, String> {
        let mut command = vec![toolchain::java_command().display().to_string()];
        command.extend(self.java_args(name, heap_mib)?);
        command.push(class.to_owned());
        command.extend(more.iter().cloned());
        let ((guard, stdin), pid) = spawn(&command, &self.folder.join(format!("{name}.out")))?;
        Ok(Process { guard, stdin, pid })
    }

    fn spawn_datanode(&mut self, index: usize) -> Result<(), String> {
        let [transfer, rpc, http] = self.datanodes[index].ports;
        let define = |key: &str, value: String| ["-D".to_owned(), format!("dfs.datanode.{key}={value}")];
        let mut more = Vec::new();
        more.extend(define("data.dir", format!("file://{}/datanode{index}", self.folder.display())));
        more.extend(define("address", format!("127.0.0.1:{transfer}")));
        more.extend(define("ipc.address", format!("127.0.0.1:{rpc}")));
        more.extend(define("http.address", format!("127.0.0.1:{http}")));
        let process = self.spawn_java(&format!("datanode{index}"), 128, DATANODE, &more)?;
        self.datanodes[index].process = Some(process);
        Ok(())
    }

    /// Waits until a DataNode answers and has registered with the NameNode.
    fn wait_for_datanode(&self, index: usize) -> Result<(), String> {
        let ports = self.datanodes[index].ports;
        let name = format!("datanode{index}");
        self.wait_until(&name, || TcpStream::connect(("127.0.0.1", ports[0])).is_ok())?;
        let query = "/jmx?qry=Hadoop:service=DataNode,name=DataNodeInfo";
        let is_registered =
            || http_get(ports[2], query).is_ok_and(|text| text.contains(r#"\"NamenodeHaState\":\"active\""#));
        self.wait_until(&name, is_registered)
    }

    fn wait_until(&self, name: &str, ready: impl Fn() -> bool) -> Result<(), String> {
        let start = Instant::now();
        while !ready() {
            if start.elapsed() > START {
                let log = fs::read_to_string(self.log(name)).unwrap_or_default();
                let tail: Vec<&str> = log.lines().rev().take(25).collect();
                return Err(format!(
                    "{name} is not ready after {START:?}; the end of its log, last line first:\n{}",
                    tail.join("\n")
                ));
            }
            sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

/// Returns true if all threads of the process are stopped by a signal.
fn is_stopped(pid: u32) -> bool {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    tasks.flatten().all(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        // The state follows the name, which is in parentheses.
        stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('T'))
    })
}

fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "process {pid} was not sent {name}");
}
