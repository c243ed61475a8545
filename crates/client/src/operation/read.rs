//! Reads: [`Get`] of one row and [`Scan`] of many, and the selection of columns, versions and
//! filter that both share.

use bytes::Bytes;
use evenkeel_protocol::pb;

use crate::filter::Filter;

/// The selection of columns and versions that [`Get`] and [`Scan`] share.
#[derive(Clone, Debug, Default, PartialEq)]
struct Selection {
    columns: Vec<pb::Column>,
    time_range: Option<pb::TimeRange>,
    max_versions: Option<u32>,
    filter: Option<pb::Filter>,
    cache_blocks: Option<bool>,
    store_limit: Option<u32>,
    store_offset: Option<u32>,
    attributes: Vec<pb::NameBytesPair>,
    consistency: Consistency,
    replica: Option<u32>,
}

/// Which replicas of a region may answer a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consistency {
    /// The primary, which has every acknowledged write.
    #[default]
    Strong,
    /// Any, possibly stale ([`crate::RowResult::is_stale`]): the others are read if the primary
    /// takes longer than [`crate::ClientConfig::primary_get_timeout`] or
    /// [`crate::ClientConfig::primary_scan_timeout`].
    Timeline,
}

impl Consistency {
    /// The wire form, which omits strong consistency.
    fn message(self) -> Option<i32> {
        (self == Self::Timeline).then_some(pb::Consistency::Timeline as i32)
    }
}

impl Selection {
    /// Changes the qualifiers of a family, which is added if it is not selected yet.
    fn change(&mut self, family: &[u8], change: impl FnOnce(&mut Vec<Bytes>)) {
        match self.columns.iter_mut().find(|column| column.family == family) {
            Some(column) => change(&mut column.qualifier),
            None => {
                let mut column = pb::Column { family: Bytes::copy_from_slice(family), qualifier: Vec::new() };
                change(&mut column.qualifier);
                self.columns.push(column);
            }
        }
    }
}

/// The replicas that a read goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replicas {
    /// This one.
    One(u32),
    /// The primary, and the others if it is slow.
    Any,
}

macro_rules! selects {
    ($name:ident) => {
        impl $name {
            /// Adds a whole family.
            pub fn family(mut self, family: impl AsRef<[u8]>) -> Self {
                self.selection.change(family.as_ref(), Vec::clear);
                self
            }

            /// Adds one column.
            pub fn column(mut self, family: impl AsRef<[u8]>, qualifier: impl AsRef<[u8]>) -> Self {
                let qualifier = Bytes::copy_from_slice(qualifier.as_ref());
                self.selection.change(family.as_ref(), |qualifiers| qualifiers.push(qualifier));
                self
            }

            /// Only cells with `from_ms <= timestamp < to_ms`.
            pub fn time_range(mut self, from_ms: u64, to_ms: u64) -> Self {
                self.selection.time_range = Some(pb::TimeRange { from: Some(from_ms), to: Some(to_ms) });
                self
            }

            /// At most this number of versions of each column; 1 by default.
            pub fn max_versions(mut self, versions: u32) -> Self {
                self.selection.max_versions = Some(versions);
                self
            }

            /// Every version of each column.
            pub fn all_versions(self) -> Self {
                self.max_versions(i32::MAX as u32)
            }

            /// At most this number of cells of each family of a row.
            pub fn family_limit(mut self, cells: u32) -> Self {
                self.selection.store_limit = Some(cells);
                self
            }

            /// Skips this number of cells of each family of a row.
            pub fn family_offset(mut self, cells: u32) -> Self {
                self.selection.store_offset = Some(cells);
                self
            }

            /// Returns only what a filter passes.
            pub fn filter(mut self, filter: impl Into<Filter>) -> Self {
                self.selection.filter = Some(filter.into().message());
                self
            }

            /// Whether blocks that are read enter the block cache; true by default.
            pub fn cache_blocks(mut self, cache: bool) -> Self {
                self.selection.cache_blocks = Some(cache);
                self
            }

            /// Which replicas may answer; the primary by default.
            pub fn consistency(mut self, consistency: Consistency) -> Self {
                self.selection.consistency = consistency;
                self
            }

            /// Reads only this replica of the regions. Any replica but the primary (0) implies
            /// [`Consistency::Timeline`].
            pub fn replica(mut self, id: u32) -> Self {
                self.selection.replica = Some(id);
                if id > 0 {
                    self.selection.consistency = Consistency::Timeline;
                }
                self
            }

            pub(crate) fn replicas(&self) -> Replicas {
                match (self.selection.consistency, self.selection.replica) {
                    (Consistency::Strong, _) => Replicas::One(0),
                    (Consistency::Timeline, Some(id)) => Replicas::One(id),
                    (Consistency::Timeline, None) => Replicas::Any,
                }
            }

            /// An attribute of the operation.
            pub fn attribute(mut self, name: &str, value: impl Into<Bytes>) -> Self {
                self.selection
                    .attributes
                    .push(pb::NameBytesPair { name: name.to_owned(), value: Some(value.into()) });
                self
            }
        }
    };
}

