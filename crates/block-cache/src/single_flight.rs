//! [`SingleFlight`]: concurrent misses of a block cause one read.
//!
//! One of the threads that miss a block reads it, and the others wait for its result. If the read
//! fails, one of the waiting threads reads.

#![allow(clippy::indexing_slicing, reason = "indexes come from the lengths of the arrays")]

use std::collections::HashMap;
use std::sync::Arc;

use evenkeel_common::{TryError, TryResult, Wait, cpu_slot};
use parking_lot::{Condvar, Mutex};

use crate::{Block, BlockKey};

const STRIPES: usize = 16;

/// Reads in progress, striped by offset.
#[derive(Debug, Default)]
pub(crate) struct SingleFlight([Mutex<HashMap<BlockKey, Arc<InFlightRead>>>; STRIPES]);

#[derive(Debug, Default)]
struct InFlightRead {
    state: Mutex<ReadState>,
    finished: Condvar,
}

#[derive(Debug, Default)]
enum ReadState {
    #[default]
    InProgress,
    Done(Block),
    Failed,
}

/// The role of a caller after a miss.
enum Role<'a> {
    /// This thread reads the block and publishes the result.
    Leader(Leader<'a>),
    /// Another thread has read the block.
    Done(Block),
    /// Another thread's read failed.
    Failed,
    /// Another thread is reading the block, and this thread must not wait.
    Follower,
}

/// The obligation to read a block. If it is dropped without [`Leader::finish`], the read has
/// failed.
struct Leader<'a> {
    single_flight: &'a SingleFlight,
    key: BlockKey,
    read: Arc<InFlightRead>,
    found: Option<Block>,
}

impl SingleFlight {
    /// Returns the block from `read`. One of the concurrent callers for a block calls `read`, and
    /// the others wait for its result. If it fails, the next caller reads.
    ///
    /// # Errors
    /// The error of this caller's `read`; `WouldWait` if another thread reads the block and this
    /// one must not wait.
    pub fn read(
        &self,
        key: &BlockKey,
        wait: Wait,
        mut read: impl FnMut() -> TryResult<Block>,
    ) -> TryResult<Block> {
        loop {
            match self.join(key, wait) {
                Role::Done(block) => return Ok(block),
                Role::Failed => {}
                Role::Follower => return Err(TryError::WouldWait),
                Role::Leader(leader) => {
                    let block = read()?;
                    leader.finish(&block);
                    return Ok(block);
                }
            }
        }
    }

    /// The number of threads that wait for a block.
    #[cfg(test)]
    pub fn waiting(&self, key: &BlockKey) -> usize {
        // The table and the leader hold one reference each.
        self.stripe(key).lock().get(key).map_or(0, |read| Arc::strong_count(read).saturating_sub(2))
    }

    /// Becomes the leader, or waits for the leader's result.
    fn join(&self, key: &BlockKey, wait: Wait) -> Role<'_> {
        let read = {
            let mut stripe = self.stripe(key).lock();
            match stripe.get(key) {
                Some(read) => Arc::clone(read),
                None => {
                    let read = Arc::<InFlightRead>::default();
                    stripe.insert(*key, Arc::clone(&read));
                    return Role::Leader(Leader { single_flight: self, key: *key, read, found: None });
                }
            }
        };
        if !wait.is_allowed() {
            return Role::Follower;
        }
        let state = cpu_slot::release_during(|| {
            let mut state = read.state.lock();
            while matches!(*state, ReadState::InProgress) {
                read.finished.wait(&mut state);
            }
            state
        });
        match &*state {
            ReadState::Done(block) => Role::Done(block.clone()),
            _ => Role::Failed,
        }
    }

    fn stripe(&self, key: &BlockKey) -> &Mutex<HashMap<BlockKey, Arc<InFlightRead>>> {
        &self.0[(key.offset >> 6) as usize % STRIPES]
    }
}

