//! The counters of a HotSpot JVM, in its memory-mapped file.
//!
//! ```text
//! u32 magic CAFEC0C0 | u8 byte order (0 big, 1 little) | u8 major 2 | u8 minor | u8 accessible
//! i32 used | i32 overflow | i64 time stamp | i32 first entry | i32 entries
//! entry = i32 length | i32 name offset | i32 vector length | u8 type | u8 flags | u8 units
//!         | u8 variability | i32 data offset | name\0 ... data
//! (offsets are relative to the entry; type 'J' is a long)
//! ```
//! Source: HotSpot's `perfMemory.hpp`. Offsets and lengths are checked against the file.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::fs;
use std::path::{Path, PathBuf};

const MAGIC: [u8; 4] = [0xca, 0xfe, 0xc0, 0xc0];
/// The largest number of entries; a JVM has a few hundred.
const ENTRIES_MAX: usize = 10_000;

/// Collections of all collectors together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Collections {
    pub(super) seconds: f64,
    pub(super) count: u64,
}

/// The counter file of a process, if any.
pub(super) fn file_of(pid: i32) -> Option<PathBuf> {
    let users = fs::read_dir("/tmp").ok()?.flatten();
    let folders = users.filter(|entry| entry.file_name().to_string_lossy().starts_with("hsperfdata_"));
    folders.map(|folder| folder.path().join(pid.to_string())).find(|file| file.is_file())
}

/// The collections so far.
pub(super) fn collections(file: &Path) -> Option<Collections> {
    sum(&fs::read(file).ok()?)
}

fn sum(bytes: &[u8]) -> Option<Collections> {
    let longs = longs(bytes)?;
    let value = |name: &str| longs.iter().find(|(known, _)| known == name).map(|(_, value)| *value);
    let frequency = value("sun.os.hrt.frequency").filter(|hz| *hz > 0)? as f64;
    let mut sum = Collections::default();
    for (name, value) in &longs {
        let Some(rest) = name.strip_prefix("sun.gc.collector.") else { continue };
        match rest.split_once('.') {
            Some((_, "time")) => sum.seconds += *value as f64 / frequency,
            Some((_, "invocations")) => sum.count += u64::try_from(*value).unwrap_or_default(),
            _ => {}
        }
    }
    Some(sum)
}

/// Names and values of all counters that are longs.
fn longs(bytes: &[u8]) -> Option<Vec<(String, i64)>> {
    if bytes.get(..4)? != MAGIC {
        return None;
    }
    let little = *bytes.get(4)? == 1;
    let (mut at, entries) = (int(bytes, 24, little)?, int(bytes, 28, little)?.min(ENTRIES_MAX));
    let mut found = Vec::new();
    for _ in 0..entries {
        let entry = bytes.get(at..)?;
        let len = int(entry, 0, little)?;
        if len == 0 {
            break;
        }
        found.extend(long(entry.get(..len)?, little));
        at += len;
    }
    Some(found)
}

fn long(entry: &[u8], little: bool) -> Option<(String, i64)> {
    if *entry.get(12)? != b'J' || int(entry, 8, little)? != 0 {
        return None;
    }
    let name = entry.get(int(entry, 4, little)?..)?;
    let name = name.split(|b| *b == 0).next()?;
    let data: [u8; 8] = entry.get(int(entry, 16, little)?..)?.get(..8)?.try_into().ok()?;
    let value = if little { i64::from_le_bytes(data) } else { i64::from_be_bytes(data) };
    Some((String::from_utf8_lossy(name).into_owned(), value))
}

fn int(bytes: &[u8], at: usize, little: bool) -> Option<usize> {
    let four: [u8; 4] = bytes.get(at..)?.get(..4)?.try_into().ok()?;
    let value = if little { i32::from_le_bytes(four) } else { i32::from_be_bytes(four) };
    usize::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(counters: &[(&str, i64)]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1, 2, 0, 1]);
        bytes.extend([0; 16]);
        bytes.extend(32i32.to_le_bytes());
        bytes.extend((counters.len() as i32).to_le_bytes());
        for (name, value) in counters {
            let data = (20 + name.len() + 1).next_multiple_of(8);
            [data as i32 + 8, 20, 0].iter().for_each(|n| bytes.extend(n.to_le_bytes()));
            bytes.extend([b'J', 0, 0, 0]);
            bytes.extend((data as i32).to_le_bytes());
            bytes.extend(name.as_bytes());
            bytes.resize(bytes.len() + data - 20 - name.len(), 0);
            bytes.extend(value.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn collectors_are_summed() {
        let bytes = file(&[
            ("sun.os.hrt.frequency", 1000),
            ("sun.gc.collector.0.time", 1500),
            ("sun.gc.collector.0.invocations", 3),
            ("sun.gc.collector.1.time", 250),
            ("sun.gc.collector.1.invocations", 1),
            ("sun.gc.generation.0.time", 99),
        ]);
        assert_eq!(sum(&bytes), Some(Collections { seconds: 1.75, count: 4 }));
    }

    #[test]
    fn arbitrary_bytes_do_not_panic() {
        let bytes = file(&[("sun.os.hrt.frequency", 1000), ("sun.gc.collector.0.time", 1500)]);
        for cut in 0..bytes.len() {
            let _ = sum(&bytes[..cut]);
        }
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut bent = bytes.clone();
                bent[at] = value;
                let _ = sum(&bent);
            }
        }
        assert_eq!(sum(b"nothing of the kind"), None);
    }
}
