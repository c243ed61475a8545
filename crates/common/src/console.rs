//! Lines for the person at a tool's terminal. Standard output and error may be closed or full: `println!` and `eprintln!` panic
//! then, these lose the line.

use std::fmt::Arguments;
use std::io::Write;

/// Prints a text to standard output, as it is.
pub fn print(text: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    let _lost = out.write_fmt(text).and_then(|()| out.flush());
}

/// Prints a text to standard error, as it is.
pub fn print_error(text: Arguments<'_>) {
    let _lost = std::io::stderr().lock().write_fmt(text);
}