impl Leader<'_> {
    /// Passes the block to the waiting threads.
    fn finish(mut self, block: &Block) {
        self.found = Some(block.clone());
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        self.single_flight.stripe(&self.key).lock().remove(&self.key);
        *self.read.state.lock() = self.found.take().map_or(ReadState::Failed, ReadState::Done);
        self.read.finished.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::time::{Duration, Instant};

    use evenkeel_common::HBaseError;

    use super::*;
    use crate::bucket::tests::{block_of, is_right, key};
    use crate::{
        BlockCache, BlockType, BucketCache, BucketCacheConfig, CacheHint, CombinedBlockCache, LruBlockCache,
        NoCache,
    };

    const READERS: usize = 8;

    /// Calls `check` with each kind of cache that holds a server's data blocks, and its single
    /// flight.
    fn with_each(check: impl Fn(&str, &dyn BlockCache, &SingleFlight)) {
        let memory = BucketCacheConfig::in_memory(1 << 20);
        let bucket = || BucketCache::open(&memory).expect("memory");
        let l1 = || LruBlockCache::new(1 << 20);
        let cache = l1();
        check("LruBlockCache", &cache, cache.engine().single_flight());
        let cache = CombinedBlockCache::new(l1(), bucket());
        check("CombinedBlockCache", &cache, cache.l2().single_flight());
        let cache = CombinedBlockCache::new(l1(), NoCache);
        check("META only", &cache, cache.single_flight());
    }

    #[test]
    fn concurrent_reads_of_a_block_load_it_once() {
        with_each(|name, cache, single_flight| {
            for (n, hint) in [CacheHint::INSERT, CacheHint::NO_INSERT].into_iter().enumerate() {
                let (reads, start, key) = (AtomicUsize::new(0), Barrier::new(READERS), key(n as u64, 7));
                let read = || {
                    reads.fetch_add(1, SeqCst);
                    let deadline = Instant::now() + Duration::from_secs(20);
                    while single_flight.waiting(&key) + 1 < READERS {
                        assert!(Instant::now() < deadline, "{name}: the others do not wait");
                        std::thread::yield_now();
                    }
                    Ok(block_of(BlockType::Data, &key, 10))
                };
                std::thread::scope(|scope| {
                    for _ in 0..READERS {
                        scope.spawn(|| {
                            start.wait();
                            let found = cache.get_or_load(&key, hint, &mut || read()).expect("read");
                            assert!(is_right(&key, &found), "{name}");
                        });
                    }
                });
                assert_eq!(reads.load(SeqCst), 1, "{name}");
                assert_eq!(
                    cache.contains(&key),
                    hint.insert && cache.caches_category(hint.category),
                    "{name}"
                );
            }
        });
    }

    #[test]
    fn after_a_failed_read_a_waiting_thread_reads() {
        with_each(|name, cache, single_flight| {
            let (reads, start, key) = (AtomicUsize::new(0), Barrier::new(2), key(1, 7));
            let read = || {
                if reads.fetch_add(1, SeqCst) > 0 {
                    return Ok(block_of(BlockType::Data, &key, 10));
                }
                let deadline = Instant::now() + Duration::from_secs(20);
                while single_flight.waiting(&key) == 0 {
                    assert!(Instant::now() < deadline, "{name}: the other does not wait");
                    std::thread::yield_now();
                }
                Err(HBaseError::io("no disk").into())
            };
            let outcomes: Vec<_> = std::thread::scope(|scope| {
                let reader = || {
                    start.wait();
                    cache.get_or_load(&key, CacheHint::NO_INSERT, &mut || read()).is_ok()
                };
                let readers = [scope.spawn(reader), scope.spawn(reader)];
                readers.into_iter().map(|reader| reader.join().expect("ends")).collect()
            });
            assert_eq!(outcomes.iter().filter(|is_ok| **is_ok).count(), 1, "{name}");
            assert_eq!((reads.load(SeqCst), single_flight.waiting(&key)), (2, 0), "{name}");
        });
    }
}
