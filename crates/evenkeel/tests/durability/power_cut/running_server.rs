//! A server in this process, from its start until its power is cut.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_client::{
    ClientConfig, ClusterOption, Connection, Error, NamespaceDescriptor, Put, SnapshotDescription, TableState,
};
use evenkeel_common::{
    ColumnFamilyDescriptor, Configuration, Durability, KeyValue, TableDescriptor, TableName,
};
use evenkeel_fs::{CreateOptions, FileSystem, MemoryFileSystem, PowerCutFileSystem};
use evenkeel_hfile::{HFileContext, HFileWriter, StoreFileMeta};
use evenkeel_protocol::pb;
use evenkeel_standalone::Standalone;
use prost::Message;

use crate::cluster_state::ClusterState;
use crate::common::{PORT_KEYS, config, free_ports, raw};
use crate::scenarios::Step;

/// Attempts to start if another process takes the ports.
const PORT_ATTEMPTS: usize = 20;
/// The time limit of a server's background work after its start.
const SETTLES: Duration = Duration::from_secs(5);

/// A server and a client of it. The client is dropped first: a stopping server waits for calls of
/// its connections.
pub struct RunningServer {
    connection: Connection,
    runtime: tokio::runtime::Runtime,
    ports: [u16; 5],
    server: Server,
}

struct Server {
    fs: PowerCutFileSystem,
    running: Option<Standalone>,
}

impl Drop for Server {
    /// Cuts the power.
    fn drop(&mut self) {
        self.fs.power_off();
        if let Some(running) = self.running.take() {
            drop(running.stop());
        }
    }
}

/// The archive keeps no file, so deleted data is gone.
const SETTINGS: [(&str, &str); 5] = [
    ("hbase.master.hfilecleaner.ttl", "0"),
    ("hbase.master.logcleaner.ttl", "0"),
    ("hbase.master.cleaner.interval", "3600000"),
    ("evenkeel.memory.size", "256m"),
    ("hbase.regionserver.handler.count", "4"),
];

fn start(
    fs: &PowerCutFileSystem,
    (root, wal_dir): (&Path, Option<&Path>),
    tracker: &str,
    ports: [u16; 5],
) -> evenkeel_common::Result<Standalone> {
    let mut conf = Configuration::with_system_properties(Default::default());
    conf.set("hbase.rootdir", format!("file://{}", root.display()));
    conf.set("hbase.tmp.dir", root.with_extension("tmp").display().to_string());
    PORT_KEYS.iter().zip(ports).for_each(|(key, port)| conf.set(*key, port.to_string()));
    SETTINGS.iter().for_each(|(key, value)| conf.set(*key, *value));
    conf.set("hbase.store.file-tracker.impl", tracker);
    if let Some(dir) = wal_dir {
        conf.set("hbase.wal.dir", format!("file://{}", dir.display()));
    }
    Standalone::start_on(Arc::new(fs.clone()), conf, Arc::new(|_| ()))
}

impl RunningServer {
    /// Starts on a disk; the root directory and the one of the logs are directories of this
    /// machine, too, for their locks. `tracker` is the store file tracker of new tables.
    pub fn start(
        fs: &PowerCutFileSystem,
        dirs: (&Path, Option<&Path>),
        tracker: &str,
    ) -> Result<Self, String> {
        let mut attempt = 0;
        let (ports, running) = loop {
            attempt += 1;
            let ports = free_ports();
            match start(fs, dirs, tracker, ports) {
                Ok(running) => break (ports, running),
                Err(e) if e.message().contains("cannot listen") && attempt < PORT_ATTEMPTS => {}
                Err(error) => return Err(format!("the server does not start: {error}")),
            }
        };
        let server = Server { fs: fs.clone(), running: Some(running) };
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        let bootstrap = format!("127.0.0.1:{}", ports[1]);
        // A region that is not served immediately is not served later either.
        let config =
            ClientConfig { retries: 3, operation_timeout: Duration::from_secs(20), ..config(&bootstrap) };
        let connection =
            runtime.block_on(Connection::connect(config)).map_err(|e| format!("connect: {e}"))?;
        Ok(Self { connection, runtime, ports, server })
    }

    /// The current state.
    pub fn state(&self) -> Result<ClusterState, String> {
        self.runtime.block_on(ClusterState::of(&self.connection))
    }

    /// The state once the archive is empty, as soon as it is the expected one.
    pub fn settled(&self, is_good: impl Fn(&ClusterState) -> bool) -> Result<ClusterState, String> {
        self.runtime
            .block_on(self.connection.admin().run_cleaner_chore())
            .map_err(|e| format!("cleaners: {e}"))?;
        let deadline = Instant::now() + SETTLES;
        loop {
            match self.state() {
                Ok(state) if is_good(&state) => return Ok(state),
                other if Instant::now() >= deadline => return other,
                _ => std::thread::sleep(Duration::from_millis(100)),
            }
        }
    }

