//! A region with a row cache answers every Get like one without, regardless of what is written,
//! flushed, loaded, compacted or expired meanwhile, and with any concurrency.

use std::io::ErrorKind as IoKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use evenkeel_block_cache::{BlockCache, LruBlockCache};
use evenkeel_common::{CellType, KeyValue};
use evenkeel_fs::{Fault, Op, SurvivingData};
use evenkeel_protocol::pb;
use evenkeel_region::filter::Filter;
use evenkeel_region::operations::{FamilyColumns, Mutation, MutationKind, Scan, TimeRange};
use evenkeel_region::region::Region;

use crate::bulk_load::{file, hfile, load};
use crate::harness::{Cluster, increment, put, scan, texts};
use crate::model::Random;

const FAMILIES: [&str; 2] = ["a", "b"];

/// A region whose table enables the row cache; each family has these attributes.
fn cached(attributes: &[(&str, &str)]) -> (Cluster, Arc<LruBlockCache>) {
    let mut cluster = Cluster::new(&FAMILIES.map(|family| (family.as_bytes(), 3)));
    let cache = Arc::new(LruBlockCache::new(4 << 20));
    cluster.cache = Arc::clone(&cache) as _;
    cluster.table = cluster.table.with("ROW_CACHE_ENABLED", "true");
    let families: Vec<_> = cluster.table.families().cloned().collect();
    for family in families {
        let family = attributes.iter().fold(family, |family, (name, value)| family.with(name, value));
        cluster.table = cluster.table.with_family(family);
    }
    cluster.restart();
    (cluster, cache)
}

fn get(row: &str) -> Scan {
    Scan::get(row.as_bytes().to_vec())
}

fn columns(family: &str, qualifiers: &[&str]) -> FamilyColumns {
    let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    let qualifiers = (!qualifiers.is_empty()).then(|| qualifiers.iter().map(|q| bytes(q)).collect());
    FamilyColumns { family: bytes(family), qualifiers }
}

fn read(cluster: &Cluster, wanted: Scan) -> Vec<String> {
    texts(&cluster.region().get(wanted).expect("read"))
}

fn hits(cache: &LruBlockCache) -> u64 {
    cache.stats().row_hits
}

/// Reads the row until it is served from the cache; returns what was served.
fn warm(cluster: &Cluster, cache: &LruBlockCache, row: &str) -> Vec<String> {
    read(cluster, get(row));
    let before = hits(cache);
    let served = read(cluster, get(row));
    assert_eq!(hits(cache), before + 1, "{row} is cached");
    served
}

/// Gets of every kind, as closures, so that each can be made twice.
fn shapes(row: &str, random: &mut Random) -> Vec<Box<dyn Fn() -> Scan>> {
    let row = row.to_owned();
    let kind = random.below(14);
    let (min, max) = (random.below(6) as i64, 6 + random.below(8) as i64);
    let make = move || {
        let plain = get(&row);
        match kind {
            0 => Scan { families: vec![columns("a", &[])].into(), ..plain },
            1 => Scan { families: vec![columns("a", &["q0"])].into(), ..plain },
            2 => Scan { families: vec![columns("a", &["q0", "q2"]), columns("b", &[])].into(), ..plain },
            3 => Scan { families: vec![columns("b", &["q1", "qx"]), columns("a", &["q1"])].into(), ..plain },
            4 => Scan { max_versions: 2, ..plain },
            5 => Scan { time_range: TimeRange { min, max }, ..plain },
            6 => Scan { store_limit: 1, ..plain },
            7 => Scan { cache_blocks: false, ..plain },
            8 => Scan { filter: Some(first_key_only()), ..plain },
            9 => Scan { store_offset: 1, ..plain },
            10 => Scan { families: vec![columns("a", &["q0", "q1", "q2"])].into(), ..plain },
            11 => {
                Scan { family_time_ranges: vec![(Bytes::from_static(b"a"), TimeRange { min, max })], ..plain }
            }
            _ => plain,
        }
    };
    vec![Box::new(make)]
}

fn first_key_only() -> Box<dyn Filter> {
    let filter = pb::Filter {
        name: "org.apache.hadoop.hbase.filter.FirstKeyOnlyFilter".into(),
        serialized_filter: Some(Bytes::new()),
    };
    evenkeel_region::filter::from_proto(&filter).expect("known")
}

