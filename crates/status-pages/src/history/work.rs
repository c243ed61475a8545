//! [`WorkHistory`]: flushes and compactions of the last minutes, for the timeline.
//!
//! Each second every region says whether it flushes or compacts, and how often it has. So a work's
//! beginning and end are known to a second, and one that was shorter is known by its count. Counts
//! of regions that are not served any more are forgotten.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use evenkeel_region::region::{Region, RegionCount};
use evenkeel_regionserver::Background;
use evenkeel_regionserver::background::CompactionState;

use super::push;

/// Works that have ended and are kept.
pub const ENDED_MAX: usize = 512;
/// The time between two looks, which a short work is said to have taken at most.
const LOOK_MS: i64 = 1_000;

/// What kind of work it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkKind {
    /// Cells from the MemStore to a store file.
    Flush,
    /// Some store files to one.
    Compaction,
}

/// A flush or a compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// What it does.
    pub kind: WorkKind,
    /// The region's table.
    pub table: Arc<str>,
    /// The region's encoded name.
    pub region: Arc<str>,
    /// When it began, to a second, in milliseconds since 1970.
    pub from_ms: i64,
    /// When it ended, to a second; `None` while it goes on.
    pub to_ms: Option<i64>,
}

/// What a region said of one kind of work.
#[derive(Clone, Copy, Debug)]
struct Said {
    goes_on: bool,
    count: u64,
}

#[derive(Debug)]
struct Seen {
    table: Arc<str>,
    region: Arc<str>,
    round: u64,
    /// For each kind, the count, and since when it goes on.
    kinds: [(u64, Option<i64>); 2],
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct WorkHistory {
    seen: HashMap<String, Seen>,
    ended: VecDeque<Work>,
    round: u64,
}

const KINDS: [WorkKind; 2] = [WorkKind::Flush, WorkKind::Compaction];

impl WorkHistory {
    /// The works that have ended, the oldest first, then those that go on.
    pub fn works(&self) -> Vec<Work> {
        let going_on = self.seen.values().flat_map(|seen| {
            let began = KINDS.into_iter().zip(seen.kinds);
            began.filter_map(|(kind, (_, since_ms))| Some(seen.work(kind, since_ms?, None)))
        });
        self.ended.iter().cloned().chain(going_on).collect()
    }

    /// Looks at the regions.
    pub(super) fn look(&mut self, now_ms: i64, regions: &[Arc<Region>], background: &Background) {
        self.round += 1;
        for region in regions {
            let encoded = region.info().encoded_name();
            let compacts = background.compaction_state(encoded) != CompactionState::None;
            let count = |of| region.counts().get(of);
            let said = [
                Said { goes_on: region.is_flushing(), count: count(RegionCount::Flushes) },
                Said { goes_on: compacts, count: count(RegionCount::Compactions) },
            ];
            self.note(now_ms, encoded, || region.info().table().to_string(), said);
        }
        let round = self.round;
        self.seen.retain(|_, seen| seen.round == round);
    }

    fn note(&mut self, now_ms: i64, encoded: &str, table: impl Fn() -> String, said: [Said; 2]) {
        if !self.seen.contains_key(encoded) {
            let kinds = said.map(|said| (said.count, said.goes_on.then_some(now_ms)));
            let (table, region) = (table().into(), encoded.into());
            self.seen.insert(encoded.to_owned(), Seen { table, region, round: self.round, kinds });
            return;
        }
        let Some(seen) = self.seen.get_mut(encoded) else { return };
        seen.round = self.round;
        let mut ended = Vec::new();
        for ((kind, said), (count, since_ms)) in KINDS.into_iter().zip(said).zip(&mut seen.kinds) {
            let has_done = said.count > std::mem::replace(count, said.count);
            match (*since_ms, said.goes_on) {
                (None, true) => *since_ms = Some(now_ms),
                (Some(from_ms), false) => ended.push((kind, from_ms)),
                (None, false) if has_done => ended.push((kind, now_ms - LOOK_MS)),
                _ => {}
            }
            if !said.goes_on {
                *since_ms = None;
            }
        }
        for (kind, from_ms) in ended {
            push(&mut self.ended, seen.work(kind, from_ms, Some(now_ms)), ENDED_MAX);
        }
    }
}

impl Seen {
    fn work(&self, kind: WorkKind, from_ms: i64, to_ms: Option<i64>) -> Work {
        Work { kind, table: Arc::clone(&self.table), region: Arc::clone(&self.region), from_ms, to_ms }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(history: &mut WorkHistory, now_ms: i64, flushes: (bool, u64), compactions: (bool, u64)) {
        let said = |(goes_on, count)| Said { goes_on, count };
        history.note(now_ms, "r", || "t".to_owned(), [said(flushes), said(compactions)]);
    }

    #[test]
    fn work_is_known_to_a_second() {
        let mut history = WorkHistory::default();
        note(&mut history, 0, (false, 3), (false, 0));
        note(&mut history, 1_000, (true, 3), (false, 0));
        assert_eq!((history.works().len(), history.works()[0].to_ms), (1, None));
        note(&mut history, 4_000, (false, 4), (false, 2));
        let works: Vec<_> =
            history.works().into_iter().map(|work| (work.kind, work.from_ms, work.to_ms)).collect();
        let expected = [(WorkKind::Flush, 1_000, Some(4_000)), (WorkKind::Compaction, 3_000, Some(4_000))];
        assert_eq!(works, expected, "the second was shorter than a look, and is known by its count");
    }

    #[test]
    fn what_has_ended_is_bounded() {
        let mut history = WorkHistory::default();
        for count in 0..2 * ENDED_MAX as u64 {
            note(&mut history, 0, (false, count), (false, 0));
        }
        assert_eq!(history.works().len(), ENDED_MAX);
    }
}
