//! Bob Jenkins' lookup3 (`hashlittle`): a hash of bloom filters, and the source of the encoded
//! names of hbase:meta's replicas.

use crate::length;

/// Hashes a key (`JenkinsHash`).
pub fn jenkins_hash(key: &[u8], seed: u32) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(length::low_u32(key.len() as u64)).wrapping_add(seed);
    let mut state = [start; 3];
    let mut rest = key;
    while rest.len() > 12 {
        let (block, after) = rest.split_at(12);
        add(&mut state, block);
        mix(&mut state);
        rest = after;
    }
    if rest.is_empty() {
        return state[2];
    }
    add(&mut state, rest);
    finish(&mut state);
    state[2]
}

fn add(state: &mut [u32; 3], block: &[u8]) {
    for (sum, chunk) in state.iter_mut().zip(block.chunks(4)) {
        *sum = sum.wrapping_add(word(chunk));
    }
}

fn mix([a, b, c]: &mut [u32; 3]) {
    for (i, rotation) in [4, 6, 8, 16, 19, 4].into_iter().enumerate() {
        // Each round subtracts the third from the first, xors the rotated third into it, and adds
        // the second to the third. Then the names rotate.
        let (x, y, z) = match i % 3 {
            0 => (&mut *a, &mut *b, &mut *c),
            1 => (&mut *b, &mut *c, &mut *a),
            _ => (&mut *c, &mut *a, &mut *b),
        };
        *x = x.wrapping_sub(*z) ^ z.rotate_left(rotation);
        *z = z.wrapping_add(*y);
    }
}

fn finish([a, b, c]: &mut [u32; 3]) {
    for (i, rotation) in [14, 11, 25, 16, 4, 14, 24].into_iter().enumerate() {
        let (x, y) = match i % 3 {
            0 => (&mut *c, &*b),
            1 => (&mut *a, &*c),
            _ => (&mut *b, &*a),
        };
        *x = (*x ^ *y).wrapping_sub(y.rotate_left(rotation));
    }
}

fn word(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |w, b| w << 8 | u32::from(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookup3_known_values() {
        // From the self-test in Bob Jenkins' lookup3.c (hashlittle).
        assert_eq!(jenkins_hash(b"", 0), 0xdead_beef);
        assert_eq!(jenkins_hash(b"", 0xdead_beef), 0xbd5b_7dde);
        assert_eq!(jenkins_hash(b"Four score and seven years ago", 0), 0x1777_0551);
        assert_eq!(jenkins_hash(b"Four score and seven years ago", 1), 0xcd62_8161);
    }
}
