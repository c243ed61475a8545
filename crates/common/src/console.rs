//! Output of command-line tools. If standard output or error is closed or full, `println!` and
//! `eprintln!` panic; these functions lose the text.

use std::fmt::Arguments;
use std::io::Write;

/// Prints a text to standard output, unchanged.
pub fn print(text: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    let _lost = out.write_fmt(text).and_then(|()| out.flush());
}

/// Prints a text to standard error, unchanged.
pub fn print_error(text: Arguments<'_>) {
    let _lost = std::io::stderr().lock().write_fmt(text);
}
