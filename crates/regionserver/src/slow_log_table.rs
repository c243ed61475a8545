//! hbase:slowlog: slow and large calls as rows of a table, as HBase's `SlowLogTableAccessor` writes
//! them.
//!
//! A row is a call. Its key is the time of the write in milliseconds and five digits that tell
//! calls of the same time apart, together one number of eight bytes, so that rows are in the order
//! of time. Its columns, of family `info`, are texts. Rows are in no log, as in HBase: they survive
//! a stop, and those since the last flush do not survive a kill.
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
use evenkeel_region::ops::{Mutation, MutationKind};
use evenkeel_region::region::Region;
use prost::Message;

use crate::RegionServer;
use crate::services::admin::logs::payload;

/// The setting that makes the table and has calls written to it.
pub const ENABLED: &str = "hbase.regionserver.slowlog.systable.enabled";
/// How often calls are written: the shorter of both.
const PERIODS: [&str; 2] =
    ["hbase.slowlog.systable.chore.duration", "hbase.regionserver.named.queue.chore.duration"];
/// HBase's default of both, in milliseconds.
const PERIOD_MS: i64 = 600_000;
/// Calls that are written together.
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

/// The table as HBase's master makes it.
///
/// # Errors
/// None: the names are legal.
pub fn descriptor() -> Result<TableDescriptor> {
    let family = ColumnFamilyDescriptor::new(FAMILY)?.with("BLOCKCACHE", "false").with("VERSIONS", "1");
    Ok(TableDescriptor::new(name()?).with_family(family))
}

/// Writes the calls that wait for it, and returns their number. The calls of a batch that fails are
/// lost, as in HBase.
///
/// # Errors
/// What the table's region says of a batch.
pub fn write(server: &Arc<RegionServer>, now_ms: i64) -> Result<usize> {
    let mut written = 0;
    loop {
        let regions = server.regions().of_table(&name()?);
        // Calls wait until the table is there.
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

/// HBase takes the last five digits of the message's hash code, which in Java is another number.
fn row_key(call: &pb::SlowLogPayload, now_ms: i64) -> i64 {
    let mut hasher = DefaultHasher::new();
    call.encode_to_vec().hash(&mut hasher);
    let digits = i64::try_from(hasher.finish() % 100_000).unwrap_or(0);
    now_ms.saturating_mul(100_000).saturating_add(digits)
}

/// Qualifiers and values, in the order of qualifiers.
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
