//! [`Cluster`]: a master and its RegionServer over files in memory. A test makes the disk fail at
//! any step, or ends the process and starts the next one on what has survived.

use super::*;

struct NoHooks;

impl ServerHooks for NoHooks {
    fn roll_wal(&self) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn stop(&self, _reason: &str) {}

    fn update_configuration(&self) -> Result<()> {
        Ok(())
    }
}

pub(crate) struct Cluster {
    pub(crate) memory: MemoryFileSystem,
    pub(crate) fs: FaultyFileSystem,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) life: i64,
    /// The edits that the last start could not recover, by region.
    pub(crate) lost: std::collections::BTreeMap<String, u64>,
    pub(crate) background: Option<Arc<Background>>,
    pub(crate) running: Option<Arc<Master>>,
    /// The settings of the next start.
    pub(crate) conf: Configuration,
    /// Where logs are after the next start, if not below the root directory: `hbase.wal.dir`.
    pub(crate) wal_root: Option<PathBuf>,
    /// The number of hbase:meta's replicas that was last recorded for a stock master.
    pub(crate) recorded_meta_replicas: Arc<AtomicU32>,
}

pub(crate) fn path(below: &str) -> PathBuf {
    Path::new("/hbase").join(below)
}

pub(crate) fn table_name() -> TableName {
    "t".parse().expect("legal")
}

impl Cluster {
    pub(crate) fn new() -> Self {
        Self::with_settings(&[])
    }

    /// A cluster with quotas, and with hbase:quota.
    pub(crate) fn with_quotas() -> Self {
        let cluster = Self::with_settings(&[("hbase.quota.enabled", "true")]);
        cluster.ensure_quota_table();
        cluster
    }

    /// Creates hbase:quota if there is none, and connects the RegionServer to it.
    pub(crate) fn ensure_quota_table(&self) {
        let master = self.master();
        master.ensure_quota_table().expect("submitted");
        let name = evenkeel_common::quota::table_name().expect("legal");
        while master.table(&name).is_err() {
            std::thread::yield_now();
        }
        master.connect_quotas();
    }

    pub(crate) fn with_settings(settings: &[(&str, &str)]) -> Self {
        let memory = MemoryFileSystem::new();
        let fs = FaultyFileSystem::new(memory.clone());
        let mut cluster = Self {
            memory,
            fs,
            clock: ManualClock::at(1_000_000),
            life: 0,
            lost: Default::default(),
            background: None,
            running: None,
            conf: Configuration::new(),
            wal_root: None,
            recorded_meta_replicas: Arc::default(),
        };
        settings.iter().for_each(|(key, value)| cluster.conf.set(*key, *value));
        cluster.start();
        cluster
    }

    /// A cluster with a table of two families, split at `m`; some of its rows are flushed and some
    /// are not.
    pub(crate) fn with_table() -> Self {
        Self::with_tracked_table("DEFAULT")
    }

    /// The same, with a store file tracker.
    pub(crate) fn with_tracked_table(tracker: &str) -> Self {
        Self::with_table_of(ColumnFamilyDescriptor::new(b"f").expect("legal"), tracker)
    }

    /// The same, with all values of the first family in MOB files.
    pub(crate) fn with_mob_table() -> Self {
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
        Self::with_table_of(family.with("IS_MOB", "true").with("MOB_THRESHOLD", "0"), "DEFAULT")
    }

    pub(crate) fn with_table_of(f: ColumnFamilyDescriptor, tracker: &str) -> Self {
        let cluster = Self::new();
        let g = ColumnFamilyDescriptor::new(b"g").expect("legal");
        let table = TableDescriptor::new(table_name()).with_family(f).with_family(g);
        let table = table.with(TRACKER_IMPL, tracker);
        cluster
            .run(|master| master.create_table(table.clone(), vec![Bytes::from("m")], NO_NONCE))
            .expect("made");
        for (at, row) in ROWS.iter().enumerate() {
            cluster.put(row).expect("written");
            if at % 2 == 0 {
                cluster.region_of(row).flush().expect("flushed");
            }
        }
        cluster
    }

