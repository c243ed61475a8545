//! The measuring tools run end to end, those that support small sizes.

use std::process::{Command, Output};

fn measure(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_measure")).args(words).output().expect("it starts")
}

/// The output of a successful tool.
fn printed(words: &[&str]) -> String {
    let run = measure(words);
    assert!(run.status.success(), "{words:?}: {}", String::from_utf8_lossy(&run.stderr));
    String::from_utf8_lossy(&run.stdout).into_owned()
}

#[test]
fn tools_print_their_figures() {
    assert!(printed(&["client_get", "4", "400"]).contains("CPU a Get: client "));
    assert!(printed(&["hfile_instructions", "read", "DIFF", "NONE", "1000", "1"]).contains("ns of CPU"));
    assert!(printed(&["block_cache_restart", "8", "mmap"]).contains("100.00 % hits"));
    let folder = tempfile::tempdir().expect("a folder");
    let directory = folder.path().join("files").display().to_string();
    assert!(printed(&["write_behind", &directory, "1", "0", "1", "64"]).contains("log synced piece 64 KiB"));
}

#[test]
fn an_unknown_tool_or_argument_is_refused() {
    for words in [&["unknown"][..], &[], &["client_get", "many"], &["hfile_instructions", "read"]] {
        let run = measure(words);
        assert!(!run.status.success() && !run.stderr.is_empty(), "{words:?}");
    }
}