fn random_write(random: &mut Random, step: usize) -> Mutation {
    let row = format!("r{}", random.below(3));
    let family = FAMILIES[random.below(2) as usize];
    let kind = match random.below(12) {
        0 => CellType::Delete,
        1 => CellType::DeleteColumn,
        2 if random.below(2) == 0 => CellType::DeleteFamily,
        2 => CellType::DeleteFamilyVersion,
        3 => return increment(&row, family, "n", 1),
        _ => CellType::Put,
    };
    let of_family = matches!(kind, CellType::DeleteFamily | CellType::DeleteFamilyVersion);
    let count = 1 + random.below(2);
    let cells = (0..count).map(|_| {
        let qualifier = if of_family { String::new() } else { format!("q{}", random.below(3)) };
        let timestamp = match random.below(3) {
            0 => crate::harness::NOW_MS + random.below(40) as i64,
            _ => 1 + random.below(12) as i64,
        };
        let value = if kind == CellType::Put { format!("v{step}") } else { String::new() };
        KeyValue::new(
            row.as_bytes(),
            family.as_bytes(),
            qualifier.as_bytes(),
            timestamp,
            kind,
            value.as_bytes(),
        )
    });
    let cells = cells.collect();
    let is_put = kind == CellType::Put;
    let kind = if is_put { MutationKind::Put } else { MutationKind::Delete };
    let mut mutation = Mutation::new(kind, row.as_bytes().to_vec(), cells);
    if is_put && random.below(10) == 0 {
        mutation.ttl_ms = Some(5);
    }
    mutation
}

fn bulk(cluster: &Cluster, random: &mut Random, step: usize) {
    let row = format!("r{}", random.below(3));
    let timestamp = 1 + random.below(12) as i64;
    let value = format!("bulk{step}");
    let cell = KeyValue::put(row.as_bytes(), b"a", b"q1", timestamp, value.as_bytes());
    let path = hfile(cluster, &format!("/hbase/in/{step}"), &[cell]);
    let load = load(&format!("token{step}"), vec![file("a", path, false)]);
    cluster.region().bulk_load(&load).expect("loaded");
}

/// Every Get, cached or not, returns what a scanner reads, which never uses the row cache.
fn check(cluster: &Cluster, random: &mut Random, history: &str) {
    for row in ["r0", "r1", "r2", "absent"] {
        for shape in shapes(row, random) {
            let expected = scan(cluster.region(), shape());
            for time in ["first", "second"] {
                assert_eq!(read(cluster, shape()), expected, "{history}, {row}, {time}");
            }
        }
    }
}

fn run(seed: u64, attributes: &[(&str, &str)]) -> u64 {
    let mut random = Random(seed);
    let (mut cluster, cache) = cached(attributes);
    for step in 0..150 {
        let history = format!("seed {seed}, {attributes:?}, step {step}");
        match random.below(30) {
            0 | 1 => drop(cluster.region().flush().expect("flushed")),
            2 => drop(cluster.region().compact(None, true).expect("compacted")),
            3 => drop(cluster.region().compact(None, false).expect("compacted")),
            4 => cluster.crash(SurvivingData::Flushed),
            5 => cluster.restart(),
            6 => bulk(&cluster, &mut random, step),
            7 => cluster.clock.advance_ms(random.below(8) as i64),
            8 | 9 => {
                let batch = (0..3).map(|_| random_write(&mut random, step));
                let batch = batch.filter(|m| m.kind != MutationKind::Increment).collect();
                let outcomes = cluster.region().batch_mutate_wait(batch);
                assert!(outcomes.iter().all(Result::is_ok), "{history}");
            }
            10 => {
                let (a, b) = (random_write(&mut random, step), random_write(&mut random, step));
                cluster.region().mutate_rows_wait(vec![a, b], Vec::new()).expect("written");
            }
            _ => drop(cluster.region().mutate_wait(random_write(&mut random, step)).expect("written")),
        }
        check(&cluster, &mut random, &history);
    }
    hits(&cache)
}

