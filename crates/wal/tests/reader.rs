//! The reader: files torn at every byte, corruption anywhere, arbitrary bytes.

mod common;

use std::path::Path;

use common::*;
use evenkeel_common::KeyValue;
use evenkeel_common::cell::KeyValueBuilder;
use evenkeel_fs::{CreateOptions, FileSystem, MemoryFileSystem};
use evenkeel_wal::{Compression, ReadError, WalCompression, WalEnd, WalEntry, WalReader};
use proptest::prelude::*;

const FILE: &str = "/wal";

/// The bytes of a plain file of these entries, and the offset of each entry; the last offset is the
/// end of the entries.
fn file_of(entries: &[WalEntry], closed: bool) -> (Vec<u8>, Vec<usize>) {
    file_in(None, entries, closed)
}

fn read_bytes(bytes: &[u8]) -> (Vec<WalEntry>, Option<ReadError>, Option<WalEnd>) {
    let fs = MemoryFileSystem::new();
    fs.write_atomically(FILE.as_ref(), bytes).expect("write");
    let mut reader = match WalReader::open(&fs, FILE.as_ref()) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error), None),
    };
    let mut entries = Vec::new();
    loop {
        match reader.next() {
            Ok(Some(entry)) => entries.push(entry),
            Ok(None) => return (entries, None, reader.end()),
            Err(error) => {
                assert!(reader.next().is_err(), "an error stays");
                return (entries, Some(error), None);
            }
        }
    }
}

fn four_entries() -> Vec<WalEntry> {
    vec![entry(1), rich_entry(2), WalEntry { cells: Vec::new(), ..entry(3) }, rich_entry(4)]
}

#[test]
fn all_fields_come_back() {
    let entries = four_entries();
    for (form, closed) in forms().into_iter().flat_map(|form| [(form, false), (form, true)]) {
        let (bytes, _) = file_in(form, &entries, closed);
        let (read, error, end) = read_bytes(&bytes);
        assert!(error.is_none(), "{form:?}: {error:?}");
        assert_eq!(read, entries, "{form:?}");
        assert_eq!(end, Some(if closed { WalEnd::Closed } else { WalEnd::Open }));
    }
}

#[test]
fn positions_are_those_of_the_entries() {
    let entries = four_entries();
    let (bytes, offsets) = file_of(&entries, true);
    let fs = MemoryFileSystem::new();
    fs.write_atomically(FILE.as_ref(), &bytes).expect("write");
    let mut reader = WalReader::open(&fs, FILE.as_ref()).expect("open");
    for offset in &offsets {
        assert_eq!(reader.position(), *offset as u64);
        reader.next().expect("good");
    }
}

#[test]
fn every_cut_yields_every_whole_entry_and_nothing_else() {
    let entries = four_entries();
    for form in forms() {
        let (bytes, offsets) = file_in(form, &entries, true);
        (0..bytes.len()).for_each(|len| assert_cut(&bytes[..len], &offsets, &entries));
    }
}

/// A torn file yields its complete entries, reports how many bytes it drops, and no corruption.
fn assert_cut(bytes: &[u8], offsets: &[usize], entries: &[WalEntry]) {
    let (read, error, end) = read_bytes(bytes);
    let len = bytes.len();
    let whole = offsets.iter().skip(1).filter(|offset| **offset <= len).count();
    assert!(error.is_none(), "{len}: {error:?}");
    assert_eq!(read, entries[..whole], "{len}");
    let last = offsets.iter().rev().find(|offset| **offset <= len).copied().unwrap_or(0);
    let expected =
        if last == len && len > 0 { WalEnd::Open } else { WalEnd::Torn { bytes: (len - last) as u64 } };
    assert_eq!(end, Some(expected), "{len}");
}

#[test]
fn zeros_after_a_cut_count_as_the_cut() {
    let entries = four_entries();
    let (bytes, offsets) = file_of(&entries, false);
    for len in offsets[2]..bytes.len() {
        let mut zeroed = bytes.clone();
        zeroed[len..].fill(0);
        zeroed.extend_from_slice(&[0; 5000]);
        let (read, error, _) = read_bytes(&zeroed);
        let whole = offsets.iter().skip(1).filter(|offset| **offset <= len).count();
        // An entry that ends in zeros may be complete without its last bytes, or seem complete with
        // a name cut to zeros: the entries before it must be read, and none after it.
        assert!(read.len() >= whole && read.len() <= whole + 1, "{len}: {}", read.len());
        assert_eq!(read[..whole], entries[..whole], "{len}");
        assert!(error.is_none() || read.len() == whole, "{len}: {error:?}");
    }
}

#[test]
fn an_entry_cut_before_a_trailer_is_damage() {
    let (bytes, offsets) = file_of(&four_entries(), true);
    let mut cut = bytes[..offsets[4] - 3].to_vec();
    cut.extend_from_slice(&bytes[offsets[4]..]);
    let (read, error, _) = read_bytes(&cut);
    assert_eq!(read.len(), 3);
    assert!(
        matches!(error, Some(ReadError::Corrupt { offset, .. }) if offset == offsets[3] as u64),
        "{error:?}"
    );
}

