//! The treatment of the segments behind the active one by an in-memory flush (HBase's
//! CompactingMemStore).
//!
//! | `IN_MEMORY_COMPACTION` | the new segment | the pipeline |
//! |---|---|---|
//! | NONE | none: the active segment grows until the flush | |
//! | BASIC | becomes flat | indexes are merged if there are too many; every cell stays |
//! | EAGER | is rewritten with all others, without what a flush would drop | is one segment |
//! | ADAPTIVE | as BASIC; as EAGER if many cells share columns and rewriting has paid before | |
//!
//! HBase merges the whole pipeline whenever it is longer than
//! `hbase.hregion.compacting.pipeline.segments.limit`, so a flush after n in-memory flushes has
//! merged n²/2 segments. Here a merge begins at the newest segment. It includes an older one only
//! if it must, or if that one is not much larger than what is merged already.

use evenkeel_common::length;
use std::sync::Arc;

use evenkeel_common::{ColumnFamilyDescriptor, ConfigError, Configuration};

use super::Segment;

/// `IN_MEMORY_COMPACTION`, by HBase's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InMemoryCompaction {
    /// Cells stay where they were written until the flush.
    #[default]
    None,
    /// Flat segments, merged.
    Basic,
    /// Flat segments, rewritten.
    Eager,
    /// Either, depending on what has paid.
    Adaptive,
}

impl InMemoryCompaction {
    /// Parses a name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        match name.trim().to_ascii_uppercase().as_str() {
            "NONE" => Some(Self::None),
            "BASIC" => Some(Self::Basic),
            "EAGER" => Some(Self::Eager),
            "ADAPTIVE" => Some(Self::Adaptive),
            _ => None,
        }
    }
}

/// Settings of in-memory flushes. Names and defaults are HBase's.
#[derive(Clone, Debug, PartialEq)]
pub struct InMemoryConfig {
    /// `hbase.hregion.compacting.memstore.type`, for families without the attribute.
    pub compaction: InMemoryCompaction,
    /// `hbase.systemtables.compacting.memstore.type`, for system tables, regardless of their
    /// families' attributes.
    pub of_system_tables: InMemoryCompaction,
    /// `hbase.memstore.inmemoryflush.threshold.factor`: the active segment grows to this fraction
    /// of the flush size, divided by the number of families; 0 for the size of a chunk.
    pub threshold_factor: f64,
    /// `hbase.hregion.compacting.pipeline.segments.limit`.
    pub segments_max: usize,
    /// `hbase.hregion.compacting.memstore.adaptive.compaction.threshold`: the fraction of cells
    /// that must share a column.
    pub adaptive_threshold: f64,
    /// `hbase.hregion.compacting.memstore.adaptive.compaction.probability`: the initial
    /// probability.
    pub adaptive_probability: f64,
}

impl Default for InMemoryConfig {
    fn default() -> Self {
        Self {
            compaction: InMemoryCompaction::None,
            of_system_tables: InMemoryCompaction::None,
            threshold_factor: 0.0,
            segments_max: 2,
            adaptive_threshold: 0.5,
            adaptive_probability: 0.5,
        }
    }
}

impl InMemoryConfig {
    /// Reads HBase's keys.
    ///
    /// # Errors
    /// A value that cannot be read.
    pub fn from_configuration(conf: &Configuration) -> Result<Self, ConfigError> {
        let default = Self::default();
        let number = |key: &str, default: f64| {
            Ok::<_, ConfigError>(conf.get_trimmed(key)?.map_or(default, |text| parsed(key, &text, default)))
        };
        let kind = |key: &str| {
            let text = conf.get_trimmed(key)?;
            let known = |text: String| {
                InMemoryCompaction::from_name(&text).unwrap_or_else(|| {
                    tracing::warn!(key, value = text, "unknown in-memory compaction; NONE is used");
                    InMemoryCompaction::None
                })
            };
            Ok::<_, ConfigError>(text.map_or(InMemoryCompaction::None, known))
        };
        let adaptive = "hbase.hregion.compacting.memstore.adaptive.compaction";
        Ok(Self {
            compaction: kind("hbase.hregion.compacting.memstore.type")?,
            of_system_tables: kind("hbase.systemtables.compacting.memstore.type")?,
            threshold_factor: number("hbase.memstore.inmemoryflush.threshold.factor", 0.0)?.clamp(0.0, 1.0),
            segments_max: conf.get_u64_or("hbase.hregion.compacting.pipeline.segments.limit", 2)?.clamp(1, 30)
                as usize,
            adaptive_threshold: number(&format!("{adaptive}.threshold"), default.adaptive_threshold)?,
            adaptive_probability: number(&format!("{adaptive}.probability"), default.adaptive_probability)?,
        })
    }