#[test]
fn gets_are_equal_with_and_without_the_cache() {
    let variants: &[&[(&str, &str)]] = &[
        &[],
        &[("TTL", "1")],
        &[("TTL", "1"), ("MIN_VERSIONS", "1")],
        &[("NEW_VERSION_BEHAVIOR", "true")],
        &[("KEEP_DELETED_CELLS", "TRUE")],
        &[("VERSIONS", "1"), ("BLOOMFILTER", "ROWCOL")],
    ];
    for (at, attributes) in variants.iter().enumerate() {
        let served: u64 = (0..8).map(|seed| run(seed * 10 + at as u64, attributes)).sum();
        // Out of 9,600 Gets, without the two kinds of family that are not cached at all.
        let is_cached =
            !attributes.iter().any(|(name, _)| ["MIN_VERSIONS", "NEW_VERSION_BEHAVIOR"].contains(name));
        assert_eq!(served > 2000, is_cached, "{attributes:?}: {served}");
    }
}

#[test]
fn a_put_changes_the_cached_row_in_place() {
    let (cluster, cache) = cached(&[]);
    cluster.put("r", "a", "q", "one").expect("written");
    cluster.put("r", "b", "q", "two").expect("written");
    warm(&cluster, &cache, "r");
    let before = cache.stats();
    for value in ["six", "ten"] {
        cluster.clock.advance_ms(1);
        cluster.put("r", "a", "q", value).expect("written");
        let served = read(&cluster, get("r"));
        assert!(served[0].ends_with(value) && served[1].ends_with("two"), "{served:?}");
    }
    cluster.region().mutate_wait(increment("n", "a", "q", 1)).expect("made");
    let after = cache.stats();
    assert_eq!(after.row_hits, before.row_hits + 2, "both were served from the cache");
    assert_eq!((after.row_misses, after.insertions), (before.row_misses, before.insertions));
    warm(&cluster, &cache, "n");
    cluster.region().mutate_wait(increment("n", "a", "q", 1)).expect("made");
    let misses = cache.stats().row_misses;
    assert_eq!(read(&cluster, get("n")), scan(cluster.region(), get("n")));
    assert_eq!(cache.stats().row_misses, misses, "an Increment changes the row in place, too");
}

#[test]
fn gets_of_different_columns_of_a_row_do_not_replace_each_other() {
    let (cluster, cache) = cached(&[]);
    cluster
        .region()
        .mutate_wait(put("r", &[("a", "q0", "0"), ("a", "q1", "1"), ("b", "q", "b")]))
        .expect("written");
    let shapes = [("a", &["q0"][..]), ("a", &["q1", "qx"]), ("b", &[])];
    let one = |(family, qualifiers): (&str, &[&str])| {
        read(&cluster, Scan { families: vec![columns(family, qualifiers)].into(), ..get("r") })
    };
    let first = shapes.map(one);
    assert_eq!(first.each_ref().map(Vec::len), [1, 1, 1]);
    let before = hits(&cache);
    assert_eq!(shapes.map(one), first);
    assert_eq!(hits(&cache), before + 3);
    cluster.clock.advance_ms(1);
    cluster.put("r", "a", "qx", "x").expect("written");
    for (shape, expected) in shapes.into_iter().zip([1, 2, 1]) {
        assert_eq!(one(shape).len(), expected, "{shape:?}");
    }
    assert_eq!(one(("a", &[])).len(), 3, "not all of the family was known");
}

/// One write of many rows changes up to a MiB of entries in place; the others are dropped, and read
/// again.
#[test]
fn a_write_of_many_rows_updates_a_mebibyte_in_place() {
    const ROWS: usize = 60;
    let (cluster, cache) = cached(&[]);
    let rows: Vec<_> = (0..ROWS).map(|n| format!("r{n:02}")).collect();
    for row in &rows {
        cluster.put(row, "a", "large", &"x".repeat(30_000)).expect("written");
        warm(&cluster, &cache, row);
    }
    cluster.clock.advance_ms(1);
    let small = |row: &String| put(row, &[("a", "large", &"y".repeat(29_990))]);
    let outcomes = cluster.region().batch_mutate_wait(rows.iter().map(small).collect());
    assert!(outcomes.iter().all(Result::is_ok));
    let before = hits(&cache);
    rows.iter().for_each(|row| assert!(read(&cluster, get(row))[0].ends_with('y')));
    let served = (hits(&cache) - before) as usize;
    assert_eq!(served, (1 << 20) / 30_040, "of {ROWS}");
}

