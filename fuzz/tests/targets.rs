//! The targets in `cargo test`: the committed seeds, the corpus of the interop tests, and mutations
//! of both.
//!
//! `EVENKEEL_FUZZ_SECONDS` is the run time of all targets together, 8 by default;
//! `EVENKEEL_FUZZ_SEED` sets another random seed.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use evenkeel_fuzz::mutation::{Random, mutated};
use evenkeel_fuzz::{TARGETS, Target};

/// A store file has a trailer of 4 KiB; longer seeds make mutations slow.
const SEED_BYTES_MAX: usize = 16 << 10;
const SECONDS: u64 = 8;
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Returns the files of a folder, ordered by name; none if the folder does not exist.
fn files(folder: &Path) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|file| file.path()).collect();
    paths.sort();
    let read = |path: PathBuf| fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    paths.into_iter().map(read).collect()
}

fn seeds_of(target: &Target) -> Vec<Vec<u8>> {
    let mut seeds = files(&target.seeds());
    assert!(!seeds.is_empty(), "{}: no seeds in {}", target.name, target.seeds().display());
    seeds.extend(files(&target.corpus()));
    assert!(seeds.iter().all(|seed| seed.len() <= SEED_BYTES_MAX), "{}: a seed is too long", target.name);
    seeds
}

/// Runs one input; after a panic, prints how to reproduce it.
fn run(target: &Target, input: &[u8], seed: u64) {
    let outcome = std::panic::catch_unwind(|| target.run(input));
    if outcome.is_err() {
        let path = std::env::temp_dir().join(format!("evenkeel-fuzz-{}-{}", target.name, std::process::id()));
        let kept = fs::write(&path, input).is_ok();
        panic!("target {}, seed {seed}; the input is in {} ({kept})", target.name, path.display());
    }
}

#[test]
fn mutated_seeds() {
    let seed = number("EVENKEEL_FUZZ_SEED", SEED);
    let all = Duration::from_secs(number("EVENKEEL_FUZZ_SECONDS", SECONDS));
    println!("seed {seed}");
    for target in TARGETS {
        let (seeds, mut random) = (seeds_of(target), Random::new(seed));
        seeds.iter().for_each(|input| run(target, input, seed));
        let until = Instant::now() + all / TARGETS.len() as u32;
        let mut cases = 0;
        while Instant::now() < until || cases == 0 {
            (0..20).for_each(|_| run(target, &mutated(&mut random, &seeds), seed));
            cases += 20;
        }
        println!("{}: {} seeds, {cases} mutations", target.name, seeds.len());
    }
}

/// The empty input, and inputs from the current writers.
#[test]
fn targets_accept_empty_and_current_inputs() {
    for target in TARGETS {
        run(target, &[], 0);
        (target.made)().iter().for_each(|input| run(target, input, 0));
    }
}
