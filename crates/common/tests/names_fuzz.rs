//! Names and cells from untrusted bytes: parsing returns a value or an error.
//!
//! `EVENKEEL_FUZZ_SECONDS` is the duration; 1 by default, longer in CI.

use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_common::region_info::encoded_name_of;
use evenkeel_common::{CellRef, KeyValue, RegionInfo, ServerName, TableName};
use evenkeel_protocol::pb;
use prost::Message;

/// A small random number generator, so that a failing case can be run again by its seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let table = TableName::new("ns", "table").expect("legal");
    let region =
        RegionInfo::new(table, Bytes::from_static(b"a,b"), Bytes::from_static(b"c"), 1_700_000_000_000);
    let info = pb::RegionInfo::from(&region);
    let cell = KeyValue::put(b"row", b"f", b"q", 7, b"value");
    vec![
        region.name().to_vec(),
        b"hbase:meta,,1".to_vec(),
        b"host.example,16020,1700000000000".to_vec(),
        b"ns:table".to_vec(),
        info.encode_to_vec(),
        cell.to_bytes().to_vec(),
    ]
}

/// A seed with some bytes changed, doubled or cut.
fn mutated(random: &mut Random, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = seeds[random.below(seeds.len())].clone();
    for _ in 0..random.below(6) {
        let at = random.below(bytes.len() + 1);
        match random.below(4) {
            0 if at < bytes.len() => bytes[at] = random.next() as u8,
            1 => bytes.truncate(at),
            2 => bytes.insert(at, random.next() as u8),
            _ => bytes.extend_from_within(at..),
        }
    }
    bytes
}

fn read_all(bytes: &[u8]) {
    if let Ok(name) = encoded_name_of(bytes) {
        let is_of_meta = bytes.starts_with(b"hbase:meta,,1") && name.parse::<u32>().is_ok();
        assert!(name.len() == 32 || is_of_meta, "{name}");
    }
    if let Ok(table) = TableName::from_bytes(bytes) {
        assert_eq!(TableName::from_bytes(table.to_string().as_bytes()).as_ref(), Ok(&table));
    }
    if let Ok(server) = String::from_utf8_lossy(bytes).parse::<ServerName>() {
        assert_eq!(server.to_string().parse().as_ref(), Ok(&server));
    }
    if let Ok(region) =
        pb::RegionInfo::decode(bytes).map_err(drop).and_then(|r| RegionInfo::try_from(&r).map_err(drop))
    {
        assert!(!region.encoded_name().is_empty());
    }
    if let Ok(cell) = CellRef::parse(bytes, 0) {
        let parts = cell.row().len() + cell.family().len() + cell.qualifier().len() + 12;
        assert_eq!(parts, cell.key().len());
        assert!(cell.tag_iter().count() <= cell.tags().len());
        assert!(cell.key_value_len() <= bytes.len());
    }
}

#[test]
fn names_and_cells_of_any_bytes() {
    let seconds = std::env::var("EVENKEEL_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let until = Instant::now() + Duration::from_secs(seconds);
    let seed = 0x9e37_79b9_7f4a_7c15;
    let (mut random, seeds) = (Random(seed), seeds());
    seeds.iter().for_each(|bytes| read_all(bytes));
    let mut cases = 0u64;
    while Instant::now() < until {
        for _ in 0..1000 {
            read_all(&mutated(&mut random, &seeds));
        }
        cases += 1000;
    }
    assert!(cases > 0, "seed {seed}");
}
