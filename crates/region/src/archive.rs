//! Files that are no longer served, on their way to the archive.

use std::io;
use std::path::Path;

use evenkeel_fs::FileSystem;

/// How often a directory of the archive may vanish under a file's move: a cleaner removes it only while it is empty.
const ATTEMPTS_MAX: usize = 8;

/// Moves a file into a directory of the archive, beside a file of the same name when there is one. A file that is not there
/// was moved before.
///
/// # Errors
/// What the file system says.
pub fn archive_file(fs: &dyn FileSystem, file: &Path, archive_dir: &Path, now_ms: i64) -> io::Result<()> {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let mut attempt = 0;
    loop {
        attempt += 1;
        fs.mkdirs(archive_dir)?;
        let mut target = archive_dir.join(name);
        if fs.exists(&target)? {
            target = archive_dir.join(format!("{name}.{now_ms}"));
        }
        // A cleaner counts from the moment that a file is put away, as in HBase.
        match fs.touch(file).and_then(|()| fs.rename(file, &target)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && attempt < ATTEMPTS_MAX => {
                if !fs.exists(file)? {
                    return Ok(());
                }
            }
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_fs::{Fault, FaultyFileSystem, MemoryFileSystem, Op};

    use super::*;

    #[test]
    fn a_file_gets_there_though_the_directory_vanishes() {
        let memory = MemoryFileSystem::new();
        let fs = FaultyFileSystem::new(memory.clone());
        let (file, dir) = (Path::new("/data/f/00ff"), Path::new("/archive/f"));
        for content in [b"one", b"two"] {
            memory.write_atomically(file, content).expect("written");
            // As if a cleaner had removed the empty directory before the move.
            fs.inject(Fault::on(Op::Rename, "00ff").fails(io::ErrorKind::NotFound));
            archive_file(&fs, file, dir, 7).expect("moved");
            assert!(!memory.exists(file).expect("looked"));
        }
        assert_eq!(memory.read_all(&dir.join("00ff"), 9).expect("read"), b"one");
        assert_eq!(memory.read_all(&dir.join("00ff.7"), 9).expect("read"), b"two");
        archive_file(&fs, file, dir, 7).expect("nothing to do");
    }
}