    /// Applies a family's attribute.
    pub fn for_family(&self, family: &ColumnFamilyDescriptor, of_system: bool) -> Self {
        let of_family = family.text("IN_MEMORY_COMPACTION").and_then(InMemoryCompaction::from_name);
        let compaction = if of_system { self.of_system_tables } else { of_family.unwrap_or(self.compaction) };
        Self { compaction, ..self.clone() }
    }

    /// Bytes at which an active segment is pushed to the pipeline, in a region of `families`
    /// families; by default a chunk.
    pub fn threshold_bytes(&self, chunk_bytes: usize, flush_bytes: u64, families: usize) -> u64 {
        match self.threshold_factor {
            0.0 => chunk_bytes as u64,
            factor => length::whole(factor * flush_bytes as f64) / families.max(1) as u64,
        }
    }
}

fn parsed(key: &str, text: &str, default: f64) -> f64 {
    text.parse().ok().filter(|number: &f64| number.is_finite()).unwrap_or_else(|| {
        tracing::warn!(key, text, "not a number; the default is used");
        default
    })
}

/// The next step for a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemStoreCompactionAction {
    /// Make the lists in it flat, then merge this many of the newest segments (0, or at least 2).
    Merge(usize),
    /// Rewrite all of it.
    Compact,
}

/// A merge includes an older segment of up to this many times the size merged so far.
const MERGE_RATIO: u64 = 4;

/// The factor by which a compaction that paid raises the probability of the next one, or one that
/// did not pay lowers it.
const PROBABILITY_STEP: f64 = 1.02;

/// Decides what in-memory flushes do, and learns from their results.
#[derive(Debug)]
pub(crate) struct MemStoreCompactionStrategy {
    config: InMemoryConfig,
    probability: f64,
    drawn: u64,
}

impl MemStoreCompactionStrategy {
    pub(crate) fn new(config: InMemoryConfig) -> Self {
        Self { probability: config.adaptive_probability, config, drawn: 0 }
    }

    /// Returns true if the strategy uses the number of columns.
    pub(crate) fn counts_columns(&self) -> bool {
        self.config.compaction == InMemoryCompaction::Adaptive
    }

    /// The next step for a pipeline, whose oldest segment is first.
    pub(crate) fn next(&mut self, pipeline: &[Arc<Segment>]) -> MemStoreCompactionAction {
        let compacts = match self.config.compaction {
            InMemoryCompaction::Eager => true,
            InMemoryCompaction::Adaptive => {
                unique_fraction(pipeline) < 1.0 - self.config.adaptive_threshold
                    && self.draw() < self.probability
            }
            InMemoryCompaction::Basic | InMemoryCompaction::None => false,
        };
        match compacts {
            true => MemStoreCompactionAction::Compact,
            false => MemStoreCompactionAction::Merge(self.segments_to_merge(pipeline)),
        }
    }

    /// How many of the newest segments to merge.
    fn segments_to_merge(&self, pipeline: &[Arc<Segment>]) -> usize {
        let over = pipeline.len().saturating_sub(self.config.segments_max);
        if over == 0 {
            return 0;
        }
        let (mut count, mut bytes) = (0, 0);
        for segment in pipeline.iter().rev() {
            let size = segment.size().data_bytes;
            if count > over && size > MERGE_RATIO * bytes {
                break;
            }
            (count, bytes) = (count + 1, bytes + size);
        }
        count
    }

    /// Learns how many cells a compaction left.
    pub(crate) fn record_result(&mut self, before: u64, after: u64) {
        let paid = (after as f64) < (1.0 - self.config.adaptive_threshold) * before as f64;
        let step = if paid { PROBABILITY_STEP } else { 1.0 / PROBABILITY_STEP };
        self.probability = (self.probability * step).min(1.0);
    }

    /// Resets what was learnt, because another MemStore begins.
    pub(crate) fn reset(&mut self) {
        self.probability = self.config.adaptive_probability;
    }

    /// A number from 0 to below 1. Multiples of the golden ratio are evenly distributed, and make
    /// runs repeatable.
    fn draw(&mut self) -> f64 {
        self.drawn += 1;
        (self.drawn as f64 * 0.618_033_988_749_894_9).fract()
    }
}

