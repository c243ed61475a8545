//! Reading of corrupt logs: entries that the corruption does not affect are read, and no other
//! entries are.

mod common;

use std::time::{Duration, Instant};

use bytes::Bytes;
use common::*;
use evenkeel_common::KeyValue;
use evenkeel_common::cell::KeyValueBuilder;
use evenkeel_fs::{CreateOptions, FileSystem, MemoryFileSystem};
use evenkeel_wal::{
    Compression, Gap, ReadError, TORN_ZEROS_MIN, WalCompression, WalEnd, WalEntry, WalReader,
};

const FILE: &str = "/wal";
const REGIONS: [Bytes; 3] =
    [REGION, Bytes::from_static(b"00000000000000000000000000000002"), Bytes::from_static(b"1588230740")];

/// Entries of three regions in turn, with repeated rows and tags.
fn entries(count: u64) -> Vec<WalEntry> {
    let entry = |seq_id: u64| {
        let mut entry = match seq_id % 4 {
            3 => WalEntry { cells: Vec::new(), ..entry(seq_id) },
            2 => entry_of(REGION, seq_id, 20),
            _ => rich_entry(seq_id),
        };
        entry.region = REGIONS[(seq_id % 3) as usize].clone();
        entry
    };
    (1..=count).map(entry).collect()
}

/// The result of reading a file across corruption: entries with their begin and end; gaps; the end
/// of the file.
struct Read {
    entries: Vec<(u64, u64, WalEntry)>,
    gaps: Vec<Gap>,
    end: Option<WalEnd>,
}

