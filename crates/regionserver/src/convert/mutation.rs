//! MutationProto: Put, Delete, Increment and Append.

use bytes::Bytes;
use evenkeel_common::cell::{FAMILY_BYTES_MAX, KeyValueBuilder, LATEST_TIMESTAMP};
use evenkeel_common::{CellRef, CellType, Durability, HBaseError, KeyValue, Result, quoted};
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::mutation_proto::column_value::QualifierValue;
use evenkeel_protocol::pb::mutation_proto::{DeleteType, MutationType};
use evenkeel_region::operations::{Mutation, MutationKind};
use evenkeel_rpc::CellBlockReader;
use prost::Message;

use super::{attribute, boolean_attribute, check_row, missing, optional_time_range};

/// Attribute: time to live in milliseconds, 8 bytes.
const ATTRIBUTE_TTL: &str = "_ttl";
/// Attribute: whether an Increment or Append returns its cells, one byte.
const ATTRIBUTE_RETURN_RESULTS: &str = "_rr_";
/// Bytes that HBase counts for a cell beside its KeyValue: the length prefix.
const CELL_LENGTH_BYTES: usize = 4;
/// More than the bytes of a cell beside its row, family, qualifier, value and tags.
const CELL_FIXED_BYTES_MAX: usize = 64;

/// Converts a mutation with its cells, which come from `block` if the message gives their number,
/// else from the message. Rejects cells larger than `cell_bytes_max`
/// (`hbase.server.keyvalue.maxsize`); 0 means no limit.
///
/// # Errors
/// `DoNotRetryIOException` if it is invalid; its cells are taken from `block` even so.
pub fn read(
    proto: &pb::MutationProto,
    block: &mut CellBlockReader,
    cell_bytes_max: usize,
) -> Result<Mutation> {
    let from_block = take(proto, block)?;
    let kind = kind(proto)?;
    let timestamp = proto.timestamp.map_or(LATEST_TIMESTAMP, |timestamp| timestamp as i64);
    let (row, cells) = match from_block {
        Some(cells) => of_block(proto, kind, cells)?,
        None => of_message(proto, kind, timestamp)?,
    };
    if matches!(kind, MutationKind::Put | MutationKind::Delete) {
        check_timestamp(timestamp)?;
    }
    check_cells(&cells, cell_bytes_max)?;
    Ok(Mutation {
        kind,
        row,
        cells,
        timestamp,
        durability: durability(proto)?,
        ttl_ms: ttl_ms(proto)?,
        time_range: optional_time_range(proto.time_range.as_ref())?,
        reply_budget: None,
        return_results: boolean_attribute(&proto.attribute, ATTRIBUTE_RETURN_RESULTS).unwrap_or(true),
        nonce: nonce(proto, kind),
    })
}

/// Checks the sizes of the cells of a mutation that [`read`] would take from `block`. A mutation
/// that is invalid in any other way passes.
///
/// # Errors
/// `DoNotRetryIOException` if a cell is larger than `cell_bytes_max`.
pub fn check_sizes(
    proto: &pb::MutationProto,
    block: &mut CellBlockReader,
    cell_bytes_max: usize,
) -> Result<()> {
    match read(proto, block, 0) {
        Ok(mutation) => mutation.cells.iter().try_for_each(|cell| check_size(cell.as_cell(), cell_bytes_max)),
        Err(_) => Ok(()),
    }
}

/// Returns true if a cell of a mutation may be larger than `cell_bytes_max`, judged by the bytes
/// of the block or message that has it.
pub fn may_exceed(proto: &pb::MutationProto, block: &CellBlockReader, cell_bytes_max: usize) -> bool {
    let bytes = match proto.associated_cell_count.unwrap_or(0) {
        1.. => block.remaining_bytes(),
        _ => proto.encoded_len(),
    };
    cell_bytes_max != 0 && bytes.saturating_add(CELL_FIXED_BYTES_MAX) > cell_bytes_max
}

/// Skips the cells of a mutation that is not processed. Stops silently at the end of the block.
pub fn skip(proto: &pb::MutationProto, block: &mut CellBlockReader) {
    for _ in 0..proto.associated_cell_count.unwrap_or(0) {
        if !matches!(block.next_cell(), Ok(Some(_))) {
            return;
        }
    }
}

