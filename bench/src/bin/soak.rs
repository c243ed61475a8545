//! Hours of mixed load on a server under faults; see [`evenkeel_bench::soak`].

#![forbid(unsafe_code)]

use std::process::ExitCode;

use evenkeel_bench::soak::process::{SERVE, serve};
use evenkeel_bench::soak::{Options, run};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some((SERVE, settings)) = words.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        return serve(settings);
    }
    match Options::of_words(&words).and_then(|options| run(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("soak: {why}");
            ExitCode::FAILURE
        }
    }
}
