//! Length-prefixed frames out of a stream of bytes.
//!
//! ```text
//! frame := u32 length | length bytes
//! ```
//!
//! The read buffer grows with the bytes that arrive, never by an announced length: at most to twice
//! the bytes received. A client that announces 256 MiB and sends nothing costs nothing. A reader
//! has no buffer before its first byte and after its [release](FrameReader::release), so an idle
//! connection holds none.

use bytes::{Buf, Bytes, BytesMut};
use evenkeel_common::length;

/// The first read buffer of a connection; it grows while reads fill it.
const READ_BYTES_MIN: usize = 8 * 1024;
/// Limit of one read while no long frame is being received.
const READ_BYTES_MAX: usize = 64 * 1024;
/// Bytes reserved at once for a frame of known length; beyond that, the buffer grows with what
/// arrives.
const RESERVE_BYTES_MAX: usize = 1024 * 1024;
/// A larger buffer is released when it is empty, because it is not charged to a budget then.
const KEPT_BYTES_MAX: usize = 128 * 1024;
const LENGTH_BYTES: usize = 4;

/// The content at the start of the buffer.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    /// A whole frame, taken out of the buffer.
    Whole(Bytes),
    /// An incomplete frame of this many bytes; `None` if its length is incomplete.
    Partial(Option<usize>),
    /// A frame above the size limit; it stays in the buffer.
    TooLong(u32),
}

/// The bytes received and not yet consumed.
#[derive(Debug)]
pub struct FrameReader {
    buffer: BytesMut,
    frame_bytes_max: usize,
    read_bytes: usize,
    /// Capacity of the buffer, including frames that were split off it.
    allocated: usize,
    /// Bytes of a refused frame that are still to arrive.
    skip: usize,
}

impl FrameReader {
    /// A reader of frames of at most `frame_bytes_max` bytes.
    pub fn new(frame_bytes_max: usize) -> Self {
        FrameReader {
            buffer: BytesMut::new(),
            frame_bytes_max,
            read_bytes: READ_BYTES_MIN,
            allocated: 0,
            skip: 0,
        }
    }

    /// Sets the size limit of the following frames.
    pub fn set_frame_bytes_max(&mut self, frame_bytes_max: usize) {
        self.frame_bytes_max = frame_bytes_max;
    }

    /// Returns true if the buffer is larger than small requests need, and is empty.
    #[inline]
    pub fn has_large_buffer(&self) -> bool {
        self.allocated > 2 * READ_BYTES_MIN && self.buffer.is_empty()
    }

    /// Returns true if there is a buffer.
    #[inline]
    pub fn has_buffer(&self) -> bool {
        self.allocated > 0
    }

    /// Releases unused memory.
    pub fn release(&mut self) {
        if self.buffer.len() < self.allocated / 2 {
            self.buffer = BytesMut::from(&self.buffer[..]);
            self.allocated = self.buffer.capacity();
            self.read_bytes = READ_BYTES_MIN;
        }
    }

    /// The bytes received and not yet consumed.
    pub fn buffered(&self) -> &[u8] {
        &self.buffer
    }

    /// Takes `count` bytes, if they have arrived.
    pub fn take(&mut self, count: usize) -> Option<Bytes> {
        (self.buffer.len() >= count).then(|| self.buffer.split_to(count).freeze())
    }

    /// Returns the buffer with capacity for the next read, which appends to it.
    pub fn spare_capacity(&mut self) -> &mut BytesMut {
        let expected = self.announced().filter(|len| *len <= self.frame_bytes_max).unwrap_or(0);
        let missing = (expected + LENGTH_BYTES).saturating_sub(self.buffer.len());
        if self.buffer.is_empty() && self.allocated > KEPT_BYTES_MAX {
            // A long frame was taken or refused.
            self.release();
        }
        let before = self.buffer.as_ptr();
        if missing <= self.read_bytes {
            self.buffer.reserve(self.read_bytes);
        } else if self.buffer.capacity() - self.buffer.len() < missing.min(READ_BYTES_MAX) {
            self.buffer.reserve(missing.min(RESERVE_BYTES_MAX.max(self.buffer.len())));
        }
        if self.buffer.as_ptr() != before || self.allocated == 0 {
            self.allocated = self.buffer.capacity();
        }
        &mut self.buffer
    }

    /// Must be called with the size of each read: reads that fill their capacity get a larger one.
    pub fn received(&mut self, count: usize) {
        if count >= self.read_bytes {
            self.read_bytes = (self.read_bytes * 2).min(READ_BYTES_MAX);
        }
        let skipped = self.skip.min(self.buffer.len());
        self.buffer.advance(skipped);
        self.skip -= skipped;
    }

    fn announced(&self) -> Option<usize> {
        self.buffer.first_chunk::<LENGTH_BYTES>().map(|length| u32::from_be_bytes(*length) as usize)
    }

