//! [`Shard`]: slots, hash index, queues, allocator and storage of one part of a cache, under one
//! lock.
//!
//! A hit takes no lock: [`Shard::get`] walks a chain, pins the slot and reads the frame. A thread
//! that inserts, evicts or moves holds the lock, also while it copies frames. A copy takes
//! microseconds, and only writers of the same shard wait for it.
//!
//! The states of a slot are: free -> (frame written) -> live -> retired -> free. A retired slot
//! with a pin is *pending free*: no lookup finds it, and its bytes stay allocated until the last
//! pin is dropped.

mod hot_blocks;

use evenkeel_common::length;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use evenkeel_common::{TryError, TryResult, Wait, cpu_slot};
use parking_lot::Mutex;

use super::allocator::{Allocator, Relocation};
use super::frame::{HEADER_BYTES, Header};
use super::hash_index::HashIndex;
use super::idle_pages::{IdlePages, PAGE_BYTES};
use super::pin::{self, Pin};
use super::policy::{Admission, Occupancy, Policy, Queues, Shares};
use super::rows::{NO_ROW, ROW_INDEX_BYTES, ROW_VALID};
use super::slot::{Extent, FRAME_BYTES_MAX, NONE, Slot, Slots, USES_MAX};
use super::storage::Storage;
use super::{fold_file_id, hash};
use crate::stats::Counters;
use crate::{Block, BlockKey, PrefetchedBlock};

/// The reciprocal of the share of bytes that stays free, so that moving a few blocks makes a hole.
const RESERVE_PART: u64 = 128;
/// Victims tried before an insert gives up because all of them are pinned.
const VICTIMS_TRIED: usize = 256;
/// Rounds of evicting and moving for one frame before it is rejected.
const ROUNDS_MAX: usize = 10_000;
/// Huge pages released per lock acquisition, about ten microseconds each.
const PAGES_AT_ONCE: usize = 4;
/// Consecutive I/O errors after which the file is no longer used.
const ERRORS_MAX: u32 = 64;
/// Bytes slid per byte of the new frame: the limit of the first round, and the maximum.
const SLIDE_FIRST: u64 = 2;
const SLIDE_MAX: u64 = 16;

/// The cached blocks of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachedFile {
    /// The number of blocks.
    pub blocks: u64,
    /// Their bytes in the file.
    pub on_disk_bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(super) slots: Slots,
    index: HashIndex,
    pub(super) storage: Storage,
    counters: Arc<Counters>,
    block_bytes_max: u64,
    poison: bool,
    errors: AtomicU32,
    pub(super) inner: Mutex<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    allocator: Allocator,
    idle: IdlePages,
    queues: Queues,
    /// The head of the list of free slots.
    free: u32,
    /// The first slot that was never used.
    next_unused: u32,
    live: u32,
    /// The number of live rows, and the bytes of their frames.
    rows: u32,
    row_bytes: u64,
    /// The maximum of used bytes.
    limit: u64,
    size: u64,
    pending_free: Vec<u32>,
    files: HashMap<u64, CachedFile>,
}

/// An entry that is being inserted.
struct NewEntry<'a> {
    key: &'a BlockKey,
    hash: u64,
    block: &'a Block,
    len: u64,
    admission: Admission,
    row: u8,
}

/// The fields of a shard.
pub(crate) struct ShardParts {
    pub slots: Slots,
    pub storage: Storage,
    pub size: u64,
    pub policy: Policy,
    pub shares: Shares,
    pub block_bytes_max: u64,
    pub poison: bool,
    pub counters: Arc<Counters>,
}

/// The current content of a shard.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ShardUsage {
    pub blocks: u64,
    pub bytes: u64,
    pub index_bytes: u64,
    pub pending_free: u64,
    pub rows: u64,
    pub row_bytes: u64,
}

