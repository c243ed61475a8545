//! [`Activity`]: the server's background work, which the ledger reports with the slow requests that
//! ran during it.
//!
//! A thread that flushes, compacts or rolls a log [begins](begin) an activity and ends it by
//! dropping the guard. A slow disk access is [noted](note) when it ends. The ledger looks up the
//! activities [during] a slow request. Status pages list the [kept] ones.
//!
//! There is one list per process, because threads and disks are shared by the process. It is locked
//! when an activity begins or ends, and when a slow request is kept; other requests do not access
//! it.
//!
//! # Bounds
//! [`RUNNING_MAX`] running activities, [`ENDED_MAX`] that have ended and as many slow reads and
//! syncs, [`OVERLAPPING_MAX`] per slow request. Texts are cut to [`TEXT_BYTES_MAX`] bytes,
//! errors at their beginning.
//! Activities beyond the limit are not listed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use evenkeel_common::clock;
use parking_lot::Mutex;

/// Limit of listed activities that run at the same time.
pub const RUNNING_MAX: usize = 256;
/// Limit of ended activities that are kept.
pub const ENDED_MAX: usize = 512;
/// Limit of activities that are reported for one request; the longest are.
pub const OVERLAPPING_MAX: usize = 8;
/// How long a failure is reported after it.
pub const FAILURE_LASTS: Duration = Duration::from_secs(60);
/// Limit of an activity's text.
pub const TEXT_BYTES_MAX: usize = 200;

/// Kinds of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivityKind {
    /// Writing a MemStore to files.
    Flush,
    /// Merging store files.
    Compaction,
    /// Starting a new file of a write-ahead log.
    LogRoll,
    /// Splitting a region.
    Split,
    /// Merging two regions.
    Merge,
    /// Taking a snapshot of a table, or of a region for the master.
    Snapshot,
    /// Delaying replies to writes, because unflushed bytes or files are near a limit.
    Watermark,
    /// A slow read of a file.
    SlowRead,
    /// A slow write or sync of a log.
    SlowSync,
}

impl ActivityKind {
    /// All kinds, in the order of pages.
    pub const ALL: [Self; 9] = [
        Self::Flush,
        Self::Compaction,
        Self::LogRoll,
        Self::Split,
        Self::Merge,
        Self::Snapshot,
        Self::Watermark,
        Self::SlowRead,
        Self::SlowSync,
    ];

    /// Returns true for disk accesses, which are noted when they end. On a slow disk they are so
    /// frequent that they have their own list.
    fn is_of_disk(self) -> bool {
        matches!(self, Self::SlowRead | Self::SlowSync)
    }

    /// Returns its name in pages and in the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Flush => "flush",
            Self::Compaction => "compaction",
            Self::LogRoll => "logRoll",
            Self::Split => "split",
            Self::Merge => "merge",
            Self::Snapshot => "snapshot",
            Self::Watermark => "watermark",
            Self::SlowRead => "slowRead",
            Self::SlowSync => "slowSync",
        }
    }
}

/// One activity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Activity {
    /// What it is.
    pub kind: ActivityKind,
    /// The region, file or table.
    pub subject: String,
    /// When it began.
    pub began_at: Instant,
    /// When it ended; `None` while it runs.
    pub ended_at: Option<Instant>,
    /// Why it failed; empty if it did not fail, or is running.
    pub error: String,
    /// How many of its parts are done, and all of them: the regions of a snapshot. 0 of 0 for work
    /// without parts.
    pub parts: (usize, usize),
}

impl Activity {
    /// Returns true if it is of this region, file or table.
    pub fn is_of(&self, subject: &str) -> bool {
        subject.starts_with(&self.subject)
            && (subject.len() == self.subject.len() || subject.len() > TEXT_BYTES_MAX)
    }

    /// Returns how much of the time from `from` to `to` it covers.
    pub fn overlap(&self, from: Instant, to: Instant) -> Duration {
        let end = self.ended_at.unwrap_or(to).min(to);
        end.saturating_duration_since(self.began_at.max(from))
    }

    /// Returns true if it failed shortly before `from`.
    fn failed_before(&self, from: Instant) -> bool {
        !self.error.is_empty() && self.ended_at.is_some_and(|ended_at| ended_at + FAILURE_LASTS > from)
    }
}

