//! Simulates writers, the throttle and flushers with simulated time: do writers settle before the
//! limit?

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use evenkeel_common::{CellComparator, KeyValue};
use evenkeel_region::memstore::{ChunkPool, ChunkSizes, Segment};

use crate::limits::memstore::{FlushDemand, MemStoreAccounting, Unflushed};
use crate::limits::write_throttle::HOLD_MAX;

const MIB: u64 = 1 << 20;
const PERIOD_MS: u64 = 200;
/// The delay from passing a watermark, or from the end of a flush, to the measurement.
const LOOK_MS: u64 = 5;

/// The module's bound for call sizes that differ by up to a factor of 10,000.
const MIXED: f64 = 3.1;

/// Returns bytes of cells that are never flushed.
fn idle(bytes: u64) -> Unflushed {
    Unflushed { cells: bytes, bytes, ..Unflushed::default() }
}

#[derive(Clone)]
struct Case {
    name: &'static str,
    limit: u64,
    /// The share of the writes that each region gets.
    weights: Vec<u64>,
    callers: u64,
    /// Bytes per call.
    bytes: u64,
    /// The number of additional callers with small calls.
    small_callers: u64,
    /// Bytes per small call.
    small_bytes: u64,
    /// The pause from a reply to the next call, in milliseconds.
    pause_ms: u64,
    flushers: usize,
    /// Bytes per second of each flusher.
    flush_bytes: u64,
    /// The minimum duration of each flush, in milliseconds.
    flush_ms: u64,
}

/// The parameters of the budget test.
fn case(name: &'static str) -> Case {
    Case {
        name,
        limit: 48 * MIB,
        weights: vec![6, 3, 2, 1, 1, 1],
        callers: 14,
        bytes: 20_000,
        small_callers: 0,
        small_bytes: 200,
        pause_ms: 0,
        flushers: 2,
        flush_bytes: 8_000_000,
        flush_ms: 20,
    }
}

#[derive(Debug, Default)]
struct Outcome {
    refused: u64,
    held: u64,
    written: u64,
    flushes: u64,
    used_max: f64,
    /// The number of calls of each size, and the sum of their holds.
    calls: u64,
    hold: Duration,
    small_calls: u64,
    small_hold: Duration,
}

struct Model {
    case: Case,
    gauge: MemStoreAccounting,
    began: Instant,
    regions: Vec<Unflushed>,
    queue: VecDeque<usize>,
    /// The regions that are being flushed, and when each flush ends.
    flushes: Vec<(usize, u64)>,
    look_ms: u64,
    outcome: Outcome,
}

impl Model {
    fn run(case: Case, seconds: u64) -> Outcome {
        let gauge = MemStoreAccounting::new(case.limit / 100 * 95, case.limit);
        let regions = vec![Unflushed::default(); case.weights.len()];
        let mut callers_ms = vec![0; (case.callers + case.small_callers) as usize];
        let mut model = Self {
            gauge,
            began: Instant::now(),
            regions,
            queue: VecDeque::new(),
            flushes: Vec::new(),
            look_ms: 0,
            outcome: Outcome::default(),
            case,
        };
        for now_ms in 0..seconds * 1000 {
            model.flush(now_ms);
            for (caller, next_ms) in callers_ms.iter_mut().enumerate() {
                if *next_ms <= now_ms {
                    *next_ms = now_ms + model.call(now_ms, caller as u64);
                }
            }
            if model.look_ms <= now_ms {
                model.look(now_ms);
            }
        }
        model.outcome
    }

    fn flush(&mut self, now_ms: u64) {
        let (ended, running): (Vec<_>, Vec<_>) =
            self.flushes.drain(..).partition(|(_, end_ms)| *end_ms <= now_ms);
        self.flushes = running;
        for (at, _) in &ended {
            let region = &mut self.regions[*at];
            *region = idle(region.bytes - region.flushing_bytes);
            self.look_ms = self.look_ms.min(now_ms + LOOK_MS);
        }
        while self.flushes.len() < self.case.flushers
            && let Some(at) = self.queue.pop_front()
        {
            let region = &mut self.regions[at];
            (region.flushing_bytes, region.is_flushing) = (region.bytes, true);
            let ms = self.case.flush_ms + region.bytes * 1000 / self.case.flush_bytes;
            self.flushes.push((at, now_ms + ms));
            self.outcome.flushes += 1;
        }
    }

