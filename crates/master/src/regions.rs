//! Opens the regions that hbase:meta lists; splits, merges and truncates regions.

mod split;
pub mod truncate;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use crossbeam_channel::unbounded;
use evenkeel_common::thread::{catch, spawn_scoped};
use evenkeel_common::{ConfigError, Configuration, RegionInfo, Result, TableDescriptor, TableName};
use evenkeel_fs::FileSystem;
use evenkeel_region::layout;
use evenkeel_region::region::{Region, RegionEnv};
use evenkeel_region::store_file_tracker::{TRACKER_IMPL, TrackerImpl};

use crate::change_intent::ChangeIntent;
use crate::meta::{MetaChange, MetaTable, TableState};
use crate::replicas::{REPLICAS_MAX, replica_count};
use crate::{Table, descriptors, reconcile};
use evenkeel_regionserver::RegionServer;

/// Threads that open regions at start; each mostly waits for the disk.
const OPEN_THREADS: usize = 4;

/// Returns the number of hbase:meta's replicas that the settings ask for
/// (`hbase.meta.replica.count`); `None` if its descriptor determines the number.
///
/// # Errors
/// [`ConfigError`] if the value is not a number of replicas.
pub fn configured_meta_replicas(conf: &Configuration) -> Result<Option<u32>, ConfigError> {
    const KEY: &str = "hbase.meta.replica.count";
    if conf.get_trimmed(KEY)?.is_none() {
        return Ok(None);
    }
    let replicas = u32::try_from(conf.get_i32_or(KEY, 1)?).ok();
    match replicas.filter(|replicas| (1..=REPLICAS_MAX).contains(replicas)) {
        None => Err(conf.unusable(KEY, "a number of replicas between 1 and 65536")),
        replicas => Ok(replicas),
    }
}

/// Returns the number of replicas that hbase:meta has once [`open_meta`] has opened it.
///
/// # Errors
/// `IOException` from the file system, and for a damaged descriptor.
pub fn meta_replicas(fs: &dyn FileSystem, root: &Path, configured: Option<u32>) -> Result<u32> {
    if let Some(replicas) = configured {
        return Ok(replicas);
    }
    let found = descriptors::read(fs, &layout::table_dir(root, &TableName::meta()))?;
    Ok(found.map_or(1, |table| replica_count(&table)))
}

/// Opens hbase:meta, and creates it in a new root directory. A descriptor without a store file
/// tracker gets DEFAULT; one with another number of replicas than is configured gets that number.
///
/// # Errors
/// `IOException` from the file system.
pub fn open_meta(env: &Arc<RegionEnv>, replicas: Option<u32>) -> Result<Arc<Region>> {
    let (fs, root) = (&*env.stores.fs, &env.stores.root);
    let info = RegionInfo::meta();
    if !fs.exists(&layout::region_dir(root, &info))? {
        let tables = reconcile::table_dirs(fs, root)?;
        if let Some((name, _)) = tables.iter().find(|(name, _)| !name.is_system()) {
            tracing::error!(root = %root.display(), table = %name, "hbase:meta is missing and tables exist: it is rebuilt from their directories");
        }
    }
    let descriptor = prepare_meta_descriptor(fs, &layout::table_dir(root, info.table()), replicas)?;
    Region::open(Arc::clone(env), info, Arc::new(descriptor))
}

/// Returns hbase:meta's descriptor. Writes it if there is none, if it lacks families, because HBase
/// 1.x made the directory, if it names no store file tracker: a stock server would open it with
/// that of its settings; or if `replicas` differs from its number of replicas.
fn prepare_meta_descriptor(
    fs: &dyn FileSystem,
    dir: &Path,
    replicas: Option<u32>,
) -> Result<TableDescriptor> {
    let found = descriptors::read(fs, dir)?;
    let mut descriptor = match &found {
        None => descriptors::meta()?,
        Some(found) => match descriptors::with_meta_families(found)? {
            None => found.clone(),
            Some(whole) => {
                tracing::warn!("hbase:meta lacks families, as in HBase 1: they are added");
                whole
            }
        },
    };
    if descriptor.text(TRACKER_IMPL).is_none_or(str::is_empty) {
        descriptor = descriptor.with(TRACKER_IMPL, TrackerImpl::Default.name());
    }
    if let Some(replicas) = replicas.filter(|replicas| *replicas != descriptor.region_replication()) {
        descriptor = descriptor.with_region_replication(replicas);
    }
    if found.as_ref() != Some(&descriptor) {
        descriptors::write(fs, dir, &descriptor)?;
    }
    Ok(descriptor)
}

