//! The unflushed edits, which determine the files that are still needed (HBase's
//! `SequenceIdAccounting`).
//!
//! For each region:
//! * **unflushed**: per family, the lowest sequence id that is only in the MemStore. It is set by
//!   the first append after a flush began.
//! * **flushing**: the same value of the families that are being flushed; it is restored if the
//!   flush is aborted.
//! * **highest**: the highest sequence id in the current file. When the file is rolled these values
//!   are stored with it, and the file is needed until each is below the lowest unflushed and
//!   flushing id of its region.
//!
//! Marker edits count for *highest* only, because they are in no MemStore.

use std::collections::HashMap;

use bytes::Bytes;
use evenkeel_common::CellRef;

use crate::entry::META_FAMILY;

/// The highest sequence id of each region with entries in one file.
pub(crate) type HighestSeqIds = HashMap<Bytes, u64>;

#[derive(Debug, Default)]
pub(crate) struct SequenceIdAccounting {
    regions: HashMap<Bytes, RegionSeqIds>,
    highest: HighestSeqIds,
}

/// A family and a sequence id. A region has a few families, so a list beats a map.
type Families = Vec<(Bytes, u64)>;

#[derive(Debug, Default)]
struct RegionSeqIds {
    unflushed: Families,
    flushing: Families,
}

impl RegionSeqIds {
    /// Every family with edits in memory, twice if it was written while it is flushed.
    fn all(&self) -> impl Iterator<Item = &(Bytes, u64)> {
        self.flushing.iter().chain(&self.unflushed)
    }

    fn lowest(&self) -> Option<u64> {
        self.all().map(|(_, seq_id)| *seq_id).min()
    }

    fn note_unflushed(&mut self, family: &[u8], seq_id: u64) {
        if !self.unflushed.iter().any(|(name, _)| name == family) {
            self.unflushed.push((Bytes::copy_from_slice(family), seq_id));
        }
    }

    fn is_flushed(&self) -> bool {
        self.unflushed.is_empty() && self.flushing.is_empty()
    }
}

