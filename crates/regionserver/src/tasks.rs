//! [`running`]: background work in progress, as HBase's `TaskMonitor` describes it. Reports to the
//! master and the pages show it.

use std::sync::Arc;
use std::time::Instant;

use evenkeel_common::clock;
use evenkeel_metrics::activity::{self, Activity, ActivityKind};
use evenkeel_protocol::pb;
use evenkeel_region::region::Region;

/// A task that is running (`MonitoredTask`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its description.
    pub description: String,
    /// Its progress.
    pub status: String,
    /// When it began, in milliseconds since 1970.
    pub started_ms: i64,
}

impl From<Task> for pb::ServerTask {
    fn from(task: Task) -> Self {
        Self {
            description: task.description,
            status: task.status,
            state: pb::server_task::State::Running as i32,
            start_time: Some(task.started_ms.unsigned_abs()),
            completion_time: Some(0),
        }
    }
}

/// Returns the work in progress in this process, the oldest first. `regions` have the progress of
/// flushes and compactions; `now_ms` is the current time.
pub fn running(regions: &[Arc<Region>], now_ms: i64) -> Vec<Task> {
    let now = clock::monotonic();
    let progress_of = |activity: &Activity| {
        let progress = match activity.kind {
            ActivityKind::Flush => |region: &Region| region.load().flush,
            ActivityKind::Compaction => |region: &Region| region.load().compaction,
            _ => return None,
        };
        let is_subject = |region: &&Arc<Region>| activity.is_of(&region.info().name_text());
        regions.iter().find(is_subject).map(|region| progress(region))
    };
    let task = |activity: Activity| {
        let status = match (progress_of(&activity), activity.parts) {
            (Some(progress), _) => format!("{} of {} cells are done", progress.done, progress.cells),
            (None, (_, 0)) => "Running".to_owned(),
            (None, (done, all)) => format!("{done} of {all} are done"),
        };
        let description = match activity.kind {
            ActivityKind::Flush => format!("Flushing {}", activity.subject),
            ActivityKind::Compaction => format!("Compacting {}", activity.subject),
            kind => format!("{}: {}", kind.name(), activity.subject),
        };
        Task { description, status, started_ms: now_ms - ms_between(activity.began_at, now) }
    };
    activity::running().into_iter().map(task).collect()
}

/// Returns the milliseconds between two points in time.
pub fn ms_between(from: Instant, to: Instant) -> i64 {
    i64::try_from(to.saturating_duration_since(from).as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_work_is_a_task() {
        let snapshot = activity::begin(ActivityKind::Snapshot, "tasks-test of t");
        snapshot.set_parts(1, 3);
        let find =
            || running(&[], 1_000_000).into_iter().find(|task| task.description.contains("tasks-test"));
        let task = find().expect("running");
        assert_eq!((&*task.description, &*task.status), ("snapshot: tasks-test of t", "1 of 3 are done"));
        assert!((900_000..=1_000_000).contains(&task.started_ms), "{}", task.started_ms);
        let message = pb::ServerTask::from(task);
        assert_eq!((message.state(), message.completion_time()), (pb::server_task::State::Running, 0));
        drop(snapshot);
        assert_eq!(find(), None);
    }
}