impl Shard {
    /// Makes a shard with the entries that the slots describe.
    ///
    /// # Errors
    /// `OutOfMemory` without address space.
    pub fn new(parts: ShardParts) -> io::Result<Self> {
        let inner = Inner {
            allocator: Allocator::new(parts.size),
            idle: IdlePages::new(parts.storage.first_page(), parts.size),
            queues: Queues::new(parts.policy, parts.shares),
            free: NONE,
            next_unused: 1,
            live: 0,
            rows: 0,
            row_bytes: 0,
            limit: limit_of(parts.size),
            size: parts.size,
            pending_free: Vec::new(),
            files: HashMap::new(),
        };
        let shard = Self {
            index: HashIndex::new(parts.slots.count())?,
            slots: parts.slots,
            storage: parts.storage,
            counters: parts.counters,
            block_bytes_max: parts.block_bytes_max.min(FRAME_BYTES_MAX).min(parts.size / 2),
            poison: parts.poison,
            errors: AtomicU32::new(0),
            inner: Mutex::new(inner),
        };
        shard.recover();
        Ok(shard)
    }

    /// Returns the block of a key: pinned in place, or copied from a file.
    ///
    /// # Errors
    /// `WouldWait` if the block is cached, but reading it may wait for a disk.
    #[inline]
    pub fn get(&self, key: &BlockKey, hash: u64, wait: Wait) -> TryResult<Option<Block>> {
        let Some(pin) = self.pin(key, hash) else { return Ok(None) };
        let slot = pin.slot();
        slot.record_hit();
        let extent = slot.extent();
        let Some(frame) = self.storage.frame(extent) else {
            return self.read(&pin, extent, key, hash, wait);
        };
        if self.storage.is_durable() && slot.verified.load(Relaxed) == 0 {
            // Its pages were not touched since the file was opened, so reading them likely waits
            // for a disk.
            if !wait.is_allowed() {
                return Err(TryError::WouldWait);
            }
            if !cpu_slot::release_during(|| self.storage.verify(extent, key)) {
                drop(pin);
                self.discard(key, hash);
                return Ok(None);
            }
            slot.verified.store(1, Relaxed);
        }
        Ok(frame.header().is_of(key, extent.len).then(|| Block::pinned(frame, pin)))
    }

    /// Pins the block of a key and prefetches its header, if its bytes are in memory and were
    /// verified.
    #[inline]
    pub fn prefetch(&self, key: &BlockKey, hash: u64) -> Option<PrefetchedBlock> {
        let pin = self.pin(key, hash)?;
        let slot = pin.slot();
        let extent = slot.extent();
        let frame = self.storage.frame(extent)?;
        let is_checked = !self.storage.is_durable() || slot.verified.load(Relaxed) != 0;
        slot.record_hit();
        is_checked.then(|| PrefetchedBlock::new(*key, frame, extent.len, pin))
    }

    /// Returns true if the key is cached. Counts nothing.
    pub fn contains(&self, key: &BlockKey, hash: u64) -> bool {
        self.pin(key, hash).is_some()
    }

    pub(super) fn pin(&self, key: &BlockKey, hash: u64) -> Option<Pin> {
        let file = fold_file_id(key.file);
        // If the slot changes during the search, search again, but only a few times: a caller can
        // retry under the lock.
        for _ in 0..4 {
            let mut chain = self.index.chain(&self.slots, hash);
            let found = chain.find_map(|(_, slot)| {
                let version = slot.live_version()?;
                slot.has_key(file, key.offset).then_some((slot, version))
            });
            let (slot, version) = found?;
            if let Some(pin) = Pin::take(slot, version) {
                return Some(pin);
            }
        }
        None
    }

    fn read(
        &self,
        pin: &Pin,
        extent: Extent,
        key: &BlockKey,
        hash: u64,
        wait: Wait,
    ) -> TryResult<Option<Block>> {
        let read = match wait {
            Wait::Allowed => cpu_slot::release_during(|| self.storage.read(extent, key)),
            Wait::Never => Ok(self.storage.read_nowait(extent, key).ok_or(TryError::WouldWait)?),
        };
        Ok(match read {
            Ok(Some(block)) => {
                self.errors.store(0, Relaxed);
                Some(block)
            }
            Ok(None) => {
                let _ = pin;
                self.discard(key, hash);
                None
            }
            Err(error) => {
                self.failed(&error);
                None
            }
        })
    }

    fn failed(&self, error: &io::Error) {
        if self.errors.fetch_add(1, Relaxed) + 1 == ERRORS_MAX {
            tracing::error!(%error, "a bucket cache file keeps failing; this part of the cache is no longer used");
        }
        self.counters.io_error();
    }