impl SequenceIdAccounting {
    /// Records an entry of the current file.
    pub(crate) fn appended<'a>(
        &mut self,
        region: &Bytes,
        seq_id: u64,
        cells: impl Iterator<Item = CellRef<'a>>,
    ) {
        match self.highest.get_mut(region) {
            Some(highest) => *highest = seq_id.max(*highest),
            None => drop(self.highest.insert(region.clone(), seq_id)),
        }
        let mut last: &[u8] = META_FAMILY;
        for family in cells.map(|cell| cell.family()) {
            if family != last && family != META_FAMILY {
                self.note_unflushed(region, family, seq_id);
            }
            last = family;
        }
    }

    fn note_unflushed(&mut self, region: &Bytes, family: &[u8], seq_id: u64) {
        match self.regions.get_mut(region) {
            Some(known) => known.note_unflushed(family, seq_id),
            None => self.regions.entry(region.clone()).or_default().note_unflushed(family, seq_id),
        }
    }

    /// Begins a flush of these families. Returns the lowest unflushed sequence id of the region's
    /// other families, if any.
    pub(crate) fn start_flush(&mut self, region: &[u8], families: &[Bytes]) -> Option<u64> {
        let region = self.regions.get_mut(region)?;
        let (begun, rest) = region.unflushed.drain(..).partition(|(name, _)| families.contains(name));
        region.unflushed = rest;
        let begun: Families = begun;
        for (family, seq_id) in begun {
            restore(&mut region.flushing, family, seq_id);
        }
        region.unflushed.iter().map(|(_, seq_id)| *seq_id).min()
    }

    /// Completes a flush: every edit of these families up to `flushed_seq_id` is in store files.
    /// Families that were not flushed keep their values.
    pub(crate) fn complete_flush(&mut self, region: &[u8], families: &[Bytes], flushed_seq_id: u64) {
        if let Some(found) = self.regions.get_mut(region) {
            found.flushing.retain(|(family, _)| !families.contains(family));
            for (_, seq_id) in found.unflushed.iter_mut().filter(|(family, _)| families.contains(family)) {
                *seq_id = (*seq_id).max(flushed_seq_id + 1);
            }
            if found.is_flushed() {
                self.regions.remove(region);
            }
        }
    }

    /// Aborts a flush.
    pub(crate) fn abort_flush(&mut self, region: &[u8]) {
        if let Some(region) = self.regions.get_mut(region) {
            for (family, seq_id) in std::mem::take(&mut region.flushing) {
                restore(&mut region.unflushed, family, seq_id);
            }
        }
    }

    /// Removes a closed region, which has no MemStore on this server.
    pub(crate) fn region_closed(&mut self, region: &[u8]) {
        self.regions.remove(region);
        self.highest.remove(region);
    }

    /// The lowest sequence id of the region that is in no store file yet.
    pub(crate) fn lowest(&self, region: &[u8]) -> Option<u64> {
        self.regions.get(region)?.lowest()
    }

    /// The lowest sequence id of one family that is in no store file yet.
    pub(crate) fn lowest_of(&self, region: &[u8], family: &[u8]) -> Option<u64> {
        let region = self.regions.get(region)?;
        region.all().filter(|(name, _)| name == family).map(|(_, seq_id)| *seq_id).min()
    }

    /// The highest sequence ids in the current file, which is being rolled. The next file starts
    /// empty.
    pub(crate) fn take_highest(&mut self) -> HighestSeqIds {
        std::mem::take(&mut self.highest)
    }

    /// The highest sequence ids in the current file, if some of its entries may also be written to
    /// the next one.
    pub(crate) fn copy_highest(&self) -> HighestSeqIds {
        self.highest.clone()
    }

    /// Returns true if no entry of a file is needed.
    pub(crate) fn all_flushed(&self, file: &HighestSeqIds) -> bool {
        file.iter().all(|(region, highest)| self.lowest(region).is_none_or(|lowest| lowest > *highest))
    }

    /// The stores with edits that are in no file yet. A running flush of them may fail.
    pub(crate) fn in_memory(&self) -> Vec<(Bytes, Vec<Bytes>)> {
        let regions =
            self.regions.iter().map(|(name, region)| (name, families_up_to(region.all(), u64::MAX)));
        stores(regions)
    }

    /// The stores with edits of a log file that are in no file yet, as
    /// [`SequenceIdAccounting::in_memory`].
    pub(crate) fn in_memory_up_to(&self, file: &HighestSeqIds) -> Vec<(Bytes, Vec<Bytes>)> {
        stores(file.iter().filter_map(|(name, highest)| {
            Some((name, families_up_to(self.regions.get(name)?.all(), *highest)))
        }))
    }

    /// The stores with edits of a log file that no flush has begun to write.
    pub(crate) fn unflushed_up_to(&self, file: &HighestSeqIds) -> Vec<(Bytes, Vec<Bytes>)> {
        stores(file.iter().filter_map(|(name, highest)| {
            Some((name, families_up_to(self.regions.get(name)?.unflushed.iter(), *highest)))
        }))
    }
}

/// Returns the families whose lowest sequence id is not above a limit, each once.
fn families_up_to<'a>(all: impl Iterator<Item = &'a (Bytes, u64)>, highest: u64) -> Vec<Bytes> {
    let mut families: Vec<Bytes> = Vec::new();
    for (family, _) in all.filter(|(_, seq_id)| *seq_id <= highest) {
        if !families.contains(family) {
            families.push(family.clone());
        }
    }
    families
}

/// Returns regions with families, in order.
fn stores<'a>(regions: impl Iterator<Item = (&'a Bytes, Vec<Bytes>)>) -> Vec<(Bytes, Vec<Bytes>)> {
    let with_families = regions.filter(|(_, families)| !families.is_empty());
    let mut stores: Vec<_> = with_families.map(|(name, families)| (name.clone(), families)).collect();
    stores.sort();
    stores
}

