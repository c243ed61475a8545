//! The checksums after a block: one big-endian word of 32 bits per `bytes_per_checksum` bytes of
//! header and body.

use crc_fast::{crc32_iscsi, crc32_iso_hdlc};

use crate::context::ChecksumType;

/// Bytes of one checksum.
pub(crate) const CHECKSUM_BYTES: usize = 4;

/// Bytes of the checksums of `data_bytes` of header and body.
pub(crate) fn checksums_len(data_bytes: usize, bytes_per_checksum: u32) -> usize {
    data_bytes.div_ceil(bytes_per_checksum as usize) * CHECKSUM_BYTES
}

/// Appends the checksums of `block`, which holds header and body.
pub(crate) fn append_checksums(block: &mut Vec<u8>, kind: ChecksumType, bytes_per_checksum: u32) {
    let chunks = block.chunks(bytes_per_checksum as usize);
    let sums: Vec<u8> = chunks.flat_map(|chunk| checksum(kind, chunk).to_be_bytes()).collect();
    block.extend_from_slice(&sums);
}

/// Returns true if `checksums` are those of `data` (header and body).
pub(crate) fn verify(data: &[u8], checksums: &[u8], kind: ChecksumType, bytes_per_checksum: u32) -> bool {
    if kind == ChecksumType::Null {
        return true;
    }
    let chunks = data.chunks(bytes_per_checksum as usize);
    checksums.len() == chunks.len() * CHECKSUM_BYTES
        && chunks
            .zip(checksums.chunks_exact(CHECKSUM_BYTES))
            .all(|(chunk, sum)| checksum(kind, chunk).to_be_bytes() == sum)
}

fn checksum(kind: ChecksumType, chunk: &[u8]) -> u32 {
    match kind {
        ChecksumType::Null => 0,
        ChecksumType::Crc32 => crc32_iso_hdlc(chunk),
        ChecksumType::Crc32C => crc32_iscsi(chunk),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_values_of_both_polynomials() {
        assert_eq!(checksum(ChecksumType::Crc32, b"123456789"), 0xcbf4_3926);
        assert_eq!(checksum(ChecksumType::Crc32C, b"123456789"), 0xe306_9283);
    }

    #[test]
    fn a_changed_byte_is_found_in_any_chunk() {
        for kind in [ChecksumType::Crc32, ChecksumType::Crc32C] {
            let data: Vec<u8> = (0..100).collect();
            let mut block = data.clone();
            append_checksums(&mut block, kind, 33);
            assert_eq!(block.len() - data.len(), checksums_len(data.len(), 33));
            let sums = block.split_off(data.len());
            assert!(verify(&data, &sums, kind, 33));
            for i in 0..data.len() {
                let mut changed = data.clone();
                changed[i] ^= 1;
                assert!(!verify(&changed, &sums, kind, 33), "{i}");
            }
            assert!(!verify(&data, &sums[..sums.len() - 4], kind, 33));
        }
    }
}
