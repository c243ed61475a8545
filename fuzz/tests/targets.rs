//! The targets in `cargo test`: their seeds, what stock HBase left in the corpus, and mutations of both.
//!
//! `EVENKEEL_FUZZ_SECONDS` says how long all targets together run, 8 by default; `EVENKEEL_FUZZ_SEED` starts elsewhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use evenkeel_fuzz::mutation::{Random, mutated};
use evenkeel_fuzz::{TARGETS, Target};

/// Files of the corpus that are longer are left out: they make for slow mutations.
const SEED_BYTES_MAX: u64 = 64 << 10;
const SECONDS: u64 = 8;
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn corpus_of(target: &Target) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../interop/work/corpus").join(target.name)
}

/// The target's own seeds, then those of stock HBase, by name.
fn seeds_of(target: &Target) -> Vec<Vec<u8>> {
    let mut files: Vec<_> = fs::read_dir(corpus_of(target))
        .into_iter()
        .flatten()
        .flatten()
        .filter(|file| file.metadata().is_ok_and(|status| status.len() <= SEED_BYTES_MAX))
        .map(|file| file.path())
        .collect();
    files.sort();
    let stock = files.iter().filter_map(|file| fs::read(file).ok());
    (target.seeds)().into_iter().chain(stock).collect()
}

/// Runs one input; a panic is told with what makes it happen again.
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

/// A target that never gets past its first check finds nothing: damage that must be told is told.
#[test]
fn the_seeds_are_good_and_their_damage_is_seen() {
    for target in TARGETS {
        let seeds = (target.seeds)();
        assert!(seeds.iter().any(|seed| seed.len() > 4), "{}", target.name);
        run(target, &[], 0);
    }
}
