//! `MasterData`: the state that a stock HBase master needs to take over this directory.
//!
//! A stock master has a private region, `master:store`, below `<root>/MasterData`. Evenkeel does
//! not use its content. But a stock master that finds no hbase:meta in it treats the directory as
//! new and refuses to start over hbase:meta's files. A stock master that finds an outdated location
//! of hbase:meta recovers the wrong server, and loses the newest edits of hbase:meta. So at start,
//! before hbase:meta is opened, the region is updated:
//!
//! - `info`, row `hbase:meta,,1`: all replicas of hbase:meta are open on this server (the columns
//!   are those of hbase:meta). A stock master opens only replicas that it finds here
//! - `rs`: each row is a server name; `state` = `ONLINE`: only this server, which a stock master
//!   recovers when it finds it dead
//! - `proc`: procedures of a stock master, removed: they refer to regions as they were
//! - `state`: switches of a stock master, unchanged
//!
//! `<root>/MasterProcWALs` has the procedures of masters before HBase 2.3, which a later stock
//! master imports. It is removed for the same reason as `proc`, once hbase:meta is open.
//!
//! The region is open only for this update. Its separate WAL is deleted before the next step. With
//! `hbase.wal.dir`, the region's WALs and `MasterProcWALs` are below that directory, as in HBase;
//! those below the root directory are of a time before the setting, and are recovered or removed,
//! too. When the number of hbase:meta's replicas is altered, the region is updated again.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::{
    CellBuffer, ColumnFamilyDescriptor, KeyValue, RegionInfo, Result, ServerName, TableDescriptor, TableName,
    TryError,
};
use evenkeel_fs::FileSystem;
use evenkeel_region::layout;
use evenkeel_region::operations::{Mutation, MutationKind, Scan};
use evenkeel_region::region::{Region, RegionEnv, WalRoot};
use evenkeel_region::scanner::ScannerContext;
use evenkeel_wal::{NoListener, Wal, WalConfig, WalOptions};

use evenkeel_master::descriptors;
use evenkeel_master::meta::{INFO, MetaChange, MetaRegion, MetaTable};
use evenkeel_master::recovery::{self, SplitLimits};

const DIR: &str = "MasterData";
/// `WALProcedureStore.MASTER_PROCEDURE_LOGDIR`.
const OLD_PROCEDURES_DIR: &str = "MasterProcWALs";
/// The id of the region of `master:store` (`MasterRegion.REGION_ID`).
const REGION_ID: i64 = 1;
/// A directory that marks the region as initialized (`MasterRegion.INITIALIZED_FLAG`).
const INITIALIZED_FLAG: &str = ".initialized";
/// WALs that a stock master was replaying when it died (`MasterRegion.REPLAY_EDITS_DIR`).
const REPLAY_DIR: &str = "recovered.wals";
/// The value of a row with an unknown open sequence number (`HConstants.NO_SEQNUM`).
const NO_SEQ_NUM: u64 = u64::MAX;
const SERVERS: &[u8] = b"rs";
const PROCEDURES: &[u8] = b"proc";
const SWITCHES: &[u8] = b"state";

/// Records that `replicas` replicas of hbase:meta are on this server, and that no other server is
/// alive. `env` is the environment of this server's regions; its WAL is not written to. WALs of a
/// stock master are split within `limits`.
///
/// # Errors
/// `IOException` from the file system.
pub fn record_meta_locations(env: &RegionEnv, limits: SplitLimits, replicas: u32) -> Result<()> {
    let (fs, root) = (&env.stores.fs, env.stores.root.join(DIR));
    let table = TableName::new("master", "store")?;
    let info = RegionInfo::new(table, Bytes::new(), Bytes::new(), REGION_ID);
    let below =
        |(fs, root): (&Arc<dyn FileSystem>, &Path)| WalRoot { fs: Arc::clone(fs), path: root.join(DIR) };
    let mut log_roots = Vec::new();
    for logs in env.edit_roots().map(below) {
        if log_roots.is_empty() || logs.fs.exists(&logs.path.join(layout::WALS_DIR))? {
            log_roots.push(logs);
        }
    }
    for logs in &log_roots {
        move_back_replayed_wals(&*logs.fs, &logs.path, &info)?;
        recovery::split_wals_of(logs, (&**fs, &root), &env.nonces, limits)?;
    }
    let descriptor = prepare_region(&**fs, &root, &info)?;
    let wal_root = below(env.wal_root());
    let wal = open_wal(env, &wal_root)?;
    let mut stores = env.stores.clone();
    stores.root.clone_from(&root);
    let own = RegionEnv {
        stores,
        wal: Arc::clone(&wal),
        wal_root: env.wal_root.is_some().then_some(wal_root),
        config: env.config.clone(),
        server: env.server.clone(),
        nonces: Arc::clone(&env.nonces),
        events: Arc::clone(&env.events),
        operation_times: Arc::default(),
    };
    let region = Region::open(Arc::new(own), info, Arc::new(descriptor))?;
    update_region(&region, env, replicas)?;
    region.close(false)?;
    wal.close()?;
    log_roots.iter().try_for_each(drop_wals)
}