/// Opens hbase:namespace, and creates it if there is none.
///
/// # Errors
/// `IOException` from the file system or hbase:meta.
pub fn open_namespace(
    env: &Arc<RegionEnv>,
    meta: &MetaTable,
    tables: &mut BTreeMap<TableName, Table>,
) -> Result<Arc<Region>> {
    let name = TableName::namespace_table();
    if let Some(table) = tables.get(&name) {
        if let Some(region) = meta.regions(Some(&name))?.pop() {
            return open_one(env, meta, region.info, &table.descriptor);
        }
        tracing::error!(
            "hbase:namespace has no region: it is created again, without the settings of namespaces"
        );
    }
    let descriptor = Arc::new(descriptors::namespace()?);
    let (fs, dir) = (&*env.stores.fs, layout::table_dir(&env.stores.root, &name));
    let info = RegionInfo::new(name.clone(), Bytes::new(), Bytes::new(), env.stores.clock.now_ms());
    let intent = ChangeIntent::write(fs, &dir, [&info], [])?;
    descriptors::write(fs, &dir, &descriptor)?;
    let region = Region::open(Arc::clone(env), info.clone(), Arc::clone(&descriptor))?;
    let opened = MetaChange::Opened(info, env.server.clone(), region.open_seq_num());
    meta.commit(vec![opened, MetaChange::State(name.clone(), TableState::Enabled)])?;
    intent.remove(fs);
    tables.insert(name, Table { descriptor, state: TableState::Enabled });
    Ok(region)
}

fn open_one(
    env: &Arc<RegionEnv>,
    meta: &MetaTable,
    info: RegionInfo,
    descriptor: &Arc<TableDescriptor>,
) -> Result<Arc<Region>> {
    let region = Region::open(Arc::clone(env), info, Arc::clone(descriptor))?;
    meta.commit(vec![MetaChange::Opened(region.info().clone(), env.server.clone(), region.open_seq_num())])?;
    Ok(region)
}

/// Opens every region of every enabled table that is not open yet, and records it in hbase:meta. A
/// region that cannot be opened is logged as an error and skipped; the others are served.
///
/// # Errors
/// `IOException` from hbase:meta.
pub fn open_all(
    env: &Arc<RegionEnv>,
    meta: &MetaTable,
    tables: &BTreeMap<TableName, Table>,
    regionserver: &RegionServer,
) -> Result<()> {
    let enabled = |info: &RegionInfo| {
        let table = tables.get(info.table()).filter(|t| t.state == TableState::Enabled)?;
        let is_open_already = info.table().is_meta() || *info.table() == TableName::namespace_table();
        (!is_open_already && !info.is_split_parent()).then(|| Arc::clone(&table.descriptor))
    };
    let (sender, receiver) = unbounded();
    for region in meta.regions(None)? {
        if let Some(descriptor) = enabled(&region.info) {
            drop(sender.send((region.info, descriptor)));
        }
    }
    drop(sender);
    let changes = parking_lot::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let open = || {
            for (info, descriptor) in &receiver {
                let change = try_open(env, info, descriptor, regionserver);
                changes.lock().push(change);
            }
        };
        (0..OPEN_THREADS).try_for_each(|at| spawn_scoped(scope, format!("open-region-{at}"), open).map(drop))
    })?;
    meta.commit(changes.into_inner())
}

fn try_open(
    env: &Arc<RegionEnv>,
    info: RegionInfo,
    descriptor: Arc<TableDescriptor>,
    regionserver: &RegionServer,
) -> MetaChange {
    let loadable = regionserver.config().coprocessors.check(&descriptor);
    let open = || loadable.and_then(|()| Region::open(Arc::clone(env), info.clone(), descriptor));
    match catch(format_args!("opening {}", info.encoded_name()), open) {
        Ok(region) => {
            let change = MetaChange::Opened(info, env.server.clone(), region.open_seq_num());
            drop(regionserver.regions().add(region));
            change
        }
        Err(error) => {
            tracing::error!(region = %info.name_text(), %error, "region cannot be opened; it is not served");
            MetaChange::Put(info, "FAILED_OPEN")
        }
    }
}
