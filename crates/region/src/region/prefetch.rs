//! Looking ahead: where the rows of a batch will be written.
//!
//! A write walks down a skip list of which only the upper nodes are in the processor's cache, and waits for memory at
//! each of the lower ones; the next write, often in another region, walks alone again. Here the walks of many rows go
//! side by side, each one node at a time, so that they wait descents. Nothing is changed, and nothing is kept but what
//! is then in the cache.

use super::Region;
use crate::memstore::SegmentDescent;

/// Walks side by side: about as many lines as a core can wait for at once.
const INTERLEAVED: usize = 12;
/// Of a region with more stores than this it is not known well enough which ones a row goes to.
const STORES_MAX: usize = 2;

/// Looks where rows will be written, before they are.
pub fn prefetch_write_positions<'a>(rows: impl IntoIterator<Item = (&'a Region, &'a [u8])>) {
    let stores =
        |region: &'a Region| region.stores().iter().take_while(|_| region.stores().len() <= STORES_MAX);
    let mut walks = (rows.into_iter())
        .flat_map(|(region, row)| stores(region).map(move |store| (store, row)))
        .filter_map(|(store, row)| Some((store.begin_descent(row)?, row)));
    let mut descents: Vec<(SegmentDescent, &[u8])> = walks.by_ref().take(INTERLEAVED).collect();
    while !descents.is_empty() {
        descents.retain_mut(|walk| {
            if walk.0.step(walk.1) {
                return true;
            }
            match walks.next() {
                Some(next) => *walk = next,
                None => return false,
            }
            true
        });
    }
}
