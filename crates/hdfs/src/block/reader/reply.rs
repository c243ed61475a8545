//! The reply to a read of a range of a block: a status, and packets up to the empty last one.
//!
//! # Invariant
//! A read that succeeds has filled the whole range. The packets follow each other without a gap,
//! the first one begins at or before the range, and the last one ends at or after its end.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use evenkeel_common::clock;

use crate::block::packet::{self, Checksum, Header, Mismatch, PREFIX_BYTES};
use crate::hadoop::hdfs::{BlockOpResponseProto, Status};
use crate::wire::read_delimited;

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// The slowest reply, in bytes per second, beyond the timeout of one read of the socket.
const BYTES_PER_SECOND_MIN: u64 = 64 << 10;

/// Returns how long a reply of this length may take altogether.
pub(super) fn time_max(bytes: usize, socket_timeout: Duration) -> Duration {
    socket_timeout.saturating_add(Duration::from_secs(bytes as u64 / BYTES_PER_SECOND_MIN))
}

/// A socket whose reads fail after a deadline. The timeout of the socket limits each of them.
pub(super) struct DeadlineReader<R> {
    pub(super) socket: R,
    pub(super) deadline: Instant,
}

impl<R: Read> Read for DeadlineReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if clock::monotonic() >= self.deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the reply has taken too long"));
        }
        self.socket.read(buf)
    }
}

/// Reads the reply to a read of `buf.len()` bytes at `offset`: the status, and packets up to the
/// empty last one.
///
/// # Errors
/// An error with the DataNode's status; a [`Mismatch`]; `InvalidData` for a reply that is malformed
/// or does not cover the range; I/O errors of the socket.
pub(super) fn receive(from: &mut impl Read, offset: u64, buf: &mut [u8]) -> io::Result<Checksum> {
    let reply: BlockOpResponseProto = read_delimited(from)?;
    if reply.status() != Status::Success {
        let status = reply.status().as_str_name();
        return Err(io::Error::other(format!("{status}: {}", reply.message())));
    }
    let info = reply.read_op_checksum_info.ok_or_else(|| invalid("a reply without checksum information"))?;
    let checksum = Checksum::of(&info.checksum)?;
    if info.chunk_offset > offset {
        return Err(invalid(format!("the reply begins at {}, {offset} expected", info.chunk_offset)));
    }
    let mut range = Range { start: offset, buf, next: info.chunk_offset, scratch: Vec::new() };
    while range.receive_packet(from, checksum)? {}
    match range.next >= range.end() {
        true => Ok(checksum),
        false => Err(invalid(format!("the block ended at {}, {} expected", range.next, range.end()))),
    }
}

/// The range being read; packets fill it in order.
struct Range<'a> {
    start: u64,
    buf: &'a mut [u8],
    /// The offset of the next packet.
    next: u64,
    /// The data of a packet that is not entirely within the range.
    scratch: Vec<u8>,
}