    /// Takes the next frame if it is complete.
    pub fn next_frame(&mut self) -> Frame {
        let Some(len) = self.announced() else { return Frame::Partial(None) };
        if len > self.frame_bytes_max {
            return Frame::TooLong(length::must_u32(len));
        }
        if self.buffer.len() - LENGTH_BYTES < len {
            return Frame::Partial(Some(len));
        }
        self.buffer.advance(LENGTH_BYTES);
        Frame::Whole(self.buffer.split_to(len).freeze())
    }

    /// The part of the frame at the front that has arrived, without its length.
    pub fn partial_frame(&self) -> &[u8] {
        self.buffer.get(LENGTH_BYTES..).unwrap_or_default()
    }

    /// Drops the frame at the front: the bytes that have arrived, and the rest as it arrives.
    pub fn skip_frame(&mut self) {
        self.skip = self.announced().unwrap_or(0) + LENGTH_BYTES;
        self.received(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(reader: &mut FrameReader, bytes: &[u8]) {
        reader.spare_capacity().extend_from_slice(bytes);
        reader.received(bytes.len());
    }

    #[test]
    fn frames_come_whole_however_they_arrive() {
        let stream: Vec<u8> = [&[0, 0, 0, 2, 1, 2][..], &[0, 0, 0, 0], &[0, 0, 0, 1, 9]].concat();
        for step in 1..stream.len() {
            let mut reader = FrameReader::new(100);
            let mut frames = Vec::new();
            for part in stream.chunks(step) {
                feed(&mut reader, part);
                while let Frame::Whole(frame) = reader.next_frame() {
                    frames.push(frame);
                }
            }
            assert_eq!(frames, [&[1u8, 2][..], &[], &[9]], "step {step}");
            assert_eq!(reader.next_frame(), Frame::Partial(None));
        }
    }

    #[test]
    fn an_oversized_length_is_reported_and_reserves_nothing() {
        let mut reader = FrameReader::new(100);
        feed(&mut reader, &u32::MAX.to_be_bytes());
        assert_eq!(reader.next_frame(), Frame::TooLong(u32::MAX));
        assert!(reader.spare_capacity().capacity() < 2 * READ_BYTES_MAX);
    }

    #[test]
    fn the_buffer_grows_with_what_arrives() {
        let mut reader = FrameReader::new(1 << 30);
        feed(&mut reader, &(1u32 << 29).to_be_bytes());
        assert_eq!(reader.next_frame(), Frame::Partial(Some(1 << 29)));
        assert!(reader.spare_capacity().capacity() <= 2 * RESERVE_BYTES_MAX);
        let mut received = 4;
        for _ in 0..300 {
            feed(&mut reader, &[0; 10_000]);
            received += 10_000;
            assert!(reader.spare_capacity().capacity() <= 2 * received + 2 * RESERVE_BYTES_MAX);
        }
    }

    #[test]
    fn the_buffer_shrinks_after_a_long_frame() {
        let mut reader = FrameReader::new(1 << 30);
        feed(&mut reader, &framed_zeros(20 << 20));
        assert!(matches!(reader.next_frame(), Frame::Whole(frame) if frame.len() == 20 << 20));
        for _ in 0..3 {
            feed(&mut reader, &framed_zeros(10));
            assert!(matches!(reader.next_frame(), Frame::Whole(_)));
        }
        assert!(
            reader.spare_capacity().capacity() <= KEPT_BYTES_MAX,
            "{}",
            reader.spare_capacity().capacity()
        );
    }

    #[test]
    fn an_empty_reader_holds_no_buffer() {
        let mut reader = FrameReader::new(1 << 30);
        assert!(!reader.has_buffer());
        feed(&mut reader, &[0, 0]);
        reader.release();
        assert_eq!((reader.buffered(), reader.buffer.capacity()), (&[0, 0][..], 2));
        feed(&mut reader, &[0, 1, 7]);
        assert!(matches!(reader.next_frame(), Frame::Whole(frame) if frame == [7][..]));
        assert!(reader.has_buffer());
        reader.release();
        assert!(!reader.has_buffer());
        feed(&mut reader, &[0, 0, 0, 1, 8]);
        assert!(matches!(reader.next_frame(), Frame::Whole(frame) if frame == [8][..]));
    }

    fn framed_zeros(len: u32) -> Vec<u8> {
        [&len.to_be_bytes()[..], &vec![0; len as usize]].concat()
    }

    #[test]
    fn a_refused_frame_is_dropped_as_it_arrives() {
        let mut reader = FrameReader::new(1 << 20);
        feed(&mut reader, &[0, 0, 1, 0, 7, 7]);
        reader.skip_frame();
        assert!(reader.buffered().is_empty());
        feed(&mut reader, &[7; 253]);
        assert!(reader.buffered().is_empty());
        feed(&mut reader, &[7, 0, 0, 0, 1, 5]);
        assert_eq!(reader.next_frame(), Frame::Whole(Bytes::from_static(&[5])));
    }
}
