//! Rewrites `fuzz/seeds`: `cargo run -p evenkeel-fuzz --example seeds`. For when a format gains
//! a form; files that an earlier version wrote are good seeds too, and what is committed is read by
//! the tests as they are.

use std::{fs, io};

use evenkeel_fuzz::TARGETS;

fn main() -> io::Result<()> {
    for target in TARGETS {
        let folder = target.seeds();
        fs::create_dir_all(&folder)?;
        for file in fs::read_dir(&folder)? {
            fs::remove_file(file?.path())?;
        }
        for (number, seed) in (target.made)().iter().enumerate() {
            fs::write(folder.join(number.to_string()), seed)?;
        }
    }
    Ok(())
}
