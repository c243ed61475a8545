//! The plans of a table, a function of its regions.
//!
//! The target size is, in this order: the table's target size; the sum of the sizes divided by the
//! table's target count of regions; the average size. A region of more than twice the target size
//! is split. Neighbours that fit into the target size together are merged, from the first region
//! on; empty regions always fit.
//!
//! Sizes are whole MiB, as RegionServers report them. A region with store files counts as 1 MiB at
//! least.

use evenkeel_common::length;

use super::settings::Rules;

/// A region that may be split or merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// Its encoded name.
    pub(super) encoded_name: String,
    /// Its region id: when it was created, milliseconds since 1970.
    pub(super) created_ms: i64,
    /// The size of its store files.
    pub(super) mib: u64,
    /// True if it is served, and has no references to files of other regions. Such files count
    /// half, and merging the region would compact them first. The size counts either way.
    pub(super) is_changeable: bool,
}

/// A change of regions, which are named by their encoded names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Splits a region at its best row.
    Split {
        /// The region.
        region: String,
        /// Its size.
        mib: u64,
    },
    /// Merges neighbours.
    Merge {
        /// Two or more regions, in the order of their keys.
        regions: Vec<String>,
        /// The sum of their sizes.
        mib: u64,
    },
}

impl Plan {
    /// The size of its regions.
    pub(super) fn mib(&self) -> u64 {
        match self {
            Self::Split { mib, .. } | Self::Merge { mib, .. } => *mib,
        }
    }
}

/// Returns the splits, then the merges. `regions` are all regions of a table, in the order of their
/// keys. A region may be in a split and in a merge, as in HBase; the merge fails then.
pub(super) fn plans(regions: &[Candidate], rules: &Rules, now_ms: i64) -> Vec<Plan> {
    let mut plans = Vec::new();
    if regions.is_empty() {
        return plans;
    }
    let target_mib = target_mib(regions, rules);
    if rules.splits {
        plans.extend(splits(regions, target_mib));
    }
    if rules.merges {
        plans.extend(merges(regions, rules, target_mib, now_ms));
    }
    plans
}

/// Leaves out each plan with which the sizes of all plans up to it exceed a limit.
pub(super) fn truncate(plans: &mut Vec<Plan>, mib_max: u64) {
    let mut sum_mib = 0_u64;
    plans.retain(|plan| {
        sum_mib = sum_mib.saturating_add(plan.mib());
        sum_mib <= mib_max
    });
}

fn target_mib(regions: &[Candidate], rules: &Rules) -> f64 {
    if let Some(mib) = rules.target_mib {
        return mib as f64;
    }
    let sum: u64 = regions.iter().map(|region| region.mib).sum();
    let count = rules.target_count.unwrap_or(regions.len() as u64);
    sum as f64 / count as f64
}

fn splits(regions: &[Candidate], target_mib: f64) -> impl Iterator<Item = Plan> {
    let is_large = move |region: &&Candidate| region.is_changeable && region.mib as f64 > 2.0 * target_mib;
    let split = |region: &Candidate| Plan::Split { region: region.encoded_name.clone(), mib: region.mib };
    regions.iter().filter(is_large).map(split)
}

fn merges(regions: &[Candidate], rules: &Rules, target_mib: f64, now_ms: i64) -> Vec<Plan> {
    // In whole MiB, as in HBase: a target of 1.9 MiB takes no two regions of 1 MiB.
    let target_mib = length::whole(target_mib);
    if regions.len() < rules.merge_count_min || target_mib < rules.merge_mib_min {
        return Vec::new();
    }
    let may_merge = |region: &Candidate| {
        let is_old = now_ms > region.created_ms.saturating_add(rules.merge_age_ms_min);
        region.is_changeable && is_old && region.mib >= rules.merge_mib_min
    };
    let mut plans = Vec::new();
    let mut range = Range::default();
    for region in regions {
        if !may_merge(region) {
            plans.extend(range.take());
        } else if range.fits(region, target_mib, rules.merge_regions_max) {
            range.push(region);
        } else {
            plans.extend(range.take());
            range.push(region);
        }
    }
    plans.extend(range.take());
    plans
}

/// Neighbours that are merged together.
#[derive(Default)]
struct Range {
    regions: Vec<String>,
    mib: u64,
}

impl Range {
    /// Returns true if the next region may join. Beside an empty region alone, any region may.
    fn fits(&self, region: &Candidate, target_mib: u64, count_max: usize) -> bool {
        match self.regions.len() {
            0 => true,
            1 if self.mib == 0 => true,
            count => count < count_max && (region.mib == 0 || self.mib + region.mib <= target_mib),
        }
    }

    fn push(&mut self, region: &Candidate) {
        self.regions.push(region.encoded_name.clone());
        self.mib += region.mib;
    }

    /// Empties the range; returns its plan if it has at least two regions.
    fn take(&mut self) -> Option<Plan> {
        let Self { regions, mib } = std::mem::take(self);
        (regions.len() > 1).then_some(Plan::Merge { regions, mib })
    }
}
