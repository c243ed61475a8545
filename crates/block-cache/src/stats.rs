//! Counters of a cache, striped so that cores do not fight over one line.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::BlockCategory;

/// A snapshot of a cache's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Lookups that found a block of cells.
    pub data_hits: u64,
    /// Lookups that found an index, bloom or meta block.
    pub meta_hits: u64,
    /// Lookups that found nothing.
    pub misses: u64,
    /// Blocks kept.
    pub insertions: u64,
    /// Blocks that made room for others.
    pub evictions: u64,
    /// Blocks held now.
    pub blocks: u64,
    /// Bytes held now, bookkeeping included.
    pub bytes: u64,
    /// The byte budget.
    pub capacity_bytes: u64,
}

impl CacheStats {
    /// Lookups that found a block.
    pub fn hits(&self) -> u64 {
        self.data_hits + self.meta_hits
    }
}

const STRIPES: usize = 16;

#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    data_hits: AtomicU64,
    meta_hits: AtomicU64,
    misses: AtomicU64,
    insertions: AtomicU64,
    evictions: AtomicU64,
}

/// The live counters. Each thread adds to one stripe; reading sums them.
#[derive(Debug, Default)]
pub(crate) struct Counters([Stripe; STRIPES]);

impl Counters {
    pub(crate) fn hit(&self, category: BlockCategory) {
        let stripe = self.stripe();
        match category {
            BlockCategory::Data => &stripe.data_hits,
            _ => &stripe.meta_hits,
        }
        .fetch_add(1, Relaxed);
    }

    pub(crate) fn miss(&self) {
        self.stripe().misses.fetch_add(1, Relaxed);
    }

    pub(crate) fn insertion(&self) {
        self.stripe().insertions.fetch_add(1, Relaxed);
    }

    pub(crate) fn eviction(&self) {
        self.stripe().evictions.fetch_add(1, Relaxed);
    }

    pub(crate) fn snapshot(&self) -> CacheStats {
        self.0.iter().fold(CacheStats::default(), |sum, stripe| CacheStats {
            data_hits: sum.data_hits + stripe.data_hits.load(Relaxed),
            meta_hits: sum.meta_hits + stripe.meta_hits.load(Relaxed),
            misses: sum.misses + stripe.misses.load(Relaxed),
            insertions: sum.insertions + stripe.insertions.load(Relaxed),
            evictions: sum.evictions + stripe.evictions.load(Relaxed),
            ..sum
        })
    }

    fn stripe(&self) -> &Stripe {
        &self.0[stripe_of_thread()]
    }
}

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
