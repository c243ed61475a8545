//! The side-by-side reports; `report` without arguments prints its usage.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use evenkeel_bench::report::{Plan, make};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match Plan::of_words(&words).and_then(|plan| make(&plan)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("report: {why}");
            ExitCode::FAILURE
        }
    }
}
