//! [`Replicas`]: the local replicas whose files are open, and the blocks that were refused.
//!
//! All operations take place under one lock, which threads of connections take as well, so each
//! costs O(log n): replicas are ordered by their last use and by their age, and the removal of
//! expired ones is divided into calls of bounded length. Removed replicas are returned, because
//! closing a file may take time; the caller hands them to the closing thread.
//!
//! Refusals have a place of their own, so that they evict no replica: the newest
//! [`REFUSALS_MAX`] are kept.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::replica::LocalReplica;
use crate::hadoop::hdfs::ExtendedBlockProto;

/// How long the files of a block are not requested after they were refused or could not be read.
pub(super) const BLOCK_REFUSED_FOR: Duration = Duration::from_secs(60);

/// The maximum of refused blocks that are remembered.
const REFUSALS_MAX: usize = 4096;

/// The limits of [`Replicas`]; see [`super::ShortCircuitSettings`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) replicas_max: usize,
    pub(super) unused_for: Duration,
    pub(super) stale_after: Duration,
}

/// What is known of a block.
#[derive(Debug)]
pub(super) enum Known {
    /// Its files are open.
    Replica(Arc<LocalReplica>),
    /// Its files are not requested at present.
    Refused,
}

/// The known blocks of this machine.
#[derive(Debug)]
pub(super) struct Replicas {
    limits: Limits,
    /// By block id.
    kept: HashMap<u64, Kept>,
    /// Block ids by the turn of their last use.
    by_use: BTreeMap<u64, u64>,
    /// Block ids by the turn of their insertion.
    by_age: BTreeMap<u64, u64>,
    /// Numbers insertions and uses.
    next_turn: u64,
    /// By block id.
    refused: HashMap<u64, Refused>,
    /// All entries of `refused`, the oldest first, and entries that were replaced.
    refused_in_order: VecDeque<(Instant, u64)>,
}

#[derive(Debug)]
struct Kept {
    generation_stamp: u64,
    replica: Arc<LocalReplica>,
    inserted: Instant,
    used: Instant,
    inserted_turn: u64,
    used_turn: u64,
}

#[derive(Debug)]
struct Refused {
    generation_stamp: u64,
    since: Instant,
    /// The DataNode whose replica does not match its checksums.
    damaged: Option<String>,
}

