//! Counters of a cache, striped so that cores do not contend for one line.

#![allow(clippy::indexing_slicing, reason = "indexes come from the lengths of the arrays")]

use std::cell::Cell;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::BlockCategory;

/// Counts by block category: data, index, bloom, meta.
pub type ByCategory = [u64; BlockCategory::COUNT];

/// Counters since the cache was opened, and its current content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Lookups that found a block, by category (`blockCacheDataHitCount` and similar).
    pub hits: ByCategory,
    /// Lookups that found no block, by expected category (`blockCacheDataMissCount` and similar).
    pub misses: ByCategory,
    /// Blocks inserted.
    pub insertions: u64,
    /// Blocks that could not be inserted (`blockCacheFailedInsertionCount`).
    pub failed_insertions: u64,
    /// Blocks evicted for others (`blockCacheEvictionCount`).
    pub evictions: u64,
    /// Blocks removed with their file.
    pub invalidations: u64,
    /// Blocks of a file engine that failed verification and were dropped.
    pub damaged: u64,
    /// Failed reads and writes of a file engine.
    pub io_errors: u64,
    /// Blocks moved to join holes.
    pub relocations: u64,
    /// Bytes moved.
    pub relocated_bytes: u64,
    /// Blocks held (`blockCacheCount`).
    pub blocks: u64,
    /// Bytes of the frames of held blocks (`blockCacheSize`).
    pub bytes: u64,
    /// Bytes of the index: slots, hash index and policy.
    pub index_bytes: u64,
    /// Bytes of frames and index in memory of the process. 0 for a cache in files, mapped files
    /// included.
    pub memory_bytes: u64,
    /// Gets answered by a cached row (`rowCacheHitCount`).
    pub row_hits: u64,
    /// Gets for which no cached row was found (`rowCacheMissCount`).
    pub row_misses: u64,
    /// Rows evicted (`rowCacheEvictedRowCount`). Included in `evictions`.
    pub row_evictions: u64,
    /// Rows held (`rowCacheCount`). Included in `blocks`.
    pub rows: u64,
    /// Bytes of the frames of held rows (`rowCacheSize`). Included in `bytes`.
    pub row_bytes: u64,
    /// The byte budget. It excludes the index of blocks and includes the index of rows.
    pub capacity_bytes: u64,
}

impl CacheStats {
    /// Lookups that found a block (`blockCacheHitCount`).
    pub fn hit_count(&self) -> u64 {
        self.hits.iter().sum()
    }

    /// Lookups that found no block (`blockCacheMissCount`).
    pub fn miss_count(&self) -> u64 {
        self.misses.iter().sum()
    }

    /// Free bytes (`blockCacheFreeSize`).
    pub fn free_bytes(&self) -> u64 {
        self.capacity_bytes.saturating_sub(self.bytes)
    }

    /// Percentage of lookups that hit (`blockCacheCountHitPercent`). 0 before the first lookup.
    pub fn hit_percent(&self) -> f64 {
        match self.hit_count() + self.miss_count() {
            0 => 0.0,
            all => 100.0 * self.hit_count() as f64 / all as f64,
        }
    }
}

impl AddAssign for CacheStats {
    fn add_assign(&mut self, other: Self) {
        self.hits.iter_mut().zip(other.hits).for_each(|(a, b)| *a += b);
        self.misses.iter_mut().zip(other.misses).for_each(|(a, b)| *a += b);
        self.insertions += other.insertions;
        self.failed_insertions += other.failed_insertions;
        self.evictions += other.evictions;
        self.invalidations += other.invalidations;
        self.damaged += other.damaged;
        self.io_errors += other.io_errors;
        self.relocations += other.relocations;
        self.relocated_bytes += other.relocated_bytes;
        self.blocks += other.blocks;
        self.bytes += other.bytes;
        self.index_bytes += other.index_bytes;
        self.memory_bytes += other.memory_bytes;
        self.row_hits += other.row_hits;
        self.row_misses += other.row_misses;
        self.row_evictions += other.row_evictions;
        self.rows += other.rows;
        self.row_bytes += other.row_bytes;
        self.capacity_bytes += other.capacity_bytes;
    }
}

