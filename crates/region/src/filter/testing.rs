//! Test support: filters from messages, and a scan over rows in memory that calls a filter as a
//! region scanner does.

use bytes::Bytes;
use evenkeel_common::{CellBuffer, CellComparator, CellRef, HBaseError, KeyValue, Result};
use evenkeel_protocol::pb::{self, CompareType};
use prost::Message;

use super::{Filter, ReturnCode, from_proto};

pub(super) const FILTER_PACKAGE: &str = "org.apache.hadoop.hbase.filter.";

pub(super) fn wire(class: &str, message: &impl Message) -> pb::Filter {
    let name = format!("{FILTER_PACKAGE}{class}");
    pb::Filter { name, serialized_filter: Some(message.encode_to_vec().into()) }
}

pub(super) fn comparator(class: &str, message: &impl Message) -> pb::Comparator {
    let name = format!("{FILTER_PACKAGE}{class}");
    pb::Comparator { name, serialized_comparator: Some(message.encode_to_vec().into()) }
}

pub(super) fn filter_of(proto: &pb::Filter) -> Box<dyn Filter> {
    from_proto(proto).unwrap_or_else(|e| panic!("{e}"))
}

pub(super) fn filter_error(proto: &pb::Filter) -> HBaseError {
    from_proto(proto).err().unwrap_or_else(|| panic!("{} was taken", proto.name))
}

pub(super) fn bytes(of: &[u8]) -> Bytes {
    Bytes::copy_from_slice(of)
}

pub(super) fn comparable(value: &[u8]) -> pb::ByteArrayComparable {
    pb::ByteArrayComparable { value: Some(bytes(value)) }
}

pub(super) fn binary(value: &[u8]) -> pb::Comparator {
    comparator("BinaryComparator", &pb::BinaryComparator { comparable: comparable(value) })
}

pub(super) fn binary_prefix(value: &[u8]) -> pb::Comparator {
    comparator("BinaryPrefixComparator", &pb::BinaryPrefixComparator { comparable: comparable(value) })
}

pub(super) fn regex(pattern: &str, flags: i32, charset: &str) -> pb::Comparator {
    let message = pb::RegexStringComparator {
        pattern: pattern.into(),
        pattern_flags: flags,
        charset: charset.into(),
        engine: Some("JAVA".into()),
    };
    comparator("RegexStringComparator", &message)
}

pub(super) fn compare_filter(op: CompareType, comparator: pb::Comparator) -> pb::CompareFilter {
    pb::CompareFilter { compare_op: op as i32, comparator: Some(comparator) }
}

/// A RowFilter, FamilyFilter, QualifierFilter or ValueFilter that compares with plain bytes.
pub(super) fn compare(class: &str, op: CompareType, value: &[u8]) -> pb::Filter {
    wire(class, &pb::RowFilter { compare_filter: compare_filter(op, binary(value)) })
}

pub(super) fn list(operator: pb::filter_list::Operator, filters: Vec<pb::Filter>) -> pb::Filter {
    wire("FilterList", &pb::FilterList { operator: operator as i32, filters })
}

pub(super) fn all(filters: Vec<pb::Filter>) -> pb::Filter {
    list(pb::filter_list::Operator::MustPassAll, filters)
}

pub(super) fn any(filters: Vec<pb::Filter>) -> pb::Filter {
    list(pb::filter_list::Operator::MustPassOne, filters)
}

/// xorshift64.
pub(super) fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Parses cells from words `row/family:qualifier@timestamp=value`, sorted; `@timestamp` and
/// `=value` are optional.
pub(super) fn cells(text: &str) -> Vec<KeyValue> {
    let mut cells: Vec<_> = text.split_whitespace().map(cell).collect();
    cells.sort_by(|a, b| CellComparator::Default.compare(&a.as_cell(), &b.as_cell()));
    cells
}

fn cell(word: &str) -> KeyValue {
    let (key, value) = word.split_once('=').unwrap_or((word, ""));
    let (key, timestamp) = key.split_once('@').unwrap_or((key, "1"));
    let (row, column) = key.split_once('/').unwrap();
    let (family, qualifier) = column.split_once(':').unwrap();
    let raw = |s: &str| s.as_bytes().to_vec();
    KeyValue::put(&raw(row), &raw(family), &raw(qualifier), timestamp.parse().unwrap(), &raw(value))
}

/// The result of a scan: what it served, and how it ended.
#[derive(Debug, Default)]
pub(super) struct Served {
    pub(super) cells: CellBuffer,
    /// The number of cells for which the filter was called.
    pub(super) asked: usize,
    /// True if the filter ended the scan.
    pub(super) ended: bool,
}

impl Served {
    pub(super) fn text(&self) -> String {
        let words: Vec<_> = self.cells.iter().map(|cell| word(&cell)).collect();
        words.join(" ")
    }
}

fn word(cell: &CellRef<'_>) -> String {
    let (row, family, qualifier) =
        (cell.row().escape_ascii(), cell.family().escape_ascii(), cell.qualifier().escape_ascii());
    let timestamp = if cell.timestamp() == 1 { String::new() } else { format!("@{}", cell.timestamp()) };
    let value =
        if cell.value().is_empty() { String::new() } else { format!("={}", cell.value().escape_ascii()) };
    format!("{row}/{family}:{qualifier}{timestamp}{value}")
}