    /// Inserts a block. Returns false if there is no space for it.
    pub fn insert(&self, key: &BlockKey, hash: u64, block: &Block, admission: Admission) -> bool {
        let Some(len) = self.frame_bytes(key, block) else { return false };
        let mut inner = self.inner.lock();
        self.reclaim_pending_free(&mut inner);
        if self.find(key, hash).is_some() {
            return true;
        }
        self.fill(&mut inner, NewEntry { key, hash, block, len, admission, row: NO_ROW })
    }

    /// Inserts a row in place of the entry under its key, if `is_current` returns true under the
    /// lock.
    pub fn insert_row(
        &self,
        key: &BlockKey,
        hash: u64,
        block: &Block,
        is_current: impl FnOnce() -> bool,
    ) -> bool {
        let Some(len) = self.frame_bytes(key, block) else { return false };
        let mut inner = self.inner.lock();
        self.reclaim_pending_free(&mut inner);
        if !is_current() {
            return false;
        }
        if let Some(id) = self.find(key, hash) {
            self.remove_entry(&mut inner, id);
        }
        self.fill(&mut inner, NewEntry { key, hash, block, len, admission: Admission::New, row: ROW_VALID })
    }

    /// The size of a block's frame, if the shard accepts a frame of this size.
    fn frame_bytes(&self, key: &BlockKey, block: &Block) -> Option<u64> {
        let len = Header::of(key, block).frame_bytes().filter(|len| *len <= self.block_bytes_max);
        len.filter(|_| self.errors.load(Relaxed) < ERRORS_MAX)
    }

    fn fill(&self, inner: &mut Inner, new: NewEntry<'_>) -> bool {
        let NewEntry { key, hash, block, len, admission, row } = new;
        let Some(id) = self.take_slot(inner) else { return false };
        let index_bytes = if row == NO_ROW { 0 } else { ROW_INDEX_BYTES };
        let Some(before) = self.ensure_hole(inner, len, index_bytes) else {
            self.put_slot(inner, id);
            return false;
        };
        let extent = Extent { start: Allocator::hole_start(&self.slots, before), len };
        if let Err(error) = self.storage.write(extent, key, block) {
            self.put_slot(inner, id);
            self.failed(&error);
            return false;
        }
        let slot = self.slots.get(id);
        slot.file.store(fold_file_id(key.file), Relaxed);
        slot.offset.store(key.offset, Relaxed);
        slot.extent.store(extent.pack(), Relaxed);
        slot.on_disk_bytes.store(block.on_disk_bytes(), Relaxed);
        slot.verified.store(1, Relaxed);
        slot.row.store(row, Relaxed);
        inner.allocator.link(&self.slots, before, id);
        inner.idle.touch(extent);
        let occupancy =
            Occupancy { live: inner.live + 1, used: inner.used() + index_bytes, limit: inner.limit };
        inner.queues.admit(&self.slots, id, hash, admission, occupancy);
        slot.revive();
        self.publish(inner, id, hash);
        true
    }

    /// Removes every block of a file.
    pub fn remove_file(&self, file: u64) -> usize {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        let Some(cached) = inner.files.get(&file).copied() else { return 0 };
        let mut removed = 0;
        for id in 1..inner.next_unused {
            let slot = self.slots.get(id);
            if removed < cached.blocks
                && slot.live_version().is_some()
                && slot.has_key(file, slot.offset.load(Relaxed))
            {
                self.remove_entry(inner, id);
                removed += 1;
            }
        }
        length::index(removed)
    }

    /// Removes a damaged block.
    fn discard(&self, key: &BlockKey, hash: u64) {
        let mut inner = self.inner.lock();
        if let Some(id) = self.find(key, hash) {
            self.remove_entry(&mut inner, id);
            self.counters.damaged();
        }
    }

    /// Changes the usable bytes, up to the mapped size. Evicts the excess.
    pub fn resize(&self, size: u64) {
        let mut inner = self.inner.lock();
        inner.limit = limit_of(size.min(inner.size));
        while inner.used() > inner.limit && self.evict_one(&mut inner) {}
    }

    /// Returns huge pages to the kernel that were free during two calls in a row, and returns their
    /// bytes. Releases the lock after every few pages.
    pub fn release_idle(&self, should_continue: &dyn Fn() -> bool) -> u64 {
        let mut inner = self.inner.lock();
        self.reclaim_pending_free(&mut inner);
        let Inner { allocator, idle, .. } = &mut *inner;
        let pages = idle.scan(allocator.holes_of(&self.slots, PAGE_BYTES));
        drop(inner);
        let mut bytes = 0;
        for few in pages.chunks(PAGES_AT_ONCE) {
            let mut inner = self.inner.lock();
            for at in few.iter().filter_map(|page| inner.idle.take_idle(*page)) {
                self.storage.release_page(at);
                bytes += PAGE_BYTES;
            }
            drop(inner);
            if !should_continue() {
                break;
            }
        }
        bytes
    }

