//! A RegionServer in memory, and requests to it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_block_cache::{BlockCache, NoCache};
use evenkeel_common::clock::ManualClock;
use evenkeel_common::{
    Budget, ColumnFamilyDescriptor, HBaseError, KeyValue, RegionInfo, Result, ServerName, TableDescriptor,
};
use evenkeel_fs::{FileSystem, LocalHost, Location, MemoryFileSystem};
use evenkeel_protocol::pb;
use evenkeel_region::memstore::ChunkPool;
use evenkeel_region::operations::{Mutation, MutationKind};
use evenkeel_region::region::nonce::NonceManager;
use evenkeel_region::region::{Region, RegionConfig, RegionEnv};
use evenkeel_region::store::{StoreConfig, StoreEnv};
use evenkeel_rpc::{CellBlockReader, CellBlockWriter, CellCodec};
use evenkeel_wal::{NoListener, Wal, WalConfig, WalOptions};
use parking_lot::Mutex;

use prost::Message;

use crate::background::BackgroundConfig;
use crate::convert;
use crate::master_connection::{ClusterView, HOSTNAME_SEEN_BY_MASTER};
use crate::quotas::QuotaUser;
use crate::requests::caller::{Caller, Reply};
use crate::requests::pending_reply::PendingReply;
use crate::{Background, MasterConnection, RegionServer, RegionServerConfig, RegionServerParts, ServerHooks};

/// The initial time of a test's clock.
pub const START_MS: i64 = 1_000_000;

/// Hooks that do nothing, and another file system, `hdfs://elsewhere`. `hdfs://alias` and `hdfs://`
/// name that of the regions.
#[derive(Default)]
pub struct NoHooks {
    pub elsewhere: Arc<MemoryFileSystem>,
}

impl ServerHooks for NoHooks {
    fn roll_wal(&self) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn stop(&self, _reason: &str) {}

    fn update_configuration(&self) -> Result<()> {
        Ok(())
    }

    fn is_own_file_system(&self, location: &Location) -> Result<bool> {
        Ok(matches!(location, Location::Hdfs { .. }) && matches!(location.authority(), "alias" | ""))
    }

    fn file_system(&self, location: &Location) -> Result<Arc<dyn FileSystem>> {
        match location.authority() {
            "elsewhere" => Ok(Arc::clone(&self.elsewhere) as _),
            _ => Err(HBaseError::do_not_retry(format!("{location}: no NameNodes"))),
        }
    }
}

/// A master that records the calls to it. It requests no heartbeats unless a test sets an interval.
#[derive(Default)]
pub struct TestMaster {
    /// The interval of heartbeats.
    pub report_interval: Mutex<Option<Duration>>,
    /// Its host name for the server; empty for the server's name.
    pub seen_hostname: Mutex<String>,
    /// The calls to it in order: the name of the RPC or step, and its subject.
    pub calls: Mutex<Vec<(&'static str, String)>>,
    /// The heartbeats.
    pub reports: Mutex<Vec<pb::ServerLoad>>,
    /// The transitions of regions that the server reported or requested.
    pub transitions: Mutex<Vec<pb::RegionStateTransition>>,
    /// The outcome of the next transitions: accepted, rejected with a reason, or an error of the
    /// connection.
    pub transition_outcome: Mutex<Option<Result<String>>>,
}

impl TestMaster {
    fn note(&self, what: &'static str, about: impl ToString) {
        self.calls.lock().push((what, about.to_string()));
    }
}

impl MasterConnection for TestMaster {
    fn region_server_startup(
        &self,
        request: pb::RegionServerStartupRequest,
    ) -> Result<pb::RegionServerStartupResponse> {
        self.note("RegionServerStartup", format!("{},{}", request.port, request.server_start_code));
        let seen = self.seen_hostname.lock().clone();
        let entry = |value| pb::NameStringPair { name: HOSTNAME_SEEN_BY_MASTER.to_owned(), value };
        let seen = Some(seen).filter(|seen| !seen.is_empty()).or(request.use_this_hostname_instead);
        Ok(pb::RegionServerStartupResponse { map_entries: seen.into_iter().map(entry).collect() })
    }

    fn announce(&self, server: &ServerName, _info: pb::RegionServerInfo) -> Result<()> {
        self.note("announce", server);
        Ok(())
    }

    fn report_interval(&self) -> Option<Duration> {
        *self.report_interval.lock()
    }

    fn region_server_report(&self, request: pb::RegionServerReportRequest) {
        self.reports.lock().extend(request.load);
    }

    fn report_region_state_transition(
        &self,
        request: pb::ReportRegionStateTransitionRequest,
    ) -> Result<pb::ReportRegionStateTransitionResponse> {
        self.transitions.lock().extend(request.transition);
        let error_message = self.transition_outcome.lock().clone().transpose()?;
        Ok(pb::ReportRegionStateTransitionResponse { error_message })
    }

    fn report_procedure_done(&self, _request: pb::ReportProcedureDoneRequest) -> Result<()> {
        Ok(())
    }

