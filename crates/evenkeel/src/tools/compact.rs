//! `evenkeel compact`: compaction of a root directory whose server is stopped, as HBase's
//! `CompactionTool` does it.
//!
//! It takes the directory's lock, so no Evenkeel server runs on it meanwhile. On HDFS there
//! is no such lock: the operator ensures that no server runs. It does not touch WALs: a compaction
//! only replaces store files, as in a server. It skips regions that were split or merged, because
//! daughter regions refer to their files.

use std::collections::HashSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use evenkeel_block_cache::NoCache;
use evenkeel_common::clock::SystemClock;
use evenkeel_common::{ColumnFamilyDescriptor, HBaseError, RegionInfo, Result, TableDescriptor, TableName};
use evenkeel_fs::{DirLock, FileSystem, LocalHost};
use evenkeel_master::descriptors;
use evenkeel_master::regions::truncate;
use evenkeel_region::layout;
use evenkeel_region::memstore::ChunkPool;
use evenkeel_region::region::WalRoot;
use evenkeel_region::store::{Store, StoreConfig, StoreEnv};

use super::ErrorText;
use super::catalog::{self, table_dirs, visible_dirs};
use super::progress::Progress;
use super::storage::StorageArgs;
use super::verify::read_region_info;

/// This tool has no concurrent readers, so no read point must be kept.
const NO_READER: u64 = u64::MAX;

/// Options of `evenkeel compact`.
#[derive(Args, Debug)]
pub struct CompactArgs {
    /// The root directory (hbase.rootdir) of a stopped server, local or by an hdfs: URI
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// This table only; otherwise all of them
    #[arg(short, long)]
    table: Option<TableName>,
    /// Compact all files of each store into one, even if no compaction is due
    #[arg(long)]
    major: bool,
    /// The directory of its logs (hbase.wal.dir), local or by an hdfs: URI; otherwise the one that
    /// the last start of Evenkeel has recorded, otherwise DIR
    #[arg(long = "wal-dir", value_name = "DIR")]
    wal_dir: Option<PathBuf>,
    /// Compact each store once; otherwise until nothing is due
    #[arg(long = "compactOnce", alias = "compact-once")]
    once: bool,
    #[command(flatten)]
    storage: StorageArgs,
}

/// Runs the tool.
///
/// # Errors
/// If the directory is in use, the table does not exist, or a file cannot be read. Finished
/// compactions stay.
pub fn run(args: &CompactArgs) -> Result<ExitCode, ErrorText> {
    let (fs, root) = args.storage.locate(&args.dir)?;
    let lock = match fs.is_remote() {
        true => None,
        false => Some(DirLock::acquire(&root).map_err(|e| e.to_string())?),
    };
    let config = StoreConfig::from_configuration(&args.storage.configuration()?);
    let log_roots = args.storage.log_roots((&fs, &root), args.wal_dir.as_deref())?;
    let done = compact(args, (fs, root), &log_roots, config.map_err(|e| e.to_string())?)
        .map_err(|error| error.message().to_owned())?;
    drop(lock);
    let (stores, before, after) = (done.stores, done.bytes_before, done.bytes_after);
    let written =
        writeln!(io::stdout(), "{stores} stores compacted: {before} bytes before, {after} bytes after");
    match done.not_opened.len() {
        0 => super::exit(written),
        count => Err(format!("{count} stores cannot be opened:\n{}", done.not_opened.join("\n"))),
    }
}

#[derive(Default)]
struct CompactTotals {
    stores: usize,
    bytes_before: u64,
    bytes_after: u64,
    /// Stores that were left as they are, with the reason.
    not_opened: Vec<String>,
}

