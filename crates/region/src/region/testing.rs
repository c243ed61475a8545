//! A region over an in-memory file system, for tests of what only its own modules can access.

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::{RegionInfo, ServerName, TableDescriptor};
use evenkeel_wal::{NoListener, Wal, WalConfig, WalOptions};

use super::nonce::NonceManager;
use super::{NoEvents, Region, RegionConfig, RegionEnv, RegionEvents};
use crate::store::testing::{env, family};

/// A region with all rows of a table with the family `f`.
pub(super) fn region() -> Arc<Region> {
    region_with(Arc::new(NoEvents), RegionConfig::default().flush_bytes)
}

/// The same, with a receiver of events and a flush size.
pub(super) fn region_with(events: Arc<dyn RegionEvents>, flush_bytes: u64) -> Arc<Region> {
    let config = RegionConfig { flush_bytes, block_multiplier: 1 << 30, ..RegionConfig::default() };
    region_of(events, config, &[])
}

/// The same, with a configuration and attributes of the table.
pub(super) fn region_of(
    events: Arc<dyn RegionEvents>,
    config: RegionConfig,
    attributes: &[(&str, &str)],
) -> Arc<Region> {
    let mut table = TableDescriptor::new("t".parse().expect("legal")).with_family(family(b"f", &[]));
    for (key, value) in attributes {
        table = table.with(key, value);
    }
    region_of_table(events, config, table)
}

/// A region of a table whose family `f` has these attributes.
pub(super) fn region_with_family(attributes: &[(&str, &str)]) -> Arc<Region> {
    let table = TableDescriptor::new("t".parse().expect("legal")).with_family(family(b"f", attributes));
    region_of_table(Arc::new(NoEvents), RegionConfig::default(), table)
}

fn region_of_table(
    events: Arc<dyn RegionEvents>,
    config: RegionConfig,
    table: TableDescriptor,
) -> Arc<Region> {
    let (stores, clock) = env();
    let [wal_dir, old_dir] = ["WALs", "oldWALs"].map(|dir| stores.root.join(dir));
    for dir in [&wal_dir, &old_dir] {
        stores.fs.mkdirs(dir).expect("made");
    }
    let wal = Wal::open(WalOptions {
        fs: Arc::clone(&stores.fs),
        wal_dir,
        old_dir,
        prefix: "h".to_owned(),
        suffix: String::new(),
        config: WalConfig::default(),
        clock: Arc::clone(&stores.clock),
        listener: Arc::new(NoListener),
    });
    let env = RegionEnv {
        stores,
        wal: wal.expect("opens"),
        wal_root: None,
        config,
        server: ServerName::new("h", 16020, 1),
        nonces: Arc::new(NonceManager::new(clock, 1000)),
        events,
        operation_times: Arc::default(),
    };
    let info = RegionInfo::new(table.name().clone(), Bytes::new(), Bytes::new(), 1);
    Region::open(Arc::new(env), info, Arc::new(table)).expect("opens")
}
