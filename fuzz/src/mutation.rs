//! Inputs generated from seeds, deterministically by a number.

/// A small generator of random numbers (xorshift64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Creates a generator from any seed.
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `limit`; 0 when that is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.number() % limit.max(1) as u64) as usize
    }
}

/// Edge values of lengths and counts.
const EDGES: [u32; 8] = [0, 1, 0x7f, 0x80, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff];

/// Returns a seed with a few mutations: bytes changed, duplicated, removed or truncated, or a part
/// of another seed.
pub fn mutated(random: &mut Random, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seeds[random.below(seeds.len())].clone();
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        let len = random.below(bytes.len() + 1 - at).min(1 + random.below(40));
        match random.below(8) {
            0 if at < bytes.len() => bytes[at] = random.number() as u8,
            1 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            2 => bytes.truncate(at),
            3 => bytes.insert(at, random.number() as u8),
            4 => bytes.extend_from_within(at..at + len),
            5 => drop(bytes.drain(at..at + len)),
            6 => overwrite(&mut bytes, at, &EDGES[random.below(EDGES.len())].to_be_bytes()),
            _ => {
                let other = &seeds[random.below(seeds.len())];
                let from = random.below(other.len() + 1);
                overwrite(&mut bytes, at, &other[from..(from + len).min(other.len())]);
            }
        }
    }
    bytes
}

fn overwrite(bytes: &mut [u8], at: usize, with: &[u8]) {
    bytes.iter_mut().skip(at).zip(with).for_each(|(byte, new)| *byte = *new);
}

/// Damages a known file: `input` is up to four edits, each a u16 offset and a u8 to XOR. Returns
/// the first changed offset (the file's length if none) and the damaged file.
pub fn damaged(file: &[u8], input: &[u8]) -> (usize, Vec<u8>) {
    let mut bytes = file.to_vec();
    for edit in input.chunks_exact(3).take(4) {
        let at = usize::from(u16::from_be_bytes([edit[0], edit[1]])) % bytes.len().max(1);
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= edit[2];
        }
    }
    let first = bytes.iter().zip(file).position(|(a, b)| a != b).unwrap_or(file.len());
    (first, bytes)
}
