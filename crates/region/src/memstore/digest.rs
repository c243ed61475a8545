//! [`RowDigest`]: a few bits of a row that mostly tell which of two comes first.
//!
//! A walk down a skip list looks at a node only to compare its row, and waits for memory to do so. With a digest of the
//! row beside each link it knows beforehand, and goes to the nodes alone that lie on its way.
//!
//! Rows of one region are alike: they begin with the same bytes, and many are text of digits. So a digest leaves out what
//! two rows from both ends of the range have in common, reads what follows as a number whose digits are the bytes that such
//! text has, and keeps its upper bits. Rows outside of what was expected have the lowest digest or the highest; they
//! are compared in full, as rows with the same digest always are. A poor guess costs time and nothing else.

use evenkeel_common::length;

/// Bits of a digest.
pub(super) const DIGEST_BITS: u32 = 19;
/// The highest digest.
pub(super) const DIGEST_MAX: u32 = (1 << DIGEST_BITS) - 1;

/// The first and last byte of kinds of text, the narrower before the wider: decimal and hexadecimal digits, digits and
/// letters, what is printed, anything.
const TEXTS: [(u8, u8); 5] = [(b'0', b'9'), (b'0', b'f'), (b'0', b'z'), (b' ', b'~'), (0, u8::MAX)];
/// Numbers of rows are below 2 to this power, so that sums and products of them fit.
const NUMBER_BITS: u32 = 40;

/// How rows are digested. Rows in ascending order, byte by byte, have digests in ascending order, or equal ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RowDigest {
    /// What expected rows begin with.
    prefix: Box<[u8]>,
    /// The lowest and highest byte that is expected behind it.
    text: (u8, u8),
    /// How many of those bytes make the number of a row.
    places: u32,
    /// The number of the first row that is expected.
    low: u64,
    /// Bits of a number, less `low`, that are left out.
    shift: u32,
}

impl RowDigest {
    /// Tells nothing: all rows have one digest.
    pub(super) fn none() -> Self {
        Self { prefix: Box::default(), text: TEXTS[TEXTS.len() - 1], places: 0, low: 0, shift: 0 }
    }

    /// For rows that are expected between these two; empty for no such end.
    pub(super) fn between(low: &[u8], high: &[u8]) -> Self {
        let common = low.iter().zip(high).take_while(|(a, b)| a == b).count();
        let text = text_of(&low[common..], &high[common..]);
        let low = if low.is_empty() { vec![text.0; high.len()] } else { low.to_vec() };
        let high = if high.is_empty() { highest_like(&low, text) } else { high.to_vec() };
        let common = low.iter().zip(&high).take_while(|(a, b)| a == b).count();
        let places =
            (1..).take_while(|places| radix(text).pow(*places) <= 1 << NUMBER_BITS).map(|_| 1).sum::<u32>();
        let mut digest = Self { prefix: low[..common].into(), text, places, low: 0, shift: 0 };
        digest.low = digest.number(&low[common..]);
        let width = digest.number(&high[common..]).saturating_sub(digest.low);
        digest.shift = (u64::BITS - width.leading_zeros()).saturating_sub(DIGEST_BITS);
        digest
    }

    /// The digest of a row.
    #[inline]
    pub(super) fn of(&self, row: &[u8]) -> u32 {
        let Some(rest) = row.strip_prefix(&*self.prefix) else {
            return if row < &*self.prefix { 0 } else { DIGEST_MAX };
        };
        let number = self.number(rest).saturating_sub(self.low) >> self.shift;
        length::low_u32(number.min(u64::from(DIGEST_MAX)))
    }

    /// The first bytes of the rest of a row as a number. From the first byte on that is not of the text, it has the lowest
    /// digits or the highest; so it has where the row has ended.
    fn number(&self, rest: &[u8]) -> u64 {
        let ((min, max), radix) = (self.text, radix(self.text));
        let mut number = 0;
        for place in 0..self.places {
            let byte = rest.get(place as usize).copied();
            match byte {
                Some(byte) if (min..=max).contains(&byte) => number = number * radix + u64::from(byte - min),
                Some(byte) if byte > max => return (number + 1) * radix.pow(self.places - place) - 1,
                _ => return number * radix.pow(self.places - place),
            }
        }
        number
    }
}

