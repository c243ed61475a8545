//! The list of a region's hot blocks, as one server sends it to another.
//!
//! ```text
//! list:   groups until the end, the hottest first
//! group:  16 bytes, big-endian: id of the file in the block cache
//!         varint heat | varint number of blocks, at least 1 | blocks
//! block:  varint bytes between the end of the previous block of the group and its offset
//!         varint its bytes in the file
//! ```
//!
//! Varints are protobuf's. The blocks of a group are in file order. A block takes 4 to 15 bytes: 4
//! if it follows its predecessor in the file and has up to 2 MiB. A file may have several groups,
//! one of each heat.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use evenkeel_block_cache::{FileId, HEAT_MAX, HotBlock};
use evenkeel_common::varint::{read_varint, write_varint};
use evenkeel_region::region::ToldBlock;

/// The maximum number of blocks of a list.
pub const BLOCKS_MAX: usize = 65_536;
/// The maximum bytes of a list: enough for any list of [`BLOCKS_MAX`] blocks.
pub(super) const LIST_BYTES_MAX: usize = 3 << 20;
/// Bytes of a file's id.
const FILE_BYTES: usize = 16;
/// The least bytes of a block.
const BLOCK_BYTES_MIN: usize = 2;
/// Blocks are grouped by the highest of these that is not above their heat.
const LEVELS: [u8; 5] = [12, 8, 5, 3, 1];

/// Blocks of one file with about the same heat, in file order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub file: FileId,
    pub heat: u8,
    pub blocks: Vec<ToldBlock>,
}

