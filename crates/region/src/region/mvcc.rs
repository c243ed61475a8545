//! Multi-version concurrency control: decides which writes readers see.
//!
//! Every write of a region takes the next *write number*, which is its WAL sequence id and the
//! sequence id of its cells. Readers see cells up to the *read point*: the highest number such that
//! it and all below it are complete. A write completes when its cells are in the MemStore and its
//! WAL entry is as durable as requested. Writes may complete in any order; the read point moves
//! only over a contiguous range of complete numbers.
//!
//! One lock (`order`) covers taking a number and all work that must happen in the same order (the
//! WAL append). So the order of the log is the order of the numbers. The append may wait under it
//! for space in the WAL's queue. Only the WAL's thread frees that space, and the same thread
//! completes writes. So completion uses another lock (`inner`), under which no thread waits.

#![allow(clippy::indexing_slicing, reason = "indexes come from the lengths of the arrays")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use evenkeel_common::cpu_slot;
use evenkeel_metrics::waits::{self, Cause};
use parking_lot::{Condvar, Mutex};

use super::wait_budget;

/// A callback for when a write number, and all below it, are visible.
pub trait OnVisible: Send {
    /// Runs once when the number has become visible, after all earlier numbers and before all later
    /// ones, with the lock of the numbers held: it must only record that. Runs only if the order is
    /// recorded ([`Mvcc::with_order_recorded`]).
    fn in_order(&mut self) {}

    /// Runs once, on the thread that moved the read point, and must be short.
    fn visible(self: Box<Self>);
}

impl<F: FnOnce() + Send> OnVisible for F {
    fn visible(self: Box<Self>) {
        self();
    }
}

/// Runs when a write number is visible.
pub type VisibilityCallback = Box<dyn OnVisible>;

/// The write numbers of one region.
pub struct Mvcc {
    read_point: AtomicU64,
    /// Held while a number is taken and the ordered work runs. Taken before `inner`.
    order: Mutex<()>,
    inner: Mutex<Inner>,
    advanced: Condvar,
    is_order_recorded: bool,
}

struct Inner {
    write_point: u64,
    /// Writes above the read point, in order of their numbers.
    pending: VecDeque<Pending>,
}

struct Pending {
    number: u64,
    complete: bool,
    waiters: Vec<VisibilityCallback>,
}

impl Mvcc {
    /// Starts with everything up to `start` complete.
    pub fn new(start: u64) -> Self {
        let inner = Inner { write_point: start, pending: VecDeque::new() };
        Self {
            read_point: AtomicU64::new(start),
            order: Mutex::new(()),
            inner: Mutex::new(inner),
            advanced: Condvar::new(),
            is_order_recorded: false,
        }
    }

    /// Sets whether [`OnVisible::in_order`] runs.
    pub fn with_order_recorded(self, is_order_recorded: bool) -> Self {
        Self { is_order_recorded, ..self }
    }

    /// The highest number that readers may see.
    #[inline]
    pub fn read_point(&self) -> u64 {
        self.read_point.load(Ordering::Acquire)
    }

    /// The highest number taken.
    pub fn write_point(&self) -> u64 {
        self.inner.lock().write_point
    }

    /// Takes the next number and runs `ordered` with it before another number can be taken. The
    /// number stays incomplete until [`Mvcc::complete`], regardless of what `ordered` returns.
    pub fn begin<T>(&self, ordered: impl FnOnce(u64) -> T) -> (u64, T) {
        // The holder computes, or waits for space in the log's queue. Only that wait is long enough
        // to release the CPU slot; it is then reported as the cause.
        let soon = self.order.try_lock().or_else(|| self.order.try_lock_for(wait_budget::SHORT_WAIT_MAX));
        let _order = soon.unwrap_or_else(|| {
            waits::time(Cause::LogQueue, || cpu_slot::release_during(|| self.order.lock()))
        });
        let number = self.next();
        (number, ordered(number))
    }

    /// As [`Mvcc::begin`]. `None` if the lock is not free within the thread's
    /// [wait budget](wait_budget).
    pub fn try_begin<T>(&self, ordered: impl FnOnce(u64) -> T) -> Option<(u64, T)> {
        let in_time = || wait_budget::try_within_budget(|time| self.order.try_lock_for(time));
        let _order = self.order.try_lock().or_else(in_time)?;
        let number = self.next();
        Some((number, ordered(number)))
    }

    fn next(&self) -> u64 {
        let mut inner = self.inner.lock();
        inner.write_point += 1;
        let number = inner.write_point;
        inner.pending.push_back(Pending { number, complete: false, waiters: Vec::new() });
        number
    }

    /// Marks a number complete and moves the read point as far as possible.
    pub fn complete(&self, number: u64) {
        self.complete_then(number, None);
    }

