//! Segments under many threads, and compared with a sorted map.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use evenkeel_common::{CellComparator, CellType, KeyBuf, KeyValue};

use super::chunk::{CHUNK_BYTES_MIN, Chunk, FIRST_CHUNK_BYTES, TakeHistory};
use super::row_prefix_code::RowPrefixEncoder;
use super::{CHUNK_BYTES, ChunkPool, ChunkSizes, FlatSegmentBuilder, Segment, SegmentScanner};
use crate::operations::TimeRange;
use crate::scanner::KeyValueScanner;

const ALL: u64 = u64::MAX - 1;

fn segment() -> Arc<Segment> {
    Segment::new(CellComparator::Default, (b"row000000", b"row020000"), ChunkPool::new(4))
}

/// Expected ranges of rows, correct or not.
pub(super) const EXPECTED: [(&[u8], &[u8]); 4] =
    [(b"row000000", b"row020000"), (b"", b""), (b"row005000", b"row005010"), (b"x", b"y")];

fn cell(row: u64, timestamp: i64, seq_id: u64) -> KeyValue {
    let mut cell =
        KeyValue::put(format!("row{row:06}").as_bytes(), b"f", b"q", timestamp, &seq_id.to_be_bytes());
    cell.set_seq_id(seq_id);
    cell
}