    pub(crate) fn start(&mut self) {
        self.try_start().expect("started");
    }

    /// Starts a process that ends before it opens hbase:meta.
    pub(crate) fn split_wals_and_die(&self) {
        let clock: Arc<dyn Clock> = Arc::clone(&self.clock) as _;
        let fs: Arc<dyn FileSystem> = Arc::new(self.fs.clone());
        let nonces = NonceManager::new(clock, 1000);
        recovery::split_wals(&fs, Path::new("/hbase"), &nonces, LIMITS).expect("split");
    }

    /// Starts a process. If that fails, the next one needs [`Cluster::die`] first.
    pub(crate) fn try_start(&mut self) -> Result<()> {
        self.life += 1;
        self.clock.advance_ms(10);
        let fs: Arc<dyn FileSystem> = Arc::new(self.fs.clone());
        let clock: Arc<dyn Clock> = Arc::clone(&self.clock) as _;
        let server = ServerName::new("h", 16020, self.life);
        let nonces = Arc::new(NonceManager::new(Arc::clone(&clock), 1000));
        let recovered = self.split_all_wals(&fs, &nonces)?;
        let env = self.env(&fs, &clock, &server, nonces)?;
        let configured = regions::configured_meta_replicas(&self.conf).expect("valid");
        let meta_region = regions::open_meta(&env, configured)?;
        let meta = MetaTable::new(Arc::clone(&meta_region), Arc::clone(&clock))?;
        let is_whole = recovered.damaged == 0;
        let edits: Vec<_> = env.edit_roots().map(|(fs, root)| (&**fs, root)).collect();
        let mut tables = reconcile::reconcile(&*fs, Path::new("/hbase"), &edits, &meta, is_whole)?;
        let unclaimed = &recovered.unclaimed;
        self.lost = recovery::keep_lost_edits(&*fs, Path::new("/hbase"), &meta, is_whole, unclaimed)?;
        let namespace_region = regions::open_namespace(&env, &meta, &mut tables)?;
        let namespaces = NamespaceTable::new(Arc::clone(&namespace_region), Arc::clone(&clock));
        namespaces.ensure_built_in()?;
        namespaces.ensure_namespaces_of(tables.keys())?;
        let background = Background::start(&BackgroundConfig::default())?;
        self.background = Some(Arc::clone(&background));
        let connection = EmbeddedConnection::new(ClusterView::default());
        let regionserver = RegionServer::new(RegionServerParts {
            name: server.clone(),
            info_port: 0,
            root: PathBuf::from("/hbase"),
            config: RegionServerConfig {
                quotas: QuotaSettings::from(&self.conf).expect("valid"),
                ..RegionServerConfig::default()
            },
            clock: Arc::clone(&clock),
            cache: Arc::new(NoCache),
            unsent: evenkeel_common::Budget::new(1 << 30),
            rpc_metrics: Arc::default(),
            chunks: Arc::clone(&env.stores.chunks),
            nonces: Arc::clone(&env.nonces),
            background,
            hooks: Arc::new(NoHooks),
            master: Arc::clone(&connection) as _,
        });
        drop(regionserver.regions().add(meta_region));
        drop(regionserver.regions().add(namespace_region));
        regions::open_all(&env, &meta, &tables, &regionserver)?;
        let conf = Arc::new(self.conf.clone());
        let paths = ZnodePaths::from_configuration(&conf).expect("defaults");
        let znodes = Arc::new(Znodes::new(Arc::new(ZnodeTree::with_clock(clock)), paths, "master:1"));
        znodes.create_base_nodes().expect("made");
        namespaces.publish(&znodes)?;
        let parts = MasterParts {
            region_env: env,
            conf,
            server: server.clone(),
            master_name: server,
            info_port: 0,
            cluster_id: "id".into(),
            regionserver: Arc::clone(&regionserver),
            connection: Arc::clone(&connection),
            meta,
            namespaces,
            znodes,
            record_meta_replicas: Box::new({
                let recorded = Arc::clone(&self.recorded_meta_replicas);
                move |replicas| {
                    recorded.store(replicas, Ordering::Relaxed);
                    Ok(())
                }
            }),
            stop: Box::new(|_| ()),
        };
        let master = Master::new(parts, tables)?;
        self.running = Some(Arc::clone(&master));
        master.discard_unfinished_snapshots()?;
        connection.connect(&master);
        regionserver.report_for_duty()?;
        master.start_assignment()?;
        Ok(())
    }

