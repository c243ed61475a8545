//! Reads from the kernel's page cache, which do not wait for a disk.

use std::fs::File;

/// Fills `buf` from `offset` if all of it is in the page cache. Otherwise returns false without
/// reading from the disk; also if the file system does not support the check.
#[cfg(target_os = "linux")]
pub fn read(file: &File, offset: u64, buf: &mut [u8]) -> bool {
    use rustix::io::ReadWriteFlags;

    let mut filled = 0;
    while let Some(rest @ [_, ..]) = buf.get_mut(filled..) {
        let mut rest = [std::io::IoSliceMut::new(rest)];
        match rustix::io::preadv2(file, &mut rest, offset + filled as u64, ReadWriteFlags::NOWAIT) {
            Ok(0) => return false,
            Ok(n) => filled += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}

/// Other systems do not support the check.
#[cfg(not(target_os = "linux"))]
pub fn read(_: &File, _: u64, _: &mut [u8]) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn cached_bytes_are_read_only_within_the_file() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join("file");
        std::fs::write(&path, b"0123456789").expect("written");
        let file = File::open(&path).expect("open");
        let mut buf = [0; 4];
        if !read(&file, 3, &mut buf) {
            // A file system without support returns false for every read.
            assert!(!read(&file, 0, &mut buf));
            return;
        }
        assert_eq!(&buf, b"3456");
        assert!(!read(&file, 8, &mut buf), "two bytes are missing");
    }
}