/// Returns the kind of a mutation. If it is absent, it is the first value of the enum, as protobuf
/// defines.
///
/// # Errors
/// `DoNotRetryIOException` for an unknown number.
pub fn kind(proto: &pb::MutationProto) -> Result<MutationKind> {
    let number = proto.mutate_type.unwrap_or(MutationType::Append as i32);
    match MutationType::try_from(number) {
        Ok(MutationType::Append) => Ok(MutationKind::Append),
        Ok(MutationType::Increment) => Ok(MutationKind::Increment),
        Ok(MutationType::Put) => Ok(MutationKind::Put),
        Ok(MutationType::Delete) => Ok(MutationKind::Delete),
        Err(_) => Err(HBaseError::do_not_retry(format!("Unsupported mutate type: {number}"))),
    }
}

/// Takes the cells of the mutation from the block; `None` if the message gives no number of cells.
fn take(proto: &pb::MutationProto, block: &mut CellBlockReader) -> Result<Option<Vec<KeyValue>>> {
    let count = proto.associated_cell_count.unwrap_or(0);
    if count <= 0 {
        return Ok(None);
    }
    if block.remaining_bytes() == 0 {
        return Err(HBaseError::do_not_retry(format!(
            "Cell count of {count} but no cellScanner: {}",
            short(proto)
        )));
    }
    // The count is not trusted; the length of the block bounds the allocation.
    let mut cells = Vec::with_capacity((count as usize).min(block.remaining_bytes() / CELL_LENGTH_BYTES));
    for index in 0..count {
        let cell = block.next_cell().map_err(|error| HBaseError::do_not_retry(error.message()))?;
        let cell = cell.ok_or_else(|| {
            let what =
                format!("Cell count of {count} but at index {index} no cell returned: {}", short(proto));
            HBaseError::do_not_retry(what)
        })?;
        cells.push(cell);
    }
    Ok(Some(cells))
}

fn short(proto: &pb::MutationProto) -> String {
    let row = quoted(proto.row.as_deref().unwrap_or_default());
    format!("row={row}, type={}", proto.mutate_type().as_str_name())
}

fn of_block(
    proto: &pb::MutationProto,
    kind: MutationKind,
    cells: Vec<KeyValue>,
) -> Result<(Bytes, Vec<KeyValue>)> {
    let row = match (&proto.row, cells.first()) {
        (Some(row), _) => row.clone(),
        (None, Some(first)) => first.to_bytes().slice_ref(first.as_cell().row()),
        (None, None) => return Err(no_row()),
    };
    check_row(&row)?;
    cells.iter().try_for_each(|cell| check_cell(cell, &row, kind))?;
    Ok((row, cells))
}

fn check_cell(cell: &KeyValue, row: &[u8], kind: MutationKind) -> Result<()> {
    let cell = cell.as_cell();
    if cell.row() != row {
        return Err(HBaseError::do_not_retry(format!(
            "The row in {} doesn't match the original one {}",
            quoted(cell.row()),
            quoted(row)
        )));
    }
    if cell.family().is_empty() {
        return Err(HBaseError::do_not_retry("Family cannot be null"));
    }
    let fits = match kind {
        MutationKind::Delete => cell.is_delete(),
        MutationKind::Put => cell.is_delete() || cell.cell_type() == Some(CellType::Put),
        MutationKind::Increment | MutationKind::Append => cell.cell_type() == Some(CellType::Put),
    };
    match fits && cell.cell_type().is_some() {
        true => Ok(()),
        false => Err(HBaseError::do_not_retry(format!(
            "a {kind:?} cannot hold a cell of type {}",
            cell.type_code()
        ))),
    }
}

fn of_message(
    proto: &pb::MutationProto,
    kind: MutationKind,
    timestamp: i64,
) -> Result<(Bytes, Vec<KeyValue>)> {
    let row = proto.row.clone().ok_or_else(no_row)?;
    check_row(&row)?;
    let mut cells = Vec::new();
    for column in &proto.column_value {
        check_family(&column.family)?;
        for value in &column.qualifier_value {
            let default_timestamp = if kind == MutationKind::Put { timestamp } else { LATEST_TIMESTAMP };
            cells.push(cell_of_message(&row, &column.family, value, kind, default_timestamp)?);
        }
    }
    Ok((row, cells))
}

