//! Prints the hit ratios of all policies on all traces; see [`evenkeel_bench::hit_ratio`].

use evenkeel_bench::hit_ratio::{Sizes, table};

fn main() {
    print!("{}", table(&Sizes::full(), &[]));
}
