//! The target that `EVENKEEL_FUZZ_TARGET` names, in libFuzzer.

#![no_main]

use std::sync::OnceLock;

use evenkeel_fuzz::{Target, target};

fn named() -> &'static Target {
    static NAMED: OnceLock<&'static Target> = OnceLock::new();
    NAMED.get_or_init(|| {
        let name = std::env::var("EVENKEEL_FUZZ_TARGET").unwrap_or_default();
        target(&name).unwrap_or_else(|| panic!("EVENKEEL_FUZZ_TARGET is {name:?}: no target of that name"))
    })
}

libfuzzer_sys::fuzz_target!(|input: &[u8]| named().run(input));