#[derive(Debug)]
struct Activities {
    /// Each with the number of its guard.
    running: Vec<(u64, Activity)>,
    next_number: u64,
    /// The oldest first.
    ended: VecDeque<Activity>,
    /// The same for slow reads and syncs.
    ended_of_disk: VecDeque<Activity>,
}

static ACTIVITIES: Mutex<Activities> = Mutex::new(Activities {
    running: Vec::new(),
    next_number: 0,
    ended: VecDeque::new(),
    ended_of_disk: VecDeque::new(),
});

/// An activity that runs until this is dropped.
#[derive(Debug)]
pub struct RunningActivity(Option<u64>);

impl RunningActivity {
    /// Sets how many of its parts are done, and all of them.
    pub fn set_parts(&self, done: usize, all: usize) {
        let mut activities = ACTIVITIES.lock();
        let mine = activities.running.iter_mut().find(|(number, _)| Some(*number) == self.0);
        mine.into_iter().for_each(|(_, activity)| activity.parts = (done, all));
    }

    /// Sets the error with which it fails.
    pub fn fail(&self, error: &dyn std::fmt::Display) {
        let text = truncate_front(error.to_string());
        let mut activities = ACTIVITIES.lock();
        let mine = activities.running.iter_mut().find(|(number, _)| Some(*number) == self.0);
        mine.into_iter().for_each(|(_, activity)| activity.error.clone_from(&text));
    }
}

impl Drop for RunningActivity {
    fn drop(&mut self) {
        let mut activities = ACTIVITIES.lock();
        let place = activities.running.iter().position(|(number, _)| Some(*number) == self.0);
        if let Some(place) = place {
            let (_, mut activity) = activities.running.swap_remove(place);
            activity.ended_at = Some(clock::monotonic());
            activities.push_ended(activity);
        }
    }
}

impl Activities {
    fn push_ended(&mut self, activity: Activity) {
        let ended = if activity.kind.is_of_disk() { &mut self.ended_of_disk } else { &mut self.ended };
        if ended.len() >= ENDED_MAX {
            ended.pop_front();
        }
        ended.push_back(activity);
    }
}

/// Begins an activity.
pub fn begin(kind: ActivityKind, subject: impl Into<String>) -> RunningActivity {
    let subject = truncate(subject.into());
    let began_at = clock::monotonic();
    let mut activities = ACTIVITIES.lock();
    if activities.running.len() >= RUNNING_MAX {
        return RunningActivity(None);
    }
    let number = activities.next_number;
    activities.next_number += 1;
    let activity = Activity { kind, subject, began_at, ended_at: None, error: String::new(), parts: (0, 0) };
    activities.running.push((number, activity));
    RunningActivity(Some(number))
}

/// Records an activity that took from `began_at` until now.
pub fn note(kind: ActivityKind, subject: impl Into<String>, began_at: Instant) {
    let subject = truncate(subject.into());
    let ended_at = Some(clock::monotonic());
    let activity = Activity { kind, subject, began_at, ended_at, error: String::new(), parts: (0, 0) };
    ACTIVITIES.lock().push_ended(activity);
}

/// Returns the activities that overlap the time from `from` to `to`, the longest overlap first;
/// then those that failed within [`FAILURE_LASTS`] before, because their work is missing. Among
/// failures with the same subject only the last one is returned.
pub fn overlapping(from: Instant, to: Instant) -> Vec<Activity> {
    let activities = ACTIVITIES.lock();
    let running = activities.running.iter().map(|(_, activity)| activity);
    let all = running.chain(&activities.ended).chain(&activities.ended_of_disk);
    let mut found: Vec<_> =
        all.filter(|a| !a.overlap(from, to).is_zero() || a.failed_before(from)).cloned().collect();
    drop(activities);
    found.sort_by_key(|activity| std::cmp::Reverse((activity.overlap(from, to), activity.began_at)));
    let mut failures = Vec::new();
    found.retain(|a| {
        let is_known = failures.contains(&(a.kind, a.subject.clone()));
        failures.extend((!a.error.is_empty()).then(|| (a.kind, a.subject.clone())));
        a.error.is_empty() || !is_known
    });
    found.truncate(OVERLAPPING_MAX);
    found
}

