//! The power is cut at every step of the master's operations, and the next start serves a state
//! from before or after the operation.
//!
//! A whole server runs in this process on a disk that records each step ([`PowerCutFileSystem`]). A
//! [`SCENARIOS`] entry prepares some tables, then executes its steps while the disk records:
//! operations of the master, and Puts with FSYNC_WAL. For each recorded step, there is a disk as a
//! power cut may leave it; a number selects the parts of unsynced data that survive. On that disk a
//! server must start, without exception, and:
//!
//! - all compared properties of a cluster ([`ClusterState`]: tables, states, families, regions,
//!   rows, namespaces, snapshots) are as after the last answered step, or as after the step in
//!   flight;
//! - so every row acknowledged with FSYNC_WAL is there, also once the cleaners have emptied the
//!   archive, and also in disabled tables, which are enabled for this;
//! - regions cover all keys, and every table can be read, and written while it is enabled.
//!
//! That start is recorded, too, and cut at some step: the start after it must lead to the same
//! state.
//!
//! Or the process is killed at that step, and the power is cut later: the next server finds what
//! the killed one had not synced yet, writes to every table, and loses the power. Whatever it has
//! acknowledged must be there after the start that follows.
//!
//! Each scenario runs with tables of the store file trackers DEFAULT and FILE. Every other run has
//! its logs in another directory (`hbase.wal.dir`); `wal_dir` changes that setting.
//!
//! `EVENKEEL_SERVER_POWER_CUTS` is the number of cuts, or `all` for every step with two choices
//! each; `EVENKEEL_SERVER_POWER_CUT_SCENARIO` names the one scenario to run,
//! `EVENKEEL_SERVER_POWER_CUT_TRACKER` the one tracker; `EVENKEEL_TEST_SEED` repeats a run.

mod cluster_state;
#[path = "../../common/mod.rs"]
mod common;
mod running_server;
mod scenarios;
mod wal_dir;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use common::seed;
use evenkeel_fs::{PowerCutFileSystem, Recording};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use cluster_state::ClusterState;
use running_server::RunningServer;
use scenarios::{SCENARIOS, Scenario};

/// The default number of cuts.
const CUTS: usize = 176;
/// Choices for each step of a full run: no unsynced data survives, or some parts of it, or the
/// process is killed before the power is cut.
const CHOICES_OF_ALL: u64 = 3;
/// Threads that run scenarios: a start mostly waits.
const THREADS: usize = 3;
/// The maximum number of failures printed in full.
const TOLD_MAX: usize = 12;

/// The store file trackers of the tables with which each scenario runs.
const TRACKERS: [&str; 2] = ["DEFAULT", "FILE"];

/// The root directory of a scenario's servers, the directory of their logs, if that is another one,
/// and the tracker of its tables.
#[derive(Clone, Copy)]
struct RootAndTracker<'a> {
    root: &'a Path,
    wal_dir: Option<&'a Path>,
    tracker: &'static str,
}

impl RootAndTracker<'_> {
    fn start(self, fs: &PowerCutFileSystem) -> Result<RunningServer, String> {
        RunningServer::start(fs, (self.root, self.wal_dir), self.tracker)
    }
}

/// An executed scenario.
struct RecordedScenario {
    recording: Recording,
    /// The state before the first step and after each, and the number of disk steps at its reply.
    states: Vec<(usize, ClusterState)>,
    /// Each of these states once all its tables are enabled; `None` if they are.
    enabled: Vec<Option<ClusterState>>,
}

impl RecordedScenario {
    fn of(scenario: &Scenario, place: RootAndTracker<'_>) -> Result<Self, String> {
        let fs = PowerCutFileSystem::new();
        let server = place.start(&fs)?;
        for step in scenario.prepared {
            server.take(step).map_err(|e| format!("{step:?}: {e}"))?;
        }
        let mut states = vec![(0, server.state()?)];
        fs.start_recording();
        for step in scenario.steps {
            server.take(step).map_err(|e| format!("{step:?}: {e}"))?;
            states.push((fs.steps(), server.state()?));
        }
        let recording = fs.take_recording().ok_or("nothing was recorded")?;
        drop(server);
        let enabled = |(steps, state): &(usize, ClusterState)| match state.disabled_tables().next() {
            None => Ok(None),
            Some(_) => place.start(&recording.disk_after_kill(*steps))?.enable_all().map(Some),
        };
        let enabled = states.iter().map(enabled).collect::<Result<_, String>>()?;
        Ok(Self { recording, states, enabled })
    }