    /// Enables all tables, and returns the state after that.
    pub fn enable_all(&self) -> Result<ClusterState, String> {
        for name in self.state()?.disabled_tables() {
            self.runtime
                .block_on(self.connection.admin().enable_table(&self::name(name)))
                .map_err(|e| format!("{name} cannot be enabled: {e}"))?;
        }
        self.state()
    }

    /// Writes to every region of every served table, with FSYNC_WAL.
    pub fn use_tables(&self) -> Result<(), String> {
        let enabled =
            self.state()?.tables.into_iter().filter(|(_, table)| table.state == TableState::Enabled);
        for (name, table) in enabled {
            let Some(family) = table.families.keys().next() else { continue };
            for start in table.starts {
                let put = Put::new([&start[..], b"used"].concat()).column(family, "q", "used");
                let put = put.durability(Durability::FsyncWal);
                let table = self.connection.table(self::name(&name));
                self.runtime
                    .block_on(table.put(put))
                    .map_err(|e| format!("{name} cannot be written: {e}"))?;
            }
        }
        Ok(())
    }

    /// Executes a step, and waits for its reply.
    pub fn take(&self, step: &Step) -> Result<(), String> {
        match step {
            Step::BulkLoad(table, row) => self.bulk_load(table, row),
            Step::Janitor => self.run_janitor(),
            Step::Compact(table) => self.compact(&name(table)),
            other => self.runtime.block_on(self.ask(other)).map_err(|e| e.to_string()),
        }
    }

    async fn ask(&self, step: &Step) -> Result<(), Error> {
        let admin = self.connection.admin();
        let family = |name: &str| ColumnFamilyDescriptor::new(name.as_bytes()).expect("legal");
        match *step {
            Step::Create(table, splits) => {
                let table =
                    TableDescriptor::new(name(table)).with_family(family("f")).with_family(family("g"));
                let splits: Vec<_> = splits.iter().map(|key| Bytes::from_static(key.as_bytes())).collect();
                admin.create_table(&table, &splits).await
            }
            Step::Put(table, row, families) => {
                let put = families.iter().fold(Put::new(row), |put, family| put.column(*family, "q", row));
                self.connection.table(name(table)).put(put.durability(Durability::FsyncWal)).await
            }
            Step::Flush(table) => admin.flush_table(&name(table)).await,
            Step::ModifyTable(table, bytes) => {
                let described = admin.describe(&name(table)).await?;
                admin.modify_table(&described.with("MAX_FILESIZE", bytes)).await
            }
            Step::Clean => admin.run_cleaner_chore().await.map(drop),
            Step::Enable(table) => admin.enable_table(&name(table)).await,
            Step::Disable(table) => admin.disable_table(&name(table)).await,
            Step::Delete(table) => admin.delete_table(&name(table)).await,
            Step::Truncate(table, keep) => admin.truncate_table(&name(table), keep).await,
            Step::TruncateRegion(table) => {
                admin.truncate_region(&admin.regions(&name(table)).await?.remove(0).region).await
            }
            Step::AddFamily(table, new) => admin.add_family(&name(table), &family(new)).await,
            Step::ModifyFamily(table, of, versions) => {
                admin.modify_family(&name(table), &family(of).with("VERSIONS", versions)).await
            }
            Step::DeleteFamily(table, gone) => admin.delete_family(&name(table), gone.as_bytes()).await,
            Step::Split(table, row) => {
                let region = admin.regions(&name(table)).await?.remove(0).region;
                admin.split_region(&region, Some(row.into())).await
            }
            Step::Merge(table) => {
                let regions = admin.regions(&name(table)).await?;
                let first: Vec<_> = regions.into_iter().take(2).map(|region| region.region).collect();
                admin.merge_regions(&first, false).await
            }
            Step::Move(table) => {
                let region = admin.regions(&name(table)).await?.remove(0).region;
                admin.move_region(&region, None).await
            }
            Step::Snapshot(snapshot, table) => {
                admin.snapshot(&SnapshotDescription::new(snapshot, name(table))).await
            }
            Step::DeleteSnapshot(snapshot) => admin.delete_snapshot(snapshot).await,
            Step::Clone(snapshot, table) => admin.clone_snapshot(snapshot, &name(table)).await,
            Step::Restore(snapshot) => admin.restore_snapshot(snapshot, false).await,
            Step::CreateNamespace(namespace) => {
                admin.create_namespace(&NamespaceDescriptor::new(namespace)).await
            }
            Step::ModifyNamespace(namespace, value) => {
                admin.modify_namespace(&NamespaceDescriptor::new(namespace).with("k", value)).await
            }
            Step::DeleteNamespace(namespace) => admin.delete_namespace(namespace).await,
            Step::RollLogs => {
                let servers = admin.live_servers().await?;
                admin.roll_wal(&servers[0]).await.map(drop)
            }
            Step::ChangeTracker(table, tracker) => {
                admin.modify_table_store_file_tracker(&name(table), tracker).await
            }
            Step::ChangeFamilyTracker(table, family, tracker) => {
                admin.modify_family_store_file_tracker(&name(table), family.as_bytes(), tracker).await
            }
            Step::BulkLoad(..) | Step::Janitor | Step::Compact(_) => Ok(()),
        }
    }