/// The fraction of a pipeline's cells that are alone in their column, by its largest segment with a
/// known fraction.
fn unique_fraction(pipeline: &[Arc<Segment>]) -> f64 {
    let known =
        pipeline.iter().filter_map(|segment| Some((segment.size().cells, segment.unique_fraction()?)));
    known.max_by_key(|(cells, _)| *cells).map_or(1.0, |(_, part)| part)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use evenkeel_common::{CellComparator, KeyValue};

    use super::*;
    use crate::memstore::{ChunkPool, FlatSegmentBuilder};

    fn segment(cells: u64, columns: u64) -> Arc<Segment> {
        let mut builder = FlatSegmentBuilder::new(&ChunkPool::new(1), CellComparator::Default, cells, None);
        for n in 0..cells {
            let row = format!("{:09}", n * columns / cells);
            let cell = KeyValue::put(row.as_bytes(), b"f", b"q", (cells - n) as i64, b"v");
            assert!(builder.push(&cell.as_cell()));
        }
        let segment = builder.finish();
        segment.count_columns();
        segment
    }

    fn strategy(compaction: InMemoryCompaction) -> MemStoreCompactionStrategy {
        MemStoreCompactionStrategy::new(InMemoryConfig { compaction, ..InMemoryConfig::default() })
    }

    #[test]
    fn a_merge_includes_a_large_segment_only_when_worthwhile() {
        let mut basic = strategy(InMemoryCompaction::Basic);
        let sizes = |sizes: &[u64]| sizes.iter().map(|n| segment(*n, *n)).collect::<Vec<_>>();
        assert_eq!(basic.next(&sizes(&[9])), MemStoreCompactionAction::Merge(0));
        assert_eq!(basic.next(&sizes(&[9, 9])), MemStoreCompactionAction::Merge(0));
        assert_eq!(basic.next(&sizes(&[100, 9, 9])), MemStoreCompactionAction::Merge(2));
        assert_eq!(basic.next(&sizes(&[60, 9, 9])), MemStoreCompactionAction::Merge(3));
        assert_eq!(basic.next(&sizes(&[9, 9, 9, 9])), MemStoreCompactionAction::Merge(4));
    }

    #[test]
    fn adaptive_compacts_where_cells_share_columns() {
        let mut adaptive = strategy(InMemoryCompaction::Adaptive);
        let (unique, shared) = (vec![segment(100, 100)], vec![segment(100, 5)]);
        assert!((0..50).all(|_| adaptive.next(&unique) == MemStoreCompactionAction::Merge(0)));
        let compactions = |adaptive: &mut MemStoreCompactionStrategy| {
            (0..100).filter(|_| adaptive.next(&shared) == MemStoreCompactionAction::Compact).count()
        };
        assert!((45..=55).contains(&compactions(&mut adaptive)), "half of them, as configured");
        (0..100).for_each(|_| adaptive.record_result(100, 90));
        assert!(compactions(&mut adaptive) < 20, "it did not pay");
        (0..200).for_each(|_| adaptive.record_result(100, 10));
        assert_eq!(compactions(&mut adaptive), 100);
        adaptive.reset();
        assert!((45..=55).contains(&compactions(&mut adaptive)));
    }

    #[test]
    fn keys_and_the_attribute_are_hbases() {
        let mut conf = Configuration::new();
        conf.set("hbase.hregion.compacting.memstore.type", "basic");
        conf.set("hbase.memstore.inmemoryflush.threshold.factor", "0.1");
        conf.set("hbase.hregion.compacting.pipeline.segments.limit", "4");
        conf.set("hbase.hregion.compacting.memstore.adaptive.compaction.threshold", "0.25");
        conf.set("hbase.hregion.compacting.memstore.adaptive.compaction.probability", "0.75");
        let config = InMemoryConfig::from_configuration(&conf).expect("read");
        assert_eq!((config.segments_max, config.threshold_bytes(4096, 1000, 2)), (4, 50));
        assert_eq!((config.adaptive_threshold, config.adaptive_probability), (0.25, 0.75));
        assert_eq!(InMemoryConfig::default().threshold_bytes(4096, 1000, 2), 4096);
        let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
        let kind = |family: &ColumnFamilyDescriptor, system| config.for_family(family, system).compaction;
        assert_eq!(kind(&family, false), InMemoryCompaction::Basic);
        assert_eq!(kind(&family, true), InMemoryCompaction::None);
        let eager = family.with("IN_MEMORY_COMPACTION", "EAGER");
        assert_eq!(kind(&eager, false), InMemoryCompaction::Eager);
        assert_eq!(kind(&eager, true), InMemoryCompaction::None);
    }
}