fn compact(
    args: &CompactArgs,
    (fs, root): (Arc<dyn FileSystem>, PathBuf),
    log_roots: &[WalRoot],
    config: StoreConfig,
) -> Result<CompactTotals> {
    let env = StoreEnv {
        compaction_throughput: std::sync::Arc::default(),
        metrics: Arc::default(),
        host: LocalHost::default(),
        open_files: Arc::default(),
        mob: Arc::default(),
        archived_files: Arc::default(),
        fs,
        root,
        cache: Arc::new(NoCache),
        clock: Arc::new(SystemClock),
        chunks: ChunkPool::new(0),
        config,
    };
    let stores = stores(&env, log_roots, args.table.as_ref())?;
    let mut progress = Progress::new(stores.iter().map(|store| store.bytes).sum());
    let mut done = CompactTotals::default();
    for at in stores {
        progress.step(0, &at.name);
        // Opens one store at a time, to limit open files.
        let env = StoreEnv { config: at.config, ..env.clone() };
        let store = match Store::open(&env, at.family, &at.region) {
            Ok(store) => store,
            Err(error) => {
                done.not_opened.push(format!("{}: {}", at.name, error.message()));
                continue;
            }
        };
        let before = store.file_bytes();
        if compact_store(&store, args)? {
            done.stores += 1;
            done.bytes_before += before;
            done.bytes_after += store.file_bytes();
        }
        progress.step(at.bytes, &at.name);
    }
    Ok(done)
}

/// A store to compact.
struct StoreAt {
    /// Its path, for messages.
    name: String,
    region: RegionInfo,
    family: ColumnFamilyDescriptor,
    /// With the table's settings.
    config: StoreConfig,
    bytes: u64,
}

/// The stores to compact.
fn stores(env: &StoreEnv, log_roots: &[WalRoot], wanted: Option<&TableName>) -> Result<Vec<StoreAt>> {
    let fs = &*env.fs;
    let catalog = catalog::read(fs, &env.root, log_roots)?.unwrap_or_default();
    if let Some(warning) = catalog.warnings.first() {
        // A split parent must not be taken for a region in service.
        return Err(HBaseError::io(format!("hbase:meta cannot be read in full: {warning}")));
    }
    let parents: HashSet<&str> = catalog.parents();
    let tables = table_dirs(fs, &env.root)?;
    if let Some(missing) = wanted.filter(|wanted| tables.iter().all(|(table, _)| table != *wanted)) {
        return Err(HBaseError::io(format!("there is no table {missing}")));
    }
    let mut stores = Vec::new();
    for (table, dir) in tables.iter().filter(|(table, _)| wanted.is_none_or(|wanted| wanted == table)) {
        let descriptor = descriptor(fs, table, dir)?;
        truncate::finish_all(fs, &env.root, table)?;
        for region in visible_dirs(fs, dir)?.into_iter().filter(|dir| !parents.contains(dir.name())) {
            let info = read_region_info(fs, &region.path.join(layout::REGION_INFO_FILE))?;
            for family in descriptor.families() {
                let files = catalog::list(fs, &region.path.join(family.name_text()))?;
                stores.push(StoreAt {
                    name: format!("{table} {} {}", info.encoded_name(), family.name_text()),
                    region: info.clone(),
                    family: family.clone(),
                    config: env.config.for_table(&descriptor),
                    bytes: files.iter().map(|file| file.len).sum(),
                });
            }
        }
    }
    Ok(stores)
}

fn descriptor(fs: &dyn FileSystem, table: &TableName, dir: &Path) -> Result<TableDescriptor> {
    match descriptors::read(fs, dir)? {
        Some(descriptor) => Ok(descriptor),
        None if table.is_meta() => descriptors::meta(),
        None => Err(HBaseError::io(format!("table {table} has no descriptor"))),
    }
}

/// Compacts one store until no compaction is due. Returns true if any was.
fn compact_store(store: &Arc<Store>, args: &CompactArgs) -> Result<bool> {
    let mut any = false;
    while let Some(request) = store.select_compaction(args.major) {
        let result = store.compact(&request, NO_READER)?;
        store.commit_compaction(request, &result)?;
        any = true;
        if args.once || args.major {
            break;
        }
    }
    store.close(true)?;
    Ok(any)
}