    /// Enables the tables of a server in one of the states, and compares the cells of those that
    /// were disabled. Steps with the same state may differ in them.
    fn compare_disabled(
        &self,
        server: &RunningServer,
        expected: &[(usize, &ClusterState)],
    ) -> Result<(), String> {
        let found = server.state()?;
        if found.disabled_tables().next().is_none() {
            return Ok(());
        }
        let now = server.enable_all()?;
        let alike = expected.iter().filter(|(_, state)| **state == found);
        let expected: Vec<_> = alike.filter_map(|(step, _)| self.enabled[*step].as_ref()).collect();
        if expected.contains(&&now) {
            return Ok(());
        }
        let differences: Vec<_> = expected.iter().map(|state| state.differences(&now)).collect();
        Err(format!("once its tables are enabled:\n{}", differences.join("\n and\n")))
    }

    /// The states that may be found after a cut, each with its number of scenario steps.
    fn expected(&self, at: usize) -> Vec<(usize, &ClusterState)> {
        let answered = self.states.iter().rposition(|(steps, _)| *steps <= at).unwrap_or(0);
        self.states
            .iter()
            .enumerate()
            .map(|(step, (_, state))| (step, state))
            .skip(answered)
            .take(2)
            .collect()
    }
}

/// A cut, the choice of the data that survives, and if the next start is cut as well.
#[derive(Clone, Copy, Debug)]
struct Cut {
    at: usize,
    choice: u64,
    again: Option<u64>,
    /// True if only the process is killed at this step, and the power is cut under the next one.
    is_kill: bool,
}

/// Starts on the disk after a cut; returns the number of the scenario's step that was found.
fn check(run: &RecordedScenario, cut: Cut, place: RootAndTracker<'_>) -> Result<usize, String> {
    let fs = run.recording.disk_after(cut.at, cut.choice);
    fs.start_recording();
    let server = place.start(&fs)?;
    let start = fs.take_recording().ok_or("nothing was recorded")?;
    let expected = run.expected(cut.at);
    let found = compare(&server, &expected)?;
    run.compare_disabled(&server, &expected)?;
    server.use_tables()?;
    drop(server);
    if let Some(random) = cut.again {
        let at = usize::try_from(random).unwrap_or_default() % (start.len() + 1);
        let after =
            |e: String| format!("{e}\nthe start was cut as well, after its step\n{}", start.steps_around(at));
        let server = place.start(&start.disk_after(at, random >> 8)).map_err(after)?;
        compare(&server, &expected).map_err(after)?;
    }
    Ok(found)
}

/// Starts on the disk of a killed process, and again after the power was cut under that server;
/// returns the number of the scenario's step that was found.
fn check_kill(run: &RecordedScenario, cut: Cut, place: RootAndTracker<'_>) -> Result<usize, String> {
    let fs = run.recording.disk_after_kill(cut.at);
    fs.start_recording();
    let server = place.start(&fs)?;
    let expected = run.expected(cut.at);
    let found = compare(&server, &expected)?;
    run.compare_disabled(&server, &expected)?;
    server.use_tables()?;
    let used = server.settled(|_| true)?;
    let recording = fs.take_recording().ok_or("nothing was recorded")?;
    drop(server);
    let server = place.start(&recording.disk_after(recording.len(), cut.choice))?;
    compare(&server, &[(found, &used)]).map_err(|e| format!("{e}\nafter the power was cut"))
}

fn compare(server: &RunningServer, expected: &[(usize, &ClusterState)]) -> Result<usize, String> {
    let found = server.settled(|state| expected.iter().any(|(_, expected)| *expected == state))?;
    let step = expected.iter().find(|(_, state)| **state == found).map(|(step, _)| *step);
    step.ok_or_else(|| {
        let expected: Vec<_> = expected.iter().map(|(_, state)| state.differences(&found)).collect();
        format!("neither before nor after:\n{}", expected.join("\n and\n"))
    })
}

/// The cuts of a run: all, or a sample of this size.
fn cuts(run: &RecordedScenario, count: Option<usize>, random: &mut StdRng) -> Vec<Cut> {
    let len = run.recording.len();
    match count {
        None => (0..=len)
            .flat_map(|at| (0..CHOICES_OF_ALL).map(move |choice| (at, choice)))
            .map(|(at, choice)| {
                let is_kill = choice == 2;
                let choice = if choice == 0 { 0 } else { random.random() };
                Cut { at, choice, again: (choice > 0).then(|| random.random()), is_kill }
            })
            .collect(),
        // One cut from each part of the steps, so that none is skipped.
        Some(count) => (0..count)
            .map(|part| {
                let (from, to) = (part * (len + 1) / count, (part + 1) * (len + 1) / count);
                let at = random.random_range(from..to.max(from + 1)).min(len);
                let choice = if random.random_bool(0.4) { 0 } else { random.random() };
                let again = random.random_bool(0.25).then(|| random.random());
                Cut { at, choice, again, is_kill: random.random_bool(0.25) }
            })
            .collect(),
    }
}