    fn last_flushed_sequence_id(&self, _region: &[u8]) -> Result<pb::GetLastFlushedSequenceIdResponse> {
        Ok(pb::GetLastFlushedSequenceIdResponse::default())
    }

    fn report_fatal_error(&self, request: pb::ReportRsFatalErrorRequest) {
        self.note("ReportRSFatalError", request.error_message);
    }

    fn cluster_view(&self) -> Arc<ClusterView> {
        Arc::default()
    }
}

/// A server with regions of a table `t` with the family `f`.
pub struct TestServer {
    pub server: Arc<RegionServer>,
    pub clock: Arc<ManualClock>,
    /// The budget for replies: 1 GiB.
    pub unsent: Arc<Budget>,
    /// The environment that its regions share.
    pub env: Arc<RegionEnv>,
    /// Records the server's calls to its master.
    pub master: Arc<TestMaster>,
    /// Another file system, `hdfs://elsewhere`.
    pub elsewhere: Arc<MemoryFileSystem>,
}

impl TestServer {
    /// Creates a server with no region.
    pub fn new(config: RegionServerConfig) -> Self {
        Self::over(Arc::new(MemoryFileSystem::new()), config, WalConfig::default())
    }

    /// As [`TestServer::new`], over a file system and with a WAL configuration.
    pub fn over(fs: Arc<dyn FileSystem>, config: RegionServerConfig, wal: WalConfig) -> Self {
        Self::of(fs, config, wal, (Arc::new(NoCache), ChunkPool::new(2)))
    }

    /// As [`TestServer::new`], with MemStores over a pool of chunks.
    pub fn with_chunks(config: RegionServerConfig, chunks: Arc<ChunkPool>) -> Self {
        let fs = Arc::new(MemoryFileSystem::new());
        Self::of(fs, config, WalConfig::default(), (Arc::new(NoCache), chunks))
    }

    /// As [`TestServer::new`], over a block cache.
    pub fn with_cache(config: RegionServerConfig, cache: Arc<dyn BlockCache>) -> Self {
        let fs = Arc::new(MemoryFileSystem::new());
        Self::of(fs, config, WalConfig::default(), (cache, ChunkPool::new(2)))
    }

    /// Creates a server with no region, from these parts.
    pub fn of(
        fs: Arc<dyn FileSystem>,
        config: RegionServerConfig,
        wal: WalConfig,
        (cache, chunks): (Arc<dyn BlockCache>, Arc<ChunkPool>),
    ) -> Self {
        let clock = ManualClock::at(START_MS);
        let background = Background::start(&BackgroundConfig::default()).expect("threads");
        let name = ServerName::new("h", 16020, START_MS);
        let env = env(fs, wal, &name, &clock, &background, (&cache, &chunks));
        let unsent = Budget::new(1 << 30);
        let master = Arc::<TestMaster>::default();
        let hooks = NoHooks::default();
        let elsewhere = Arc::clone(&hooks.elsewhere);
        let server = RegionServer::new(RegionServerParts {
            name,
            info_port: 0,
            root: PathBuf::from("/hbase"),
            config,
            clock: clock.clone(),
            cache,
            unsent: unsent.clone(),
            rpc_metrics: Arc::default(),
            chunks,
            nonces: env.nonces.clone(),
            background,
            hooks: Arc::new(hooks),
            master: Arc::clone(&master) as Arc<dyn MasterConnection>,
        });
        Self { server, clock, unsent, env, master, elsewhere }
    }

    /// Creates a server with one region that covers all rows.
    pub fn with_region() -> (Self, Arc<Region>) {
        let server = Self::new(RegionServerConfig::default());
        let region = server.open(b"", b"", table());
        (server, region)
    }

    /// Opens a region with MOB files, which has one.
    pub fn open_with_mob_file(&self) -> Arc<Region> {
        let region = self.open(b"", b"", mob_table());
        put(&region, &[cell(b"a", b"q", b"value")]);
        region.flush().expect("flushed");
        region
    }

    /// The names of the MOB files of the table.
    pub fn mob_files(&self) -> Vec<String> {
        let stores = &self.env.stores;
        let dir = evenkeel_common::mob::mob_family_dir(&stores.root, table().name(), "f");
        stores.fs.list(&dir).expect("listed").iter().map(|file| file.name().to_owned()).collect()
    }