    pub(crate) fn env(
        &self,
        fs: &Arc<dyn FileSystem>,
        clock: &Arc<dyn Clock>,
        server: &ServerName,
        nonces: Arc<NonceManager>,
    ) -> Result<Arc<RegionEnv>> {
        let wal_root = self.wal_root.clone().map(|path| WalRoot { fs: Arc::clone(fs), path });
        let logs = self.wal_root.clone().unwrap_or_else(|| path(""));
        let wal_dir = logs.join("WALs").join(server.to_string());
        fs.mkdirs(&wal_dir)?;
        let wal = Wal::open(WalOptions {
            fs: Arc::clone(fs),
            wal_dir,
            old_dir: logs.join("oldWALs"),
            prefix: evenkeel_wal::names::prefix(server),
            suffix: String::new(),
            config: WalConfig::default(),
            clock: Arc::clone(clock),
            listener: Arc::new(NoListener),
        });
        Ok(Arc::new(RegionEnv {
            stores: StoreEnv {
                compaction_throughput: std::sync::Arc::default(),
                metrics: Arc::default(),
                host: LocalHost::default(),
                open_files: Arc::default(),
                mob: Arc::default(),
                archived_files: Arc::default(),
                fs: Arc::clone(fs),
                root: PathBuf::from("/hbase"),
                cache: Arc::new(NoCache),
                clock: Arc::clone(clock),
                chunks: ChunkPool::new(2),
                config: StoreConfig::default(),
            },
            operation_times: Arc::default(),
            wal: wal?,
            wal_root,
            config: RegionConfig::default(),
            server: server.clone(),
            nonces,
            events: Arc::new(NoEvents),
        }))
    }

    pub(crate) fn crash(&mut self) {
        self.die();
        self.start();
    }

    /// Like [`Cluster::crash`], with a fault from the start of the next process on.
    pub(crate) fn crash_into(&mut self, fault: Fault) {
        self.die();
        self.fs.inject(fault);
        self.start();
    }

    pub(crate) fn die(&mut self) {
        // Threads of the previous process do nothing more.
        self.fs.cut_power_after(0);
        self.end();
        self.fs.clear();
        self.memory.crash(SurvivingData::Flushed);
    }

    pub(crate) fn end(&mut self) {
        self.running.take().into_iter().for_each(|master| master.stop());
        self.background.take().into_iter().for_each(|background| background.stop());
    }

    pub(crate) fn master(&self) -> &Arc<Master> {
        self.running.as_ref().expect("started")
    }

    pub(crate) fn run(
        &self,
        submit: impl FnOnce(&Arc<Master>) -> Result<u64>,
    ) -> procedures::ProcedureOutcome {
        let id = submit(self.master())?;
        loop {
            if let Some(outcome) = self.master().procedures.state(id).expect("known").outcome {
                return outcome;
            }
            std::thread::yield_now();
        }
    }

    pub(crate) fn regions(&self) -> Vec<Arc<Region>> {
        self.regions_of(&table_name())
    }

    /// The regions of a table that are served, without secondary replicas.
    pub(crate) fn regions_of(&self, table: &TableName) -> Vec<Arc<Region>> {
        let mut regions = self.master().parts.regionserver.regions().of_table(table);
        regions.retain(|region| !region.is_secondary());
        regions
    }

