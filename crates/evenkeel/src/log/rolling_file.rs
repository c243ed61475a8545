//! [`RollingFile`]: a log file that is rolled at a size limit, and that other programs may roll.
//!
//! Lines are appended to `evenkeel.log`. At the size limit, it becomes `evenkeel.log.1`, the former
//! `evenkeel.log.1` becomes `evenkeel.log.2`, and so on; the oldest file is removed. If another
//! program has renamed or removed the file (logrotate), the next write creates it again, so no
//! signal is needed.
//!
//! A batch of lines is not split, so a file exceeds its limit by less than the capacity of the
//! log's queue.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::settings::LogFile;

/// See the module's documentation. The file is opened at the first write.
#[derive(Debug)]
pub struct RollingFile {
    settings: LogFile,
    open: Option<OpenFile>,
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    /// Device and inode.
    identity: (u64, u64),
    bytes: u64,
}

impl RollingFile {
    /// Opens a file for appending.
    ///
    /// # Errors
    /// If it cannot be opened, with its path.
    pub fn open(settings: LogFile) -> io::Result<Self> {
        let path = settings.path.display().to_string();
        let mut rolling = Self { settings, open: None };
        if let Err(error) = rolling.current(0) {
            return Err(io::Error::new(error.kind(), format!("evenkeel.log.file: {path}: {error}")));
        }
        Ok(rolling)
    }

    /// Returns the file for the next `more` bytes.
    fn current(&mut self, more: usize) -> io::Result<&mut OpenFile> {
        let LogFile { path, bytes_max, .. } = &self.settings;
        let identity = fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
        let kept = self.open.take().filter(|open| Some(open.identity) == identity);
        let is_full = |open: &OpenFile| {
            *bytes_max > 0 && open.bytes > 0 && open.bytes.saturating_add(more as u64) > *bytes_max
        };
        let mut open = kept.map_or_else(|| OpenFile::at(&self.settings), Ok)?;
        if is_full(&open) && self.roll().is_ok() {
            open = OpenFile::at(&self.settings)?;
        }
        Ok(self.open.insert(open))
    }

    /// Renames the files. If that fails, the log continues in the open file.
    fn roll(&self) -> io::Result<()> {
        let kept = self.settings.kept;
        if kept == 0 {
            return fs::remove_file(&self.settings.path);
        }
        for number in (1..kept).rev() {
            // Fewer files than the maximum may exist.
            let _absent = fs::rename(self.rolled(number), self.rolled(number + 1));
        }
        fs::rename(&self.settings.path, self.rolled(1))
    }

    fn rolled(&self, number: usize) -> PathBuf {
        let mut name = self.settings.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }
}

impl OpenFile {
    fn at(settings: &LogFile) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(&settings.path)?;
        let found = file.metadata()?;
        Ok(Self { file, identity: (found.dev(), found.ino()), bytes: found.len() })
    }
}

impl Write for RollingFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let open = self.current(bytes.len())?;
        let written = open.file.write(bytes)?;
        open.bytes = open.bytes.saturating_add(written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(dir: &tempfile::TempDir, name: &str) -> Option<String> {
        fs::read_to_string(dir.path().join(name)).ok()
    }

    fn rolling(dir: &tempfile::TempDir, bytes_max: u64, kept: usize) -> RollingFile {
        let path = dir.path().join("log");
        RollingFile::open(LogFile { path, bytes_max, kept }).expect("opened")
    }

    #[test]
    fn full_files_roll_and_the_oldest_is_deleted() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut log = rolling(&dir, 11, 2);
        for line in ["one\n", "two\n", "three\n", "four\n", "five five five\n", "six\n"] {
            log.write_all(line.as_bytes()).expect("written");
        }
        assert_eq!(text(&dir, "log").as_deref(), Some("six\n"));
        assert_eq!(text(&dir, "log.1").as_deref(), Some("five five five\n"), "a batch is not split");
        assert_eq!(text(&dir, "log.2").as_deref(), Some("three\nfour\n"));
        assert_eq!(text(&dir, "log.3"), None, "one and two are gone");
        drop(log);
        let mut log = rolling(&dir, 11, 2);
        log.write_all(b"seven\n").expect("written");
        assert_eq!(text(&dir, "log").as_deref(), Some("six\nseven\n"), "a start appends");
    }

    #[test]
    fn a_renamed_log_file_is_recreated() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut log = rolling(&dir, 0, 2);
        log.write_all(b"before\n").expect("written");
        fs::rename(dir.path().join("log"), dir.path().join("log-yesterday")).expect("renamed");
        log.write_all(b"after\n").expect("written");
        assert_eq!(text(&dir, "log-yesterday").as_deref(), Some("before\n"));
        assert_eq!(text(&dir, "log").as_deref(), Some("after\n"));
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("absent/log");
        let error = RollingFile::open(LogFile { path, bytes_max: 0, kept: 0 }).expect_err("no directory");
        assert!(error.to_string().starts_with("evenkeel.log.file: "), "{error}");
    }
}
