//! Every target in one binary: `EVENKEEL_FUZZ_TARGET` names one; without it the input's first byte chooses.

#![no_main]

use std::sync::OnceLock;

use evenkeel_fuzz::{TARGETS, Target, target};

fn named() -> Option<&'static Target> {
    static NAMED: OnceLock<Option<&'static Target>> = OnceLock::new();
    *NAMED.get_or_init(|| {
        let name = std::env::var("EVENKEEL_FUZZ_TARGET").ok()?;
        Some(target(&name).unwrap_or_else(|| panic!("no target {name}")))
    })
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| match (named(), input.split_first()) {
    (Some(target), _) => target.run(input),
    (None, Some((which, input))) => TARGETS[usize::from(*which) % TARGETS.len()].run(input),
    (None, None) => {}
});
