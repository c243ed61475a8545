//! [`BulkWriter`]: a file of any length, written through a chain of DataNodes.
//!
//! Packets of [`PACKET_DATA_BYTES`] go to the first DataNode of a block, which forwards them, so
//! the writer's network carries each byte once. When a block is full the next one is allocated; its
//! creation avoids failing DataNodes, as for a log. A failure within a block fails the file: the
//! file is abandoned, and the flush or compaction must be repeated.
//!
//! A file that is dropped without [`BulkWriter::close`] is abandoned too. Until it is closed, the
//! NameNode reports at most the length of its finished blocks.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::block::output::{FlushLevel, Layout};
use crate::client::Shared;
use crate::error::Result;
use crate::hadoop::hdfs::ExtendedBlockProto;
use crate::lease::{OpenFile, SharedOutput};
use crate::log_writer::{Target, complete, open_block};
use crate::namenode::NewFile;

/// Data bytes of one packet: 126 chunks, as in the 64 KiB packets of Hadoop's client.
pub(crate) const PACKET_DATA_BYTES: usize = 126 * 512;

/// A bulk file being written: see the module documentation.
#[derive(Debug)]
pub struct BulkWriter {
    shared: Arc<Shared>,
    path: String,
    file_id: u64,
    block_bytes: u64,
    /// Bytes in finished blocks.
    finished_bytes: u64,
    /// The last finished block.
    previous: Option<ExtendedBlockProto>,
    output: Option<SharedOutput>,
    is_ended: bool,
    _lease: OpenFile,
}

impl BulkWriter {
    pub(crate) fn create(shared: Arc<Shared>, path: &str, file: NewFile) -> Result<Self> {
        let lease = OpenFile::new(Arc::clone(&shared));
        let file_id = shared.create(path, file)?;
        Ok(Self {
            shared,
            path: path.to_owned(),
            file_id,
            block_bytes: file.block_bytes.max(1),
            finished_bytes: 0,
            previous: None,
            output: None,
            is_ended: false,
            _lease: lease,
        })
    }

    /// Returns the number of bytes appended.
    pub fn position(&self) -> u64 {
        self.finished_bytes + self.output.as_ref().map_or(0, |output| output.lock().position())
    }

    /// Appends bytes and sends complete packets; blocks while too many bytes are unacknowledged.
    ///
    /// # Errors
    /// An I/O error if the block broke or no DataNode accepts the next one; the file is then
    /// abandoned.
    pub fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.check()?;
        let appended = self.append_blocks(bytes);
        self.checked(appended)
    }

    fn append_blocks(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let output = self.open_output()?;
            let mut block = output.lock();
            let room = self.block_bytes.saturating_sub(block.position());
            let len = usize::try_from(room).unwrap_or(usize::MAX).min(bytes.len());
            let (now, later) = bytes.split_at_checked(len).unwrap_or((bytes, &[]));
            block.append(now)?;
            block.send_full(PACKET_DATA_BYTES)?;
            let is_full = block.position() >= self.block_bytes;
            drop(block);
            bytes = later;
            if is_full {
                self.finish_block(FlushLevel::Synced)?;
            }
        }
        Ok(())
    }

    /// Makes all appended bytes durable as `level` requires. Full blocks were finished with a
    /// sync.
    ///
    /// # Errors
    /// As [`BulkWriter::append`].
    pub fn flush(&mut self, level: FlushLevel) -> io::Result<()> {
        self.check()?;
        let Some(output) = self.output.clone() else { return Ok(()) };
        let mut block = output.lock();
        let flushed = block.send(level).and_then(|seqno| block.wait(seqno));
        drop(block);
        self.checked(flushed)
    }

    /// Finishes the last block and closes the file. Returns its length.
    ///
    /// # Errors
    /// As [`BulkWriter::append`], or an error of the NameNode; the file is then abandoned.
    pub fn close(mut self, level: FlushLevel) -> io::Result<u64> {
        self.check()?;
        let finished = self.finish_block(level);
        self.checked(finished)?;
        let completed = complete(&self.shared, &self.path, self.file_id, self.previous.as_ref());
        self.checked(completed.map_err(Into::into))?;
        self.is_ended = true;
        Ok(self.finished_bytes)
    }

    fn open_output(&mut self) -> io::Result<SharedOutput> {
        if let Some(output) = &self.output {
            return Ok(Arc::clone(output));
        }
        let target = Target { path: &self.path, file_id: self.file_id, previous: self.previous.as_ref() };
        let output = Arc::new(Mutex::new(open_block(&self.shared, target, Layout::Chain)?));
        self.shared.leases.add_output(&output, &self.path, self.file_id);
        self.output = Some(Arc::clone(&output));
        Ok(output)
    }

    fn finish_block(&mut self, level: FlushLevel) -> io::Result<()> {
        let Some(output) = self.output.clone() else { return Ok(()) };
        let mut block = output.lock();
        block.finish(level)?;
        self.finished_bytes += block.acked();
        self.previous = Some(block.block());
        self.output = None;
        Ok(())
    }

    /// # Errors
    /// `BrokenPipe` if the file was abandoned.
    fn check(&self) -> io::Result<()> {
        if !self.is_ended {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::BrokenPipe, format!("{} was given up", self.path)))
    }

    fn checked<T>(&mut self, outcome: io::Result<T>) -> io::Result<T> {
        if outcome.is_err() {
            self.give_up();
        }
        outcome
    }

    fn give_up(&mut self) {
        if std::mem::replace(&mut self.is_ended, true) {
            return;
        }
        if let Some(output) = &self.output {
            return self.shared.abandon(&self.path, self.file_id, &mut output.lock());
        }
        tracing::warn!(path = self.path, "a bulk file ends without being closed");
        self.shared.give_up(self.path.clone(), self.file_id);
    }
}

impl Drop for BulkWriter {
    fn drop(&mut self) {
        self.give_up();
    }
}

#[cfg(test)]
mod tests;
