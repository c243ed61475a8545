//! What a few threads do concurrently, for one variant of the core.

use std::sync::Arc;

use evenkeel_common::{CellComparator, KeyBuf, KeyValue};
use loom::thread;

use super::arena::Arena;
use super::chunk::{CHUNK_BYTES, ChunkPool, SHARED_BYTES_MAX};
use super::row_prefix_code::RowPrefixEncoder;
use super::skip_list::SkipList;
use super::sync::{AtomicUsize, Ordering};

fn list() -> Arc<SkipList> {
    Arc::new(SkipList::new(CellComparator::Default, RowPrefixEncoder::between(b"a", b"z"), ChunkPool::new(0)))
}

fn put(row: &str, seq_id: u64) -> KeyValue {
    let mut cell = KeyValue::put(row.as_bytes(), b"f", b"q", 1, b"v");
    cell.set_seq_id(seq_id);
    cell
}

fn rows(list: &SkipList) -> Vec<String> {
    let mut found = Vec::new();
    let mut at = list.first();
    while let Some(cell) = list.cell(at) {
        found.push(String::from_utf8_lossy(cell.row()).into_owned());
        at = list.after(at);
    }
    found
}

/// Two cells go into one gap, one of them with a tower, while a thread reads.
pub(in super::super) fn two_writers_and_a_reader() {
    let list = list();
    list.insert(&put("a", 1).as_cell());
    let writers = ["b", "c"].map(|row| {
        let list = Arc::clone(&list);
        thread::spawn(move || list.insert(&put(row, 2).as_cell()))
    });
    // On its own thread, which may begin before, between and after the writers.
    let reader = {
        let list = Arc::clone(&list);
        thread::spawn(move || {
            let seen = rows(&list);
            assert!(seen.is_sorted() && seen[0] == "a", "{seen:?}");
            for row in &seen {
                let found = list.at_or_after(&KeyBuf::first_on_row(row.as_bytes()).as_cell());
                let found = list.cell(found).map(|cell| cell.row().to_vec());
                assert_eq!(found.as_deref(), Some(row.as_bytes()), "a search misses what a walk has seen: {seen:?}");
            }
        })
    };
    reader.join().expect("reads");
    writers.into_iter().for_each(|writer| assert!(writer.join().expect("inserts") > 0));
    assert_eq!(rows(&list), ["a", "b", "c"], "a cell is lost");
    let found = list.at_or_after(&KeyBuf::first_on_row(b"c").as_cell());
    assert_eq!(list.cell(found).map(|cell| cell.row().to_vec()), Some(b"c".to_vec()));
}

fn rows_backwards(list: &SkipList) -> Vec<String> {
    let mut found = Vec::new();
    let mut at = list.last();
    while let Some(cell) = list.cell(at) {
        found.push(String::from_utf8_lossy(cell.row()).into_owned());
        at = list.before(&cell);
    }
    found
}

/// A thread walks from the last cell to the first, while one cell goes between them and one behind
/// them.
pub(in super::super) fn a_writer_and_a_reader_that_walks_backwards() {
    let list = list();
    for row in ["a", "c"] {
        list.insert(&put(row, 1).as_cell());
    }
    let writer = {
        let list = Arc::clone(&list);
        thread::spawn(move || ["d", "b"].map(|row| list.insert(&put(row, 2).as_cell())))
    };
    let reader = {
        let list = Arc::clone(&list);
        thread::spawn(move || rows_backwards(&list))
    };
    let seen = reader.join().expect("reads");
    assert!(seen.is_sorted_by(|a, b| a > b), "{seen:?}");
    let there: Vec<_> = seen.iter().filter(|row| matches!(row.as_str(), "a" | "c")).collect();
    assert_eq!(there, ["c", "a"], "{seen:?}");
    writer.join().expect("inserts");
    assert_eq!(rows_backwards(&list), ["d", "c", "b", "a"], "a cell is lost");
}

/// Two threads find the chunk too full for both.
pub(in super::super) fn two_threads_at_the_end_of_a_chunk() {
    let arena = Arc::new(Arena::new(ChunkPool::new(0)));
    for _ in 1..CHUNK_BYTES / SHARED_BYTES_MAX {
        arena.alloc(SHARED_BYTES_MAX);
    }
    arena.alloc(SHARED_BYTES_MAX - 16);
    let takers = [8, 16].map(|bytes| {
        let arena = Arc::clone(&arena);
        thread::spawn(move || (arena.alloc(bytes).as_ptr() as usize, bytes))
    });
    let mut taken = takers.map(|taker| taker.join().expect("takes"));
    taken.sort_unstable();
    assert!(taken[0].0 + taken[0].1 <= taken[1].0, "the same bytes twice: {taken:?}");
}

/// A write fails: it is taken back, and then its number is complete. A reader at that number must
/// not see it.
pub(in super::super) fn a_cell_is_taken_back() {
    let (list, read_point) = (list(), Arc::new(AtomicUsize::new(0)));
    let writer = {
        let (list, read_point) = (Arc::clone(&list), Arc::clone(&read_point));
        thread::spawn(move || {
            let cell = put("a", 1);
            list.insert(&cell.as_cell());
            list.hide(&cell.as_cell());
            read_point.store(1, Ordering::Release);
        })
    };
    if read_point.load(Ordering::Acquire) == 1 {
        let at = list.first();
        assert!(list.cell(at).is_some() && list.is_hidden(at));
    }
    writer.join().expect("writes");
}