impl Range<'_> {
    fn end(&self) -> u64 {
        self.start + self.buf.len() as u64
    }

    /// Reads one packet; returns false if it was the last.
    fn receive_packet(&mut self, from: &mut impl Read, checksum: Checksum) -> io::Result<bool> {
        let mut prefix = [0; PREFIX_BYTES];
        from.read_exact(&mut prefix)?;
        let (header_len, payload_len) = packet::lengths(prefix)?;
        let mut header = vec![0; header_len];
        from.read_exact(&mut header)?;
        let header = Header::decode(&header)?;
        let sums_len = checksum.sums_len(header.data_len);
        if header.data_len + sums_len != payload_len || (header.data_len > 0 && header.offset != self.next) {
            return Err(invalid(format!("packet of {payload_len} bytes, {header:?}, at {}", self.next)));
        }
        let mut sums = vec![0; sums_len];
        from.read_exact(&mut sums)?;
        self.receive_data(from, header, checksum, &sums)?;
        self.next += header.data_len as u64;
        Ok(!header.is_last)
    }

    /// Reads a packet's data, directly into the caller's buffer if all of it is within the range.
    fn receive_data(
        &mut self,
        from: &mut impl Read,
        header: Header,
        checksum: Checksum,
        sums: &[u8],
    ) -> io::Result<()> {
        let mismatch = || io::Error::other(Mismatch { offset: header.offset });
        let (start, packet_end) = (self.start, header.offset.saturating_add(header.data_len as u64));
        let is_inside = header.offset >= start && packet_end <= self.end();
        if is_inside {
            let at = usize::try_from(header.offset - start).unwrap_or(usize::MAX);
            let place = self.buf.get_mut(at..at.saturating_add(header.data_len));
            let place = place.ok_or_else(|| invalid(format!("a packet at {}", header.offset)))?;
            from.read_exact(place)?;
            return if checksum.matches(place, sums) { Ok(()) } else { Err(mismatch()) };
        }
        self.scratch.resize(header.data_len, 0);
        from.read_exact(&mut self.scratch)?;
        if !checksum.matches(&self.scratch, sums) {
            return Err(mismatch());
        }
        self.copy_overlap(header.offset, packet_end);
        Ok(())
    }

    /// Copies the part of the scratch packet at `offset..packet_end` that is within the range.
    fn copy_overlap(&mut self, offset: u64, packet_end: u64) {
        let (from, to) = (offset.max(self.start), packet_end.min(self.end()));
        let Some(len) = to.checked_sub(from) else { return };
        let index = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        let source = index(from - offset)..index(from - offset + len);
        let target = index(from - self.start)..index(from - self.start + len);
        if let (Some(source), Some(target)) = (self.scratch.get(source), self.buf.get_mut(target)) {
            target.copy_from_slice(source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::packet::put_packet;
    use crate::hadoop::hdfs::{ChecksumProto, ReadOpChecksumInfoProto};
    use crate::wire::put_delimited;

    /// The reply with these packets (offset, bytes), which says that it begins at `chunk_offset`.
    fn reply(chunk_offset: u64, packets: &[(u64, &[u8])]) -> Vec<u8> {
        let checksum = ChecksumProto { r#type: 2, bytes_per_checksum: 512 };
        let info = ReadOpChecksumInfoProto { checksum, chunk_offset };
        let status = BlockOpResponseProto {
            status: Status::Success.into(),
            read_op_checksum_info: Some(info),
            ..Default::default()
        };
        let mut out = Vec::new();
        put_delimited(&mut out, &status);
        for (seqno, (offset, data)) in (0..).zip(packets) {
            put_packet(&mut out, *offset, seqno, data, false, false);
        }
        put_packet(&mut out, chunk_offset + 2048, 9, b"", true, false);
        out
    }

    /// Returns one byte at a time, each after a pause.
    struct Trickle<'a>(&'a [u8]);

    impl Read for Trickle<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            std::thread::sleep(Duration::from_millis(1));
            self.0.read(buf.get_mut(..1).unwrap_or_default())
        }
    }

    #[test]
    fn a_reply_that_trickles_in_ends_at_its_deadline() {
        let bytes = reply(512, &[(512, &[7; 1024]), (1536, &[7; 1024])]);
        let deadline = clock::monotonic() + Duration::from_millis(100);
        let mut socket = DeadlineReader { socket: Trickle(&bytes), deadline };
        let error = receive(&mut socket, 600, &mut [0; 1000]).expect_err("too slow");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(time_max(6 << 20, Duration::from_secs(60)), Duration::from_secs(60 + 96));
    }

    #[test]
    fn a_reply_covers_the_whole_range_or_is_refused() {
        let data = [7; 1024];
        let read = |chunk_offset, packets: &[(u64, &[u8])]| {
            let mut buf = [0; 1000];
            receive(&mut &reply(chunk_offset, packets)[..], 600, &mut buf).map(|_| buf)
        };
        assert_eq!(read(512, &[(512, &data), (1536, &data)]).expect("whole"), [7; 1000]);
        for (chunk_offset, packets) in [
            // It begins within the range, or behind it.
            (1024, &[(1024, &data[..])][..]),
            (4096, &[(4096, &data[..])]),
            // A gap, and an early end.
            (512, &[(512, &data[..512]), (1536, &data[..])]),
            (512, &[(512, &data[..])]),
        ] {
            let error = read(chunk_offset, packets).expect_err("a hole");
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        }
    }
}
