//! Many writers and readers at once, while flushes, in-memory flushes and compactions run.

use std::collections::HashSet;
use std::io::ErrorKind as IoKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_common::{CellBuffer, Wait};
use evenkeel_fs::{Fault, Op, SurvivingData};
use evenkeel_protocol::pb;
use evenkeel_region::filter::comparator_from_proto;
use evenkeel_region::operations::{Condition, ConditionTest, Scan, TimeRange};
use evenkeel_region::region::Region;
use evenkeel_region::scanner::ScannerContext;
use parking_lot::Mutex;
use prost::Message;

use crate::harness::{Cluster, IN_MEMORY_COMPACTIONS, increment, put, texts, values};

const WRITERS: usize = 4;

/// Runs a test with each kind of in-memory compaction.
fn with_each_compaction(families: &[(&[u8], u32)], test: impl Fn(Cluster)) {
    IN_MEMORY_COMPACTIONS.iter().for_each(|kind| test(Cluster::new(families).compacting(*kind)));
}

/// Flushes and compacts until `stop` is set.
fn churn(region: &Arc<Region>, stop: &AtomicBool) {
    let mut rounds = 0;
    while !stop.load(Ordering::Relaxed) {
        // Flushed one time in four, so that the pipeline has older segments by then.
        if rounds % 4 == 0 {
            drop(region.flush());
        }
        drop(region.flush_in_memory());
        rounds += 1;
        if rounds % 3 == 0 {
            drop(region.compact(None, rounds % 2 == 0));
        }
    }
}

/// Runs writers beside a churning region and watchers; watchers continue until the writers are
/// done.
fn beside_churn(region: &Arc<Region>, writer: impl Fn(usize) + Sync, watcher: impl Fn() + Sync) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| churn(region, &stop));
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                region.flush_in_memory().expect("flushed in memory");
                std::thread::yield_now();
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    watcher();
                }
            });
        }
        let writers: Vec<_> = (0..WRITERS)
            .map(|at| {
                scope.spawn({
                    let writer = &writer;
                    move || writer(at)
                })
            })
            .collect();
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        stop.store(true, Ordering::Relaxed);
        assert!(ended.into_iter().all(|end| end.is_ok()));
    });
}

fn number(region: &Arc<Region>, row: &str) -> i64 {
    let cells = region.get(Scan::get(row.as_bytes().to_vec())).expect("read");
    if cells.is_empty() { 0 } else { i64::from_be_bytes(cells.get(0).value().try_into().expect("a number")) }
}

#[test]
fn concurrent_increments_sum_up() {
    with_each_compaction(&[(b"f", 1)], |mut cluster| {
        let region = cluster.region().clone();
        let least = Mutex::new(0);
        beside_churn(
            &region,
            |_| (0..200).for_each(|_| drop(region.mutate_wait(increment("r", "f", "q", 1)).expect("made"))),
            || {
                let mut least = least.lock();
                let now = number(&region, "r");
                assert!(now >= *least, "a count went back from {least} to {now}");
                *least = now;
            },
        );
        drop(region);
        assert_eq!(number(cluster.region(), "r"), 200 * WRITERS as i64);
        cluster.crash(SurvivingData::Flushed);
        assert_eq!(number(cluster.region(), "r"), 200 * WRITERS as i64);
    });
}

#[test]
fn rows_are_never_torn() {
    with_each_compaction(&[(b"a", 1), (b"b", 1), (b"c", 1)], |cluster| {
        let region = cluster.region();
        let clock = &cluster.clock;
        beside_churn(
            region,
            |at| {
                for i in 0..150 {
                    let value = format!("{at}.{i}");
                    let cells = ["a", "b", "c"].map(|family| (family, "q", value.as_str()));
                    region.mutate_rows_wait(vec![put("r", &cells)], Vec::new()).expect("made");
                    clock.advance_ms(1);
                }
            },
            || {
                let row = cluster.row("r");
                let seen = values(&row);
                assert!(
                    seen.is_empty() || (seen.len() == 3 && seen.iter().all(|v| *v == seen[0])),
                    "torn: {row:?}"
                );
            },
        );
    });
}

#[test]
fn several_rows_change_together() {
    let cluster = Cluster::new(&[(b"f", 1)]);
    let region = cluster.region();
    beside_churn(
        region,
        |at| {
            for i in 0..150 {
                let value = format!("{at}.{i}");
                let rows = ["r1", "r2"].map(|row| put(row, &[("f", "q", value.as_str())]));
                region.mutate_rows_wait(rows.to_vec(), Vec::new()).expect("made");
                cluster.clock.advance_ms(1);
            }
        },
        || {
            let all = cluster.all();
            let seen = values(&all);
            assert!(seen.is_empty() || (seen.len() == 2 && seen[0] == seen[1]), "torn: {all:?}");
        },
    );
}