    /// Marks a number complete. `waiter` runs once it is visible; on this thread, if that is
    /// immediately.
    pub fn complete_then(&self, number: u64, waiter: Option<VisibilityCallback>) {
        let mut ready = Vec::new();
        let mut inner = self.inner.lock();
        if let Ok(at) = inner.pending.binary_search_by_key(&number, |p| p.number) {
            let entry = &mut inner.pending[at];
            entry.complete = true;
            entry.waiters.extend(waiter);
        } else {
            ready.extend(waiter);
        }
        let before = self.read_point();
        while inner.pending.front().is_some_and(|p| p.complete) {
            if let Some(mut done) = inner.pending.pop_front() {
                self.read_point.store(done.number, Ordering::Release);
                if self.is_order_recorded {
                    done.waiters.iter_mut().for_each(|waiter| waiter.in_order());
                }
                ready.extend(done.waiters);
            }
        }
        if self.read_point() != before {
            self.advanced.notify_all();
        }
        drop(inner);
        ready.into_iter().for_each(OnVisible::visible);
    }

    /// Waits until `number` is visible.
    pub fn wait_for(&self, number: u64) {
        let mut inner = self.inner.lock();
        while self.read_point() < number {
            self.advanced.wait(&mut inner);
        }
    }

    /// Moves both points up to `number`: a region opens, or a secondary replica, which has no
    /// writes of its own, has replayed an edit. No write may be pending.
    pub fn advance_to(&self, number: u64) {
        let mut inner = self.inner.lock();
        debug_assert!(inner.pending.is_empty());
        inner.write_point = inner.write_point.max(number);
        self.read_point.fetch_max(number, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_wait_behind_a_full_log_queue_has_that_cause() {
        const HELD: Duration = Duration::from_millis(200);
        let mvcc = Arc::new(Mvcc::new(0));
        let (holds, is_held) = std::sync::mpsc::channel();
        let holder = Arc::clone(&mvcc);
        let holder = std::thread::spawn(move || {
            holder.begin(|_| {
                holds.send(()).expect("received");
                std::thread::sleep(HELD);
            })
        });
        is_held.recv().expect("sent");
        waits::take();
        mvcc.begin(|_| ());
        let waited = waits::take().expect("a wait").of(Cause::LogQueue);
        assert!(waited > HELD / 2, "{waited:?}");
        holder.join().expect("ends");
    }

    #[test]
    fn the_read_point_advances_only_over_contiguous_completions() {
        let mvcc = Mvcc::new(10);
        let numbers: Vec<u64> = (0..3).map(|_| mvcc.begin(|n| n).0).collect();
        assert_eq!(numbers, [11, 12, 13]);
        mvcc.complete(12);
        assert_eq!(mvcc.read_point(), 10);
        mvcc.complete(11);
        assert_eq!(mvcc.read_point(), 12);
        mvcc.complete(13);
        assert_eq!(mvcc.read_point(), 13);
    }

    #[test]
    fn waiters_run_when_their_number_is_visible() {
        let mvcc = Mvcc::new(0);
        let ran = Arc::new(AtomicUsize::new(0));
        let waiter = |ran: &Arc<AtomicUsize>| {
            let ran = Arc::clone(ran);
            let count = move || {
                ran.fetch_add(1, Ordering::Relaxed);
            };
            Some(Box::new(count) as VisibilityCallback)
        };
        let (first, ()) = mvcc.begin(|_| ());
        let (second, ()) = mvcc.begin(|_| ());
        mvcc.complete_then(second, waiter(&ran));
        assert_eq!(ran.load(Ordering::Relaxed), 0);
        mvcc.complete_then(first, waiter(&ran));
        assert_eq!(ran.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn numbers_are_recorded_in_order() {
        struct Recorder(u64, Arc<Mutex<Vec<u64>>>);
        impl OnVisible for Recorder {
            fn in_order(&mut self) {
                self.1.lock().push(self.0);
            }
            fn visible(self: Box<Self>) {}
        }
        for is_recorded in [true, false] {
            let mvcc = Mvcc::new(0).with_order_recorded(is_recorded);
            let recorded = Arc::<Mutex<Vec<u64>>>::default();
            let numbers: Vec<u64> = (0..3).map(|_| mvcc.begin(|n| n).0).collect();
            for number in [numbers[1], numbers[0], numbers[2]] {
                mvcc.complete_then(number, Some(Box::new(Recorder(number, Arc::clone(&recorded)))));
            }
            assert_eq!(*recorded.lock(), if is_recorded { numbers } else { Vec::new() });
        }
    }

    #[test]
    fn writes_complete_while_the_next_waits_for_its_turn_in_the_log() {
        let mvcc = Mvcc::new(0);
        let (first, ()) = mvcc.begin(|_| ());
        let (second, ()) = mvcc.begin(|_| {
            std::thread::scope(|scope| {
                let done = scope.spawn(|| mvcc.complete(first));
                let started = std::time::Instant::now();
                while !done.is_finished() {
                    assert!(
                        started.elapsed() < std::time::Duration::from_secs(20),
                        "the log's thread is stuck"
                    );
                    std::thread::yield_now();
                }
            });
        });
        mvcc.complete(second);
        assert_eq!(mvcc.read_point(), 2);
    }

    #[test]
    fn many_writers_end_with_everything_visible() {
        let mvcc = Arc::new(Mvcc::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let (number, ()) = mvcc.begin(|_| ());
                        mvcc.complete(number);
                        mvcc.wait_for(number);
                        assert!(mvcc.read_point() >= number);
                    }
                });
            }
        });
        assert_eq!((mvcc.read_point(), mvcc.write_point()), (4000, 4000));
    }
}