#[test]
fn damage_in_the_middle_is_reported_and_ends_reading() {
    let (bytes, offsets) = file_of(&four_entries(), true);
    let mut damaged = bytes.clone();
    damaged[offsets[1] + 1] ^= 0x04; // the tag of the region's name
    let (read, error, _) = read_bytes(&damaged);
    assert_eq!(read.len(), 1);
    assert!(
        matches!(error, Some(ReadError::Corrupt { offset, .. }) if offset == offsets[1] as u64),
        "{error:?}"
    );
}

#[test]
fn every_flipped_bit_is_survived_and_harms_no_entry_before_it() {
    let entries = four_entries();
    for (form, closed) in forms().into_iter().flat_map(|form| [(form, false), (form, true)]) {
        let (bytes, offsets) = file_in(form, &entries, closed);
        for (at, bit) in (offsets[0]..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            let (read, error, _) = read_bytes(&damaged);
            let before = offsets.iter().skip(1).filter(|offset| **offset <= at).count();
            // Only the trailer's length shows where the entries end.
            let before = if at >= offsets[4] && error.is_some() { read.len().min(4) } else { before };
            assert!(read.len() >= before, "{form:?} {at}.{bit}");
            assert_eq!(read[..before], entries[..before], "{form:?} {at}.{bit}");
        }
    }
}

/// Cells whose values are protected by a gzip member: a flipped bit is detected, or changes
/// nothing.
#[test]
fn no_flipped_bit_of_a_compressed_value_yields_another_value() {
    let value: Vec<u8> = (0..400u32).map(|i| (i * i / 7) as u8).collect();
    let cell = KeyValue::put(b"r", b"f", b"q", 1, &value);
    let entry = WalEntry { cells: vec![cell], ..entry(1) };
    let form = WalCompression { values: Some(Compression::Gz), ..WalCompression::default() };
    let (bytes, offsets) = file_in(Some(form), &[entry], true);
    let member = bytes.windows(3).position(|window| window == [0x1f, 0x8b, 8]).expect("a gzip member");
    for (at, bit) in (member..offsets[1]).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << bit;
        let (read, error, _) = read_bytes(&damaged);
        let same = read.iter().all(|entry| entry.cells[0].as_cell().value() == value);
        assert!(same && (error.is_some() || read.len() == 1), "{at}.{bit}");
    }
}

#[test]
fn other_files_are_refused_and_empty_ones_are_empty() {
    let (read, error, end) = read_bytes(b"");
    assert!(read.is_empty() && error.is_none() && end == Some(WalEnd::Torn { bytes: 0 }));
    assert!(matches!(read_bytes(b"HFIL0000").1, Some(ReadError::Corrupt { offset: 0, .. })));
    let unknown_writer = b"PWAL\x06\x22\x04Some";
    assert!(matches!(read_bytes(unknown_writer).1, Some(ReadError::Corrupt { .. })));
    let encrypted = b"PWAL\x03\x12\x01k";
    let refused = read_bytes(encrypted).1.expect("an error");
    assert!(matches!(refused, ReadError::Unsupported { .. }));
    assert!(refused.to_string().contains("hbase.regionserver.wal.encryption"), "{refused}");
    let lzo_values = b"PWAL\x06\x08\x01\x30\x01\x38\0";
    let refused = read_bytes(lzo_values).1.expect("an error");
    assert!(
        matches!(refused, ReadError::Unsupported { .. }) && refused.to_string().contains("LZO"),
        "{refused}"
    );
}

#[test]
fn long_entries_cross_the_buffer() {
    let entries: Vec<_> = (1..=6).map(|seq_id| entry_of(REGION, seq_id, 100_000 * seq_id as usize)).collect();
    let fs = MemoryFileSystem::new();
    let wal = open(fs.clone());
    for entry in &entries {
        wal.append(entry).expect("append");
    }
    wal.close().expect("close");
    assert_eq!(read_dir(&fs, Path::new(WAL_DIR)), entries);
}

/// `item`s of a compressed file: new strings and indexes.
fn item(out: &mut Vec<u8>, bytes: &[u8], index: Option<u16>) {
    match index {
        Some(index) => out.extend_from_slice(&index.to_be_bytes()),
        None => {
            out.extend_from_slice(&[0xff, bytes.len() as u8]);
            out.extend_from_slice(bytes);
        }
    }
}

fn pb_bytes(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    out.extend_from_slice(&[number << 3 | 2, bytes.len() as u8]);
    out.extend_from_slice(bytes);
}