    /// Makes a call. Returns the time of the caller's next call.
    fn call(&mut self, now_ms: u64, caller: u64) -> u64 {
        if self.gauge.is_full() {
            self.outcome.refused += 1;
            return HOLD_MAX.as_millis() as u64;
        }
        let all: u64 = self.case.weights.iter().sum();
        let mut left = (caller * 0x9e37 + now_ms) % all;
        let is_it = |weight: &u64| {
            let is_it = left < *weight;
            left = left.saturating_sub(*weight);
            is_it
        };
        let at = self.case.weights.clone().iter().position(is_it).expect("one of all");
        let is_small = caller >= self.case.callers;
        let bytes = if is_small { self.case.small_bytes } else { self.case.bytes };
        if self.gauge.note(bytes) {
            self.look_ms = self.look_ms.min(now_ms + LOOK_MS);
        }
        let region = &mut self.regions[at];
        (region.cells, region.bytes) = (region.cells + bytes, region.bytes + bytes);
        let hold = self.gauge.hold_for(bytes);
        let outcome = &mut self.outcome;
        outcome.written += bytes;
        outcome.used_max = outcome.used_max.max(self.gauge.pressure());
        outcome.held += u64::from(!hold.is_zero());
        let (calls, held) = match is_small {
            true => (&mut outcome.small_calls, &mut outcome.small_hold),
            false => (&mut outcome.calls, &mut outcome.hold),
        };
        (*calls, *held) = (*calls + 1, *held + hold);
        self.case.pause_ms + hold.as_millis().max(1) as u64
    }

    fn look(&mut self, now_ms: u64) {
        let now = self.began + Duration::from_millis(now_ms);
        let (regions, need) = self.gauge.measure(now, || self.regions.clone());
        let open = self.queue.len() + self.flushes.len();
        need.request_flushes(&regions, self.case.flushers, open, |at| {
            let is_new = !self.queue.contains(&at);
            self.queue.extend(is_new.then_some(at));
            is_new
        });
        self.look_ms = now_ms + PERIOD_MS;
    }
}

/// The module's bound on the used part of the approach, plus the part below which holds are zero,
/// plus the bytes of all calls in flight. With calls of different sizes, writers may write
/// [`MIXED`] times as much.
fn bound(case: &Case) -> f64 {
    let in_flight = (case.callers * case.bytes + case.small_callers * case.small_bytes) as f64;
    let mixed = if case.small_callers > 0 { MIXED } else { 1.0 };
    let part = 4.0 * mixed * in_flight / (case.flush_bytes as f64 * HOLD_MAX.as_secs_f64());
    part.powf(0.25) + 0.1 + in_flight / (case.limit as f64 * 0.05)
}

#[test]
fn writers_settle_below_the_limit_on_any_setup() {
    let cases = [
        case("as in the budget test"),
        Case { weights: vec![1], ..case("one region") },
        Case { weights: vec![1; 1000], ..case("many small regions") },
        Case { weights: vec![1000, 1, 1, 1, 1], ..case("one busy region") },
        Case { flushers: 1, weights: vec![8, 4, 2, 1], ..case("one flusher") },
        Case {
            limit: 1024 * MIB,
            weights: vec![1; 40],
            callers: 100,
            bytes: 100_000,
            flush_bytes: 100_000_000,
            ..case("large")
        },
        Case { limit: 1024 * MIB, weights: vec![9, 1], ..case("large, and a slow disk") },
        Case { flush_ms: 1000, ..case("a disk that answers late") },
    ];
    for case in cases {
        let outcome = Model::run(case.clone(), 120);
        assert_eq!(outcome.refused, 0, "{}: {outcome:?}", case.name);
        assert!(outcome.used_max <= bound(&case), "{}: {outcome:?}, {:.2}", case.name, bound(&case));
        // The disk must be busy all the time.
        let disk = case.flush_bytes * case.flushers.min(case.weights.len()) as u64;
        assert!(outcome.flushes > 3 && outcome.written > disk * 40, "{}: {outcome:?}", case.name);
    }
}

#[test]
fn small_calls_are_held_less_than_large_ones() {
    let mixed = |name, callers, bytes, small_callers| Case { callers, bytes, small_callers, ..case(name) };
    // The minimum factor by which small calls are held less. If small calls bring as many bytes as
    // large ones, they fill the memory themselves.
    let cases = [
        (mixed("a few small ones", 14, 20_000, 4), 10),
        (mixed("as many", 14, 20_000, 14), 10),
        (mixed("few of both", 4, 200_000, 20), 30),
        (mixed("many small ones", 14, 20_000, 500), 3),
        (mixed("one large one", 1, 200_000, 1000), 3),
        (Case { weights: vec![1], flushers: 1, ..mixed("one region", 2, 100_000, 200) }, 5),
    ];
    for (case, times) in cases {
        let outcome = Model::run(case.clone(), 120);
        assert_eq!(outcome.refused, 0, "{}: {outcome:?}", case.name);
        assert!(outcome.used_max <= bound(&case), "{}: {outcome:?}, {:.2}", case.name, bound(&case));
        let disk = case.flush_bytes * case.flushers.min(case.weights.len()) as u64;
        assert!(outcome.written > disk * 40, "{}: {outcome:?}", case.name);
        let (small, large) =
            (outcome.small_hold / outcome.small_calls as u32, outcome.hold / outcome.calls as u32);
        assert!(small * times < large, "{}: {small:?}, {large:?}", case.name);
    }
}

