//! Moves files that are no longer served to the archive.

#![forbid(unsafe_code)]

use std::io;
use std::path::Path;

use evenkeel_fs::FileSystem;

/// How often a directory of the archive may vanish during a file's move. A cleaner removes only
/// empty directories.
const ATTEMPTS_MAX: usize = 8;

/// Moves a file into a directory of the archive, under another name if the name exists there. Does
/// nothing, and returns false, if the file is missing, because an earlier call moved it.
///
/// # Errors
/// I/O errors of the file system.
pub fn archive_file(fs: &dyn FileSystem, file: &Path, archive_dir: &Path, now_ms: i64) -> io::Result<bool> {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let mut attempt = 0;
    loop {
        attempt += 1;
        fs.mkdirs(archive_dir)?;
        let mut target = archive_dir.join(name);
        if fs.exists(&target)? {
            target = archive_dir.join(format!("{name}.{now_ms}"));
        }
        // A cleaner counts the age from the moment of archiving, as in HBase.
        match fs.touch(file).and_then(|()| fs.rename(file, &target)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && attempt < ATTEMPTS_MAX => {
                if !fs.exists(file)? {
                    return Ok(false);
                }
            }
            done => return done.map(|()| true),
        }
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_fs::{Fault, FaultyFileSystem, MemoryFileSystem, Op};

    use super::*;

    #[test]
    fn a_file_is_archived_though_its_directory_vanishes() {
        let memory = MemoryFileSystem::new();
        let fs = FaultyFileSystem::new(memory.clone());
        let (file, dir) = (Path::new("/data/f/00ff"), Path::new("/archive/f"));
        for content in [b"one", b"two"] {
            memory.write_atomically(file, content).expect("written");
            // As if a cleaner had removed the empty directory before the move.
            fs.inject(Fault::on(Op::Rename, "00ff").fails(io::ErrorKind::NotFound));
            assert!(archive_file(&fs, file, dir, 7).expect("moved"));
            assert!(!memory.exists(file).expect("looked"));
        }
        assert_eq!(memory.read_all(&dir.join("00ff"), 9).expect("read"), b"one");
        assert_eq!(memory.read_all(&dir.join("00ff.7"), 9).expect("read"), b"two");
        assert!(!archive_file(&fs, file, dir, 7).expect("nothing to do"));
    }
}