/// Removes the procedures of a master before HBase 2.3. Call it once hbase:meta is open: the server
/// has taken the directory over then.
///
/// # Errors
/// `IOException` from the file system.
pub fn remove_old_procedures(env: &RegionEnv) -> Result<()> {
    for (fs, root) in env.edit_roots() {
        let dir = root.join(OLD_PROCEDURES_DIR);
        if fs.exists(&dir)? {
            tracing::info!(path = %dir.display(), "procedures of an older stock master are removed");
            fs.delete(&dir)?;
        }
    }
    Ok(())
}

/// Moves WALs that were being replayed back to the other WALs.
fn move_back_replayed_wals(fs: &dyn FileSystem, root: &Path, info: &RegionInfo) -> Result<()> {
    let replayed = layout::region_dir(root, info).join(REPLAY_DIR);
    if !fs.exists(&replayed)? {
        return Ok(());
    }
    let dir = root.join(layout::WALS_DIR).join(REPLAY_DIR);
    fs.mkdirs(&dir)?;
    for file in fs.list(&replayed)? {
        fs.rename(&file.path, &dir.join(file.name()))?;
    }
    Ok(())
}

fn prepare_region(fs: &dyn FileSystem, root: &Path, info: &RegionInfo) -> Result<TableDescriptor> {
    let dir = layout::table_dir(root, info.table());
    let descriptor = match descriptors::read(fs, &dir)? {
        Some(found) => found,
        None => {
            let made = descriptor(info.table())?;
            descriptors::write(fs, &dir, &made)?;
            made
        }
    };
    fs.mkdirs(&dir.join(INITIALIZED_FLAG))?;
    Ok(descriptor)
}

fn descriptor(table: &TableName) -> Result<TableDescriptor> {
    let plain = TableDescriptor::new(table.clone()).with("hbase.store.file-tracker.impl", "DEFAULT");
    let plain = [PROCEDURES, SERVERS, SWITCHES].into_iter().try_fold(plain, |table, name| {
        Ok::<_, evenkeel_common::HBaseError>(table.with_family(ColumnFamilyDescriptor::new(name)?))
    })?;
    let info = ColumnFamilyDescriptor::new(INFO)?.with("VERSIONS", "3").with("IN_MEMORY", "true");
    let info = info.with("BLOCKSIZE", "8192").with("BLOOMFILTER", "ROWCOL");
    Ok(plain.with_family(info.with("DATA_BLOCK_ENCODING", "ROW_INDEX_V1")))
}

fn open_wal(env: &RegionEnv, WalRoot { fs, path: root }: &WalRoot) -> Result<Arc<Wal>> {
    let wal_dir = root.join(layout::WALS_DIR).join(env.server.to_string());
    fs.mkdirs(&wal_dir)?;
    let options = WalOptions {
        fs: Arc::clone(fs),
        wal_dir,
        old_dir: root.join(layout::OLD_WALS_DIR),
        prefix: evenkeel_wal::names::prefix(&env.server),
        suffix: String::new(),
        // As in HBase (`hbase.master.store.region.wal.hsync`).
        config: WalConfig { hsync: true, ..WalConfig::default() },
        clock: Arc::clone(&env.stores.clock),
        listener: Arc::new(NoListener),
    };
    Wal::open(options)
}

/// The row of this server is not deleted: a delete would hide what is put into the row in the same
/// millisecond.
fn update_region(region: &Arc<Region>, env: &RegionEnv, replicas: u32) -> Result<()> {
    let own = env.server.to_string().into_bytes();
    for row in rows(region, &[PROCEDURES, SERVERS])?.into_iter().filter(|row| *row != own) {
        region.mutate_wait(Mutation::new(MutationKind::Delete, row, Vec::new()))?;
    }
    region.mutate_wait(online(&env.server, env.stores.clock.now_ms()))?;
    let meta = MetaTable::new(Arc::clone(region), Arc::clone(&env.stores.clock))?;
    meta.commit(meta_locations(&meta.regions(Some(&TableName::meta()))?, &env.server, replicas))
}

/// The changes after which the replicas of hbase:meta are on a server. `known` is its row.
fn meta_locations(known: &[MetaRegion], server: &ServerName, replicas: u32) -> Vec<MetaChange> {
    let end = i32::try_from(replicas).unwrap_or(i32::MAX);
    let opened = |id| MetaChange::Opened(RegionInfo::meta().replica(id), server.clone(), NO_SEQ_NUM);
    let known = known.iter().flat_map(|row| row.replica_states.keys());
    let gone =
        known.filter(|id| **id >= end).map(|id| MetaChange::DeleteReplica(RegionInfo::meta().replica(*id)));
    (0..end).map(opened).chain(gone).collect()
}

fn online(server: &ServerName, now_ms: i64) -> Mutation {
    let row = server.to_string().into_bytes();
    let cell = KeyValue::put(&row, SERVERS, b"state", now_ms, b"ONLINE");
    Mutation::new(MutationKind::Put, row, vec![cell])
}