#[test]
fn a_call_is_held_in_proportion_to_its_bytes() {
    let limit = 25_600;
    let gauge = |bytes| {
        let gauge = MemStoreAccounting::new(limit, limit);
        // The approach is half of the limit.
        gauge.measure(Instant::now(), || [idle(limit)]);
        gauge.measure(Instant::now(), || [idle(bytes)]);
        gauge
    };
    let close =
        |hold: Duration, part: f64| (hold.as_secs_f64() - HOLD_MAX.as_secs_f64() / 8.0 * part).abs() < 1e-3;
    let half = gauge(limit / 4 * 3);
    // It looks back over 100 bytes.
    assert!(close(half.hold_for(1), 1.0), "nothing is known yet");
    assert!(close(half.hold_for(1000), 1.0), "a call as large as that is all that is known");
    assert!(close(half.hold_for(10), 0.01 * 100_f64.powf(0.1)), "which this one forgets a tenth of");
    let holds: Vec<_> = (0..200).map(|_| half.hold_for(10)).collect();
    assert!(holds.is_sorted());
    assert!(close(half.hold_for(10), 1.0), "2000 bytes later");
    assert!(close(half.hold_for(1), 0.1));

    let full = gauge(limit);
    full.hold_for(1000);
    assert_eq!(full.hold_for(1), HOLD_MAX, "all bear everything");
    let empty = gauge(limit / 4);
    assert_eq!(empty.hold_for(1000), Duration::ZERO);
}

#[test]
fn writers_within_disk_throughput_are_not_slowed() {
    // 7 MB/s, which one flusher can write, and 11 MB/s, which requires two.
    for (name, pause_ms) in [("one flusher's pace", 39), ("more than that", 24)] {
        let case = Case { pause_ms, ..case(name) };
        let all = case.callers * case.bytes * 120_000 / (pause_ms + 1);
        let outcome = Model::run(case, 120);
        assert_eq!((outcome.held, outcome.written), (0, all), "{name}: {outcome:?}");
    }
}

#[test]
fn callers_beyond_the_throttle_get_full_disk_throughput() {
    let case = Case { callers: 400, bytes: 200_000, weights: vec![1; 6], ..case("a storm") };
    let (callers, disk) = (case.callers, case.flush_bytes * case.flushers as u64);
    let outcome = Model::run(case, 120);
    assert!(outcome.refused > 0 && outcome.refused <= 120 * callers, "{outcome:?}");
    assert!(outcome.written > disk * 120 * 8 / 10, "{outcome:?}");
}

#[test]
fn held_writes_imply_a_flush() {
    let mut random = 1_u64;
    let mut below = |limit: u64| {
        random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (random >> 33) % limit
    };
    let (began, mut throttling) = (Instant::now(), 0);
    for low in [1, 5000, 9500, 10_000] {
        let gauge = MemStoreAccounting::new(low, 10_000);
        for n in 0..2000 {
            let count = 1 + below(8);
            let regions: Vec<_> = (0..count).map(|_| idle(below(20_000 / count))).collect();
            let now = began + Duration::from_millis(n * below(400));
            let (regions, need) = gauge.measure(now, || regions);
            throttling += u64::from(gauge.is_throttling());
            let mut asked = Vec::new();
            need.request_flushes(&regions, 2, 0, |at| {
                asked.push(at);
                true
            });
            assert!(!gauge.is_throttling() || !asked.is_empty(), "{n}: {regions:?}");
            let largest = regions.iter().map(|region| region.bytes).max();
            assert!(asked.first().is_none_or(|at| Some(regions[*at].bytes) == largest));
            gauge.note(below(2000));
        }
    }
    assert!(throttling > 1000, "{throttling}");
}