impl Replicas {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            kept: HashMap::new(),
            by_use: BTreeMap::new(),
            by_age: BTreeMap::new(),
            next_turn: 0,
            refused: HashMap::new(),
            refused_in_order: VecDeque::new(),
        }
    }

    /// Returns what is known of a block, and records the use of its replica.
    pub(super) fn get(&mut self, block: &ExtendedBlockProto, now: Instant) -> Option<Known> {
        if self.refusal(block, now).is_some() {
            return Some(Known::Refused);
        }
        let turn = self.take_turn();
        let kept = self.kept.get_mut(&block.block_id)?;
        if kept.generation_stamp != block.generation_stamp || is_expired(kept, self.limits, now) {
            return None;
        }
        self.by_use.remove(&kept.used_turn);
        self.by_use.insert(turn, block.block_id);
        (kept.used, kept.used_turn) = (now, turn);
        Some(Known::Replica(Arc::clone(&kept.replica)))
    }

    /// Returns the UUID of the DataNode whose replica of a block does not match its checksums.
    pub(super) fn damaged_datanode(&self, block: &ExtendedBlockProto, now: Instant) -> Option<&str> {
        self.refusal(block, now)?.damaged.as_deref()
    }

    /// Inserts a replica. Returns those that it replaces: the same block's, the one that was used
    /// least recently, or itself if none may be kept.
    pub(super) fn insert(
        &mut self,
        block: &ExtendedBlockProto,
        replica: Arc<LocalReplica>,
        now: Instant,
    ) -> Vec<Arc<LocalReplica>> {
        let mut removed = Vec::from_iter(self.remove(block.block_id));
        if self.limits.replicas_max == 0 {
            removed.push(replica);
            return removed;
        }
        if self.kept.len() >= self.limits.replicas_max
            && let Some(oldest) = first(&self.by_use)
        {
            removed.extend(self.remove(oldest));
        }
        let turn = self.take_turn();
        self.by_use.insert(turn, block.block_id);
        self.by_age.insert(turn, block.block_id);
        let kept = Kept {
            generation_stamp: block.generation_stamp,
            replica,
            inserted: now,
            used: now,
            inserted_turn: turn,
            used_turn: turn,
        };
        self.kept.insert(block.block_id, kept);
        removed
    }

    /// Remembers that the files of a block are not to be requested for [`BLOCK_REFUSED_FOR`], and
    /// the DataNode whose replica is damaged. Returns the block's replica if that was kept.
    pub(super) fn refuse(
        &mut self,
        block: &ExtendedBlockProto,
        damaged: Option<String>,
        now: Instant,
    ) -> Option<Arc<LocalReplica>> {
        if self.refused_in_order.len() >= REFUSALS_MAX {
            self.forget_oldest_refusal();
        }
        let refused = Refused { generation_stamp: block.generation_stamp, since: now, damaged };
        self.refused.insert(block.block_id, refused);
        self.refused_in_order.push_back((now, block.block_id));
        self.remove(block.block_id)
    }

    /// Removes expired entries: at most `max` replicas and `max` refusals. Returns the replicas.
    pub(super) fn remove_expired(&mut self, max: usize, now: Instant) -> Vec<Arc<LocalReplica>> {
        for _ in 0..max {
            match self.refused_in_order.front() {
                Some((since, _)) if elapsed(*since, now) >= BLOCK_REFUSED_FOR => self.forget_oldest_refusal(),
                _ => break,
            }
        }
        let mut removed = Vec::new();
        while removed.len() < max
            && let Some(expired) = self.first_expired(now)
        {
            removed.extend(self.remove(expired));
        }
        removed
    }

    /// The number of replicas.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    fn first_expired(&self, now: Instant) -> Option<u64> {
        let is_expired = |id: &u64| self.kept.get(id).is_some_and(|kept| is_expired(kept, self.limits, now));
        [first(&self.by_use), first(&self.by_age)].into_iter().flatten().find(is_expired)
    }

    fn refusal(&self, block: &ExtendedBlockProto, now: Instant) -> Option<&Refused> {
        let refused = self.refused.get(&block.block_id)?;
        let is_current = refused.generation_stamp == block.generation_stamp
            && elapsed(refused.since, now) < BLOCK_REFUSED_FOR;
        is_current.then_some(refused)
    }

    fn forget_oldest_refusal(&mut self) {
        let Some((since, id)) = self.refused_in_order.pop_front() else { return };
        // A later refusal of the same block is in the queue once more.
        if self.refused.get(&id).is_some_and(|refused| refused.since == since) {
            self.refused.remove(&id);
        }
    }

    fn remove(&mut self, block_id: u64) -> Option<Arc<LocalReplica>> {
        let kept = self.kept.remove(&block_id)?;
        self.by_use.remove(&kept.used_turn);
        self.by_age.remove(&kept.inserted_turn);
        Some(kept.replica)
    }

    fn take_turn(&mut self) -> u64 {
        self.next_turn += 1;
        self.next_turn
    }
}

fn first(ids: &BTreeMap<u64, u64>) -> Option<u64> {
    ids.first_key_value().map(|(_, id)| *id)
}

fn elapsed(since: Instant, now: Instant) -> Duration {
    now.saturating_duration_since(since)
}

