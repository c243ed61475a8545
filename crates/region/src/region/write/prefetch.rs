//! Prefetches the MemStore positions of the rows about to be written.
//!
//! A write descends a skip list. Only the upper nodes are in the processor's cache, so it waits for
//! memory at each lower node; the next write, often in another region, waits again. This module
//! interleaves the descents of many rows, one node of each in turn, so that their cache misses
//! overlap. It changes and keeps nothing except the contents of the processor's cache.

use crate::memstore::SegmentDescent;
use crate::region::Region;

/// The number of interleaved descents: about the number of cache misses that a core can have in
/// flight.
const INTERLEAVED: usize = 12;
/// Rows of regions with more stores than this are not prefetched, because it is not known which
/// stores they go to.
const STORES_MAX: usize = 2;

/// Prefetches the position of each row in its region's MemStores.
pub fn prefetch_write_positions<'a>(rows: impl IntoIterator<Item = (&'a Region, &'a [u8])>) {
    let stores =
        |region: &'a Region| region.stores().iter().take_while(|_| region.stores().len() <= STORES_MAX);
    let mut walks = (rows.into_iter())
        .flat_map(|(region, row)| stores(region).map(move |store| (store, row)))
        .filter_map(|(store, row)| Some((store.begin_descent(row)?, row)));
    let mut descents: Vec<(SegmentDescent, &[u8])> = walks.by_ref().take(INTERLEAVED).collect();
    while !descents.is_empty() {
        let mut at = 0;
        while let Some(walk) = descents.get_mut(at) {
            let (descent, row) = walk;
            if descent.step(row) {
                at += 1;
            } else if let Some(next) = walks.next() {
                *walk = next;
                at += 1;
            } else {
                descents.swap_remove(at);
            }
        }
    }
}