/// A compressed entry of one cell (row `r`, family `f`, qualifier `q`), new to the dictionaries or
/// not.
fn compressed_entry(out: &mut Vec<u8>, seq_id: u8, known: bool) {
    let index = known.then_some(0);
    let (mut key, mut name) = (Vec::new(), Vec::new());
    item(&mut name, b"region", index);
    pb_bytes(&mut key, 1, &name);
    name.clear();
    item(&mut name, b"t", index);
    pb_bytes(&mut key, 2, &name);
    key.extend_from_slice(&[3 << 3, seq_id, 4 << 3, 9, 7 << 3, 1]);
    out.push(key.len() as u8);
    out.extend_from_slice(&key);
    out.extend_from_slice(&[15, 2, 5]); // key, value, tags
    item(out, b"r", index);
    item(out, b"f", index);
    item(out, b"q", index);
    out.extend_from_slice(&1u64.to_be_bytes());
    out.push(4);
    out.extend_from_slice(b"vv");
    item(out, &[8, 1, 2], index);
}

fn compressed_file() -> Vec<u8> {
    let mut bytes = b"PWAL\x04\x08\x01\x18\x01".to_vec();
    compressed_entry(&mut bytes, 1, false);
    compressed_entry(&mut bytes, 2, true);
    bytes
}

#[test]
fn compressed_files_are_read() {
    let (read, error, end) = read_bytes(&compressed_file());
    assert!(error.is_none(), "{error:?}");
    assert_eq!((seq_ids(&read), end), (vec![1, 2], Some(WalEnd::Open)));
    let mut cell = KeyValueBuilder {
        row: b"r",
        family: b"f",
        qualifier: b"q",
        timestamp: 1,
        kind: evenkeel_common::CellType::Put,
        value: b"vv",
        tags: &[0, 3, 8, 1, 2],
    }
    .build();
    cell.set_seq_id(2);
    assert_eq!(read[1].cells, [cell]);
    assert_eq!((&read[1].region[..], read[1].table.to_string().as_str()), (&b"region"[..], "t"));
}

#[test]
fn an_unknown_dictionary_index_is_damage() {
    let mut bytes = b"PWAL\x04\x08\x01\x18\x01".to_vec();
    compressed_entry(&mut bytes, 2, true);
    assert!(matches!(read_bytes(&bytes).1, Some(ReadError::Corrupt { .. })));
}

#[test]
fn every_cut_and_bit_of_a_compressed_file_is_survived() {
    let bytes = compressed_file();
    for len in 0..bytes.len() {
        let (read, error, _) = read_bytes(&bytes[..len]);
        assert!(error.is_none() && read.len() <= 1, "{len}: {error:?}");
    }
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << bit;
            read_bytes(&damaged);
        }
    }
}

#[test]
fn a_file_that_shrinks_under_the_reader_is_an_error() {
    let fs = MemoryFileSystem::new();
    let mut file = fs.create(FILE.as_ref(), CreateOptions::default()).expect("create");
    let entries: Vec<_> = (1..=8).map(|seq_id| entry_of(REGION, seq_id, 100_000)).collect();
    file.append(&file_of(&entries, false).0).expect("append");
    file.flush().expect("flush");
    let mut reader = WalReader::open(&fs, FILE.as_ref()).expect("open");
    reader.next().expect("good");
    fs.damage(FILE.as_ref(), |bytes| bytes.truncate(300_000)).expect("damage");
    let error = loop {
        match reader.next() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("an end"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, ReadError::Io(_)), "{error:?}");
}

proptest! {
    #[test]
    fn arbitrary_bytes_after_a_header_are_survived(
        compressed: bool,
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        let mut file = if compressed { b"PWAL\x04\x08\x01\x18\x01".to_vec() } else { b"PWAL\x02\x08\x00".to_vec() };
        file.extend_from_slice(&bytes);
        read_bytes(&file);
    }

    #[test]
    fn arbitrary_changes_are_survived(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = if changes.len() % 2 == 0 { compressed_file() } else { file_of(&four_entries(), true).0 };
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        read_bytes(&bytes);
    }

    #[test]
    fn arbitrary_entries_come_back(
        cells in proptest::collection::vec((
            proptest::collection::vec(any::<u8>(), 1..40), "[a-z]{1,5}",
            proptest::collection::vec(any::<u8>(), 0..40), any::<i64>(),
            proptest::collection::vec(any::<u8>(), 0..400),
        ), 0..8),
        seq_id in 1..u64::MAX,
    ) {
        let mut entry = entry(seq_id);
        entry.cells = cells.iter().map(|(row, family, qualifier, timestamp, value)| {
            let mut cell = KeyValue::put(row, family.as_bytes(), qualifier, *timestamp, value);
            cell.set_seq_id(seq_id);
            cell
        }).collect();
        let (read, error, _) = read_bytes(&file_of(std::slice::from_ref(&entry), false).0);
        prop_assert!(error.is_none());
        prop_assert_eq!(read, [entry]);
    }
}