    pub fn usage(&self) -> ShardUsage {
        let mut inner = self.inner.lock();
        self.reclaim_pending_free(&mut inner);
        let slots = inner.next_unused as usize * size_of::<Slot>();
        ShardUsage {
            blocks: u64::from(inner.live),
            bytes: inner.allocator.used(),
            index_bytes: (slots + self.index.bytes() + inner.queues.bytes()) as u64,
            pending_free: inner.pending_free.len() as u64,
            rows: u64::from(inner.rows),
            row_bytes: inner.row_bytes,
        }
    }

    /// Bytes that can be used without an eviction.
    pub fn free_bytes(&self) -> u64 {
        let inner = self.inner.lock();
        inner.limit.saturating_sub(inner.used())
    }

    /// Calls `with` for every file with cached blocks.
    pub fn each_file(&self, mut with: impl FnMut(u64, CachedFile)) {
        self.inner.lock().files.iter().for_each(|(file, cached)| with(*file, *cached));
    }

    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// The slots, which outlive the shard while readers pin its blocks.
    pub fn into_slots(self) -> Slots {
        self.slots
    }

    /// The number of slots ever used.
    pub fn used_slots(&self) -> u32 {
        self.inner.lock().next_unused
    }

    /// Asserts that slots, allocator and index agree. For tests.
    #[cfg(test)]
    pub fn check(&self) {
        let inner = self.inner.lock();
        let (mut id, mut end, mut used, mut live) = (self.slots.get(NONE).after.load(Relaxed), 0, 0, 0);
        while id != NONE {
            let slot = self.slots.get(id);
            let extent = slot.extent();
            assert!(extent.start >= end && extent.end() <= inner.size, "frames overlap");
            (end, used) = (extent.end(), used + extent.len);
            live += u32::from(slot.live_version().is_some());
            id = slot.after.load(Relaxed);
        }
        assert_eq!((used, live), (inner.allocator.used(), inner.live));
        assert_eq!(inner.files.values().map(|file| file.blocks).sum::<u64>(), u64::from(inner.live));
    }

    pub(super) fn find(&self, key: &BlockKey, hash: u64) -> Option<u32> {
        let file = fold_file_id(key.file);
        let mut chain = self.index.chain(&self.slots, hash);
        chain.find_map(|(id, slot)| {
            (slot.live_version().is_some() && slot.has_key(file, key.offset)).then_some(id)
        })
    }

    fn publish(&self, inner: &mut Inner, id: u32, hash: u64) {
        let slot = self.slots.get(id);
        inner.live += 1;
        if slot.is_row() {
            inner.rows += 1;
            inner.row_bytes += slot.extent().len;
        }
        let cached = inner.files.entry(slot.file.load(Relaxed)).or_default();
        cached.blocks += 1;
        cached.on_disk_bytes += u64::from(slot.on_disk_bytes.load(Relaxed));
        self.index.add(&self.slots, hash, id, inner.live);
    }

    /// Removes a retired slot from index, queues and counters. Its space stays allocated.
    fn unpublish(&self, inner: &mut Inner, id: u32) {
        let slot = self.slots.get(id);
        let file = slot.file.load(Relaxed);
        self.index.remove(&self.slots, hash(file, slot.offset.load(Relaxed)), id);
        inner.queues.remove(&self.slots, id);
        inner.live -= 1;
        if slot.is_row() {
            inner.rows -= 1;
            inner.row_bytes -= slot.extent().len;
        }
        if let Some(cached) = inner.files.get_mut(&file) {
            cached.blocks -= 1;
            cached.on_disk_bytes -= u64::from(slot.on_disk_bytes.load(Relaxed));
            if cached.blocks == 0 {
                inner.files.remove(&file);
            }
        }
    }

