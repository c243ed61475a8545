//! [`BlockKey`] and [`FileId`].

/// A file, identified by 128 bits made from its name.
///
/// The name of a store file is a UUID in hexadecimal, which is the id itself, so two such files
/// never share an id. Any other name (bulk loaded files, test files) is hashed to 128 bits by two
/// FNV-1a passes with different seeds. The hash is the same in every process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(u128);

impl FileId {
    /// The id of a file name (the last component of its path).
    pub fn of_name(name: &str) -> Self {
        Self(parse_uuid(name).unwrap_or_else(|| hash(name.as_bytes())))
    }

    /// The id with these bits.
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// The 128 bits.
    pub fn bits(self) -> u128 {
        self.0
    }
}

/// The identity of a block: file and offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockKey {
    /// The file.
    pub file: FileId,
    /// The offset of the block's header.
    pub offset: u64,
}

const UUID_DIGITS: usize = 32;

fn parse_uuid(name: &str) -> Option<u128> {
    let plain =
        name.len() == UUID_DIGITS && name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    plain.then(|| u128::from_str_radix(name, 16).ok()).flatten()
}

const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;
const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;

fn hash(bytes: &[u8]) -> u128 {
    let low = fnv(FNV_BASIS, bytes);
    let high = fnv(!FNV_BASIS ^ low.rotate_left(32), bytes);
    u128::from(high) << 64 | u128::from(low)
}

fn fnv(basis: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(basis, |h, b| (h ^ u64::from(*b)).wrapping_mul(FNV_PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_its_own_id() {
        let id = FileId::of_name("0123456789abcdef0123456789abcdef");
        assert_eq!(id.bits(), 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
    }

    #[test]
    fn other_names_are_hashed_apart() {
        let names =
            ["", "a", "b", "ab", "ba", "0123456789ABCDEF0123456789ABCDEF", "x_SeqId_4_", "x_SeqId_5_"];
        let ids: std::collections::HashSet<_> = names.iter().map(|n| FileId::of_name(n)).collect();
        assert_eq!(ids.len(), names.len());
    }
}