    /// Opens a region of a table and puts it online.
    pub fn open(&self, start: &'static [u8], end: &'static [u8], table: TableDescriptor) -> Arc<Region> {
        let (start, end) = (Bytes::from_static(start), Bytes::from_static(end));
        let info = RegionInfo::new(table.name().clone(), start, end, 1);
        let region = Region::open(self.env.clone(), info, Arc::new(table)).expect("opens");
        assert!(self.server.regions().add(region.clone()).is_none());
        region
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.server.background().stop();
    }
}

fn env(
    fs: Arc<dyn FileSystem>,
    wal: WalConfig,
    name: &ServerName,
    clock: &Arc<ManualClock>,
    background: &Arc<Background>,
    (cache, chunks): (&Arc<dyn BlockCache>, &Arc<ChunkPool>),
) -> Arc<RegionEnv> {
    let (wal_dir, old_dir) = (PathBuf::from("/hbase/WALs/h"), PathBuf::from("/hbase/oldWALs"));
    for dir in [&wal_dir, &old_dir] {
        fs.mkdirs(dir).expect("a directory");
    }
    let wal = Wal::open(WalOptions {
        fs: fs.clone(),
        wal_dir,
        old_dir,
        prefix: "h".to_owned(),
        suffix: String::new(),
        config: wal,
        clock: clock.clone(),
        listener: Arc::new(NoListener),
    });
    let stores = StoreEnv {
        compaction_throughput: std::sync::Arc::default(),
        metrics: Arc::default(),
        host: LocalHost::default(),
        open_files: Arc::default(),
        mob: Arc::default(),
        archived_files: Arc::default(),
        fs,
        root: PathBuf::from("/hbase"),
        cache: cache.clone(),
        clock: clock.clone(),
        chunks: chunks.clone(),
        config: StoreConfig::default(),
    };
    Arc::new(RegionEnv {
        stores,
        wal: wal.expect("a WAL"),
        wal_root: None,
        config: RegionConfig::default(),
        server: name.clone(),
        nonces: Arc::new(NonceManager::new(clock.clone(), 60_000)),
        events: background.clone(),
        operation_times: Arc::default(),
    })
}

/// Table `t` with the family `f`.
pub fn table() -> TableDescriptor {
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    TableDescriptor::new("t".parse().expect("legal")).with_family(family)
}

/// The same table, with all values in MOB files.
pub fn mob_table() -> TableDescriptor {
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    let family = family.with("IS_MOB", "true").with("MOB_THRESHOLD", "0");
    TableDescriptor::new(table().name().clone()).with_family(family)
}

/// A recent client, with the default codec.
pub fn caller() -> Caller {
    Caller {
        codec: Some((CellCodec::KeyValue, None)),
        version: Some((2, 6)),
        peer: None,
        received_at: Instant::now(),
        deadline: None,
        user: None,
        quota_user: QuotaUser::NONE,
    }
}

/// A client that expects cells inside messages.
pub fn caller_without_codec() -> Caller {
    Caller { codec: None, ..caller() }
}

/// A cell of the family `f`.
pub fn cell(row: &[u8], qualifier: &[u8], value: &[u8]) -> KeyValue {
    KeyValue::put(row, b"f", qualifier, 5, value)
}

/// Writes cells of one row.
pub fn put(region: &Arc<Region>, cells: &[KeyValue]) {
    let row = cells[0].as_cell().row().to_vec();
    region.mutate_wait(Mutation::new(MutationKind::Put, row, cells.to_vec())).expect("written");
}

/// The specifier of a region.
pub fn specifier(region: &Region) -> pb::RegionSpecifier {
    convert::region::specifier(region.info())
}

/// Returns the cell block of a request.
pub fn block(cells: &[KeyValue]) -> CellBlockReader {
    let mut writer = CellBlockWriter::new(CellCodec::KeyValue, None);
    cells.iter().for_each(|cell| writer.push(&cell.as_cell()));
    CellBlockReader::new(CellCodec::KeyValue, writer.into_bytes().expect("not compressed").into())
}

/// Returns the cells in a reply's cell block, as `row/qualifier=value`.
pub fn cells_of<M>(reply: Reply<M>) -> Vec<String> {
    key_values_of(reply).iter().map(text).collect()
}

/// Returns the cells in a reply's cell block.
pub fn key_values_of<M>(reply: Reply<M>) -> Vec<KeyValue> {
    let Some(block) = reply.block else { return Vec::new() };
    let bytes = block.into_bytes().expect("not compressed");
    CellBlockReader::new(CellCodec::KeyValue, bytes.into()).map(|cell| cell.expect("well formed")).collect()
}

/// Formats a cell as `row/qualifier=value`.
pub fn text(cell: &KeyValue) -> String {
    let cell = cell.as_cell();
    let parts = [cell.row(), b"/", cell.qualifier(), b"=", cell.value()].concat();
    String::from_utf8_lossy(&parts).into_owned()
}

/// Starts an operation that answers through a [`PendingReply`], and waits for the reply.
pub fn wait<M: Message + 'static>(start: impl FnOnce(PendingReply<M>)) -> Result<TestReply<M>, HBaseError> {
    let (sender, receiver) = mpsc::sync_channel(1);
    start(PendingReply::to_function(move |outcome: Result<Reply<M>>| {
        let reply = outcome.map(|Reply { message, block, charge: _ }| {
            let cells = cells_of(Reply { message: (), block, charge: None });
            TestReply { message, cells }
        });
        sender.send(reply).expect("the test waits");
    }));
    receiver.recv().expect("a reply")
}

/// A reply with parsed cells.
#[derive(Debug)]
pub struct TestReply<M> {
    pub message: M,
    pub cells: Vec<String>,
}
