//! `hit_ratio`: the hit ratios of all policies on all traces; see [`evenkeel_bench::hit_ratio`].

use evenkeel_bench::hit_ratio::{Sizes, table};

use crate::Outcome;

pub fn run(_: &[String]) -> Outcome {
    print!("{}", table(&Sizes::full(), &[]));
    Ok(())
}
