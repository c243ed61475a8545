//! Reading blocks before they are asked for: the next block of a scan, and whole files when they are opened.
//!
//! One small pool for the process. Its queue is bounded, and what does not fit is not read ahead: a scan then waits for
//! its block as it would have. Whoever asks for a block that is being read ahead waits for that read (see
//! `BlockCache::get_or_load`). A reader that is gone is not read for.

use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use evenkeel_common::thread::spawn_restarted;

use crate::index::BlockAt;
use crate::reader::HFileReader;

/// Threads that read the next blocks of scans.
const THREADS: usize = 2;
/// Blocks that wait at most.
const QUEUE_BLOCKS_MAX: usize = 64;

type ReadAheadRequest = (Weak<HFileReader>, BlockAt);

fn queue() -> Option<&'static SyncSender<ReadAheadRequest>> {
    static QUEUE: OnceLock<Option<SyncSender<ReadAheadRequest>>> = OnceLock::new();
    QUEUE.get_or_init(start).as_ref()
}

fn start() -> Option<SyncSender<ReadAheadRequest>> {
    let (sender, receiver) = sync_channel::<ReadAheadRequest>(QUEUE_BLOCKS_MAX);
    let receiver = Arc::new(Mutex::new(receiver));
    let started = (0..THREADS).filter_map(|_| {
        let receiver = Arc::clone(&receiver);
        let next = move || receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let run = move || {
            while let Ok((reader, at)) = next() {
                // An error is the scan's to find: it reads the block itself then.
                drop(reader.upgrade().map(|reader| reader.load_data(at, true)));
            }
        };
        spawn_restarted("read-ahead", run).ok()
    });
    (started.count() > 0).then_some(sender)
}

/// Asks for a data block to be read into the cache, unless too much is asked for already.
pub(crate) fn request(reader: &Arc<HFileReader>, at: BlockAt) {
    let Some(queue) = queue() else { return };
    match queue.try_send((Arc::downgrade(reader), at)) {
        Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
    }
}
