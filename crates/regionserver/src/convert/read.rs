//! Get and Scan.

use bytes::Bytes;
use evenkeel_common::cell::ROW_BYTES_MAX;
use evenkeel_common::{HBaseError, Result, Wait};
use evenkeel_protocol::pb;
use evenkeel_region::filter::{self, Filter};
use evenkeel_region::operations::{Columns, Families, FamilyColumns, MobRead, ReadType, Scan, TimeRange};

use super::{attribute, boolean_attribute, check_row, optional_time_range, time_range};

/// Attribute that requests delete markers and all versions.
const ATTRIBUTE_RAW: &str = "_raw_";
/// Attribute that holds the isolation level, one byte.
const ATTRIBUTE_ISOLATION_LEVEL: &str = "_isolationlevel_";
/// The isolation level that reads incomplete writes.
const READ_UNCOMMITTED: u8 = 2;

/// A Scan, and the fields of its message that concern the server rather than the region.
pub struct ScanRequest {
    /// The scan of the region.
    pub scan: Scan,
    /// The maximum memory of its filter, in bytes.
    pub filter_bytes: u64,
    /// The maximum reply size in bytes, if the client sets it.
    pub max_result_bytes: Option<u64>,
    /// True if heartbeats carry a cursor that shows the progress of the scan.
    pub need_cursor: bool,
}

/// Converts a Get to a scan of `row`; the row in the message is ignored. `on_demand` is the default
/// for loading families on demand that the filter does not need
/// (`hbase.hregion.scan.loadColumnFamiliesOnDemand`).
///
/// # Errors
/// `DoNotRetryIOException` for a bad row, time range or filter.
pub fn get(proto: &pb::Get, row: &Bytes, on_demand: bool) -> Result<Scan> {
    check_row(row)?;
    Ok(Scan {
        families: families(&proto.column),
        max_versions: versions(proto.max_versions),
        time_range: optional_time_range(proto.time_range.as_ref())?,
        family_time_ranges: family_time_ranges(&proto.cf_time_range)?,
        store_limit: proto.store_limit.map_or(-1, |limit| limit as i32),
        store_offset: proto.store_offset.map_or(0, |offset| offset as i32),
        cache_blocks: proto.cache_blocks(),
        filter: optional_filter(proto.filter.as_ref())?,
        read_uncommitted: is_read_uncommitted(&proto.attribute),
        load_families_on_demand: proto.load_column_families_on_demand.unwrap_or(on_demand),
        mob: mob_read(&proto.attribute),
        ..Scan::get(row.clone())
    })
}

/// Converts a Scan. `on_demand` as for [`get`].
///
/// # Errors
/// `DoNotRetryIOException` for invalid rows, time ranges, read types or filters, and for a batch
/// size combined with a filter that judges whole rows.
pub fn scan(proto: &pb::Scan, on_demand: bool) -> Result<ScanRequest> {
    let (start_row, stop_row) = rows(proto)?;
    let include_start_row = proto.include_start_row();
    // A client that sends no inclusion flags requests one row by start = stop.
    let same = !start_row.is_empty() && start_row == stop_row;
    let include_stop_row = proto.include_stop_row.unwrap_or(same);
    let filter = proto.filter.as_ref().map(filter::from_proto_sized).transpose()?;
    let (filter, filter_bytes) = filter.map_or((None, 0), |(filter, bytes)| (Some(filter), bytes));
    let scan = Scan {
        is_get: same && include_start_row && include_stop_row,
        start_row,
        include_start_row,
        stop_row,
        include_stop_row,
        reversed: proto.reversed(),
        families: families(&proto.column),
        max_versions: versions(proto.max_versions),
        time_range: optional_time_range(proto.time_range.as_ref())?,
        family_time_ranges: family_time_ranges(&proto.cf_time_range)?,
        store_limit: proto.store_limit.map_or(-1, |limit| limit as i32),
        store_offset: proto.store_offset.map_or(0, |offset| offset as i32),
        batch: proto.batch_size.map_or(-1, |batch| batch as i32),
        raw: boolean_attribute(&proto.attribute, ATTRIBUTE_RAW).unwrap_or(false),
        cache_blocks: proto.cache_blocks(),
        filter,
        read_uncommitted: is_read_uncommitted(&proto.attribute),
        mvcc_read_point: proto.mvcc_read_point.filter(|point| (1..=i64::MAX as u64).contains(point)),
        read_type: read_type(proto)?,
        load_families_on_demand: proto.load_column_families_on_demand.unwrap_or(on_demand),
        mob: mob_read(&proto.attribute),
        wait: Wait::Allowed,
    };
    check_batch(&scan)?;
    Ok(ScanRequest {
        scan,
        filter_bytes,
        max_result_bytes: proto.max_result_size.filter(|bytes| (1..=i64::MAX as u64).contains(bytes)),
        need_cursor: proto.need_cursor_result(),
    })
}