fn mix(n: u64) -> u64 {
    let z = (n ^ (n >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z ^ (z >> 29)
}

fn rows_of(scanner: &mut SegmentScanner) -> Vec<(Vec<u8>, u64)> {
    let mut rows = Vec::new();
    while let Some(cell) = scanner.peek() {
        rows.push((cell.row().to_vec(), cell.seq_id()));
        scanner.advance().expect("in memory");
    }
    rows
}

fn from_start(segment: &Arc<Segment>, read_point: u64) -> SegmentScanner {
    let mut scanner = SegmentScanner::new(Arc::clone(segment), read_point);
    scanner.seek(&KeyBuf::first_on_row(b"").as_cell()).expect("in memory");
    scanner
}

/// Cells of each test; fewer under Miri, which is slow.
const CELLS: u64 = if cfg!(miri) { 60 } else { 20_000 };

#[test]
fn a_chunk_hands_out_no_byte_twice() {
    let chunk = Chunk::new(64);
    let a = chunk.take(32).expect("room");
    let b = chunk.take(32).expect("room");
    assert_eq!(b.as_ptr() as usize - a.as_ptr() as usize, 32);
    assert!(chunk.take(8).is_none());
}

#[test]
fn the_pool_bounds_spare_chunks_and_counts_taken_ones() {
    let pool = ChunkPool::new(1);
    let (a, b) = (pool.take(8), pool.take(8));
    assert_eq!(pool.out_bytes(), 2 * CHUNK_BYTES);
    a.take(8);
    pool.give_back(a);
    pool.give_back(b);
    assert_eq!((pool.spare(), pool.out_bytes()), (1, 0));
    assert!(pool.take(8).take(CHUNK_BYTES).is_some(), "a chunk comes back empty");
    pool.give_back(pool.take_large(16));
    assert_eq!(pool.spare(), 0, "only chunks of the common size are kept");
}

/// A segment of `cells` cells over a pool. One cell fills a first chunk, and eight fill another.
fn segment_of(pool: &Arc<ChunkPool>, cells: u8) -> Arc<Segment> {
    let segment = Segment::new(CellComparator::Default, (&[], &[]), Arc::clone(pool));
    let value = vec![7; CHUNK_BYTES / 8 - 256];
    for n in 0..cells {
        segment.add(&KeyValue::put(&[n], b"f", b"q", 1, &value).as_cell());
    }
    segment
}

#[test]
fn spare_chunks_are_kept_for_segments_that_fill() {
    let pool = ChunkPool::new(5);
    std::thread::scope(|scope| {
        let keeper = scope.spawn(|| pool.keep_ready());
        let small = segment_of(&pool, 1);
        assert_eq!((pool.spare(), pool.out_bytes()), (0, FIRST_CHUNK_BYTES), "a small segment wants none");
        let large = segment_of(&pool, 2);
        wait_for_spare(&pool, 4);
        pool.stop_keeping_ready();
        keeper.join().expect("ends");
        assert_eq!(pool.spare(), 4);
        let other = segment_of(&pool, 10);
        assert_eq!(pool.spare(), 2, "they are taken before new ones are made");
        drop((small, large, other));
        drop(segment_of(&pool, 26));
    });
    assert_eq!((pool.out_bytes(), pool.spare()), (0, 5), "no more are kept than may be");
    let first = segment_of(&pool, 1);
    assert_eq!((pool.out_bytes(), pool.spare()), (CHUNK_BYTES, 4), "of many that are spare, one is a first");
    drop(first);
}

/// Waits until `chunks` chunks are spare, at most ten seconds.
fn wait_for_spare(pool: &ChunkPool, chunks: usize) {
    let began = Instant::now();
    while pool.spare() < chunks && began.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn spare_chunks_match_the_number_of_filling_segments() {
    let pool = ChunkPool::new(40);
    std::thread::scope(|scope| {
        let keeper = scope.spawn(|| pool.keep_ready());
        let small: Vec<_> = (0..7).map(|_| segment_of(&pool, 1)).collect();
        assert_eq!(pool.spare(), 0, "small segments want none");
        let large = segment_of(&pool, 2);
        wait_for_spare(&pool, 9);
        assert_eq!(pool.spare(), 9, "each of seven may want another soon, as the eighth took two");
        let more = segment_of(&pool, 2);
        wait_for_spare(&pool, 10);
        assert_eq!(pool.spare(), 10, "no more than a quarter of the pool");
        let full = segment_of(&pool, 250);
        wait_for_spare(&pool, 5);
        pool.stop_keeping_ready();
        keeper.join().expect("ends");
        let out = pool.out_bytes() / CHUNK_BYTES;
        assert_eq!((out, pool.spare()), (35, 5), "no more than the pool may have");
        drop((small, large, more, full));
    });
}

#[test]
fn idle_spare_chunks_are_freed_except_a_few() {
    let pool = ChunkPool::new(40);
    drop((0..20).map(|_| segment_of(&pool, 10)).collect::<Vec<_>>());
    let full = pool.spare();
    assert!(full >= 20, "{full}");
    assert_eq!(pool.release_idle(100), 0, "no look was before");
    pool.begin_idle_period();
    drop(segment_of(&pool, 26));
    let freed = pool.release_idle(2) / CHUNK_BYTES + pool.release_idle(100) / CHUNK_BYTES;
    assert!(freed > 2 && pool.spare() == full - freed, "{freed}");
    assert!(pool.spare() >= 10, "as many are prepared as were taken: {}", pool.spare());
    for _ in 0..8 {
        pool.begin_idle_period();
        while pool.release_idle(1) > 0 {}
    }
    assert_eq!((pool.spare(), pool.out_bytes()), (4, 0));
}

#[test]
fn old_takes_leave_the_history() {
    let (mut takes, began) = (TakeHistory::default(), Instant::now());
    let mut most_after = |seconds: u64, count: usize| {
        (0..count).for_each(|_| takes.note(began + Duration::from_secs(seconds)));
        takes.most()
    };
    assert_eq!([most_after(0, 3), most_after(59, 2)], [3, 5]);
    assert_eq!(most_after(61, 1), 5, "of the minute before");
    assert_eq!(most_after(110, 6), 7);
    assert_eq!(most_after(400, 2), 2);
}

#[test]
fn chunks_have_the_size_of_the_pool() {
    let sizes = ChunkSizes { chunk_bytes: 1_000_008, shared_bytes_max: 5000 };
    let pool = ChunkPool::of(sizes, 9, 0);
    let segment = Segment::new(CellComparator::Default, (&[], &[]), Arc::clone(&pool));
    let cells: Vec<_> = (0..1000)
        .map(|n| KeyValue::put(format!("{n:04}").as_bytes(), b"f", b"q", 1, &[n as u8; 3000]))
        .collect();
    cells.iter().for_each(|cell| segment.add(&cell.as_cell()));
    assert_eq!(pool.out_bytes(), FIRST_CHUNK_BYTES + 3 * sizes.chunk_bytes, "3 MB after a small one");
    segment.add(&KeyValue::put(b"large", b"f", b"q", 1, &[7; 5000]).as_cell());
    let alone = pool.out_bytes() - FIRST_CHUNK_BYTES - 3 * sizes.chunk_bytes;
    assert!((5000..5200).contains(&alone), "{alone}");
    drop(segment);
    assert_eq!((pool.out_bytes(), pool.spare()), (0, 3));

    let (even, odd): (Vec<_>, Vec<_>) =
        cells.iter().cloned().partition(|cell| cell.as_cell().row()[3] % 2 == 0);
    let old = flat(&pool, &even, None);
    let merged = flat(&pool, &odd, Some(&old)).merge_with(&old).expect("few chunks");
    let mut scanner = SegmentScanner::new(merged, u64::MAX);
    scanner.seek(&KeyBuf::first_on_row(b"").as_cell()).expect("memory");
    for cell in &cells {
        let found = KeyValueScanner::peek(&scanner).expect("as many");
        assert_eq!((found.row(), found.value()), (cell.as_cell().row(), cell.as_cell().value()));
        scanner.advance().expect("memory");
    }
    assert_eq!(pool.out_bytes(), 4 * sizes.chunk_bytes);
}

#[test]
fn a_pool_can_start_with_spare_chunks() {
    let pool = ChunkPool::of(ChunkSizes::default(), 6, 5);
    std::thread::scope(|scope| {
        let keeper = scope.spawn(|| pool.keep_ready());
        wait_for_spare(&pool, 5);
        pool.stop_keeping_ready();
        keeper.join().expect("ends");
    });
    assert_eq!(pool.spare(), 5);
    let first = segment_of(&pool, 1);
    assert_eq!((pool.spare(), pool.out_bytes()), (4, CHUNK_BYTES), "a segment begins with one of them");
    drop(first);
}

#[test]
fn taken_and_spare_chunks_share_one_bound() {
    let bytes_max = 10 * CHUNK_BYTES;
    let pool = ChunkPool::within(ChunkSizes::default(), 8, 8, bytes_max);
    let all = || pool.bytes();
    let full: Vec<_> = (0..8).map(|_| segment_of(&pool, 9)).collect();
    assert_eq!(pool.out_bytes(), 8 * (FIRST_CHUNK_BYTES + CHUNK_BYTES));
    drop(full);
    assert_eq!((pool.out_bytes(), pool.spare()), (0, 8), "the first were small");
    let large = pool.take_large(7 * CHUNK_BYTES);
    assert_eq!((pool.spare(), all()), (3, bytes_max), "spare chunks are freed for what goes out");
    let small: Vec<_> = (0..4).map(|_| segment_of(&pool, 1)).collect();
    assert!(all() <= bytes_max && pool.spare() == 2, "{} bytes", all());
    pool.give_back(large);
    drop(small);
    assert_eq!(pool.beyond_slack(bytes_max as u64), 0);
}

#[test]
fn an_exhausted_pool_allocates_only_what_segments_need() {
    let pool = ChunkPool::within(ChunkSizes::default(), 8, 0, 4 * CHUNK_BYTES);
    let most = pool.take_large(4 * CHUNK_BYTES - FIRST_CHUNK_BYTES);
    let idle: Vec<_> =
        (0..6).map(|_| Segment::new(CellComparator::Default, (&[], &[]), Arc::clone(&pool))).collect();
    idle.iter().for_each(|segment| segment.add(&KeyValue::put(b"r", b"f", b"q", 1, b"v").as_cell()));
    let beyond = 5 * CHUNK_BYTES_MIN;
    assert_eq!(pool.out_bytes(), 4 * CHUNK_BYTES + beyond, "one had room for a first chunk");
    assert_eq!(pool.beyond_slack(3 * CHUNK_BYTES as u64), (3 * CHUNK_BYTES + beyond) as u64);
    let before = pool.out_bytes();
    idle[5].add(&KeyValue::put(b"r", b"f", b"q", 1, &[7; 100_000]).as_cell());
    assert!((100_000..101_000).contains(&(pool.out_bytes() - before)), "{} bytes", pool.out_bytes() - before);
    assert_eq!(idle[5].chunk_bytes(), (pool.out_bytes() - before + CHUNK_BYTES_MIN) as u64);
    drop(idle);
    pool.give_back(most);
    assert_eq!((pool.out_bytes(), pool.spare()), (0, 0));
}

/// A flat segment of these cells, which are in order.
fn flat(pool: &Arc<ChunkPool>, cells: &[KeyValue], before: Option<&Segment>) -> Arc<Segment> {
    let mut sorted: Vec<_> = cells.iter().collect();
    sorted.sort_by(|a, b| CellComparator::Default.compare(&a.as_cell(), &b.as_cell()));
    let mut builder = FlatSegmentBuilder::new(pool, CellComparator::Default, 0, before);
    assert!(sorted.into_iter().all(|cell| builder.push(&cell.as_cell())));
    builder.finish()
}

#[test]
fn flat_segments_read_like_the_skip_list() {
    let (pool, list) = (ChunkPool::new(4), segment());
    let cells: Vec<_> = (1..=CELLS).map(|n| cell(mix(n) % (CELLS / 2), (n % 3) as i64, n)).collect();
    cells.iter().for_each(|cell| list.add(&cell.as_cell()));
    // The oldest first, of very different sizes.
    let (old, rest) = cells.split_at(cells.len() * 9 / 10);
    let (middle, new) = rest.split_at(rest.len() / 2);
    let old = flat(&pool, old, None);
    let middle = flat(&pool, middle, Some(&old));
    let new = flat(&pool, new, Some(&middle));
    let merged = new.merge_with(&middle).and_then(|newer| newer.merge_with(&old)).expect("not too large");
    let (of_list, of_flat) = (list.size(), merged.size());
    assert_eq!((of_list.cells, of_list.data_bytes), (of_flat.cells, of_flat.data_bytes));
    assert_eq!(
        of_flat.heap_bytes,
        of_flat.data_bytes + 16 * of_flat.cells,
        "16 bytes a cell over its KeyValue"
    );
    assert_eq!(rows_of(&mut from_start(&merged, ALL)), rows_of(&mut from_start(&list, ALL)));
    assert_eq!(rows_of(&mut from_start(&merged, CELLS / 2)), rows_of(&mut from_start(&list, CELLS / 2)));
    for n in 0..200 {
        let row = format!("row{:06}", mix(n) % (CELLS / 2 + 2));
        let mut scanners =
            [&list, &merged].map(|segment| SegmentScanner::new(Arc::clone(segment), CELLS / 2));
        for go in [0, 1] {
            let found = scanners.each_mut().map(|scanner| {
                match go {
                    0 => scanner.seek(&KeyBuf::first_on_row(row.as_bytes()).as_cell()),
                    _ => scanner.seek_to_previous_row(row.as_bytes()),
                }
                .expect("in memory");
                scanner.peek().map(|cell| (cell.row().to_vec(), cell.seq_id()))
            });
            assert_eq!(found[0], found[1], "{row}");
        }
    }
    let last = [&list, &merged].map(|segment| {
        let mut scanner = SegmentScanner::new(Arc::clone(segment), ALL);
        scanner.seek_to_last_row().expect("in memory");
        scanner.peek().map(|cell| (cell.row().to_vec(), cell.seq_id()))
    });
    assert_eq!(last[0], last[1]);
    merged.count_columns();
    let columns = rows_of(&mut from_start(&list, ALL)).chunk_by(|a, b| a.0 == b.0).count();
    assert_eq!(merged.unique_fraction(), Some(columns as f64 / CELLS as f64));
}

#[test]
fn flat_segments_share_chunks_and_give_them_back() {
    let pool = ChunkPool::new(8);
    let cells: Vec<_> = (0..100).map(|n| cell(n, 1, n)).collect();
    let first = flat(&pool, &cells[..50], None);
    let second = flat(&pool, &cells[50..], Some(&first));
    assert_eq!(pool.out_bytes(), CHUNK_BYTES, "the second goes on where the first has ended");
    let large = KeyValue::put(b"large", b"f", b"q", 1, &vec![7; CHUNK_BYTES]);
    let third = flat(&pool, std::slice::from_ref(&large), Some(&second));
    let merged = third.merge_with(&second).and_then(|newer| newer.merge_with(&first)).expect("small");
    drop((first, second, third));
    assert_eq!(merged.first().map(|cell| cell.value().len()), Some(CHUNK_BYTES), "the merged one keeps them");
    assert_eq!(rows_of(&mut from_start(&merged, ALL)).len(), 101);
    drop(merged);
    assert_eq!((pool.out_bytes(), pool.spare()), (0, 1));
}

#[test]
fn a_merge_puts_the_newer_of_equal_cells_first() {
    let pool = ChunkPool::new(1);
    let put = |value: &[u8]| KeyValue::put(b"r", b"f", b"q", 1, value);
    let (old, new) = (flat(&pool, &[put(b"1")], None), flat(&pool, &[put(b"2")], None));
    let merged = new.merge_with(&old).expect("small");
    assert_eq!(merged.first().map(|cell| cell.value().to_vec()), Some(b"2".to_vec()));
    assert_eq!(merged.size().cells, 2);
}

#[test]
fn an_empty_segment_does_not_widen_the_times_of_another() {
    let pool = ChunkPool::new(1);
    let (some, none) = (flat(&pool, &[cell(1, 7, 1)], None), flat(&pool, &[], None));
    for (newer, older) in [(&some, &none), (&none, &some)] {
        let merged = newer.merge_with(older).expect("small");
        assert_eq!((merged.min_timestamp(), merged.max_timestamp()), (7, 7));
    }
}

#[test]
fn cells_come_out_sorted_as_from_a_map() {
    for ends in EXPECTED {
        let (segment, mut map) =
            (Segment::new(CellComparator::Default, ends, ChunkPool::new(4)), BTreeMap::new());
        for n in 1..=CELLS {
            let row = mix(n) % (CELLS / 2);
            segment.add(&cell(row, 7, n).as_cell());
            map.insert((format!("row{row:06}").into_bytes(), u64::MAX - n), n);
        }
        let expected: Vec<_> = map.iter().map(|((row, _), n)| (row.clone(), *n)).collect();
        assert_eq!(rows_of(&mut from_start(&segment, ALL)), expected);
        let seen: Vec<_> = expected.iter().filter(|(_, n)| *n <= CELLS / 3).cloned().collect();
        assert_eq!(rows_of(&mut from_start(&segment, CELLS / 3)), seen, "nothing beyond the read point");
        let last = segment.cell(segment.last_cursor()).map(|cell| cell.row().to_vec());
        assert_eq!(last.as_ref(), expected.last().map(|(row, _)| row));
    }
}

#[test]
fn the_next_segment_expects_the_rows_of_the_last() {
    let fill = |segment: &Segment, from: u64| {
        (1..=CELLS).for_each(|n| segment.add(&cell(from + mix(n) % CELLS, 7, n).as_cell()));
        let mut rows: Vec<_> = (1..=CELLS).map(|n| (from + mix(n) % CELLS, std::cmp::Reverse(n))).collect();
        rows.sort_unstable();
        (rows.into_iter()).map(|(row, n)| (format!("row{row:06}").into_bytes(), n.0)).collect::<Vec<_>>()
    };
    let mut segment = Segment::new(CellComparator::Default, (&[], &[]), ChunkPool::new(4));
    for from in [0, 0, 500_000, 0] {
        let expected = fill(&segment, from);
        assert_eq!(rows_of(&mut from_start(&segment, ALL)), expected, "{from}");
        segment = segment.next();
        let (low, high) = (&expected[0].0, &expected[expected.len() - 1].0);
        assert_eq!(segment.row_encoder(), Some(&RowPrefixEncoder::between(low, high)));
        assert_eq!(segment.next().row_encoder(), segment.row_encoder(), "too few cells to learn from");
    }
}

#[test]
fn sizes_are_exact() {
    let segment = segment();
    let bytes: u64 = (1..=100)
        .map(|n| cell(n, 7, n))
        .map(|kv| {
            segment.add(&kv.as_cell());
            kv.bytes_len() as u64
        })
        .sum();
    let size = segment.size();
    assert_eq!((size.cells, size.data_bytes), (100, bytes));
    let least = bytes + 100 * (16 + 8);
    assert!(size.heap_bytes >= least && size.heap_bytes < 2 * least, "{size:?}");
}

#[test]
fn large_cells_have_own_chunks_and_chunks_are_returned() {
    let pool = ChunkPool::new(4);
    let segment = Segment::new(CellComparator::Default, (&[], &[]), Arc::clone(&pool));
    let value = vec![7; CHUNK_BYTES];
    segment.add(&KeyValue::put(b"large", b"f", b"q", 1, &value).as_cell());
    segment.add(&KeyValue::put(b"small", b"f", b"q", 1, b"v").as_cell());
    let first = segment.first().expect("two cells");
    assert_eq!((first.row(), first.value().len()), (&b"large"[..], CHUNK_BYTES));
    drop(segment);
    assert_eq!(pool.spare(), 1, "the common chunk, not the large one");
}

#[test]
fn tags_survive() {
    use evenkeel_common::cell::KeyValueBuilder;
    let tags = [0, 2, 9, 1];
    let built = KeyValueBuilder {
        row: b"r",
        family: b"f",
        qualifier: b"q",
        timestamp: 1,
        kind: CellType::Put,
        value: b"v",
        tags: &tags,
    };
    let segment = segment();
    segment.add(&built.build().as_cell());
    assert_eq!(segment.first().map(|cell| cell.tags().to_vec()), Some(tags.to_vec()));
}

#[test]
fn the_later_of_equal_cells_replaces_the_other() {
    let segment = segment();
    for (value, seq_id) in [(b"1", 4), (b"2", 5), (b"3", 5), (b"4", 5)] {
        segment.add(&KeyValue::put(b"r", b"f", b"q", 1, value).as_cell().with_seq_id(seq_id));
    }
    assert_eq!(segment.first().map(|cell| cell.value().to_vec()), Some(b"4".to_vec()));
    let mut scanner = from_start(&segment, ALL);
    let mut values = Vec::new();
    while let Some(cell) = scanner.peek() {
        values.push(cell.value().to_vec());
        scanner.advance().expect("in memory");
    }
    assert_eq!(values, [b"4", b"1"]);
}

#[test]
fn hidden_cells_are_not_read() {
    let segment = segment();
    (1..=3).for_each(|n| segment.add(&cell(5, 7, n).as_cell()));
    segment.hide(&cell(5, 7, 2).as_cell());
    segment.hide(&cell(6, 7, 9).as_cell());
    let seq_ids: Vec<_> = rows_of(&mut from_start(&segment, ALL)).into_iter().map(|(_, n)| n).collect();
    assert_eq!(seq_ids, [3, 1]);
}

#[test]
fn rows_are_found_backwards() {
    let segment = segment();
    for (row, seq_id) in [(1, 1), (2, 9), (3, 2), (3, 3)] {
        segment.add(&cell(row, seq_id as i64, seq_id).as_cell());
    }
    let mut scanner = SegmentScanner::new(segment, 5);
    scanner.seek_to_last_row().expect("in memory");
    assert_eq!(scanner.peek().map(|c| c.seq_id()), Some(3), "the first cell of the last row");
    scanner.seek_to_previous_row(b"row000003").expect("in memory");
    assert_eq!(scanner.peek().map(|c| c.row().to_vec()), Some(b"row000001".to_vec()), "row 2 is not visible");
    scanner.seek_to_previous_row(b"row000001").expect("in memory");
    assert!(scanner.peek().is_none());
}

#[test]
fn a_descent_ends_where_a_row_would_be() {
    for ends in EXPECTED {
        let segment = Segment::new(CellComparator::Default, ends, ChunkPool::new(4));
        assert!(segment.begin_descent(b"row").is_none(), "there is nothing to look at");
        (0..CELLS.max(10_000)).for_each(|n| segment.add(&cell(2 * (mix(n) % 9_000), 1, n).as_cell()));
        for n in 0..20_000 {
            let row = format!("row{n:06}").into_bytes();
            let mut begin_descent = segment.begin_descent(&row).expect("a high list");
            while begin_descent.step(&row) {}
            assert!(begin_descent.before() == segment.before(&KeyBuf::first_on_row(&row).as_cell()), "{n}");
        }
    }
}

#[test]
fn a_segment_outside_the_time_range_is_excluded() {
    let segment = segment();
    [10, 20].into_iter().for_each(|timestamp| segment.add(&cell(1, timestamp, 1).as_cell()));
    let may = |min, max, oldest| segment.may_contain(&TimeRange { min, max }, oldest);
    assert!(may(0, 11, 0) && may(20, 30, 20) && may(15, i64::MAX, 0));
    assert!(!may(0, 10, 0) && !may(21, 30, 0) && !may(0, i64::MAX, 21));
}

/// Writers insert blocks of cells and then move the read point; readers must find every cell up to
/// the read point that they read first, in order.
#[test]
fn readers_see_every_completed_cell_while_writers_insert() {
    readers_see_every_completed_cell((b"row000000", b"row999999"));
    readers_see_every_completed_cell((b"row000000", b"row020000"));
}

fn readers_see_every_completed_cell(ends: (&[u8], &[u8])) {
    const WRITERS: u64 = 4;
    let segment = Segment::new(CellComparator::Default, ends, ChunkPool::new(4));
    let done: Arc<[AtomicU64; WRITERS as usize]> = Arc::new(Default::default());
    let stop = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (segment, done) = (Arc::clone(&segment), Arc::clone(&done));
                scope.spawn(move || {
                    for n in 0..CELLS / WRITERS {
                        // One row of this writer and one that all writers share.
                        let row = mix(n * WRITERS + writer) % 1_000_000;
                        segment.add(&cell(row, (CELLS + writer) as i64, n + 1).as_cell());
                        segment.add(&cell(0, (n * WRITERS + writer) as i64, n + 1).as_cell());
                        done[writer as usize].store(n + 1, Ordering::Release);
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            let (segment, done, stop) = (Arc::clone(&segment), Arc::clone(&done), Arc::clone(&stop));
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let complete: u64 = done.iter().map(|n| n.load(Ordering::Acquire)).sum();
                    let mut scanner = from_start(&segment, ALL);
                    let (mut count, mut last) = (0, None::<KeyBuf>);
                    while let Some(cell) = scanner.peek() {
                        if let Some(last) = &last {
                            assert!(CellComparator::Default.compare_keys(&last.as_cell(), cell).is_le());
                        }
                        last = Some(KeyBuf::of(cell));
                        count += 1;
                        if count % 16 == 0 {
                            let found = segment.at_or_after(&KeyBuf::first_on_row(cell.row()).as_cell());
                            assert_eq!(segment.cell(found).map(|found| found.row()), Some(cell.row()));
                        }
                        scanner.advance().expect("in memory");
                    }
                    assert!(
                        count >= 2 * complete,
                        "{count} cells found, {complete} pairs were complete before"
                    );
                }
            });
        }
        writers.into_iter().for_each(|writer| writer.join().expect("inserts"));
        stop.store(true, Ordering::Relaxed);
    });
    let mut expected: Vec<_> = (0..CELLS / WRITERS * WRITERS)
        .flat_map(|i| {
            let (timestamp, seq_id) = ((CELLS + i % WRITERS) as i64, i / WRITERS + 1);
            [(mix(i) % 1_000_000, timestamp, seq_id), (0, i as i64, seq_id)]
        })
        .map(|(row, timestamp, seq_id)| {
            (format!("row{row:06}").into_bytes(), std::cmp::Reverse((timestamp, seq_id)))
        })
        .collect();
    expected.sort();
    let expected: Vec<_> = expected.into_iter().map(|(row, key)| (row, key.0.1)).collect();
    assert_eq!(rows_of(&mut from_start(&segment, ALL)), expected);
}