/// Adds a family's value to a list; the lower of two values remains.
fn restore(families: &mut Families, family: Bytes, seq_id: u64) {
    match families.iter_mut().find(|(name, _)| *name == family) {
        Some((_, held)) => *held = seq_id.min(*held),
        None => families.push((family, seq_id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_common::KeyValue;

    const REGION: Bytes = Bytes::from_static(b"region");

    fn append(accounting: &mut SequenceIdAccounting, seq_id: u64, families: &[&str]) {
        let cells: Vec<_> =
            families.iter().map(|f| KeyValue::put(b"r", f.as_bytes(), b"q", 1, b"v")).collect();
        accounting.appended(&REGION, seq_id, cells.iter().map(KeyValue::as_cell));
    }

    fn names(families: &[&'static str]) -> Vec<Bytes> {
        families.iter().map(|f| Bytes::from_static(f.as_bytes())).collect()
    }

    #[test]
    fn a_file_is_needed_until_all_its_families_are_flushed() {
        let mut accounting = SequenceIdAccounting::default();
        append(&mut accounting, 5, &["a"]);
        append(&mut accounting, 6, &["b", "b", "a"]);
        let file = accounting.take_highest();
        append(&mut accounting, 7, &["a"]);
        assert_eq!((accounting.lowest(b"region"), accounting.lowest_of(b"region", b"b")), (Some(5), Some(6)));

        assert_eq!(accounting.start_flush(b"region", &names(&["a"])), Some(6));
        assert!(!accounting.all_flushed(&file), "the flush only began");
        accounting.complete_flush(b"region", &names(&["a"]), 7);
        assert!(!accounting.all_flushed(&file), "b was not part of it");
        accounting.start_flush(b"region", &names(&["b"]));
        accounting.complete_flush(b"region", &names(&["b"]), 7);
        assert!(accounting.all_flushed(&file));

        let second = accounting.take_highest();
        append(&mut accounting, 8, &["b"]);
        assert!(accounting.all_flushed(&second));
    }

    /// A flush that runs while the log fails may fail, too.
    #[test]
    fn families_that_are_flushed_are_in_memory() {
        let mut accounting = SequenceIdAccounting::default();
        append(&mut accounting, 1, &["a", "b"]);
        let file = accounting.take_highest();
        accounting.start_flush(b"region", &names(&["a", "b"]));
        append(&mut accounting, 2, &["b"]);
        assert_eq!(accounting.unflushed_up_to(&file), []);
        assert_eq!(accounting.in_memory_up_to(&file), [(REGION, names(&["a", "b"]))]);
        assert_eq!(accounting.in_memory(), [(REGION, names(&["a", "b"]))]);
        accounting.complete_flush(b"region", &names(&["a", "b"]), 1);
        assert_eq!(accounting.in_memory_up_to(&file), []);
        assert_eq!(accounting.in_memory(), [(REGION, names(&["b"]))]);
    }

    #[test]
    fn edits_during_a_flush_keep_the_next_file() {
        let mut accounting = SequenceIdAccounting::default();
        append(&mut accounting, 1, &["a"]);
        accounting.start_flush(b"region", &names(&["a"]));
        let first = accounting.take_highest();
        append(&mut accounting, 2, &["a"]);
        let second = accounting.take_highest();
        accounting.complete_flush(b"region", &names(&["a"]), 1);
        assert!(accounting.all_flushed(&first));
        assert!(!accounting.all_flushed(&second));
        assert_eq!(accounting.unflushed_up_to(&second), [(REGION, names(&["a"]))]);
    }

    #[test]
    fn an_aborted_flush_restores_its_sequence_ids() {
        let mut accounting = SequenceIdAccounting::default();
        append(&mut accounting, 1, &["a"]);
        accounting.start_flush(b"region", &names(&["a"]));
        append(&mut accounting, 2, &["a"]);
        accounting.abort_flush(b"region");
        assert_eq!(accounting.lowest(b"region"), Some(1));
        assert!(!accounting.all_flushed(&accounting.copy_highest()));
    }

    #[test]
    fn markers_and_closed_regions_need_no_file() {
        let mut accounting = SequenceIdAccounting::default();
        append(&mut accounting, 1, &["METAFAMILY"]);
        assert_eq!(accounting.lowest(b"region"), None);
        assert!(accounting.all_flushed(&accounting.copy_highest()));
        append(&mut accounting, 2, &["a"]);
        let file = accounting.copy_highest();
        assert!(!accounting.all_flushed(&file));
        accounting.region_closed(b"region");
        assert!(accounting.all_flushed(&file));
        assert!(accounting.take_highest().is_empty());
    }
}