    pub(crate) fn region_of(&self, row: &str) -> Arc<Region> {
        self.region_in(&table_name(), row)
    }

    /// The region of a table that serves a row.
    pub(crate) fn region_in(&self, table: &TableName, row: &str) -> Arc<Region> {
        let regions = self.regions_of(table);
        regions.into_iter().find(|r| r.info().contains_row(row.as_bytes())).expect("served")
    }

    pub(crate) fn put(&self, row: &str) -> Result<()> {
        let cell =
            |family: &[u8]| KeyValue::put(row.as_bytes(), family, b"q", LATEST_TIMESTAMP, row.as_bytes());
        let mutation = Mutation::new(MutationKind::Put, row.as_bytes().to_vec(), vec![cell(b"f")]);
        self.region_of(row).mutate_wait(mutation).map(drop)
    }

    /// Adds 1 to a counter as the operation with this nonce; returns the sum.
    pub(crate) fn increment(&self, row: &str, nonce: u64) -> i64 {
        let cell = KeyValue::put(row.as_bytes(), b"f", b"sum", LATEST_TIMESTAMP, &1_i64.to_be_bytes());
        let mut mutation = Mutation::new(MutationKind::Increment, row.as_bytes().to_vec(), vec![cell]);
        mutation.nonce = nonce;
        self.region_of(row).mutate_wait(mutation).expect("added");
        let get = Scan::get(row.as_bytes().to_vec());
        let cells = self.region_of(row).get(get).expect("read");
        let sum = cells.iter().find(|cell| cell.qualifier() == b"sum").expect("a sum");
        i64::from_be_bytes(sum.value().try_into().expect("eight bytes"))
    }

    /// Returns every cell of a table that a client would see, as `row/family=value`.
    pub(crate) fn cells_of(&self, table: &TableName) -> Vec<String> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut cells = Vec::new();
        for region in self.regions_of(table) {
            let mut scanner = region.scanner(Scan::default()).expect("opens");
            let (mut row, mut more) = (CellBuffer::new(), true);
            while more {
                row.clear();
                more = scanner.next(&mut row, &mut ScannerContext::unlimited()).expect("read").has_more();
                let of_row = row.iter();
                cells.extend(
                    of_row.map(|c| format!("{}/{}={}", text(c.row()), text(c.family()), text(c.value()))),
                );
            }
        }
        cells
    }

    /// Returns the rows that a client would see.
    pub(crate) fn rows(&self) -> Vec<String> {
        self.rows_of(&table_name())
    }

    pub(crate) fn rows_of(&self, table: &TableName) -> Vec<String> {
        let mut rows = Vec::new();
        for region in self.regions_of(table) {
            let mut scanner = region.scanner(Scan::default()).expect("opens");
            let mut row = CellBuffer::new();
            loop {
                row.clear();
                let state = scanner.next(&mut row, &mut ScannerContext::unlimited()).expect("read");
                if !row.is_empty() {
                    rows.push(String::from_utf8_lossy(row.get(0).row()).into_owned());
                }
                if !state.has_more() {
                    break;
                }
            }
        }
        rows
    }

    /// Checks that the regions served are those of hbase:meta, and cover every row once.
    pub(crate) fn check_regions(&self, history: &str) {
        let served: Vec<_> = self.regions().iter().map(|r| r.info().clone()).collect();
        let mut known = self.master().live_regions(&table_name()).expect("read");
        known.sort_by(|a, b| a.start_key().cmp(b.start_key()));
        assert_eq!(served, known, "{history}");
        let borders = served.windows(2).all(|pair| pair[0].end_key() == pair[1].start_key());
        let ends = served.first().is_some_and(|r| r.start_key().is_empty())
            && served.last().is_some_and(|r| r.end_key().is_empty());
        assert!(borders && ends, "{history}: {served:?}");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.fs.clear();
        self.end();
    }
}