    fn run_janitor(&self) -> Result<(), String> {
        let deadline = Instant::now() + SETTLES;
        while Instant::now() < deadline {
            let archived = self.runtime.block_on(self.connection.admin().run_catalog_janitor());
            if archived.map_err(|e| e.to_string())? > 0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err("the janitor lets go of nothing".to_owned())
    }

    fn compact(&self, table: &TableName) -> Result<(), String> {
        let admin = self.connection.admin();
        let files = || {
            let metrics = self
                .runtime
                .block_on(admin.cluster_metrics(&[ClusterOption::LiveServers]))
                .map_err(|e| e.to_string())?;
            let regions = metrics.servers.iter().flat_map(|server| &server.regions);
            let prefix = format!("{table},");
            let of_table = regions.filter(|region| region.name.starts_with(prefix.as_bytes()));
            Ok::<_, String>(of_table.map(|region| region.store_files).sum::<u32>())
        };
        self.runtime.block_on(admin.compact_table(table, None, true)).map_err(|e| e.to_string())?;
        let deadline = Instant::now() + SETTLES;
        while Instant::now() < deadline {
            // One of each family.
            if files()? == 2 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err("the compaction does not end".to_owned())
    }

    /// Bulk loads a file as a client that syncs nothing.
    fn bulk_load(&self, table: &str, row: &str) -> Result<(), String> {
        let regions = self.runtime.block_on(self.connection.admin().regions(&name(table)));
        let region = regions.map_err(|e| e.to_string())?.remove(0).region;
        let region = pb::RegionSpecifier { r#type: 1, value: region.name().clone() };
        let mut stream = raw::connect(self.ports[2]);
        let request = pb::PrepareBulkLoadRequest {
            table_name: pb::TableName { namespace: "default".into(), qualifier: table.to_owned().into() },
            region: Some(region.clone()),
        };
        let prepared: pb::PrepareBulkLoadResponse =
            reply(&mut stream, &raw::call(1, "PrepareBulkLoad", &request))?;
        let dir = PathBuf::from(prepared.bulk_token.trim_start_matches("file:"));
        let path = dir.join("f").join(row);
        let parents = CreateOptions { parents: true, ..CreateOptions::default() };
        let mut file = self.server.fs.create(&path, parents).map_err(|e| e.to_string())?;
        file.append(&hfile(row)).and_then(|()| file.flush()).map_err(|e| e.to_string())?;
        let request = pb::BulkLoadHFileRequest {
            region,
            family_path: vec![pb::bulk_load_h_file_request::FamilyPath {
                family: Bytes::from_static(b"f"),
                path: format!("file:{}", path.display()),
            }],
            assign_seq_num: Some(true),
            bulk_token: Some(prepared.bulk_token),
            ..Default::default()
        };
        let loaded: pb::BulkLoadHFileResponse = reply(&mut stream, &raw::call(2, "BulkLoadHFile", &request))?;
        if loaded.loaded { Ok(()) } else { Err("it is not loaded".to_owned()) }
    }
}

fn name(text: &str) -> TableName {
    text.parse().expect("legal")
}

/// The bytes of an HFile of one row.
fn hfile(row: &str) -> Vec<u8> {
    let (fs, path) = (MemoryFileSystem::new(), Path::new("/f"));
    let mut writer = HFileWriter::create(&fs, path, HFileContext::default()).expect("a new file");
    let cell = KeyValue::put(row.as_bytes(), b"f", b"q", 1, row.as_bytes());
    writer.append(&cell.as_cell()).expect("in order");
    writer.finish(StoreFileMeta::default()).expect("written");
    fs.read_all(path, 1 << 20).expect("read")
}

/// Sends a call and reads its reply.
fn reply<M: Message + Default>(stream: &mut std::net::TcpStream, call: &[u8]) -> Result<M, String> {
    let failed = |e: std::io::Error| e.to_string();
    stream.write_all(call).map_err(failed)?;
    let mut len = [0; 4];
    stream.read_exact(&mut len).map_err(failed)?;
    let mut frame = vec![0; u32::from_be_bytes(len) as usize];
    stream.read_exact(&mut frame).map_err(failed)?;
    let mut rest = &frame[..];
    let header = pb::ResponseHeader::decode_length_delimited(&mut rest).map_err(|e| e.to_string())?;
    match header.exception {
        Some(exception) => Err(format!("{exception:?}")),
        None => M::decode_length_delimited(&mut rest).map_err(|e| e.to_string()),
    }
}