/// The failures of a scenario, and the number of cuts by the step that was found.
#[derive(Default)]
struct Outcome {
    failures: Vec<String>,
    found: BTreeMap<usize, usize>,
    cuts: usize,
}

fn go_through(
    scenario: &Scenario,
    (tracker, has_wal_dir): (&'static str, bool),
    count: Option<usize>,
    seed: u64,
) -> Outcome {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let [root, wals] = ["hbase", "wals"].map(|name| folder.path().join(name));
    [&root, &wals].into_iter().for_each(|dir| std::fs::create_dir(dir).expect("made"));
    let place = RootAndTracker { root: &root, wal_dir: has_wal_dir.then_some(&wals), tracker };
    let mut random = StdRng::seed_from_u64(seed);
    let mut outcome = Outcome::default();
    let run = match RecordedScenario::of(scenario, place) {
        Ok(run) => run,
        Err(what) => {
            outcome.failures.push(format!("{}, {tracker}: it does not even run: {what}", scenario.name));
            return outcome;
        }
    };
    for cut in cuts(&run, count, &mut random) {
        outcome.cuts += 1;
        let checked = if cut.is_kill { check_kill(&run, cut, place) } else { check(&run, cut, place) };
        match checked {
            Ok(found) => *outcome.found.entry(found).or_default() += 1,
            Err(what) => outcome.failures.push(format!(
                "{}, {tracker}, {cut:?} of {}, {} steps answered:\n{what}\n{}",
                scenario.name,
                run.recording.len(),
                run.expected(cut.at)[0].0,
                run.recording.steps_around(cut.at)
            )),
        }
    }
    outcome
}

#[test]
fn a_power_cut_at_any_step_leaves_a_cluster_from_before_or_after() {
    let seed = seed();
    let only = std::env::var("EVENKEEL_SERVER_POWER_CUT_SCENARIO").ok();
    let scenarios: Vec<_> =
        SCENARIOS.iter().filter(|s| only.as_deref().is_none_or(|name| name == s.name)).collect();
    let count = match std::env::var("EVENKEEL_SERVER_POWER_CUTS").as_deref() {
        Ok("all") => None,
        Ok(number) => Some(number.parse::<usize>().expect("a number, or all")),
        Err(_) => Some(CUTS),
    };
    let only = std::env::var("EVENKEEL_SERVER_POWER_CUT_TRACKER").ok();
    let trackers = TRACKERS.iter().filter(|tracker| only.as_deref().is_none_or(|only| only == **tracker));
    let runs: Vec<_> = trackers.flat_map(|tracker| scenarios.iter().map(move |s| (*s, *tracker))).collect();
    let each = count.map(|count| count.div_ceil(runs.len()));
    let (next, failures, began) = (AtomicUsize::new(0), Mutex::new(Vec::new()), Instant::now());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some((at, (scenario, tracker))) = {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    runs.get(at).map(|run| (at, *run))
                } {
                    // Half of the scenarios with each tracker, the other half with the other one.
                    let has_wal_dir = (at % scenarios.len() + at / scenarios.len()).is_multiple_of(2);
                    let kind = (tracker, has_wal_dir);
                    let outcome = go_through(scenario, kind, each, seed.wrapping_add(at as u64));
                    let (name, found) = (scenario.name, &outcome.found);
                    let logs = if has_wal_dir { "apart" } else { "there" };
                    println!(
                        "{name:12} {tracker:7} logs {logs} {:4} cuts, {} failed; by the step found: {found:?}",
                        outcome.cuts,
                        outcome.failures.len()
                    );
                    failures.lock().expect("no panic").extend(outcome.failures);
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no panic");
    println!("{:?}", began.elapsed());
    let told: Vec<_> = failures.iter().take(TOLD_MAX).map(String::as_str).collect();
    assert!(
        failures.is_empty(),
        "{} failures, EVENKEEL_TEST_SEED={seed}\n\n{}",
        failures.len(),
        told.join("\n\n")
    );
}