#[test]
fn a_put_hidden_by_a_marker_does_not_change_the_row() {
    let (cluster, cache) = cached(&[]);
    let at = |kind, timestamp, value: &str| {
        let cell = KeyValue::new(b"r", b"a", b"q", timestamp, kind, value.as_bytes());
        let of = if kind == CellType::Put { MutationKind::Put } else { MutationKind::Delete };
        cluster.region().mutate_wait(Mutation::new(of, b"r".to_vec(), vec![cell])).expect("written");
    };
    at(CellType::Put, 5, "five");
    at(CellType::Delete, 7, "");
    assert!(warm(&cluster, &cache, "r")[0].ends_with("five"));
    // Deleted before it was written; as long as the cached cell.
    at(CellType::Put, 7, "late");
    assert!(read(&cluster, get("r"))[0].ends_with("five"));
}

#[test]
fn a_compaction_that_drops_markers_reveals_hidden_cells() {
    let (cluster, cache) = cached(&[]);
    let at = |kind, value: &str| {
        let cell = KeyValue::new(b"r", b"a", b"q", 5, kind, value.as_bytes());
        let of = if kind == CellType::Put { MutationKind::Put } else { MutationKind::Delete };
        cluster.region().mutate_wait(Mutation::new(of, b"r".to_vec(), vec![cell])).expect("written");
    };
    at(CellType::DeleteColumn, "");
    cluster.region().flush().expect("flushed");
    at(CellType::Put, "hidden");
    assert!(warm(&cluster, &cache, "r").is_empty());
    cluster.region().compact(None, true).expect("compacted");
    assert_eq!(read(&cluster, get("r")), scan(cluster.region(), get("r")));
    assert!(read(&cluster, get("r"))[0].ends_with("hidden"));
}

#[test]
fn a_bulk_load_invalidates_cached_rows() {
    let (cluster, cache) = cached(&[]);
    cluster.put("r1", "a", "q", "old").expect("written");
    warm(&cluster, &cache, "r1");
    let newer = KeyValue::put(b"r1", b"a", b"q", i64::MAX / 2, b"loaded");
    let path = hfile(&cluster, "/hbase/in/1", &[newer]);
    cluster.region().bulk_load(&load("token", vec![file("a", path, false)])).expect("loaded");
    assert!(read(&cluster, get("r1"))[0].ends_with("loaded"));
}

#[test]
fn a_reopened_region_starts_without_cached_rows() {
    let (mut cluster, cache) = cached(&[]);
    cluster.put("r", "a", "q", "value").expect("written");
    warm(&cluster, &cache, "r");
    assert_eq!((cluster.region().evict_rows(), cache.stats().rows), (1, 0));
    warm(&cluster, &cache, "r");
    // Stands for everything that closes a region here and opens it elsewhere with changes.
    cluster.table.remove_family(b"a");
    cluster.restart();
    assert_eq!(cache.stats().rows, 0, "closing gave the space back");
    assert!(read(&cluster, get("r")).is_empty());
    cluster.table = cluster.table.clone().with("ROW_CACHE_ENABLED", "false");
    cluster.restart();
    let before = cache.stats();
    read(&cluster, get("r"));
    assert_eq!(cache.stats(), before, "the attribute turns it off");
}

#[test]
fn cells_that_expire_are_not_served() {
    let (cluster, cache) = cached(&[("TTL", "1")]);
    cluster.put("r", "a", "q", "value").expect("written");
    warm(&cluster, &cache, "r");
    cluster.clock.advance_ms(1000);
    assert_eq!(read(&cluster, get("r")).len(), 1);
    cluster.clock.advance_ms(1);
    assert!(read(&cluster, get("r")).is_empty());

    let (cluster, _) = cached(&[]);
    let short = Mutation { ttl_ms: Some(10), ..put("r", &[("a", "q", "value")]) };
    cluster.region().mutate_wait(short).expect("written");
    assert_eq!((read(&cluster, get("r")).len(), read(&cluster, get("r")).len()), (1, 1));
    cluster.clock.advance_ms(11);
    assert!(read(&cluster, get("r")).is_empty());
}