/// Returns how values in MOB files are read, from the attributes of `MobConstants`.
fn mob_read(attributes: &[pb::NameBytesPair]) -> MobRead {
    if attributes.is_empty() {
        return MobRead::default();
    }
    let is_set = |name| boolean_attribute(attributes, name).unwrap_or(false);
    MobRead {
        raw: is_set("hbase.mob.scan.raw"),
        references_only: is_set("hbase.mob.scan.ref.only"),
        cache_blocks: is_set("hbase.mob.cache.blocks"),
        empty_on_miss: is_set("empty.value.on.mobcell.miss"),
    }
}

fn rows(proto: &pb::Scan) -> Result<(Bytes, Bytes)> {
    let start = proto.start_row.clone().unwrap_or_default();
    let stop = proto.stop_row.clone().unwrap_or_default();
    for (name, row) in [("startRow", &start), ("stopRow", &stop)] {
        if row.len() > ROW_BYTES_MAX {
            return Err(HBaseError::do_not_retry(format!(
                "{name}'s length must be less than or equal to {ROW_BYTES_MAX} to meet the criteria for a row key."
            )));
        }
    }
    Ok((start, stop))
}

fn check_batch(scan: &Scan) -> Result<()> {
    match &scan.filter {
        Some(filter) if scan.batch > 0 && filter.has_filter_row() => Err(HBaseError::do_not_retry(
            "Cannot set batch on a scan using a filter that returns true for filter.hasFilterRow",
        )),
        _ => Ok(()),
    }
}

fn read_type(proto: &pb::Scan) -> Result<ReadType> {
    use pb::scan::ReadType as Type;
    if proto.small() {
        return Ok(ReadType::Pread);
    }
    let number = proto.read_type.unwrap_or(Type::Default as i32);
    match Type::try_from(number) {
        Ok(Type::Default) => Ok(ReadType::Default),
        Ok(Type::Stream) => Ok(ReadType::Stream),
        Ok(Type::Pread) => Ok(ReadType::Pread),
        Err(_) => Err(HBaseError::do_not_retry(format!("Unknown read type: {number}"))),
    }
}

/// Returns the requested families, sorted. As in Java, the last mention of a family counts: a
/// family named without a qualifier selects all its columns; qualifiers named after that select
/// only those.
fn families(columns: &[pb::Column]) -> Families {
    let mut families = Families::with_capacity(columns.len());
    for column in columns {
        let asked = (!column.qualifier.is_empty()).then(|| Columns::from(&column.qualifier[..]));
        match families.iter_mut().find(|known| known.family == column.family) {
            Some(known) => known.qualifiers = merged(known.qualifiers.take(), asked),
            None => families.push(FamilyColumns { family: column.family.clone(), qualifiers: asked }),
        }
    }
    for qualifiers in families.iter_mut().filter_map(|family| family.qualifiers.as_mut()) {
        qualifiers.sort_unstable();
        qualifiers.dedup();
    }
    families.sort_unstable_by(|a, b| a.family.cmp(&b.family));
    families
}

fn merged(known: Option<Columns>, asked: Option<Columns>) -> Option<Columns> {
    match (known, asked) {
        (Some(mut known), Some(asked)) => {
            known.extend(asked);
            Some(known)
        }
        (_, asked) => asked,
    }
}

fn versions(asked: Option<u32>) -> u32 {
    asked.unwrap_or(1).clamp(1, i32::MAX as u32)
}

fn family_time_ranges(ranges: &[pb::ColumnFamilyTimeRange]) -> Result<Vec<(Bytes, TimeRange)>> {
    ranges.iter().map(|range| Ok((range.column_family.clone(), time_range(&range.time_range)?))).collect()
}

fn optional_filter(proto: Option<&pb::Filter>) -> Result<Option<Box<dyn Filter>>> {
    proto.map(filter::from_proto).transpose()
}

fn is_read_uncommitted(attributes: &[pb::NameBytesPair]) -> bool {
    attribute(attributes, ATTRIBUTE_ISOLATION_LEVEL) == Some(&[READ_UNCOMMITTED])
}