    /// Removes a live entry. Its bytes are freed now, or after its last reader drops its pin.
    pub(super) fn remove_entry(&self, inner: &mut Inner, id: u32) {
        let slot = self.slots.get(id);
        slot.retire();
        self.unpublish(inner, id);
        if pin::is_pinned(slot) { inner.pending_free.push(id) } else { self.release(inner, id) }
    }

    /// Frees the bytes and the slot of an unpublished entry without pins.
    fn release(&self, inner: &mut Inner, id: u32) {
        let extent = self.slots.get(id).extent();
        inner.allocator.unlink(&self.slots, id);
        if self.poison {
            self.storage.poison(extent);
        }
        self.put_slot(inner, id);
    }

    fn reclaim_pending_free(&self, inner: &mut Inner) {
        if inner.pending_free.is_empty() {
            return;
        }
        for id in std::mem::take(&mut inner.pending_free) {
            if pin::is_pinned(self.slots.get(id)) {
                inner.pending_free.push(id)
            } else {
                self.release(inner, id)
            }
        }
    }

    fn take_slot(&self, inner: &mut Inner) -> Option<u32> {
        if inner.free == NONE && inner.next_unused == self.slots.count() && !self.evict_one(inner) {
            return None;
        }
        if inner.free != NONE {
            let id = inner.free;
            inner.free = self.slots.get(id).chain.load(Relaxed);
            return Some(id);
        }
        inner.next_unused += 1;
        // A later process reads the slots up to this one.
        self.slots.get(NONE).extra.store(inner.next_unused, Relaxed);
        Some(inner.next_unused - 1)
    }

    fn put_slot(&self, inner: &mut Inner, id: u32) {
        self.slots.get(id).chain.store(inner.free, Relaxed);
        inner.free = id;
    }

    fn evict_one(&self, inner: &mut Inner) -> bool {
        for _ in 0..VICTIMS_TRIED {
            let Some(id) = inner.queues.victim(&self.slots, inner.limit) else { return false };
            if self.evict(inner, id) {
                return true;
            }
            inner.queues.requeue_pinned(&self.slots, id);
        }
        false
    }

    /// Evicts a block, unless it is pinned.
    fn evict(&self, inner: &mut Inner, id: u32) -> bool {
        let slot = self.slots.get(id);
        slot.retire();
        if pin::is_pinned(slot) {
            slot.revive();
            return false;
        }
        self.unpublish(inner, id);
        self.release(inner, id);
        self.counters.eviction(slot.is_row());
        true
    }

    /// Returns the slot before a hole of at least `len` bytes. Makes a hole if there is none.
    fn ensure_hole(&self, inner: &mut Inner, len: u64, index_bytes: u64) -> Option<u32> {
        for round in 0..ROUNDS_MAX {
            if inner.used() + index_bytes + len <= inner.limit {
                if let Some(before) = inner.allocator.best_fit(len) {
                    return Some(before);
                }
                if self.coalesce(inner, len, round) {
                    continue;
                }
            }
            if !self.evict_one(inner) {
                return None;
            }
        }
        None
    }

    /// Joins holes to one hole of `len` bytes at the lowest cost: by moving the neighbours of one
    /// hole away, by sliding the blocks between several holes, or else by evicting cold neighbours.
    /// Evictions out of turn begin in the second round, after the policy chose a victim. The slide
    /// limit grows with each round. Returns false if no plan succeeded.
    fn coalesce(&self, inner: &mut Inner, len: u64, round: usize) -> bool {
        let slid_max = len * SLIDE_MAX.min(SLIDE_FIRST * (round as u64 + 1));
        self.relocate_neighbours(inner, len, false)
            || self.slide(inner, len, slid_max)
            || round > 0 && self.relocate_neighbours(inner, len, true)
    }

    /// Returns the relocation that coalescing may do with a block.
    fn relocation_of(&self, inner: &Inner, id: u32, evicts: bool) -> Relocation {
        let slot = self.slots.get(id);
        match () {
            () if slot.live_version().is_none() || pin::is_pinned(slot) => Relocation::Forbidden,
            () if evicts && inner.queues.is_cold(slot, inner.limit) => Relocation::MoveOrEvict,
            () => Relocation::Move,
        }
    }

    /// Moves the neighbours of a hole away. The plan ignores that two blocks may need the same
    /// hole; then this fails and returns false.
    fn relocate_neighbours(&self, inner: &mut Inner, len: u64, evicts: bool) -> bool {
        let plan =
            inner.allocator.plan_relocation(&self.slots, len, |id| self.relocation_of(inner, id, evicts));
        plan.is_some_and(|relocated| {
            relocated.iter().all(|id| self.relocate_or_evict(inner, *id, &relocated, evicts))
        })
    }