fn cell_of_message(
    row: &[u8],
    family: &[u8],
    proto: &QualifierValue,
    kind: MutationKind,
    default_timestamp: i64,
) -> Result<KeyValue> {
    // HBase ignores the tags in the message of a Delete.
    let tags = proto.tags.as_deref().filter(|_| kind != MutationKind::Delete).unwrap_or_default();
    let cell_type = cell_type(proto, kind)?;
    let of_family = matches!(cell_type, CellType::DeleteFamily | CellType::DeleteFamilyVersion);
    let timestamp = proto.timestamp.map_or(default_timestamp, |timestamp| timestamp as i64);
    let value = match kind {
        MutationKind::Delete => &[][..],
        _ => proto.value.as_deref().ok_or_else(|| missing("qualifier value"))?,
    };
    let cell = KeyValueBuilder {
        row,
        family,
        qualifier: if of_family { &[] } else { proto.qualifier.as_deref().unwrap_or_default() },
        timestamp,
        kind: cell_type,
        value: if cell_type == CellType::Put { value } else { &[] },
        tags,
    };
    cell.try_build()
}

fn cell_type(proto: &QualifierValue, kind: MutationKind) -> Result<CellType> {
    let number = match (kind, proto.delete_type) {
        (MutationKind::Delete, number) => number.unwrap_or(DeleteType::DeleteOneVersion as i32),
        (MutationKind::Put, Some(number)) => number,
        _ => return Ok(CellType::Put),
    };
    match DeleteType::try_from(number) {
        Ok(DeleteType::DeleteOneVersion) => Ok(CellType::Delete),
        Ok(DeleteType::DeleteMultipleVersions) => Ok(CellType::DeleteColumn),
        Ok(DeleteType::DeleteFamily) => Ok(CellType::DeleteFamily),
        Ok(DeleteType::DeleteFamilyVersion) => Ok(CellType::DeleteFamilyVersion),
        Err(_) => Err(HBaseError::do_not_retry(format!("Unknown delete type: {number}"))),
    }
}

fn check_family(family: &[u8]) -> Result<()> {
    match family.len() {
        0 => Err(HBaseError::do_not_retry("Family cannot be null")),
        len if len > FAMILY_BYTES_MAX => {
            Err(HBaseError::do_not_retry(format!("Family length {len} is > {FAMILY_BYTES_MAX}")))
        }
        _ => Ok(()),
    }
}

fn check_timestamp(timestamp: i64) -> Result<()> {
    if timestamp >= 0 {
        return Ok(());
    }
    Err(HBaseError::do_not_retry(format!("Timestamp cannot be negative. ts={timestamp}")))
}

/// Validates cells of any kind, from the message or the block.
fn check_cells(cells: &[KeyValue], cell_bytes_max: usize) -> Result<()> {
    for cell in cells.iter().map(KeyValue::as_cell) {
        check_timestamp(cell.timestamp())?;
        cell.check()?;
        check_size(cell, cell_bytes_max)?;
    }
    Ok(())
}

/// Checks the size of a cell as HBase counts it (`RSRpcServices.checkCellSizeLimit`).
fn check_size(cell: CellRef<'_>, cell_bytes_max: usize) -> Result<()> {
    let size = cell.key_value_len() + CELL_LENGTH_BYTES;
    if cell_bytes_max == 0 || size <= cell_bytes_max {
        return Ok(());
    }
    let what = format!("Cell[{cell:?}] with size {size} exceeds limit of {cell_bytes_max} bytes");
    Err(HBaseError::do_not_retry(what))
}

fn durability(proto: &pb::MutationProto) -> Result<Durability> {
    let number = proto.durability.unwrap_or(0);
    match pb::mutation_proto::Durability::try_from(number) {
        Ok(_) => Ok(Durability::from_number(number)),
        Err(_) => Err(HBaseError::do_not_retry(format!("Unknown durability: {number}"))),
    }
}

fn ttl_ms(proto: &pb::MutationProto) -> Result<Option<i64>> {
    let Some(value) = attribute(&proto.attribute, ATTRIBUTE_TTL) else { return Ok(None) };
    let bytes = value.try_into().map_err(|_| {
        HBaseError::do_not_retry(format!("attribute {ATTRIBUTE_TTL} has {} bytes instead of 8", value.len()))
    })?;
    Ok(Some(i64::from_be_bytes(bytes)).filter(|ttl| *ttl != i64::MAX))
}

fn nonce(proto: &pb::MutationProto, kind: MutationKind) -> u64 {
    match kind {
        MutationKind::Increment | MutationKind::Append => proto.nonce.unwrap_or(0),
        MutationKind::Put | MutationKind::Delete => 0,
    }
}

fn no_row() -> HBaseError {
    HBaseError::do_not_retry("row cannot be null")
}