fn equals(row: &str, value: &[u8]) -> Condition {
    let binary =
        pb::BinaryComparator { comparable: pb::ByteArrayComparable { value: Some(value.to_vec().into()) } };
    let proto = pb::Comparator {
        name: "org.apache.hadoop.hbase.filter.BinaryComparator".into(),
        serialized_comparator: Some(binary.encode_to_vec().into()),
    };
    let test = ConditionTest::Column {
        family: "f".into(),
        qualifier: "q".into(),
        op: pb::CompareType::Equal,
        comparator: comparator_from_proto(&proto).expect("known"),
    };
    Condition { row: row.as_bytes().to_vec().into(), test, time_range: TimeRange::ALL }
}

#[test]
fn one_of_concurrent_check_and_mutates_succeeds() {
    let cluster = Cluster::new(&[(b"f", 1)]);
    let region = cluster.region();
    cluster.put("r", "f", "q", "0").expect("written");
    let won = AtomicUsize::new(0);
    beside_churn(
        region,
        |_| {
            for _ in 0..150 {
                let now: usize = values(&cluster.row("r"))[0].parse().expect("a number");
                let next = put("r", &[("f", "q", &(now + 1).to_string())]);
                let outcome =
                    region.check_and_mutate_wait(equals("r", now.to_string().as_bytes()), vec![next]);
                won.fetch_add(usize::from(outcome.expect("answered").success), Ordering::Relaxed);
            }
        },
        || drop(cluster.row("r")),
    );
    assert_eq!(values(&cluster.row("r")), [won.load(Ordering::Relaxed).to_string()]);
}

/// Writes alternately fail and succeed: failed ones are never seen, successful ones are all there,
/// also after a crash.
#[test]
fn failed_writes_are_never_visible() {
    with_each_compaction(&[(b"f", 1)], |mut cluster| {
        let region = cluster.region().clone();
        let (made, failed) = (Mutex::new(HashSet::new()), Mutex::new(HashSet::new()));
        let strikes = AtomicUsize::new(0);
        beside_churn(
            &region,
            |at| {
                for i in 0..200 {
                    let row = format!("{at}.{i:03}");
                    match region.mutate_wait(put(&row, &[("f", "q", "v")])) {
                        Ok(_) => made.lock().insert(row),
                        Err(_) => failed.lock().insert(row),
                    };
                }
            },
            || {
                if strikes.fetch_add(1, Ordering::Relaxed).is_multiple_of(5) {
                    cluster.fs.clear();
                    cluster.fs.inject(Fault::on(Op::Append, "/WALs/").times(1).fails(IoKind::StorageFull));
                    cluster.fs.inject(Fault::on(Op::Create, "/WALs/").times(1).fails(IoKind::StorageFull));
                }
                let known = failed.lock().clone();
                let made = made.lock().clone();
                let seen = rows(&cluster);
                assert!(seen.is_disjoint(&known), "a failed write is seen");
                assert!(made.is_subset(&seen), "an acknowledged write is not seen");
            },
        );
        drop(region);
        let (made, failed) = (made.into_inner(), failed.into_inner());
        assert!(!made.is_empty() && !failed.is_empty(), "{} made, {} failed", made.len(), failed.len());
        assert_eq!(rows(&cluster), made);
        cluster.crash(SurvivingData::Flushed);
        assert_eq!(rows(&cluster), made);
    });
}

fn rows(cluster: &Cluster) -> HashSet<String> {
    cluster.all().iter().map(|cell| cell.split_once('/').expect("a row").0.to_owned()).collect()
}

/// Every reader sees exactly one version, and never an older one than before, while flushes and
/// compactions drop versions that are no longer needed.
#[test]
fn readers_see_one_version_and_never_an_older_one() {
    with_each_compaction(&[(b"f", 1)], |cluster| {
        let region = cluster.region();
        for row in ["0", "1", "2", "3"] {
            cluster.put(row, "f", "q", "0").expect("written");
        }
        let newest = Mutex::new(vec![0; WRITERS]);
        beside_churn(
            region,
            |at| {
                for i in 1..300 {
                    cluster.clock.advance_ms(1);
                    cluster.put(&at.to_string(), "f", "q", &i.to_string()).expect("written");
                }
            },
            || {
                let before = newest.lock().clone();
                let all = cluster.all();
                let seen: Vec<i32> = values(&all).iter().map(|v| v.parse().expect("a number")).collect();
                assert_eq!(seen.len(), WRITERS, "{all:?}");
                assert!(
                    seen.iter().zip(&before).all(|(now, before)| now >= before),
                    "{before:?}, then {seen:?}"
                );
                newest.lock().iter_mut().zip(seen).for_each(|(newest, seen)| *newest = seen.max(*newest));
            },
        );
    });
}

