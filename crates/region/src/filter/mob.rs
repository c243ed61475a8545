//! [`MobReferencesOnly`]: passes only cells whose values are in MOB files
//! (`MobReferenceOnlyFilter`), for the scan attribute `hbase.mob.scan.ref.only`.

use evenkeel_common::mob::is_reference;
use evenkeel_common::{CellBuffer, CellRef, KeyBuf, Result};

use super::{Filter, FilterTimer, ReplacedValue, ReturnCode};

/// Wraps the filter of a scan, if it has one. As HBase adds its filter when it opens the first
/// store with MOB files, cells of families before that one pass.
pub struct MobReferencesOnly {
    inner: Box<dyn Filter>,
    first_family: Vec<u8>,
}

/// Passes every cell.
struct PassAll;

impl Filter for PassAll {
    fn filter_cell(&mut self, _cell: &CellRef<'_>) -> Result<ReturnCode> {
        Ok(ReturnCode::Include)
    }
}

impl MobReferencesOnly {
    /// `first_family` is the first family with MOB files that the scan reads.
    pub fn new(inner: Option<Box<dyn Filter>>, first_family: &[u8]) -> Self {
        let inner = inner.unwrap_or_else(|| Box::new(PassAll));
        Self { inner, first_family: first_family.to_vec() }
    }
}

impl Filter for MobReferencesOnly {
    fn reset(&mut self) {
        self.inner.reset();
    }

    fn filter_row_key(&mut self, first_cell: &CellRef<'_>) -> Result<bool> {
        self.inner.filter_row_key(first_cell)
    }

    fn filter_all_remaining(&self) -> bool {
        self.inner.filter_all_remaining()
    }

    fn filter_cell(&mut self, cell: &CellRef<'_>) -> Result<ReturnCode> {
        let code = self.inner.filter_cell(cell)?;
        let drops = code.includes() && cell.family() >= &self.first_family[..] && !is_reference(cell);
        Ok(match code {
            // What a list of both filters returns that both must pass (`FilterListWithAND`).
            ReturnCode::IncludeAndNextCol if drops => ReturnCode::NextCol,
            ReturnCode::IncludeAndSeekNextRow if drops => ReturnCode::NextRow,
            _ if drops => ReturnCode::Skip,
            code => code,
        })
    }

    fn transform(&self, cell: &CellRef<'_>) -> Option<ReplacedValue> {
        self.inner.transform(cell)
    }

    fn filter_row_cells(&mut self, cells: &mut CellBuffer, from: usize) -> Result<()> {
        self.inner.filter_row_cells(cells, from)
    }

    fn has_filter_row(&self) -> bool {
        self.inner.has_filter_row()
    }

    fn filter_row(&mut self) -> Result<bool> {
        self.inner.filter_row()
    }

    fn next_cell_hint(&mut self, cell: &CellRef<'_>) -> Result<Option<KeyBuf>> {
        self.inner.next_cell_hint(cell)
    }

    fn is_family_essential(&self, family: &[u8]) -> bool {
        self.inner.is_family_essential(family)
    }

    fn set_reversed(&mut self, reversed: bool) {
        self.inner.set_reversed(reversed);
    }

    fn is_hinting(&self) -> bool {
        self.inner.is_hinting()
    }

    fn timer(&mut self) -> Option<&mut FilterTimer> {
        self.inner.timer()
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_common::KeyValue;

    use super::*;

    struct Always(ReturnCode);

    impl Filter for Always {
        fn filter_cell(&mut self, _cell: &CellRef<'_>) -> Result<ReturnCode> {
            Ok(self.0)
        }
    }

    #[test]
    fn a_dropped_cell_moves_as_far_as_the_filter_wants() {
        let cell = KeyValue::put(b"r", b"f", b"q", 5, b"value");
        for (inner, expected) in [
            (ReturnCode::Include, ReturnCode::Skip),
            (ReturnCode::IncludeAndNextCol, ReturnCode::NextCol),
            (ReturnCode::IncludeAndSeekNextRow, ReturnCode::NextRow),
            (ReturnCode::NextRow, ReturnCode::NextRow),
        ] {
            let mut filter = MobReferencesOnly::new(Some(Box::new(Always(inner))), b"f");
            assert_eq!(filter.filter_cell(&cell.as_cell()).expect("decided"), expected);
            let mut later = MobReferencesOnly::new(Some(Box::new(Always(inner))), b"g");
            assert_eq!(later.filter_cell(&cell.as_cell()).expect("decided"), inner);
        }
    }
}