/// The narrowest text that all these bytes are of.
fn text_of(low: &[u8], high: &[u8]) -> (u8, u8) {
    let has = |(min, max): &(u8, u8)| low.iter().chain(high).all(|byte| (min..=max).contains(&byte));
    let known = !(low.is_empty() && high.is_empty());
    TEXTS.into_iter().find(has).filter(|_| known).unwrap_or((0, u8::MAX))
}

/// A row above all that begin with as many of the lowest bytes as `low` does: numbers of one length do.
fn highest_like(low: &[u8], text: (u8, u8)) -> Vec<u8> {
    let lowest = low.iter().take_while(|byte| **byte == text.0);
    lowest.copied().chain([text.1; NUMBER_BITS as usize]).collect()
}

fn radix((min, max): (u8, u8)) -> u64 {
    u64::from(max - min) + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Digests of rows in order are in order, whatever is expected; gives how many differ.
    fn different(digest: &RowDigest, mut rows: Vec<Vec<u8>>) -> usize {
        rows.sort_unstable();
        let digests: Vec<_> = rows.iter().map(|row| digest.of(row)).collect();
        assert!(digests.is_sorted(), "{digest:?}");
        assert!(digests.iter().all(|digest| *digest <= DIGEST_MAX));
        let mut digests = digests;
        digests.dedup();
        digests.len()
    }

    fn decimals(from: u64, to: u64) -> Vec<Vec<u8>> {
        (from..to).map(|n| format!("{n:026}").into_bytes()).collect()
    }

    #[test]
    fn rows_of_a_region_of_decimal_rows_differ() {
        let digest = RowDigest::between(&decimals(4096, 4097)[0], &decimals(8192, 8193)[0]);
        assert_eq!(different(&digest, decimals(4096, 8192)), 4096);
        let (first, last) = (decimals(0, 4096), decimals(40_960, 45_056));
        assert_eq!(different(&RowDigest::between(b"", &decimals(4096, 4097)[0]), first), 4096);
        assert_eq!(different(&RowDigest::between(&last[0].clone(), b""), last), 4096);
    }

    #[test]
    fn rows_of_hashed_text_mostly_differ() {
        let hash = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (n >> 3);
        let hex = (0..4096).map(|n| format!("{:016x}-user", hash(n)).into_bytes()).collect();
        assert!(different(&RowDigest::between(b"0001", b"ffa8"), hex) > 2000);
        let bytes: Vec<_> = (0..4096).map(|n| hash(n).to_be_bytes().to_vec()).collect();
        assert!(different(&RowDigest::between(&[0, 3, 1], &[255, 250]), bytes) > 4000);
    }

    #[test]
    fn rows_that_nobody_expected_are_in_order_too() {
        let mut odd: Vec<Vec<u8>> = decimals(0, 300);
        odd.extend(
            (0..=255).flat_map(|a| [vec![a], vec![b'0', a], vec![b'0', b'5', a, 1], vec![b'0', 0, a]]),
        );
        odd.extend(
            [&b""[..], b"000000", b"0000000000000000000000000", b"05", b"05\0", b"0\xff"].map(Vec::from),
        );
        odd.extend((0..=255).map(|a| [&b"0000000000000000000000"[..], &[a, b'7']].concat()));
        let ends: [&[u8]; 8] =
            [b"", b"0", b"05", b"0000000000000000000000", b"03a", b"a~", b"\0\0", b"\xff\xff"];
        for (low, high) in ends.iter().flat_map(|low| ends.iter().map(move |high| (low, high))) {
            different(&RowDigest::between(low, high), odd.clone());
        }
        let rows = decimals(100, 200);
        different(&RowDigest::between(&rows[0], &rows[99]), odd.clone());
        assert_eq!(different(&RowDigest::none(), odd), 1);
    }
}