/// Returns the running activities, the oldest first.
pub fn running() -> Vec<Activity> {
    let mut running: Vec<_> =
        ACTIVITIES.lock().running.iter().map(|(_, activity)| activity.clone()).collect();
    running.sort_by_key(|activity| activity.began_at);
    running
}

/// Returns the kept activities of some kinds: first those that have ended, the oldest first, then
/// the running ones.
pub fn kept(kinds: &[ActivityKind]) -> Vec<Activity> {
    let activities = ACTIVITIES.lock();
    let running = activities.running.iter().map(|(_, activity)| activity);
    let all = activities.ended_of_disk.iter().chain(&activities.ended).chain(running);
    all.filter(|activity| kinds.contains(&activity.kind)).cloned().collect()
}

/// Truncates an error at its beginning: the reason is at its end, behind the names of files.
fn truncate_front(mut text: String) -> String {
    let begin =
        (text.len().saturating_sub(TEXT_BYTES_MAX)..=text.len()).find(|at| text.is_char_boundary(*at));
    text.drain(..begin.unwrap_or(0));
    text
}

fn truncate(mut text: String) -> String {
    let end = (0..=TEXT_BYTES_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text.truncate(end.unwrap_or(0));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The activities of one test; others run at the same time.
    fn of(subject: &str, from: Instant) -> Vec<Activity> {
        let all = overlapping(from, clock::monotonic());
        all.into_iter().filter(|activity| activity.subject == subject).collect()
    }

    #[test]
    fn activities_that_overlap_a_request_are_found() {
        let before = clock::monotonic();
        let flush = begin(ActivityKind::Flush, "beside");
        std::thread::sleep(Duration::from_millis(2));
        let found = of("beside", before);
        assert_eq!((found.len(), found[0].ended_at), (1, None), "{found:?}");
        flush.fail(&"no space");
        drop(flush);
        let after = clock::monotonic();
        let found = of("beside", before);
        assert_eq!(found[0].error, "no space");
        assert!(found[0].ended_at.is_some() && found[0].overlap(before, after) >= Duration::from_millis(2));
        std::thread::sleep(Duration::from_millis(1));
        let found = of("beside", after);
        assert_eq!((found.len(), found[0].overlap(after, clock::monotonic())), (1, Duration::ZERO));
        drop(begin(ActivityKind::Flush, "before"));
        let after = clock::monotonic();
        std::thread::sleep(Duration::from_millis(1));
        assert!(of("before", after).is_empty(), "it had ended, and did not fail");
    }

    #[test]
    fn activities_of_a_kind_are_listed_with_running_ones_last() {
        let running = begin(ActivityKind::Split, "listed");
        running.set_parts(1, 3);
        drop(begin(ActivityKind::Merge, "listed"));
        drop(begin(ActivityKind::LogRoll, "listed"));
        let listed = kept(&[ActivityKind::Split, ActivityKind::Merge]);
        let listed = listed.iter().filter(|activity| activity.subject == "listed");
        let listed: Vec<_> = listed.map(|a| (a.kind, a.ended_at.is_some())).collect();
        assert_eq!(listed, [(ActivityKind::Merge, true), (ActivityKind::Split, false)]);
        let of_subject = super::running().into_iter().filter(|activity| activity.subject == "listed");
        assert_eq!(
            of_subject.map(|a| (a.kind, a.parts)).collect::<Vec<_>>(),
            [(ActivityKind::Split, (1, 3))]
        );
        drop(running);
    }

    #[test]
    fn finished_activities_are_noted_with_truncated_texts() {
        let before = clock::monotonic();
        std::thread::sleep(Duration::from_millis(1));
        let subject = "ä".repeat(TEXT_BYTES_MAX);
        note(ActivityKind::SlowRead, subject, before);
        let found = of(&"ä".repeat(TEXT_BYTES_MAX / 2), before);
        assert_eq!(found[0].kind, ActivityKind::SlowRead);
        assert_eq!(truncate_front("short".to_owned()), "short");
        let reason = truncate_front("ä".repeat(TEXT_BYTES_MAX) + "why");
        assert!(reason.ends_with("äwhy") && reason.len() <= TEXT_BYTES_MAX, "{reason}");
    }
}