/// As above, for rows that one reader reads in sequence, round after round.
#[test]
fn a_row_reader_never_returns_an_older_version() {
    with_each_compaction(&[(b"f", 1)], |cluster| {
        let region = cluster.region();
        let rows = ["0", "1", "2", "3"];
        rows.iter().for_each(|row| cluster.put(row, "f", "q", "0").expect("written"));
        beside_churn(
            region,
            |at| {
                for i in 1..300 {
                    cluster.put(&at.to_string(), "f", "q", &i.to_string()).expect("written");
                }
            },
            || {
                let mut reader = region.row_reader(Wait::Allowed);
                let mut newest = [0; WRITERS];
                for at in (0..WRITERS).cycle().take(20 * WRITERS) {
                    let mut cells = CellBuffer::new();
                    let mut context = ScannerContext::unlimited();
                    let row = Bytes::from_static(rows[at].as_bytes());
                    let get = || Ok(Scan::get(row.clone()));
                    reader.get_of_kind(0, &row, get, &mut cells, &mut context).expect("read");
                    let seen: Vec<i32> =
                        values(&texts(&cells)).iter().map(|v| v.parse().expect("a number")).collect();
                    assert_eq!(seen.len(), 1, "row {at}: {seen:?}");
                    assert!(seen[0] >= newest[at], "row {at}: {} after {}", seen[0], newest[at]);
                    newest[at] = seen[0];
                }
            },
        );
    });
}

#[test]
fn closing_waits_for_writers_and_loses_none() {
    let mut cluster = Cluster::new(&[(b"f", 1)]);
    let region = cluster.region().clone();
    let made = Mutex::new(HashSet::new());
    let (started, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| churn(&region, &done));
        let writers: Vec<_> = (0..WRITERS)
            .map(|at| {
                let (region, made, started) = (&region, &made, &started);
                scope.spawn(move || {
                    for i in 0.. {
                        let row = format!("{at}.{i}");
                        if region.mutate_wait(put(&row, &[("f", "q", "v")])).is_err() {
                            return;
                        }
                        made.lock().insert(row);
                        started.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        while started.load(Ordering::Relaxed) < 200 {
            std::thread::yield_now();
        }
        region.close(false).expect("closed");
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        done.store(true, Ordering::Relaxed);
    });
    drop(region);
    cluster.wal().close().expect("closed");
    assert!(cluster.files("/WALs/").is_empty(), "a region that is closed needs no log");
    cluster.crash(SurvivingData::Flushed);
    assert_eq!(rows(&cluster), made.into_inner());
}

/// A compaction that would take minutes ends within milliseconds when the region closes, and leaves
/// no files behind.
#[test]
fn closing_does_not_wait_for_a_compaction() {
    for engine in ["DefaultStoreEngine", "StripeStoreEngine", "DateTieredStoreEngine"] {
        let mut cluster = Cluster::new(&[(b"f", 1)]);
        let class = format!("org.apache.hadoop.hbase.regionserver.{engine}");
        cluster.alter(&[("hbase.hstore.engine.class", &class)]);
        cluster.restart();
        for half in 0..2 {
            for row in 0..100 {
                cluster.put(&format!("r{half}{row}"), "f", "q", &"x".repeat(1000)).expect("written");
            }
            cluster.region().flush().expect("flushed");
        }
        let before = cluster.all();
        cluster.compaction_throughput.set_limit(Some(1000));
        // A busy machine may be late, but not always.
        let at_once = (0..10).map(|_| close_in_a_compaction(&mut cluster, engine, &before));
        assert!(at_once.into_iter().any(|time| time < Duration::from_millis(50)), "{engine}: closes late");
    }
}

/// Returns how long the close takes; then opens the region again.
fn close_in_a_compaction(cluster: &mut Cluster, engine: &str, before: &[String]) -> Duration {
    let region = Arc::clone(cluster.region());
    let closed_in = std::thread::scope(|scope| {
        let compaction = scope.spawn(|| region.compact(None, true));
        while cluster.files("/.tmp/f/").is_empty() {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20));
        let began = Instant::now();
        region.close(false).expect("closed");
        let closed_in = began.elapsed();
        compaction.join().expect("no panic").expect_err("cancelled");
        closed_in
    });
    assert!(cluster.files("/.tmp/f/").is_empty(), "{engine}");
    drop(region);
    cluster.die(SurvivingData::Flushed);
    cluster.start();
    assert_eq!(cluster.all(), before, "{engine}");
    closed_in
}
