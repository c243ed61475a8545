//! The power is cut at the steps of the first start with `hbase.wal.dir`, over a root directory
//! whose logs were not split.

use std::path::Path;

use evenkeel_fs::{PowerCutFileSystem, Recording};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::cluster_state::ClusterState;
use crate::common::seed;
use crate::running_server::RunningServer;
use crate::scenarios::Step;

const CUTS: usize = 30;

/// The directories of the servers.
#[derive(Clone, Copy)]
struct Dirs<'a> {
    root: &'a Path,
    wals: &'a Path,
    other: &'a Path,
}

impl Dirs<'_> {
    fn start(self, fs: &PowerCutFileSystem, wal_dir: Option<&Path>) -> Result<RunningServer, String> {
        RunningServer::start(fs, (self.root, wal_dir), "DEFAULT")
    }
}

/// A recorded run, and the states that were acknowledged, each with the steps before its response.
struct RecordedStart {
    recording: Recording,
    states: Vec<(usize, ClusterState)>,
}

impl RecordedStart {
    /// Checks that a server has what was acknowledged before a cut.
    fn check(&self, server: &RunningServer, at: usize) -> Result<(), String> {
        let answered = self.states.iter().rposition(|(steps, _)| *steps <= at).unwrap_or(0);
        let expected: Vec<_> = self.states.iter().skip(answered).take(2).map(|(_, state)| state).collect();
        let found = server.settled(|state| expected.contains(&state))?;
        match expected.contains(&&found) {
            true => Ok(()),
            false => Err(expected.iter().map(|state| state.differences(&found)).collect()),
        }
    }
}

/// Writes rows with logs in the root directory, kills that server, and records the next one, which
/// has its logs in another directory.
fn run(dirs: Dirs<'_>) -> Result<RecordedStart, String> {
    let fs = PowerCutFileSystem::new();
    let server = dirs.start(&fs, None)?;
    fs.start_recording();
    server.take(&Step::Create("t", &["m"]))?;
    for (row, is_flushed) in [("a", true), ("b", false), ("z", false)] {
        server.take(&Step::Put("t", row, &["f", "g"]))?;
        if is_flushed {
            server.take(&Step::Flush("t"))?;
        }
    }
    let before = server.state()?;
    let recording = fs.take_recording().ok_or("nothing was recorded")?;
    drop(server);
    let disk = recording.disk_after_kill(recording.len());
    disk.start_recording();
    let server = dirs.start(&disk, Some(dirs.wals))?;
    let mut states = vec![(0, before)];
    for row in ["c", "n"] {
        server.take(&Step::Put("t", row, &["f"]))?;
        states.push((disk.steps(), server.state()?));
    }
    let recording = disk.take_recording().ok_or("nothing was recorded")?;
    drop(server);
    Ok(RecordedStart { recording, states })
}

/// Starts after a cut with the setting, and without it or with another one: such a start refuses,
/// or serves the same rows.
fn check(run: &RecordedStart, dirs: Dirs<'_>, at: usize, choice: u64) -> Result<(), String> {
    let disk = || run.recording.disk_after(at, choice);
    let server = dirs.start(&disk(), Some(dirs.wals))?;
    run.check(&server, at)?;
    server.use_tables()?;
    drop(server);
    let is_complete = at == run.recording.len();
    for setting in [None, Some(dirs.other)] {
        match dirs.start(&disk(), setting) {
            Err(error) if error.contains(".wal.dir") => {}
            Err(error) => return Err(error),
            Ok(_) if is_complete => return Err(format!("{setting:?}: the start does not refuse")),
            Ok(server) => run.check(&server, at).map_err(|e| format!("{setting:?}: {e}"))?,
        }
    }
    Ok(())
}

#[test]
fn a_power_cut_while_the_directory_of_logs_changes_loses_no_row() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let [root, wals, other] = ["hbase", "wals", "other"].map(|name| folder.path().join(name));
    [&root, &wals, &other].into_iter().for_each(|dir| std::fs::create_dir(dir).expect("made"));
    let dirs = Dirs { root: &root, wals: &wals, other: &other };
    let seed = seed();
    let mut random = StdRng::seed_from_u64(seed);
    let run = run(dirs).unwrap_or_else(|why| panic!("it does not even run: {why}"));
    let len = run.recording.len();
    let sampled = (0..CUTS).map(|part| part * len / CUTS + random.random_range(0..=len / CUTS));
    let cuts: Vec<_> = sampled.map(|at| at.min(len)).chain([0, len]).collect();
    for at in cuts {
        let choice = if random.random_bool(0.4) { 0 } else { random.random() };
        if let Err(why) = check(&run, dirs, at, choice) {
            let steps = run.recording.steps_around(at);
            panic!("EVENKEEL_TEST_SEED={seed}, cut {at} of {len}, choice {choice}:\n{why}\n{steps}");
        }
    }
}
