//! [`RpcConnection`]: one socket with many concurrent calls.
//!
//! Two tasks serve it. The writer takes everything that callers have encoded since its last write
//! and writes it with one call. The reader reads what the socket has, hands all complete responses
//! to their callers under one lock, and expires calls. Small responses are copied out of the read
//! buffer, which is reused. A large response gets a buffer that grows as its bytes arrive, so a
//! wrong length reserves little.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::compress::CellBlockCodec;
use super::opener::{Opened, PREAMBLE};
use super::pending_calls::{OWN_TIMER_MAX, PendingCalls, SWEEP, timed_out};
use super::{Call, Service, frame};
use crate::config::ClientConfig;
use crate::error::{Error, Result};

/// Bytes of the read buffer. A longer frame gets its own buffer.
const READ_BYTES: usize = 64 << 10;
/// Bytes by which the buffer of a long frame grows.
const READ_STEP_BYTES: usize = 1 << 20;
/// Bytes of the write buffer that stay allocated.
const WRITE_BYTES_KEPT: usize = 256 << 10;

/// One socket to one service of one server. Dropping it closes the socket.
#[derive(Debug)]
pub(crate) struct RpcConnection {
    address: String,
    calls: Arc<PendingCalls>,
    compressor: Option<CellBlockCodec>,
    raw_bytes_max: usize,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for RpcConnection {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl RpcConnection {
    /// Connects and sends the connection header, within the connect timeout.
    pub(crate) async fn connect(address: &str, service: Service, config: &ClientConfig) -> Result<Self> {
        let open = Self::open(address, service, config);
        let timed_out = |_| Error::Connection(format!("{address}: connect timed out"));
        timeout(config.connect_timeout, open).await.map_err(timed_out)?
    }

    async fn open(address: &str, service: Service, config: &ClientConfig) -> Result<Self> {
        let lost = |e: std::io::Error| Error::Connection(format!("{address}: {e}"));
        let socket = TcpStream::connect(address).await.map_err(lost)?;
        socket.set_nodelay(true).map_err(lost)?;
        let header = frame::connection_header(service, config);
        match &config.opener {
            None => {
                let (reader, mut writer) = socket.into_split();
                writer.write_all(&[PREAMBLE, &header].concat()).await.map_err(lost)?;
                Ok(Self::start(address, config, reader, writer))
            }
            Some(opener) => {
                let opened = opener.open(address, service.name(), socket).await?;
                let Opened { transport, preamble } = opened;
                let (reader, mut writer) = tokio::io::split(transport);
                writer.write_all(&[preamble, header].concat()).await.map_err(lost)?;
                writer.flush().await.map_err(lost)?;
                Ok(Self::start(address, config, reader, writer))
            }
        }
    }

    fn start<R, W>(address: &str, config: &ClientConfig, reader: R, writer: W) -> Self
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let calls = Arc::new(PendingCalls::new(address));
        let bytes_max = config.response_bytes_max;
        let tasks = [
            tokio::spawn(write_all(writer, calls.clone(), address.to_owned())),
            tokio::spawn(read_all(reader, calls.clone(), address.to_owned(), bytes_max)),
        ];
        let (compressor, raw_bytes_max) = (config.compressor, bytes_max);
        Self { address: address.to_owned(), calls, compressor, raw_bytes_max, tasks }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.calls.is_open()
    }

    /// Makes a call and waits for its response, at most for the call's timeout.
    pub(crate) async fn call(&self, call: &Call<'_>) -> Result<frame::Response> {
        let exchange = async { self.calls.enter(call, self.compressor).await?.await };
        let response = match call.timeout < OWN_TIMER_MAX {
            true => {
                let ended = timeout(call.timeout, exchange).await;
                ended.unwrap_or_else(|_| Err(timed_out(call.method, &self.address, call.timeout)))
            }
            false => exchange.await,
        }?;
        match self.compressor.filter(|_| !response.cells.is_empty()) {
            None => Ok(response),
            Some(codec) => {
                let cells = codec.decompress(&response.cells, self.raw_bytes_max)?.into();
                Ok(frame::Response { message: response.message, cells })
            }
        }
    }
}

async fn write_all<W: AsyncWrite + Unpin>(mut writer: W, calls: Arc<PendingCalls>, address: String) {
    let mut buffer = Vec::new();
    loop {
        calls.work.notified().await;
        loop {
            calls.take_outbox(&mut buffer);
            if buffer.is_empty() {
                break;
            }
            let written = match writer.write_all(&buffer).await {
                Ok(()) => writer.flush().await,
                failed => failed,
            };
            if let Err(error) = written {
                return calls.close(Error::Connection(format!("{address}: {error}")));
            }
            buffer.clear();
            buffer.shrink_to(WRITE_BYTES_KEPT);
        }
    }
}

async fn read_all<R: AsyncRead + Unpin>(
    reader: R,
    calls: Arc<PendingCalls>,
    address: String,
    bytes_max: usize,
) {
    let mut frames = Frames { reader, buffer: BytesMut::new(), bytes_max };
    let mut sweep = interval(SWEEP);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut responses = Vec::new();
    loop {
        let read = tokio::select! {
            biased;
            read = frames.fill() => read,
            _ = sweep.tick() => {
                calls.expire();
                continue;
            }
        };
        let error = match read {
            // Malformed bytes close the socket as a reset does: the waiting calls fail and are
            // retried on another one.
            Ok(()) => frames.take(&mut responses).err().map(|e| Error::Connection(format!("{address}: {e}"))),
            Err(error) => Some(Error::Connection(format!("{address}: {error}"))),
        };
        calls.answer(&mut responses);
        if let Some(error) = error {
            return calls.close(error);
        }
    }
}

/// Splits the bytes of a socket into frames: `u32 len | bytes`.
struct Frames<R> {
    reader: R,
    buffer: BytesMut,
    bytes_max: usize,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    /// Reads once. Cancel safe.
    async fn fill(&mut self) -> std::io::Result<()> {
        self.reserve();
        match self.reader.read_buf(&mut self.buffer).await? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    /// Reserves memory for the rest of the frame, step by step.
    fn reserve(&mut self) {
        let step = match self.frame_len() {
            Some(len) if len > READ_BYTES => (len + 4 - self.buffer.len()).min(READ_STEP_BYTES),
            _ => READ_BYTES.saturating_sub(self.buffer.len()).max(READ_BYTES / 4),
        };
        if self.buffer.capacity() - self.buffer.len() < step.min(READ_BYTES / 4) {
            self.buffer.reserve(step);
        }
    }

    fn frame_len(&self) -> Option<usize> {
        self.buffer.first_chunk::<4>().map(|len| u32::from_be_bytes(*len) as usize)
    }

    /// Takes the complete frames.
    ///
    /// # Errors
    /// [`Error::Protocol`] if a frame is malformed; `responses` has those before it.
    fn take(&mut self, responses: &mut Vec<(u32, Result<frame::Response>)>) -> Result<()> {
        while let Some(len) = self.frame_len() {
            if len > self.bytes_max {
                let max = self.bytes_max;
                return Err(Error::Protocol(format!("a response of {len} bytes, more than {max}")));
            }
            if self.buffer.len() < 4 + len {
                break;
            }
            let frame = self.take_frame(len);
            responses.push(frame::response(frame)?);
        }
        Ok(())
    }

    fn take_frame(&mut self, len: usize) -> Bytes {
        use bytes::Buf;
        if len > READ_BYTES {
            return self.buffer.split_to(4 + len).freeze().slice(4..);
        }
        let frame = Bytes::copy_from_slice(self.buffer.get(4..4 + len).unwrap_or_default());
        self.buffer.advance(4 + len);
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(lens: &[usize]) -> Vec<u8> {
        let mut out = Vec::new();
        for (id, len) in lens.iter().enumerate() {
            // A header with a call id alone, an empty message, and cells.
            let size = [*len as u8 & 0x7f | 0x80, (len >> 7) as u8 & 0x7f | 0x80, (len >> 14) as u8];
            let header = [&[8, id as u8, 26, 4, 8][..], &size].concat();
            out.extend_from_slice(&((2 + header.len() + len) as u32).to_be_bytes());
            out.push(header.len() as u8);
            out.extend_from_slice(&header);
            out.push(0);
            out.resize(out.len() + len, id as u8);
        }
        out
    }

    async fn read(bytes: &[u8], piece: usize) -> (Vec<(u32, usize)>, bool) {
        let (mut there, here) = tokio::io::duplex(piece);
        let bytes = bytes.to_vec();
        let sender = tokio::spawn(async move {
            let _ = there.write_all(&bytes).await;
        });
        let mut frames = Frames { reader: here, buffer: BytesMut::new(), bytes_max: 1 << 20 };
        let (mut responses, mut broken) = (Vec::new(), false);
        while !broken && frames.fill().await.is_ok() {
            broken = frames.take(&mut responses).is_err();
        }
        drop(frames);
        sender.await.expect("sent");
        let sizes = responses.iter().map(|(id, r)| (*id, r.as_ref().map_or(0, |r| r.cells.len())));
        (sizes.collect(), broken)
    }

    #[tokio::test]
    async fn frames_of_all_sizes_come_whole_however_they_are_cut() {
        let lens = [0, 1, 100, READ_BYTES - 20, READ_BYTES + 1, 300_000, 5];
        let want: Vec<_> = lens.iter().enumerate().map(|(id, len)| (id as u32, *len)).collect();
        for piece in [7, 1000, 1 << 20] {
            assert_eq!(read(&stream(&lens), piece).await, (want.clone(), false), "in pieces of {piece}");
        }
    }

    #[tokio::test]
    async fn a_stream_that_is_cut_gives_the_whole_frames_and_garbage_ends_it() {
        let whole = stream(&[3, 70, 9]);
        for cut in 0..whole.len() {
            let (responses, broken) = read(&whole[..cut], 64).await;
            assert!(!broken && responses.len() < 3, "cut at {cut}");
            assert!(responses.iter().zip([3, 70, 9]).all(|((_, len), want)| *len == want), "cut at {cut}");
        }
        assert!(read(&[0xff; 64], 64).await.1);
        assert!(read(&[0, 0, 0, 3, 0xff, 0xff, 0xff], 64).await.1);
    }
}