/// Scans sorted cells through a filter.
pub(super) fn scan(filter: &mut dyn Filter, cells: &[KeyValue], reversed: bool) -> Result<Served> {
    filter.set_reversed(reversed);
    let mut rows: Vec<&[KeyValue]> = cells.chunk_by(|a, b| a.as_cell().same_row(&b.as_cell())).collect();
    if reversed {
        rows.reverse();
    }
    Scan { filter, rows, reversed, served: Served::default() }.run()
}

struct Scan<'a> {
    filter: &'a mut dyn Filter,
    /// In the direction of the scan.
    rows: Vec<&'a [KeyValue]>,
    reversed: bool,
    served: Served,
}

impl Scan<'_> {
    fn run(mut self) -> Result<Served> {
        let mut at = 0;
        while let Some(row) = self.rows.get(at) {
            at = match self.filter.filter_row_key(&row[0].as_cell())? {
                true => at + 1,
                false => self.scan_row(at)?,
            };
            self.filter.reset();
            if self.filter.filter_all_remaining() {
                self.served.ended = true;
                break;
            }
        }
        Ok(self.served)
    }

    /// Returns the index of the next row.
    fn scan_row(&mut self, row_index: usize) -> Result<usize> {
        let from = self.served.cells.len();
        let next_row = self.collect(row_index)?;
        let had_cells = self.served.cells.len() > from;
        if self.filter.has_filter_row() {
            self.filter.filter_row_cells(&mut self.served.cells, from)?;
            if self.served.cells.len() > from && self.filter.filter_row()? {
                self.served.cells.truncate(from);
            }
        } else if had_cells && self.filter.filter_row()? {
            self.served.cells.truncate(from);
        }
        Ok(next_row)
    }

    fn collect(&mut self, row_index: usize) -> Result<usize> {
        let row = self.rows[row_index];
        let mut i = 0;
        while let Some(cell) = row.get(i) {
            let cell = cell.as_cell();
            self.served.asked += 1;
            let code = self.filter.filter_cell(&cell)?;
            if code.includes() {
                let value = self.filter.transform(&cell);
                self.served.cells.push(&value.as_ref().map_or(cell, |v| cell.with_value(v.as_bytes())));
            }
            let skip_while = |same: &dyn Fn(&CellRef<'_>) -> bool| {
                i + row[i..].iter().take_while(|c| same(&c.as_cell())).count()
            };
            i = match code {
                ReturnCode::Include | ReturnCode::Skip => i + 1,
                ReturnCode::IncludeAndNextCol | ReturnCode::NextCol => skip_while(&|c| c.same_column(&cell)),
                ReturnCode::NextRow | ReturnCode::IncludeAndSeekNextRow => {
                    skip_while(&|c| c.family() == cell.family())
                }
                ReturnCode::SeekNextUsingHint => match self.seek(row_index, i)? {
                    Ok(i) => i,
                    Err(row_index) => return Ok(row_index),
                },
            };
        }
        Ok(row_index + 1)
    }

    /// Follows a hint if it lies ahead: to a cell of this row, or to another row.
    fn seek(&mut self, row_index: usize, i: usize) -> Result<std::result::Result<usize, usize>> {
        let row = self.rows[row_index];
        let cell = row[i].as_cell();
        let Some(hint) = self.filter.next_cell_hint(&cell)? else { return Ok(Ok(i + 1)) };
        let hint = hint.as_cell();
        let order = CellComparator::Default.compare(&hint, &cell);
        let is_ahead = if self.reversed { order.is_lt() } else { order.is_gt() };
        if !is_ahead {
            return Ok(Ok(i + 1));
        }
        assert!(
            !self.reversed || hint.row() != cell.row(),
            "a hint that would keep a reversed scan where it is"
        );
        if hint.row() == cell.row() {
            let before = |c: &&KeyValue| CellComparator::Default.compare(&c.as_cell(), &hint).is_lt();
            return Ok(Ok(row.iter().take_while(before).count()));
        }
        let reached = |r: &&[KeyValue]| {
            if self.reversed {
                r[0].as_cell().row() <= hint.row()
            } else {
                r[0].as_cell().row() >= hint.row()
            }
        };
        let skipped = self.rows[row_index..].iter().take_while(|r| !reached(r)).count();
        Ok(Err(row_index + skipped.max(1)))
    }
}

/// Scans, and asserts which cells are served.
pub(super) fn assert_serves(proto: &pb::Filter, input: &str, expected: &str) {
    assert_eq!(serves(proto, input, false), expected, "{} over {input}", proto.name);
}

pub(super) fn assert_serves_reversed(proto: &pb::Filter, input: &str, expected: &str) {
    assert_eq!(serves(proto, input, true), expected, "{} reversed over {input}", proto.name);
}

fn serves(proto: &pb::Filter, input: &str, reversed: bool) -> String {
    scan(&mut *filter_of(proto), &cells(input), reversed).unwrap_or_else(|e| panic!("{e}")).text()
}