/// Groups blocks, given the hottest first, up to a number of bytes in the store files.
pub(super) fn group(hottest: &[HotBlock], bytes_max: u64) -> Vec<Group> {
    let mut left = bytes_max;
    let fits = |block: &&HotBlock| {
        let rest = left.checked_sub(u64::from(block.on_disk_bytes));
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    let mut groups: BTreeMap<(Reverse<u8>, FileId), Vec<ToldBlock>> = BTreeMap::new();
    for block in hottest.iter().take(BLOCKS_MAX).take_while(fits) {
        let told = ToldBlock { offset: block.key.offset, on_disk_bytes: block.on_disk_bytes };
        groups.entry((Reverse(level_of(block.heat)), block.key.file)).or_default().push(told);
    }
    let groups = groups.into_iter().map(|((Reverse(heat), file), mut blocks)| {
        blocks.sort_unstable();
        Group { file, heat, blocks }
    });
    groups.collect()
}

fn level_of(heat: u8) -> u8 {
    LEVELS.into_iter().find(|level| *level <= heat).unwrap_or(1)
}

/// Returns the number of blocks.
pub(super) fn count(groups: &[Group]) -> u64 {
    groups.iter().map(|group| group.blocks.len() as u64).sum()
}

/// Encodes a list. Blocks that overlap their predecessor, which no intact cache has, are omitted.
pub(super) fn encode(groups: &[Group]) -> Vec<u8> {
    let mut out = Vec::new();
    for group in groups {
        let (mut end, mut blocks, mut encoded) = (0, 0, Vec::new());
        for block in &group.blocks {
            let Some(gap) = block.offset.checked_sub(end) else { continue };
            let Some(next) = block.offset.checked_add(u64::from(block.on_disk_bytes)) else { continue };
            write_varint(&mut encoded, gap);
            write_varint(&mut encoded, u64::from(block.on_disk_bytes));
            (end, blocks) = (next, blocks + 1);
        }
        if blocks == 0 {
            continue;
        }
        out.extend_from_slice(&group.file.bits().to_be_bytes());
        write_varint(&mut out, u64::from(group.heat));
        write_varint(&mut out, blocks);
        out.extend_from_slice(&encoded);
    }
    out
}

/// Decodes a list, which may be any bytes. `None` unless it is one, within the limits. A heat is at
/// most [`HEAT_MAX`]. Offsets and sizes may be any that a file of 2^64 bytes can have.
pub(super) fn decode(list: &[u8]) -> Option<Vec<Group>> {
    if list.len() > LIST_BYTES_MAX {
        return None;
    }
    let (mut rest, mut groups, mut left) = (list, Vec::new(), BLOCKS_MAX);
    while !rest.is_empty() {
        let group = decode_group(&mut rest, left)?;
        left -= group.blocks.len();
        groups.push(group);
    }
    Some(groups)
}

fn decode_group(rest: &mut &[u8], blocks_max: usize) -> Option<Group> {
    let (file, after) = rest.split_first_chunk::<FILE_BYTES>()?;
    *rest = after;
    let file = FileId::from_bits(u128::from_be_bytes(*file));
    let heat = u8::try_from(take_varint(rest)?).map_or(HEAT_MAX, |heat| heat.min(HEAT_MAX));
    let blocks = usize::try_from(take_varint(rest)?).ok()?;
    if !(1..=blocks_max.min(rest.len() / BLOCK_BYTES_MIN)).contains(&blocks) {
        return None;
    }
    let mut end = 0u64;
    let mut decode_block = || {
        let offset = end.checked_add(take_varint(rest)?)?;
        let on_disk_bytes = u32::try_from(take_varint(rest)?).ok()?;
        end = offset.checked_add(u64::from(on_disk_bytes))?;
        Some(ToldBlock { offset, on_disk_bytes })
    };
    let blocks = (0..blocks).map(|_| decode_block()).collect::<Option<_>>()?;
    Some(Group { file, heat, blocks })
}

fn take_varint(rest: &mut &[u8]) -> Option<u64> {
    let (value, bytes) = read_varint(rest)?;
    *rest = rest.get(bytes..)?;
    Some(value)
}

#[cfg(test)]
mod tests {
    use evenkeel_block_cache::BlockKey;

    use super::*;

    fn hot(file: u128, offset: u64, heat: u8) -> HotBlock {
        let key = BlockKey { file: FileId::from_bits(file), offset };
        HotBlock { heat, key, on_disk_bytes: 65_000 }
    }

    fn told(offset: u64, on_disk_bytes: u32) -> ToldBlock {
        ToldBlock { offset, on_disk_bytes }
    }

    fn of_one_file(heat: u8, blocks: &[ToldBlock]) -> Group {
        Group { file: FileId::from_bits(u128::MAX - 1), heat, blocks: blocks.to_vec() }
    }

    #[test]
    fn blocks_are_grouped_by_heat_and_file() {
        let hottest = [
            hot(2, 70_000, 18),
            hot(1, 500, 12),
            hot(2, 0, 12),
            hot(2, 140_000, 9),
            hot(1, 0, 1),
            hot(1, 900, 0),
        ];
        let groups = group(&hottest, u64::MAX);
        let shape: Vec<(u8, u128, Vec<u64>)> = groups
            .iter()
            .map(|group| (group.heat, group.file.bits(), group.blocks.iter().map(|b| b.offset).collect()))
            .collect();
        let expected: [(u8, u128, Vec<u64>); 4] =
            [(12, 1, vec![500]), (12, 2, vec![0, 70_000]), (8, 2, vec![140_000]), (1, 1, vec![0, 900])];
        assert_eq!(shape, expected);
        assert_eq!(count(&group(&hottest, 4 * 65_000 - 1)), 3, "the coldest are left out");
        assert_eq!(count(&group(&hottest, 0)), 0);
        assert_eq!(group(&[], u64::MAX), []);
    }

    #[test]
    fn a_list_is_decoded_as_it_was_encoded() {
        let groups = [
            of_one_file(12, &[told(0, 65_600), told(65_600, 65_601), told(1 << 40, 1)]),
            Group { file: FileId::of_name("bulk_SeqId_4_"), heat: 1, blocks: vec![told(7, u32::MAX)] },
        ];
        let encoded = encode(&groups);
        assert_eq!(decode(&encoded).as_deref(), Some(&groups[..]));
        assert_eq!(&encoded[FILE_BYTES..][..6], [12, 3, 0, 0xc0, 0x80, 4], "heat, number, and a block");
        assert_eq!(decode(&[]).as_deref(), Some(&[][..]));
        let overlapping = encode(&[of_one_file(3, &[told(0, 100), told(99, 100), told(100, 5)])]);
        let expected = [of_one_file(3, &[told(0, 100), told(100, 5)])];
        assert_eq!(decode(&overlapping).as_deref(), Some(&expected[..]));
    }

    #[test]
    fn the_longest_list_is_within_the_limit() {
        let blocks: Vec<_> = (0..BLOCKS_MAX).map(|i| hot(i as u128, u64::MAX / 2, 18)).collect();
        let encoded = encode(&group(&blocks, u64::MAX));
        assert!(encoded.len() <= LIST_BYTES_MAX, "{}", encoded.len());
        assert_eq!(decode(&encoded).map(|groups| count(&groups)), Some(BLOCKS_MAX as u64));
    }

    #[test]
    fn other_bytes_are_no_list() {
        let encoded = encode(&[of_one_file(12, &[told(0, 65_600), told(70_000, 65_601)])]);
        for len in 1..encoded.len() {
            assert_eq!(decode(&encoded[..len]), None, "{len} bytes");
        }
        let group = |numbers: &[u64]| {
            let mut bytes = vec![7; FILE_BYTES];
            numbers.iter().for_each(|number| write_varint(&mut bytes, *number));
            decode(&bytes)
        };
        assert_eq!(group(&[u64::MAX, 1, 0, 9]).map(|groups| groups[0].heat), Some(HEAT_MAX));
        assert_eq!(group(&[1, u64::MAX, 0, 9]), None, "more blocks than bytes");
        assert_eq!(group(&[1, 2, 0, 9, 0]), None);
        assert_eq!(group(&[1, 1, u64::MAX, 9]), None, "the end does not fit 64 bits");
        assert_eq!(group(&[1, 1, 0, 1 << 32]), None, "a block of 4 GiB");
        assert_eq!(decode(&vec![0; LIST_BYTES_MAX + 1]), None);
        let mut many = vec![0; FILE_BYTES];
        [1, BLOCKS_MAX as u64 + 1].iter().for_each(|number| write_varint(&mut many, *number));
        many.resize(many.len() + 2 * (BLOCKS_MAX + 1), 0);
        assert_eq!(decode(&many), None, "more blocks than the limit");
        assert_eq!(decode(&[0; 18 * 3]), None, "groups without blocks");
    }
}