/// Returns every row that has cells in one of the families.
fn rows(region: &Arc<Region>, families: &[&[u8]]) -> Result<Vec<Vec<u8>>> {
    let mut scanner = region.scanner(Scan::default())?;
    let (mut row, mut all) = (CellBuffer::new(), Vec::new());
    loop {
        row.clear();
        let state =
            scanner.next(&mut row, &mut ScannerContext::unlimited()).map_err(TryError::into_failure)?;
        all.extend(row.iter().find(|cell| families.contains(&cell.family())).map(|cell| cell.row().to_vec()));
        if !state.has_more() {
            return Ok(all);
        }
    }
}

/// Deletes the WALs, whose edits are all in store files.
fn drop_wals(WalRoot { fs, path: root }: &WalRoot) -> Result<()> {
    for dir in [layout::WALS_DIR, layout::OLD_WALS_DIR] {
        for entry in fs.list(&root.join(dir))? {
            fs.delete(&entry.path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use evenkeel_block_cache::NoCache;
    use evenkeel_common::clock::{Clock, ManualClock};
    use evenkeel_fs::{LocalHost, MemoryFileSystem};
    use evenkeel_region::memstore::ChunkPool;
    use evenkeel_region::region::nonce::NonceManager;
    use evenkeel_region::region::{NoEvents, RegionConfig};
    use evenkeel_region::store::{StoreConfig, StoreEnv};

    use super::*;

    /// The region of `master:store`, and its environment, at a time that stands still.
    fn master_store() -> (Arc<Region>, Arc<RegionEnv>) {
        let fs: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
        let (root, server) = (Path::new("/hbase").join(DIR), ServerName::new("h", 16020, 7));
        let clock: Arc<dyn Clock> = ManualClock::at(1_000_000);
        let wal_dir = root.join(layout::WALS_DIR);
        fs.mkdirs(&wal_dir).expect("made");
        let wal = Wal::open(WalOptions {
            fs: Arc::clone(&fs),
            wal_dir,
            old_dir: root.join(layout::OLD_WALS_DIR),
            prefix: "w".into(),
            suffix: String::new(),
            config: WalConfig::default(),
            clock: Arc::clone(&clock),
            listener: Arc::new(NoListener),
        });
        let stores = StoreEnv {
            compaction_throughput: Arc::default(),
            metrics: Arc::default(),
            host: LocalHost::default(),
            open_files: Arc::default(),
            mob: Arc::default(),
            archived_files: Arc::default(),
            fs,
            root,
            cache: Arc::new(NoCache),
            clock: Arc::clone(&clock),
            chunks: ChunkPool::new(1),
            config: StoreConfig::default(),
        };
        let env = Arc::new(RegionEnv {
            stores,
            wal: wal.expect("opens"),
            wal_root: None,
            config: RegionConfig::default(),
            server,
            nonces: Arc::new(NonceManager::new(clock, 60_000)),
            events: Arc::new(NoEvents),
            operation_times: Arc::default(),
        });
        let table = TableName::new("master", "store").expect("legal");
        let info = RegionInfo::new(table.clone(), Bytes::new(), Bytes::new(), REGION_ID);
        let descriptor = descriptor(&table).expect("legal");
        (Region::open(Arc::clone(&env), info, Arc::new(descriptor)).expect("opens"), env)
    }

    #[test]
    fn the_only_server_is_this_one_after_each_update() {
        let (region, env) = master_store();
        let servers = || rows(&region, &[SERVERS]).expect("read");
        let dead = online(&ServerName::new("h", 16020, 6), 999_999);
        region.mutate_wait(dead).expect("written");
        for replicas in [1, 3, 2] {
            update_region(&region, &env, replicas).expect("updated");
            assert_eq!(servers(), [env.server.to_string().into_bytes()], "{replicas} replicas");
        }
    }

    #[test]
    fn replicas_that_are_gone_are_removed() {
        let states = [1, 2, 5].map(|id| (id, "OPEN".to_owned()));
        let row = MetaRegion {
            info: RegionInfo::meta(),
            state: "OPEN".to_owned(),
            replica_states: BTreeMap::from(states),
            daughters: Vec::new(),
            merge_parents: Vec::new(),
            merge_columns: Vec::new(),
        };
        let server = ServerName::new("h", 16020, 7);
        let shown = |known: &[MetaRegion], replicas| -> Vec<(bool, i32)> {
            let changes = meta_locations(known, &server, replicas);
            let shown = changes.into_iter().map(|change| match change {
                MetaChange::Opened(region, at, NO_SEQ_NUM) if at == server => (true, region.replica_id()),
                MetaChange::DeleteReplica(region) => (false, region.replica_id()),
                other => panic!("{other:?}"),
            });
            shown.collect()
        };
        assert_eq!(shown(&[], 1), [(true, 0)]);
        assert_eq!(shown(std::slice::from_ref(&row), 3), [(true, 0), (true, 1), (true, 2), (false, 5)]);
        assert_eq!(shown(&[row], 1), [(true, 0), (false, 1), (false, 2), (false, 5)]);
    }
}