#[test]
fn flushes_are_urgent_half_way_to_the_throttle_watermark() {
    let (gauge, began) = (MemStoreAccounting::new(950, 1000), Instant::now());
    // Spread over many regions, so that no flush is larger than the 250 that are assumed before the
    // first flush.
    let measure = |after_ms, bytes: u64| {
        let region = |n| idle(bytes / 10 + u64::from(n < bytes % 10));
        gauge.measure(began + Duration::from_millis(after_ms), || (0..10).map(region).collect::<Vec<_>>());
        (gauge.flushes_are_urgent(), gauge.is_throttling())
    };
    assert_eq!(measure(0, 750), (false, false), "nothing was written: all marks are one");
    assert_eq!(measure(0, 751), (true, true));
    assert_eq!(measure(0, 250), (false, false));
    gauge.note(100);
    // 100 per second are 200 in the lead of two seconds, and a flush is now 247: the outer
    // watermarks are at 553 and 753.
    assert_eq!(measure(1000, 350), (false, false));
    assert_eq!((measure(1000, 653), measure(1000, 654)), ((false, false), (true, false)));
    assert_eq!((measure(1000, 753), measure(1000, 754)), ((true, false), (true, true)));
    assert_eq!(measure(1000, 653), (false, false), "there is room again");
}

#[test]
fn flushes_are_requested_only_when_useful() {
    let gauge = MemStoreAccounting::new(950, 1000);
    let running = |bytes, flushing_bytes| Unflushed { flushing_bytes, is_flushing: true, ..idle(bytes) };
    let asked = |regions: &[Unflushed], open| {
        let (_, need) = gauge.measure(Instant::now(), || regions);
        let mut asked = Vec::new();
        need.request_flushes(regions, 2, open, |at| {
            asked.push(at);
            true
        });
        asked
    };
    assert_eq!(asked(&[idle(200), idle(400)], 0), [], "an approach of 400, just reached");
    assert!(gauge.note(101) && !gauge.note(1), "told once");
    assert_eq!(asked(&[idle(200), idle(401), idle(100)], 0), [1, 0], "both flushers, the largest first");
    assert_eq!(asked(&[idle(300), running(500, 401)], 1), [0], "the second flusher is not to be idle");
    assert_eq!(asked(&[idle(40), running(800, 400)], 1), [], "a file of an eighth would not help");
    assert_eq!(asked(&[idle(40), running(960, 401), idle(0)], 0), [0], "unless it is all there is");
    assert_eq!(
        asked(&[idle(200), running(400, 400), running(500, 400)], 2),
        [],
        "what is being flushed is enough"
    );
}

#[test]
fn chunks_kept_by_readers_cause_no_small_flushes() {
    let (limit, slack) = (8 * MIB, MIB);
    let chunks = ChunkPool::within(ChunkSizes::default(), 0, 0, (limit + slack) as usize);
    let gauge = MemStoreAccounting::new(limit / 100 * 95, limit).over(chunks.clone());
    // Flushed, and still read: it belongs to no region.
    let kept = Segment::new(CellComparator::Default, (&[], &[]), chunks.clone());
    kept.add(&KeyValue::put(b"r", b"f", b"q", 1, &vec![7; 9 << 20]).as_cell());
    let need = |bytes| gauge.measure(Instant::now(), || [idle(bytes)]).1;
    assert_eq!(need(1000), FlushDemand { worth_bytes: need(1000).worth_bytes, ..FlushDemand::default() });
    assert!(gauge.is_full() && gauge.is_throttling(), "{} bytes", gauge.bytes());
    assert!(need(MIB).all_flushers, "an eighth of the limit is worth a file");
    drop(kept);
    assert!(!need(1000).all_flushers && !gauge.is_throttling());
    assert_eq!(gauge.bytes(), 1000);
}

#[test]
fn chunk_slack_is_not_counted_toward_the_limit() {
    let (limit, slack) = (64 * MIB, 4 * MIB);
    let chunks = ChunkPool::within(ChunkSizes::default(), 0, 0, (limit + slack) as usize);
    let chunk = chunks.sizes().chunk_bytes as u64;
    let gauge = MemStoreAccounting::new(limit - 1, limit).over(chunks.clone());
    let of_region = Segment::new(CellComparator::Default, (&[], &[]), chunks.clone());
    of_region.add(&KeyValue::put(b"r", b"f", b"q", 1, &vec![7; 6 << 20]).as_cell());
    let out = chunks.out_bytes() as u64;
    assert!(out > 6 * MIB);
    gauge.measure(Instant::now(), || [Unflushed { cells: 1000, bytes: out, ..Unflushed::default() }]);
    assert_eq!(gauge.bytes(), out - slack, "flushes free all of it, but the limit is not that near");
    drop(of_region);

    // The 16 MiB of a flush that are assumed before the first flush decay over time.
    let began = Instant::now();
    for period in 0..400 {
        gauge.measure(began + Duration::from_millis(200 * period), || [idle(1)]);
    }
    let before_approach = limit / MIB - 6 * chunk / MIB;
    gauge.measure(Instant::now(), || vec![idle(MIB); before_approach as usize]);
    assert!(!gauge.is_throttling());
    gauge.note(1);
    assert!(gauge.is_throttling());
}