/// Reads one row.
#[derive(Clone, Debug, PartialEq)]
pub struct Get {
    row: Bytes,
    existence_only: bool,
    selection: Selection,
}

selects!(Get);

impl Get {
    /// Selects the newest version in all families.
    pub fn new(row: impl AsRef<[u8]>) -> Self {
        let row = Bytes::copy_from_slice(row.as_ref());
        Self { row, existence_only: false, selection: Selection::default() }
    }

    /// Requests only whether there is a cell; see [`crate::RowResult::exists`].
    pub fn existence_only(mut self) -> Self {
        self.existence_only = true;
        self
    }

    /// The row.
    pub fn row(&self) -> &[u8] {
        &self.row
    }

    pub(crate) fn message(&self) -> pb::Get {
        self.clone().into_message()
    }

    pub(crate) fn into_message(self) -> pb::Get {
        let selection = self.selection;
        pb::Get {
            row: self.row,
            column: selection.columns,
            attribute: selection.attributes,
            filter: selection.filter,
            time_range: selection.time_range,
            max_versions: selection.max_versions,
            cache_blocks: selection.cache_blocks,
            store_limit: selection.store_limit,
            store_offset: selection.store_offset,
            existence_only: self.existence_only.then_some(true),
            consistency: selection.consistency.message(),
            ..Default::default()
        }
    }
}

/// Reads rows in order, forwards or backwards.
#[derive(Clone, Debug, PartialEq)]
pub struct Scan {
    pub(crate) start: Bytes,
    pub(crate) start_included: bool,
    pub(crate) stop: Bytes,
    pub(crate) stop_included: bool,
    pub(crate) reverse: bool,
    pub(crate) limit: Option<u64>,
    pub(crate) caching: Option<u32>,
    pub(crate) bytes_max: Option<u64>,
    pub(crate) batch: Option<u32>,
    pub(crate) partial: bool,
    pub(crate) cursor: bool,
    on_demand: Option<bool>,
    read_type: Option<pb::scan::ReadType>,
    selection: Selection,
}

selects!(Scan);

impl Default for Scan {
    fn default() -> Self {
        Self::new()
    }
}

impl Scan {
    /// Selects the newest version in all families of the whole table.
    pub fn new() -> Self {
        let (start, stop, selection) = Default::default();
        Self {
            start,
            start_included: true,
            stop,
            stop_included: false,
            reverse: false,
            limit: None,
            caching: None,
            bytes_max: None,
            batch: None,
            partial: false,
            cursor: false,
            on_demand: None,
            read_type: None,
            selection,
        }
    }

    /// Starts at a row.
    pub fn from(mut self, row: impl AsRef<[u8]>) -> Self {
        (self.start, self.start_included) = (Bytes::copy_from_slice(row.as_ref()), true);
        self
    }

    /// Starts after a row (before it, backwards).
    pub fn from_exclusive(mut self, row: impl AsRef<[u8]>) -> Self {
        (self.start, self.start_included) = (Bytes::copy_from_slice(row.as_ref()), false);
        self
    }

    /// Stops before a row (after it, backwards). The stop row is the smaller one when the scan is
    /// reversed.
    pub fn to(mut self, row: impl AsRef<[u8]>) -> Self {
        (self.stop, self.stop_included) = (Bytes::copy_from_slice(row.as_ref()), false);
        self
    }

    /// Stops at a row, included.
    pub fn to_inclusive(mut self, row: impl AsRef<[u8]>) -> Self {
        (self.stop, self.stop_included) = (Bytes::copy_from_slice(row.as_ref()), true);
        self
    }