const STRIPES: usize = 16;

type Counts = [AtomicU64; BlockCategory::COUNT];

#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    hits: Counts,
    misses: Counts,
    insertions: AtomicU64,
    failed_insertions: AtomicU64,
    evictions: AtomicU64,
    invalidations: AtomicU64,
    damaged: AtomicU64,
    io_errors: AtomicU64,
    relocations: AtomicU64,
    relocated_bytes: AtomicU64,
    row_hits: AtomicU64,
    row_misses: AtomicU64,
    row_evictions: AtomicU64,
}

/// The live counters. Each thread writes to one stripe; a snapshot sums all stripes.
#[derive(Debug, Default)]
pub(crate) struct Counters([Stripe; STRIPES]);

impl Counters {
    #[inline]
    pub fn hit(&self, category: BlockCategory) {
        if counts_hits() {
            self.stripe().hits[category as usize].fetch_add(1, Relaxed);
        }
    }

    pub fn miss(&self, category: BlockCategory) {
        self.stripe().misses[category as usize].fetch_add(1, Relaxed);
    }

    pub fn insertion(&self, kept: bool) {
        let stripe = self.stripe();
        if kept { &stripe.insertions } else { &stripe.failed_insertions }.fetch_add(1, Relaxed);
    }

    pub fn eviction(&self, of_row: bool) {
        let stripe = self.stripe();
        stripe.evictions.fetch_add(1, Relaxed);
        stripe.row_evictions.fetch_add(u64::from(of_row), Relaxed);
    }

    #[inline]
    pub fn row(&self, hit: bool) {
        if !counts_hits() {
            return;
        }
        let stripe = self.stripe();
        if hit { &stripe.row_hits } else { &stripe.row_misses }.fetch_add(1, Relaxed);
    }

    pub fn invalidation(&self, blocks: usize) {
        self.stripe().invalidations.fetch_add(blocks as u64, Relaxed);
    }

    pub fn damaged(&self) {
        self.stripe().damaged.fetch_add(1, Relaxed);
    }

    pub fn io_error(&self) {
        self.stripe().io_errors.fetch_add(1, Relaxed);
    }

    pub fn relocation(&self, bytes: u64) {
        let stripe = self.stripe();
        stripe.relocations.fetch_add(1, Relaxed);
        stripe.relocated_bytes.fetch_add(bytes, Relaxed);
    }

    pub fn snapshot(&self) -> CacheStats {
        let mut sum = CacheStats::default();
        self.0.iter().for_each(|stripe| sum += stripe.snapshot());
        sum
    }

    fn stripe(&self) -> &Stripe {
        &self.0[stripe_of_thread()]
    }
}

impl Stripe {
    fn snapshot(&self) -> CacheStats {
        CacheStats {
            hits: self.hits.each_ref().map(|n| n.load(Relaxed)),
            misses: self.misses.each_ref().map(|n| n.load(Relaxed)),
            insertions: self.insertions.load(Relaxed),
            failed_insertions: self.failed_insertions.load(Relaxed),
            evictions: self.evictions.load(Relaxed),
            invalidations: self.invalidations.load(Relaxed),
            damaged: self.damaged.load(Relaxed),
            io_errors: self.io_errors.load(Relaxed),
            relocations: self.relocations.load(Relaxed),
            relocated_bytes: self.relocated_bytes.load(Relaxed),
            row_hits: self.row_hits.load(Relaxed),
            row_misses: self.row_misses.load(Relaxed),
            row_evictions: self.row_evictions.load(Relaxed),
            ..CacheStats::default()
        }
    }
}

/// Returns true if hits are counted. With the feature `metrics-off` it is false, through a
/// `black_box`, so that the compiler cannot remove the counting code, as in evenkeel-metrics.
#[inline(always)]
fn counts_hits() -> bool {
    !cfg!(feature = "metrics-off") || std::hint::black_box(false)
}

#[inline]
fn stripe_of_thread() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static MINE: Cell<usize> = const { Cell::new(usize::MAX) });
    MINE.with(|mine| {
        if mine.get() == usize::MAX {
            mine.set(NEXT.fetch_add(1, Relaxed) % STRIPES);
        }
        mine.get()
    })
}