fn read(bytes: &[u8]) -> Read {
    let fs = MemoryFileSystem::new();
    let mut file = fs.create(FILE.as_ref(), CreateOptions::default()).expect("created");
    file.append(bytes).and_then(|()| file.flush()).expect("written");
    let mut reader = WalReader::open(&fs, FILE.as_ref()).expect("opens");
    let mut read = Read { entries: Vec::new(), gaps: Vec::new(), end: None };
    loop {
        let from = reader.position();
        match reader.next() {
            Ok(Some(entry)) => read.entries.push((from, reader.position(), entry)),
            Ok(None) => {
                read.end = reader.end();
                assert!(read.end.is_some() && reader.skip_damage().expect("in memory").is_none());
                return read;
            }
            Err(ReadError::Corrupt { offset, .. }) => {
                assert!(reader.next().is_err(), "an error stays until it is passed");
                let gap = reader.skip_damage().expect("in memory").expect("damage");
                assert!(gap.from == offset && gap.from < gap.to && gap.to <= bytes.len() as u64, "{gap:?}");
                assert!(read.gaps.last().is_none_or(|last| last.to <= gap.from), "{gap:?}");
                read.gaps.push(gap);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Bytes `from..to` of a file were replaced by `with`.
#[derive(Clone, Debug)]
struct Damage {
    from: usize,
    to: usize,
    with: Vec<u8>,
}

impl Damage {
    fn apply(&self, bytes: &[u8]) -> Vec<u8> {
        [&bytes[..self.from], &self.with, &bytes[self.to..]].concat()
    }
}

fn noise(seed: usize, len: usize) -> Vec<u8> {
    let mut state = (seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Changed, deleted, inserted, zeroed and overwritten bytes at an offset.
fn damages(bytes: &[u8], at: usize) -> Vec<Damage> {
    let to = |len: usize| (at + len).min(bytes.len());
    let mut damages = vec![
        Damage { from: at, to: at + 1, with: vec![bytes[at] ^ 1 << (at % 8)] },
        Damage { from: at, to: at + 1, with: vec![bytes[at] ^ 0x80] },
        Damage { from: at, to: at + 1, with: vec![!bytes[at]] },
    ];
    for len in [1, 6, 90] {
        damages.push(Damage { from: at, to: to(len), with: Vec::new() });
        damages.push(Damage { from: at, to: at, with: noise(at, len) });
        damages.push(Damage { from: at, to: to(len), with: vec![0; to(len) - at] });
        damages.push(Damage { from: at, to: to(len), with: noise(at + 7, to(len) - at) });
    }
    damages.push(Damage { from: at, to: at, with: bytes[at.saturating_sub(30)..at].to_vec() });
    damages.retain(|damage| damage.with != bytes[damage.from..damage.to]);
    damages
}

/// The range in the damaged file of an entry of the original one, if the damage does not touch it.
fn moved(damage: &Damage, from: usize, to: usize) -> Option<u64> {
    if to <= damage.from {
        return Some(from as u64);
    }
    (from >= damage.to).then(|| (from - damage.to + damage.from + damage.with.len()) as u64)
}

fn is_touched(damage: &Damage, from: u64, to: u64) -> bool {
    from <= (damage.from + damage.with.len()) as u64 && damage.from as u64 <= to
}

/// A file as Evenkeel writes it, and as HBase does: without checksums.
fn files(
    form: Option<WalCompression>,
    entries: &[WalEntry],
    closed: bool,
) -> [(bool, Vec<u8>, Vec<usize>); 2] {
    let (bytes, offsets) = file_in(form, entries, closed);
    let (hbase_bytes, hbase_offsets) = without_checksums(&bytes, &offsets);
    [(true, bytes, offsets), (false, hbase_bytes, hbase_offsets)]
}

/// Every entry read is one that was written. Without checksums, one that the damage touches may
/// have other contents.
fn assert_true(read: &Read, entries: &[WalEntry], offsets: &[usize], damage: &Damage, has_checksums: bool) {
    for (from, to, entry) in &read.entries {
        let is_old = (0..entries.len())
            .any(|i| moved(damage, offsets[i], offsets[i + 1]) == Some(*from) && entries[i] == *entry);
        let is_explained = match has_checksums {
            true => entries.contains(entry),
            false => is_touched(damage, *from, *to),
        };
        assert!(is_old || is_explained, "{has_checksums} {damage:?}: {entry:?} at {from} is false");
    }
}

#[test]
fn plain_files_return_every_undamaged_entry_and_no_other() {
    let entries = entries(9);
    for closed in [true, false] {
        for (has_checksums, bytes, offsets) in files(None, &entries, closed) {
            let (mut found, mut refused, mut cases) = (0, 0, 0);
            for at in (offsets[0] + usize::from(closed)..bytes.len()).step_by(2) {
                for damage in damages(&bytes, at) {
                    let damaged = damage.apply(&bytes);
                    let read = read(&damaged);
                    let end_of_entries =
                        (damaged.len() - if read.end == Some(WalEnd::Closed) { 8 } else { 0 }) as u64;
                    cases += 1;
                    for (i, entry) in entries.iter().enumerate() {
                        let Some(from) = moved(&damage, offsets[i], offsets[i + 1]) else { continue };
                        let is_there = read.entries.iter().any(|(at, _, read)| *at == from && read == entry);
                        // A trailer shows where the last entry ends.
                        let is_there = is_there || i == entries.len() - 1 && damage.from >= offsets[i + 1];
                        // A corrupt length may make an entry look like a torn one. Then nothing is
                        // guessed, but the gap is named.
                        let is_refused =
                            read.gaps.last().is_some_and(|gap| gap.to == end_of_entries && gap.from < from);
                        refused += usize::from(!is_there && is_refused);
                        let found: Vec<_> =
                            read.entries.iter().map(|(from, to, entry)| (from, to, entry.seq_id)).collect();
                        assert!(
                            is_there || is_refused,
                            "{has_checksums} {closed} {damage:?}: entry {i} at {from} is lost: {:?} {found:?} \
                             {offsets:?}",
                            read.gaps
                        );
                    }
                    assert_true(&read, &entries, &offsets, &damage, has_checksums);
                    found += read.gaps.len();
                }
            }
            assert!(found > bytes.len() / 2, "{found} gaps");
            assert!(refused * 20 < cases, "{refused} entries refused in {cases} cases");
        }
    }
}

/// Entries after the damage use strings of those before it: an entry that uses a possibly changed
/// string is not returned.
#[test]
fn compressed_files_return_no_wrong_entry_behind_damage() {
    let entries = entries(9);
    for (which, form) in forms().into_iter().enumerate().filter(|(_, form)| form.is_some()) {
        for closed in [true, false] {
            for (has_checksums, bytes, offsets) in files(form, &entries, closed) {
                let (mut behind, mut served) = (0, 0);
                for at in (offsets[0]..bytes.len()).skip(which).step_by(if which == 1 { 3 } else { 17 }) {
                    for damage in damages(&bytes, at) {
                        let damaged = damage.apply(&bytes);
                        let read = read(&damaged);
                        // Without checksums a changed name, for example, is not detected where it
                        // is defined, but where it is used.
                        let first = offsets.iter().rposition(|offset| *offset <= damage.from).unwrap_or(0);
                        let is_seen = read.gaps.first().is_some_and(|gap| gap.from <= offsets[first] as u64);
                        for (i, entry) in entries.iter().enumerate() {
                            let Some(from) = moved(&damage, offsets[i], offsets[i + 1]) else { continue };
                            let is_there =
                                read.entries.iter().any(|(at, _, read)| *at == from && read == entry);
                            let is_last = i == entries.len() - 1 && damage.from >= offsets[i + 1];
                            let is_before = offsets[i + 1] <= damage.from && !is_last;
                            assert!(
                                is_there || !is_before,
                                "{form:?} {damage:?}: entry {i} before it is lost"
                            );
                            if !is_before && is_seen {
                                behind += 1;
                                served += usize::from(is_there);
                            }
                        }
                        if is_seen || has_checksums {
                            assert_true(&read, &entries, &offsets, &damage, has_checksums);
                        }
                    }
                }
                assert!(served * 4 > behind, "{form:?} {closed}: {served} of {behind}");
            }
        }
    }
}

/// A power cut leaves zeros or other bytes in place of the unsynced ones, up to the file's length.
/// The entries before them are read, and no others. With zeros the file is torn, not corrupt,
/// unless they are so few that the last value may have ended in them.
#[test]
fn a_tail_that_never_reached_the_disk_is_not_read() {
    let entries = entries(9);
    for form in forms() {
        let (bytes, offsets) = file_in(form, &entries, false);
        for at in offsets[0]..bytes.len() {
            let len = bytes.len() - at;
            for tail in [vec![0; len], noise(at, len), noise(at + 1, len)] {
                let first_lost = bytes.iter().zip([&bytes[..at], &tail].concat()).position(|(a, b)| *a != b);
                let Some(first_lost) = first_lost else { continue };
                let whole = offsets.iter().rposition(|offset| *offset <= first_lost).unwrap_or(0);
                let read = read(&[&bytes[..at], &tail].concat());
                let read_entries: Vec<_> = read.entries.into_iter().map(|(_, _, entry)| entry).collect();
                assert_eq!(read_entries, entries[..whole], "{form:?} {at}");
                let is_torn = read.gaps.is_empty() && matches!(read.end, Some(WalEnd::Torn { .. }));
                let is_zero = tail.iter().all(|byte| *byte == 0);
                let is_short = len < TORN_ZEROS_MIN;
                assert!(is_torn || !is_zero || is_short, "{form:?} {at}: {:?} {:?}", read.gaps, read.end);
            }
        }
    }
}

/// The last entry of a killed server's log was acknowledged. If one of its bits changes,
/// it is reported as corrupt, not torn, even if its value ends in zeros.
#[test]
fn a_changed_last_entry_that_ends_in_zeros_is_named() {
    for zeros in 0..TORN_ZEROS_MIN {
        let value = [&[7; 20][..], &vec![0; zeros]].concat();
        let last = WalEntry { cells: vec![cell_of(&value, &[])], ..entry(2) };
        let (mut bytes, offsets) = file_in(None, &[entry(1), last], false);
        let at = bytes.len() - zeros - 1;
        bytes[at] ^= 1;
        let read = read(&bytes);
        assert_eq!(read.entries.len(), 1);
        assert_eq!(read.gaps.iter().map(|gap| gap.from).collect::<Vec<_>>(), [offsets[1] as u64], "{zeros}");
    }
}

/// In a closed file, and before other entries, an entry with a wrong checksum is corrupt.
#[test]
fn a_wrong_checksum_is_reported_and_later_entries_are_read() {
    let entries = entries(9);
    for form in forms() {
        let (bytes, offsets) = file_in(form, &entries, true);
        for (i, range) in offsets.windows(2).enumerate() {
            // The checksum itself: no other check can detect the change.
            let at = range[0] + bytes[range[0]..].iter().position(|byte| *byte == 0x3e).expect("a tag") + 1;
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            let read = read(&damaged);
            assert_eq!(read.gaps[0].from, range[0] as u64, "{form:?} {i}");
            assert!(read.gaps[0].what.contains("checksum"), "{:?}", read.gaps);
            assert_eq!(read.gaps[0].lost.as_ref().map(|lost| lost.seq_id), Some(i as u64 + 1), "{form:?}");
            assert_eq!(read.end, Some(WalEnd::Closed));
            if form.is_none() {
                assert_eq!((read.gaps.len(), read.entries.len()), (1, entries.len() - 1), "{i}");
            }
        }
    }
}

#[test]
fn a_gap_reports_its_offsets_and_neighbours() {
    let entries = entries(6);
    let (bytes, offsets) = file_in(None, &entries, true);
    let mut damaged = bytes.clone();
    let cell = offsets[1] + bytes[offsets[1]..].windows(4).position(|w| w == b"row2").expect("a row");
    damaged[cell - 2..cell].fill(0xff);
    let read = read(&damaged);
    let [gap] = &read.gaps[..] else { panic!("{:?}", read.gaps) };
    assert_eq!((gap.from, gap.to), (offsets[1] as u64, offsets[2] as u64));
    let lost = gap.lost.as_ref().expect("its key is whole");
    assert_eq!((&lost.region, lost.seq_id), (&entries[1].region, 2));
    assert_eq!(gap.before.as_ref().map(|name| name.seq_id), Some(1));
    assert_eq!(read.entries.len(), 5);
    let text = gap.to_string();
    for part in ["sequence id 2 of region", "of table t", "the entry before is sequence id 1"] {
        assert!(text.contains(part), "{text}");
    }
}

fn cell_of(value: &[u8], tags: &[u8]) -> KeyValue {
    let kind = evenkeel_common::CellType::Put;
    let (row, family, qualifier) = (&b"row"[..], &b"f"[..], &b"q"[..]);
    KeyValueBuilder { row, family, qualifier, timestamp: 1, kind, value, tags }.build()
}

/// A tag of one byte, as earlier versions could log it: a length of 1, and no item for it. It does
/// not end the edits of other tables.
#[test]
fn malformed_tags_lose_only_their_entry() {
    let mut before = entries(4);
    before.truncate(3);
    let bad = WalEntry { cells: vec![cell_of(b"v", &[])], ..entry_of(REGIONS[1].clone(), 4, 1) };
    let other = |seq_id: u64| {
        let mut entry = entry_of(Bytes::from_static(b"0000000000000000000000000000000f"), seq_id, 30);
        entry.table = "other".parse().expect("legal");
        entry
    };
    let after: Vec<_> =
        (5..25).map(|seq_id| if seq_id % 2 == 0 { other(seq_id) } else { rich_entry(seq_id) }).collect();
    let all = [before.clone(), vec![bad], after.clone()].concat();
    for form in forms().into_iter().filter(|form| form.is_some_and(|form| form.tags)) {
        let (mut bytes, offsets) = file_in(form, &all, false);
        let lengths = bytes[offsets[3]..].windows(3).position(|w| w == [17, 1, 0]).expect("of a cell");
        bytes[offsets[3] + lengths + 2] = 1;
        let read = read(&bytes);
        let entries: Vec<_> = read.entries.into_iter().map(|(_, _, entry)| entry).collect();
        assert_eq!(entries, [before.clone(), after.clone()].concat(), "{form:?}: {:?}", read.gaps);
        let gaps: Vec<_> = read.gaps.iter().map(|gap| (gap.from, gap.to)).collect();
        assert_eq!(gaps, [(offsets[3] as u64, offsets[4] as u64)]);
    }
}

/// A value that does not decompress: the entry is lost, and those that use its strings; no other.
#[test]
fn an_unreadable_value_loses_only_dependent_entries() {
    let form = WalCompression { values: Some(Compression::Gz), ..WalCompression::default() };
    let of = |row: &str, seq_id: u64| {
        let cell = KeyValue::put(row.as_bytes(), b"f", b"q", 1, &noise(seq_id as usize, 60));
        let mut entry = WalEntry { cells: vec![cell], ..entry(seq_id) };
        entry.cells[0].set_seq_id(seq_id);
        entry
    };
    // The third entry adds row "c", which the fifth uses.
    let all = [of("a", 1), of("b", 2), of("c", 3), of("d", 4), of("c", 5), of("d", 6), of("a", 7)];
    let (bytes, offsets) = file_in(Some(form), &all, true);
    let mut damaged = bytes.clone();
    let body =
        offsets[2] + bytes[offsets[2]..].windows(3).position(|w| w == [0x1f, 0x8b, 8]).expect("a member");
    damaged[body + 30] ^= 0x55;
    let read = read(&damaged);
    let served: Vec<_> = read.entries.iter().map(|(_, _, entry)| entry.seq_id).collect();
    assert_eq!(served, [1, 2, 4, 6, 7], "{:?}", read.gaps);
    assert!(read.entries.iter().all(|(_, _, entry)| all.contains(entry)));
    assert!(read.gaps[1].what.contains("dictionary"), "{:?}", read.gaps);
}

/// Values that contain logs: entries within them are not returned, wherever the file is corrupt or
/// torn.
#[test]
fn entries_in_values_are_never_served() {
    for form in [None, Some(WalCompression::default())] {
        let inner: Vec<_> = (90..94)
            .map(|seq_id| entry_of(Bytes::from_static(b"000000000000000000000000deadbeef"), seq_id, 5))
            .collect();
        for inner_closed in [true, false] {
            let (log, _) = file_in(form, &inner, inner_closed);
            let mut holder = entry(3);
            holder.cells = vec![cell_of(&log, &[]), cell_of(b"more", &[])];
            let all = [entry(1), entry(2), holder, entry(4), entry(5)];
            let (bytes, offsets) = file_in(form, &all, false);
            let is_true = |read: &Read, what: &dyn std::fmt::Debug| {
                let is_false =
                    read.entries.iter().find(|(_, _, entry)| entry.region != REGION && entry.seq_id >= 90);
                assert!(is_false.is_none(), "{form:?} {what:?}: {is_false:?} {:?} {offsets:?}", read.gaps);
            };
            (offsets[0]..bytes.len()).for_each(|len| is_true(&read(&bytes[..len]), &len));
            for at in (offsets[2]..offsets[3]).filter(|_| form.is_none()) {
                for damage in damages(&bytes, at) {
                    is_true(&read(&damage.apply(&bytes)), &damage);
                }
            }
        }
    }
}

#[test]
fn an_unreadable_header_loses_no_plain_entry() {
    let entries = entries(5);
    let (bytes, offsets) = file_in(None, &entries, true);
    for at in 0..4 {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x20;
        let read = read(&damaged);
        assert_eq!(read.entries.len(), 5, "{at}");
        assert_eq!((read.gaps[0].from, read.gaps[0].to), (0, offsets[0] as u64));
    }
}

#[test]
fn several_damaged_places_lose_only_their_entries() {
    let entries = entries(30);
    let (bytes, offsets) = file_in(None, &entries, true);
    let mut damaged = bytes.clone();
    for hit in [9, 10, 17, 25] {
        damaged[offsets[hit]..offsets[hit] + 4].fill(0);
    }
    let read = read(&damaged);
    let lost: Vec<_> =
        (1..=30).filter(|id| !read.entries.iter().any(|(_, _, entry)| entry.seq_id == *id)).collect();
    assert_eq!(lost, [10, 11, 18, 26]);
}

/// Bytes that look like the beginnings of many long entries.
#[test]
fn a_search_after_damage_takes_bounded_time() {
    let (head, _) = file_in(None, &entries(3), false);
    let (entry, offsets) =
        file_in(None, &[WalEntry { cells: vec![cell_of(&[9; 40], &[])], ..entry(5) }], false);
    let key_and_cell = &entry[offsets[0]..offsets[1]];
    for piece in [key_and_cell.len() - 8, 55, 3] {
        let mut bytes = head.clone();
        bytes.push(0xff);
        while bytes.len() < 256 << 10 {
            bytes.extend_from_slice(&key_and_cell[..piece]);
        }
        let started = Instant::now();
        let read = read(&bytes);
        assert!(started.elapsed() < Duration::from_secs(30), "{piece}: {:?}", started.elapsed());
        assert!((3..=4).contains(&read.entries.len()), "{piece}");
    }
}