    /// Backwards, from the start row (the larger one; the table's last when none is given).
    pub fn reversed(mut self) -> Self {
        self.reverse = true;
        self
    }

    /// Ends after this number of rows.
    pub fn limit(mut self, rows: u64) -> Self {
        self.limit = Some(rows);
        self
    }

    /// Requests at most this number of rows in one call. Without it, only bytes limit a call.
    pub fn caching(mut self, rows: u32) -> Self {
        self.caching = Some(rows.max(1));
        self
    }

    /// Selects the rows with a prefix.
    pub fn prefix(self, prefix: impl AsRef<[u8]>) -> Self {
        let prefix = prefix.as_ref();
        let mut stop = prefix.to_vec();
        // The first row after all rows with a prefix: the prefix with its last byte below 0xff
        // incremented, and cut there.
        while stop.last() == Some(&u8::MAX) {
            stop.pop();
        }
        if let Some(last) = stop.last_mut() {
            *last += 1;
        }
        self.from(prefix).to(stop)
    }

    /// Requests at most about this number of bytes in one call.
    pub fn max_result_bytes(mut self, bytes: u64) -> Self {
        self.bytes_max = Some(bytes);
        self
    }

    /// Returns rows in parts of at most this number of cells; see [`crate::RowResult::is_partial`].
    pub fn batch(mut self, cells: u32) -> Self {
        self.batch = Some(cells.max(1));
        self.allow_partial()
    }

    /// Returns rows in the parts in which servers send them, so that no row has to fit into memory.
    pub fn allow_partial(mut self) -> Self {
        self.partial = true;
        self
    }

    /// Makes servers that find no rows for long report their progress; see
    /// [`crate::Scanner::cursor`].
    pub fn cursor(mut self) -> Self {
        self.cursor = true;
        self
    }

    /// Whether families that the filter does not need are read only for rows that pass.
    pub fn load_families_on_demand(mut self, on_demand: bool) -> Self {
        self.on_demand = Some(on_demand);
        self
    }

    /// Also returns delete markers and deleted cells.
    pub fn raw(self) -> Self {
        self.attribute("_raw_", Bytes::from_static(&[0xff]))
    }

    /// Reads by position rather than as a stream, for short scans.
    pub fn preads(mut self) -> Self {
        self.read_type = Some(pb::scan::ReadType::Pread);
        self
    }

    /// Reads as a stream from the first block on, for long scans. By default the server decides.
    pub fn streams(mut self) -> Self {
        self.read_type = Some(pb::scan::ReadType::Stream);
        self
    }

    pub(crate) fn message(&self) -> pb::Scan {
        let selection = self.selection.clone();
        pb::Scan {
            column: selection.columns,
            attribute: selection.attributes,
            filter: selection.filter,
            time_range: selection.time_range,
            max_versions: selection.max_versions,
            cache_blocks: selection.cache_blocks,
            store_limit: selection.store_limit,
            store_offset: selection.store_offset,
            batch_size: self.batch,
            need_cursor_result: self.cursor.then_some(true),
            load_column_families_on_demand: self.on_demand,
            start_row: Some(self.start.clone()),
            stop_row: Some(self.stop.clone()),
            include_start_row: Some(self.start_included),
            include_stop_row: Some(self.stop_included),
            reversed: self.reverse.then_some(true),
            caching: self.caching,
            read_type: self.read_type.map(|kind| kind as i32),
            consistency: selection.consistency.message(),
            ..Default::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_takes_the_place_of_its_columns() {
        let get = Get::new("r").column("f", "a").column("g", "b").column("f", "c").family("g").message();
        let columns: Vec<_> = get.column.iter().map(|c| (&c.family[..], c.qualifier.len())).collect();
        assert_eq!(columns, [(&b"f"[..], 2), (b"g", 0)]);
    }

    #[test]
    fn a_prefix_stops_before_the_next_one() {
        let stop = |prefix: &[u8]| Scan::new().prefix(prefix).stop.to_vec();
        assert_eq!(stop(b"ab"), b"ac");
        assert_eq!(stop(b"a\xff\xff"), b"b");
        assert_eq!(stop(b"\xff"), b"");
        assert_eq!(stop(b""), b"");
    }
}