fn is_expired(kept: &Kept, limits: Limits, now: Instant) -> bool {
    elapsed(kept.used, now) >= limits.unused_for || elapsed(kept.inserted, now) >= limits.stale_after
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limits(replicas_max: usize) -> Limits {
        Limits { replicas_max, unused_for: SECOND * 10, stale_after: SECOND * 30 }
    }

    fn block(block_id: u64) -> ExtendedBlockProto {
        ExtendedBlockProto { block_id, generation_stamp: 1, ..Default::default() }
    }

    fn replica() -> Arc<LocalReplica> {
        Arc::new(LocalReplica::of_bytes(b"x"))
    }

    /// Inserts a replica, and returns a reference to it that does not keep it open.
    fn insert(replicas: &mut Replicas, id: u64, now: Instant) -> Weak<LocalReplica> {
        let replica = replica();
        let weak = Arc::downgrade(&replica);
        drop(replicas.insert(&block(id), replica, now));
        weak
    }

    fn is_kept(replicas: &mut Replicas, id: u64, now: Instant) -> bool {
        matches!(replicas.get(&block(id), now), Some(Known::Replica(_)))
    }

    #[test]
    fn the_replica_that_was_used_least_recently_is_replaced() {
        let now = Instant::now();
        let mut replicas = Replicas::new(limits(2));
        let files = [1, 2].map(|id| insert(&mut replicas, id, now));
        assert!(is_kept(&mut replicas, 1, now));
        insert(&mut replicas, 3, now);
        assert_eq!(files.map(|replica| replica.strong_count()), [1, 0]);
        assert_eq!([1, 2, 3].map(|id| is_kept(&mut replicas, id, now)), [true, false, true]);
        insert(&mut replicas, 3, now);
        assert_eq!((replicas.len(), replicas.by_use.len(), replicas.by_age.len()), (2, 2, 2));
        let stamped = ExtendedBlockProto { generation_stamp: 2, ..block(3) };
        assert!(replicas.get(&stamped, now).is_none(), "another generation of the block");
    }

    #[test]
    fn no_replica_is_kept_if_none_may_be() {
        let now = Instant::now();
        let mut replicas = Replicas::new(limits(0));
        assert_eq!(insert(&mut replicas, 1, now).strong_count(), 0);
        replicas.refuse(&block(1), None, now);
        assert!(matches!(replicas.get(&block(1), now), Some(Known::Refused)), "a refusal is kept");
    }

    #[test]
    fn replicas_expire_by_their_use_and_by_their_age() {
        let start = Instant::now();
        let mut replicas = Replicas::new(limits(10));
        let files = [1, 2, 3].map(|id| insert(&mut replicas, id, start));
        for seconds in 1..30 {
            assert!(is_kept(&mut replicas, 1, start + SECOND * seconds), "used each second");
        }
        let now = start + SECOND * 29;
        assert!(!is_kept(&mut replicas, 2, now), "not used for 10 s");
        assert_eq!(replicas.remove_expired(1, now).len(), 1, "one at a time");
        assert_eq!(replicas.remove_expired(5, now).len(), 1);
        assert_eq!(files.each_ref().map(Weak::strong_count), [1, 0, 0]);
        let now = start + SECOND * 30;
        assert!(!is_kept(&mut replicas, 1, now), "stale");
        assert_eq!(replicas.remove_expired(5, now).len(), 1);
        assert_eq!((replicas.len(), replicas.by_use.len(), replicas.by_age.len()), (0, 0, 0));
        assert_eq!(files.map(|replica| replica.strong_count()), [0, 0, 0]);
    }

    #[test]
    fn refusals_end_and_evict_no_replica() {
        let start = Instant::now();
        let mut replicas = Replicas::new(limits(1));
        insert(&mut replicas, 1, start);
        for id in 0..10_000 {
            replicas.refuse(&block(id + 2), (id % 2 == 1).then(|| "dn".to_owned()), start);
        }
        assert!(is_kept(&mut replicas, 1, start));
        assert_eq!((replicas.refused.len(), replicas.refused_in_order.len()), (REFUSALS_MAX, REFUSALS_MAX));
        assert_eq!(replicas.damaged_datanode(&block(10_000), start), None);
        assert_eq!(replicas.damaged_datanode(&block(10_001), start), Some("dn"));
        let end = start + BLOCK_REFUSED_FOR;
        assert!(replicas.get(&block(10_001), end).is_none());
        assert_eq!(replicas.damaged_datanode(&block(10_001), end), None);
        replicas.refuse(&block(10_001), None, end);
        replicas.remove_expired(10_000, end);
        assert_eq!((replicas.refused.len(), replicas.refused_in_order.len()), (1, 1));
        assert!(matches!(replicas.get(&block(10_001), end), Some(Known::Refused)));
    }

    #[test]
    fn a_refused_replica_is_closed() {
        let now = Instant::now();
        let mut replicas = Replicas::new(limits(1));
        let file = insert(&mut replicas, 1, now);
        drop(replicas.refuse(&block(1), None, now));
        assert_eq!((file.strong_count(), replicas.len()), (0, 0));
    }
}