    fn slide(&self, inner: &mut Inner, len: u64, slid_max: u64) -> bool {
        let plan =
            inner.allocator.plan_slide(&self.slots, len, slid_max, |id| self.relocation_of(inner, id, false));
        plan.is_some_and(|(mut before, sliders)| {
            sliders.into_iter().all(|id| {
                let slid = self.move_to(inner, id, before);
                before = id;
                slid
            })
        })
    }

    fn relocate_or_evict(&self, inner: &mut Inner, id: u32, relocated: &[u32], evicts: bool) -> bool {
        let slot = self.slots.get(id);
        match inner.allocator.relocation_target(&self.slots, slot.extent().len, relocated) {
            Some(before) => self.move_to(inner, id, before),
            None => evicts && inner.queues.is_cold(slot, inner.limit) && self.evict(inner, id),
        }
    }

    /// Moves a block directly behind another. The target may overlap the block's own extent.
    fn move_to(&self, inner: &mut Inner, id: u32, before: u32) -> bool {
        let slot = self.slots.get(id);
        let from = slot.extent();
        slot.retire();
        let to = Extent { start: Allocator::hole_start(&self.slots, before), len: from.len };
        let moved = !pin::is_pinned(slot) && self.storage.copy(from, to.start).is_ok();
        if moved {
            inner.allocator.unlink(&self.slots, id);
            slot.extent.store(to.pack(), Relaxed);
            inner.allocator.link(&self.slots, before, id);
            inner.idle.touch(to);
            if self.poison {
                let start = if to.start < from.start { from.start.max(to.end()) } else { from.start };
                self.storage.poison(Extent { start, len: from.end() - start });
            }
            self.counters.relocation(from.len);
        }
        slot.revive();
        moved
    }

    /// Takes over the slots of an earlier process. Frames are verified when they are first read.
    fn recover(&self) {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        inner.next_unused = self.slots.get(NONE).extra.load(Relaxed).clamp(1, self.slots.count());
        let sentinel = self.slots.get(NONE);
        sentinel.extent.store(0, Relaxed);
        sentinel.after.store(NONE, Relaxed);
        let mut kept: Vec<(Extent, u32)> = Vec::new();
        for id in 1..inner.next_unused {
            let slot = self.slots.get(id);
            slot.pins.store(0, Relaxed);
            slot.verified.store(0, Relaxed);
            slot.uses.store(slot.uses.load(Relaxed).min(USES_MAX), Relaxed);
            let extent = slot.extent();
            let sane = extent.len >= HEADER_BYTES as u64 && extent.end() <= inner.size && !slot.is_row();
            if sane && slot.live_version().is_some() {
                kept.push((extent, id));
            } else {
                self.discard_slot(inner, id);
            }
        }
        kept.sort_by_key(|(extent, _)| extent.start);
        let mut last = NONE;
        for (i, (extent, id)) in kept.iter().enumerate() {
            let slot = self.slots.get(*id);
            let hash = hash(slot.file.load(Relaxed), slot.offset.load(Relaxed));
            let overlaps = kept.get(i + 1).is_some_and(|(next, _)| next.start < extent.end())
                || extent.start < self.slots.get(last).extent().end();
            let same = |other: &Slot| other.has_key(slot.file.load(Relaxed), slot.offset.load(Relaxed));
            if overlaps || self.index.chain(&self.slots, hash).any(|(_, other)| same(other)) {
                self.discard_slot(inner, *id);
                continue;
            }
            inner.allocator.link(&self.slots, last, *id);
            inner.queues.readmit(&self.slots, *id, inner.live + 1);
            self.publish(inner, *id, hash);
            last = *id;
        }
    }

    fn discard_slot(&self, inner: &mut Inner, id: u32) {
        self.slots.get(id).retire();
        self.put_slot(inner, id);
    }
}

impl Inner {
    /// Used bytes of the budget: frames, and the index of rows.
    fn used(&self) -> u64 {
        self.allocator.used() + u64::from(self.rows) * ROW_INDEX_BYTES
    }
}

fn limit_of(size: u64) -> u64 {
    size - size / RESERVE_PART
}