#[test]
fn a_get_without_cache_blocks_reads_but_never_inserts() {
    let (cluster, cache) = cached(&[]);
    cluster.put("r", "a", "q", "value").expect("written");
    let unkept = || Scan { cache_blocks: false, ..get("r") };
    read(&cluster, unkept());
    read(&cluster, unkept());
    assert_eq!((hits(&cache), cache.stats().rows), (0, 0));
    warm(&cluster, &cache, "r");
    let before = hits(&cache);
    read(&cluster, unkept());
    assert_eq!(hits(&cache), before + 1);
}

#[test]
fn an_unknown_family_is_an_error_on_a_cached_row() {
    let (cluster, cache) = cached(&[]);
    warm(&cluster, &cache, "r");
    let unknown = Scan { families: vec![columns("x", &[])].into(), ..get("r") };
    assert!(cluster.region().get(unknown).is_err());
}

#[test]
fn a_write_whose_log_fails_leaves_the_row_as_it_was() {
    let (cluster, cache) = cached(&[]);
    cluster.put("r", "a", "q", "one").expect("written");
    warm(&cluster, &cache, "r");
    for op in [Op::Append, Op::Create] {
        cluster.fs.inject(Fault::on(op, "/WALs/").always().fails(IoKind::StorageFull));
    }
    cluster.put("r", "a", "q", "two").expect_err("the log fails");
    for _ in 0..2 {
        assert!(read(&cluster, get("r"))[0].ends_with("one"));
    }
}

/// The writes of one row that were begun, and those that were acknowledged.
#[derive(Default)]
struct Progress {
    begun: AtomicU64,
    acknowledged: AtomicU64,
}

/// Writes the next number to both columns of a row, mostly with the same length as before.
fn write_next(region: &Arc<Region>, at: usize, progress: &Progress) {
    let number = progress.begun.fetch_add(1, Ordering::SeqCst) + 1;
    let value = format!("{number:06}{}", "x".repeat(usize::from(number.is_multiple_of(16))));
    let mut mutation = put(&format!("r{at}"), &[("a", "q", &value), ("b", "q", &value)]);
    mutation.cells = mutation.cells.iter().map(|cell| cell.with_timestamp(number as i64)).collect();
    region.mutate_wait(mutation).expect("written");
    progress.acknowledged.fetch_max(number, Ordering::SeqCst);
}

/// The number in both columns of a row.
fn read_number(region: &Arc<Region>, at: usize) -> u64 {
    let cells = region.get(get(&format!("r{at}"))).expect("read");
    let values: Vec<_> = cells.iter().map(|cell| cell.value().to_vec()).collect();
    assert!(values.windows(2).all(|two| two[0] == two[1]), "{values:?}");
    values.first().map_or(0, |value| String::from_utf8_lossy(&value[..6]).parse().expect("a number"))
}

/// A read after an acknowledged write, or after another read, sees that number or a later one, in
/// both columns.
#[test]
fn a_read_sees_whole_writes_acknowledged_before_it() {
    const ROWS: usize = 4;
    let (cluster, cache) = cached(&[]);
    let region = cluster.region();
    let rows: [Progress; ROWS] = Default::default();
    let stop = AtomicBool::new(false);
    let watch = |seed: u64| {
        let (mut random, mut seen) = (Random(seed), [0; ROWS]);
        while !stop.load(Ordering::Relaxed) {
            let at = random.below(ROWS as u64) as usize;
            let least = rows[at].acknowledged.load(Ordering::SeqCst).max(seen[at]);
            seen[at] = read_number(region, at);
            assert!(seen[at] >= least, "row {at}: {} after {least}", seen[at]);
        }
    };
    let write = |seed: u64| {
        let mut random = Random(seed);
        for _ in 0..1500 {
            let at = random.below(ROWS as u64) as usize;
            write_next(region, at, &rows[at]);
        }
    };
    let churn = || {
        while !stop.load(Ordering::Relaxed) {
            region.flush().expect("flushed");
            region.compact(None, true).expect("compacted");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    };
    let (watch, write) = (&watch, &write);
    std::thread::scope(|scope| {
        scope.spawn(churn);
        (0..3).for_each(|seed| drop(scope.spawn(move || watch(seed))));
        let writers: Vec<_> = (0..3).map(|seed| scope.spawn(move || write(100 + seed))).collect();
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        stop.store(true, Ordering::Relaxed);
        assert!(ended.into_iter().all(|end| end.is_ok()));
    });
    let stats = cache.stats();
    assert!(stats.row_hits > 1000 && stats.row_misses > 100, "{stats:?}");
}
