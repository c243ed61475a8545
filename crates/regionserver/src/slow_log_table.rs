//! hbase:slowlog: slow and large calls as rows of a table, as HBase's `SlowLogTableAccessor` writes
//! them.
//!
//! Each row is one call. Its key is one number of eight bytes: the time of the write in
//! milliseconds, followed by five digits that distinguish calls of the same time. So rows are
//! ordered by time. The columns, of family `info`, contain text. As in HBase the rows skip the WAL:
//! they survive a stop, but rows written after the last flush do not survive a kill.
//!
//! A standalone server writes the rows to its regions ([`write`]); a RegionServer of a cluster is a
//! client of the table, whose regions may be elsewhere ([`take_rows`]).

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use evenkeel_common::config::Configuration;
use evenkeel_common::{
    ColumnFamilyDescriptor, Durability, HBaseError, KeyValue, Result, TableDescriptor, TableName,
};
use evenkeel_protocol::pb;
use evenkeel_region::operations::{Mutation, MutationKind};
use evenkeel_region::region::Region;
use prost::Message;

use crate::RegionServer;
use crate::services::admin::logs::payload;

/// The setting that enables the table and the writes to it.
pub const ENABLED: &str = "hbase.regionserver.slowlog.systable.enabled";
/// How often calls are written: the shorter of both.
const PERIODS: [&str; 2] =
    ["hbase.slowlog.systable.chore.duration", "hbase.regionserver.named.queue.chore.duration"];
/// HBase's default of both, in milliseconds.
const PERIOD_MS: i64 = 600_000;
/// The number of calls in one batch.
const BATCH: usize = 100;
const FAMILY: &[u8] = b"info";

/// How often calls are written; `None` if they are not.
///
/// # Errors
/// `IOException` about a setting that is no number.
pub fn period(conf: &Configuration) -> Result<Option<Duration>> {
    let bad = |error: evenkeel_common::config::ConfigError| HBaseError::io(error.to_string());
    if !conf.get_bool_or(ENABLED, false).map_err(bad)? {
        return Ok(None);
    }
    let mut shortest = PERIOD_MS;
    for key in PERIODS {
        shortest = shortest.min(conf.get_i64_or(key, PERIOD_MS).map_err(bad)?);
    }
    Ok(Some(Duration::from_millis(shortest.max(1).unsigned_abs())))
}

/// hbase:slowlog.
///
/// # Errors
/// None: the name is legal.
pub fn name() -> Result<TableName> {
    "hbase:slowlog".parse()
}

/// Returns the descriptor that HBase's master uses for the table.
///
/// # Errors
/// None: the names are legal.
pub fn descriptor() -> Result<TableDescriptor> {
    let family = ColumnFamilyDescriptor::new(FAMILY)?.with("BLOCKCACHE", "false").with("VERSIONS", "1");
    Ok(TableDescriptor::new(name()?).with_family(family))
}

/// Writes the queued calls to the table, and returns their number. If a batch fails its calls are
/// lost, as in HBase.
///
/// # Errors
/// Errors of the table's region for a batch.
pub fn write(server: &Arc<RegionServer>, now_ms: i64) -> Result<usize> {
    let mut written = 0;
    loop {
        let regions = server.regions().primaries_of_table(&name()?);
        // Calls stay queued until the table is open.
        let mut rows = if regions.is_empty() { Vec::new() } else { take_rows(server, now_ms) };
        if rows.is_empty() {
            return Ok(written);
        }
        written += rows.len();
        for region in regions {
            let (here, elsewhere) = rows.into_iter().partition(|row| is_in(&region, &row.row));
            rows = elsewhere;
            region.batch_mutate_wait(here).into_iter().try_for_each(|outcome| outcome.map(drop))?;
        }
    }
}

/// Takes some of the calls that wait for the table, as Puts that skip the log. Empty if there are
/// none.
pub fn take_rows(server: &RegionServer, now_ms: i64) -> Vec<Mutation> {
    let calls = server.rpc_metrics().slow_log.take_for_table(BATCH);
    calls.iter().map(|(call, excess)| row(&payload(call, *excess), now_ms)).collect()
}

fn is_in(region: &Region, row: &[u8]) -> bool {
    let (start, end) = (region.info().start_key(), region.info().end_key());
    row >= start && (end.is_empty() || row < end)
}

fn row(call: &pb::SlowLogPayload, now_ms: i64) -> Mutation {
    let key = Bytes::copy_from_slice(&row_key(call, now_ms).to_be_bytes());
    let cells = columns(call);
    let cell = |(qualifier, value): &(&str, String)| {
        KeyValue::put(&key, FAMILY, qualifier.as_bytes(), now_ms, value.as_bytes())
    };
    let cells = cells.iter().map(cell).collect();
    Mutation { durability: Durability::SkipWal, ..Mutation::new(MutationKind::Put, key.clone(), cells) }
}

/// HBase uses the last five digits of the message's Java hash code, which is a different number.
fn row_key(call: &pb::SlowLogPayload, now_ms: i64) -> i64 {
    let mut hasher = DefaultHasher::new();
    call.encode_to_vec().hash(&mut hasher);
    let digits = i64::try_from(hasher.finish() % 100_000).unwrap_or(0);
    now_ms.saturating_mul(100_000).saturating_add(digits)
}

/// Returns qualifiers and values, ordered by qualifier.
fn columns(call: &pb::SlowLogPayload) -> [(&'static str, String); 14] {
    [
        ("block_bytes_scanned", call.block_bytes_scanned().to_string()),
        ("call_details", call.call_details.clone()),
        ("client_address", call.client_address.clone()),
        ("fs_read_time", call.fs_read_time().to_string()),
        ("method_name", call.method_name.clone()),
        ("param", call.param().to_owned()),
        ("processing_time", call.processing_time.to_string()),
        ("queue_time", call.queue_time.to_string()),
        ("region_name", call.region_name().to_owned()),
        ("response_size", call.response_size.to_string()),
        ("server_class", call.server_class.clone()),
        ("start_time", call.start_time.to_string()),
        ("type", call.r#type().as_str_name().to_owned()),
        ("username", call.user_name.clone()),
    ]
}
