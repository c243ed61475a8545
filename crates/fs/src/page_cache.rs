//! Reads of what the kernel has in memory: such a read takes no wait for a disk.

use std::fs::File;

/// Fills `buf` from `offset`, if the kernel's page cache has all of it; else false, and nothing was asked of the disk. So
/// it is where the file system cannot tell.
#[cfg(target_os = "linux")]
pub fn read(file: &File, offset: u64, buf: &mut [u8]) -> bool {
    use rustix::io::ReadWriteFlags;

    let mut filled = 0;
    while filled < buf.len() {
        let mut rest = [std::io::IoSliceMut::new(&mut buf[filled..])];
        match rustix::io::preadv2(file, &mut rest, offset + filled as u64, ReadWriteFlags::NOWAIT) {
            Ok(0) => return false,
            Ok(n) => filled += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}

/// This system cannot tell.
#[cfg(not(target_os = "linux"))]
pub fn read(_: &File, _: u64, _: &mut [u8]) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn what_was_just_written_is_there_and_what_the_file_lacks_is_not() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("file");
        std::fs::write(&path, b"0123456789").expect("written");
        let file = File::open(&path).expect("open");
        let mut buf = [0; 4];
        if !read(&file, 3, &mut buf) {
            // A file system that cannot tell says so of everything.
            assert!(!read(&file, 0, &mut buf));
            return;
        }
        assert_eq!(&buf, b"3456");
        assert!(!read(&file, 8, &mut buf), "two bytes are missing");
    }
}
