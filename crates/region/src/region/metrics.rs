//! What a region counts and times.

mod counters;
mod operation_times;
#[cfg(test)]
mod tests;

pub use self::counters::{RegionCount, RegionCounters, RegionCounts};
pub use self::operation_times::{Operation, OperationTimes, TableOperationTimes};
