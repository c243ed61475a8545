//! Short index keys between two blocks.

use evenkeel_common::cell::{KeyBuf, LATEST_TIMESTAMP};
use evenkeel_common::{CellRef, CellType};

/// A key after `left` and not after `right`, as short as the first difference in row, family or
/// qualifier allows. If they only differ later, it is the key of `right`. `left` sorts before
/// `right` in the default order.
pub(crate) fn separator(left: &CellRef<'_>, right: &CellRef<'_>) -> KeyBuf {
    let key = |row: &[u8], family: &[u8], qualifier: &[u8]| {
        KeyBuf::new(row, family, qualifier, LATEST_TIMESTAMP, CellType::Maximum)
    };
    if let Some(row) = separator_bytes(left.row(), right.row()) {
        key(&row, &[], &[])
    } else if let Some(family) = separator_bytes(left.family(), right.family()) {
        key(right.row(), &family, &[])
    } else if let Some(qualifier) = separator_bytes(left.qualifier(), right.qualifier()) {
        key(right.row(), right.family(), &qualifier)
    } else {
        KeyBuf::of(right)
    }
}

/// Bytes after `left` and not after `right`. `None` if `left` does not sort before `right`.
fn separator_bytes(left: &[u8], right: &[u8]) -> Option<Vec<u8>> {
    let same = left.iter().zip(right).take_while(|(l, r)| l == r).count();
    match (left.get(same), right.get(same)) {
        (None, Some(_)) => Some([left, &[0]].concat()),
        (Some(l), Some(r)) if l < r => Some([left.get(..same)?, &[l + 1]].concat()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_common::{CellComparator, KeyValue};

    use super::*;

    fn cell(row: &str, qualifier: &str, timestamp: i64) -> KeyValue {
        KeyValue::put(row.as_bytes(), b"f", qualifier.as_bytes(), timestamp, b"")
    }

    #[test]
    fn a_separator_is_short_and_between_its_cells() {
        let cases = [
            (cell("aaaa", "q", 5), cell("abzz", "q", 5), &b"ab"[..]),
            (cell("aaaa", "q", 5), cell("aaaab", "q", 5), b"aaaa\0"),
            (cell("aaaa", "q", 5), cell("aaaa", "qq", 5), b"aaaa"),
            (cell("aaaa", "q", 5), cell("aaaa", "q", 4), b"aaaa"),
            (cell("a~", "q", 5), cell("b", "q", 5), b"b"),
        ];
        for (left, right, row) in cases {
            let key = separator(&left.as_cell(), &right.as_cell());
            let order = CellComparator::Default;
            assert!(order.compare_keys(&left.as_cell(), &key.as_cell()).is_lt(), "{left:?} {key:?}");
            assert!(order.compare_keys(&key.as_cell(), &right.as_cell()).is_le(), "{key:?} {right:?}");
            assert_eq!(key.as_cell().row(), row);
        }
    }

    #[test]
    fn a_difference_after_the_qualifier_takes_the_whole_key() {
        let (left, right) = (cell("r", "q", 5), cell("r", "q", 4));
        assert_eq!(separator(&left.as_cell(), &right.as_cell()), KeyBuf::of(&right.as_cell()));
    }
}
