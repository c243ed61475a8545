//! Read-ahead: reads the next block of a scan before the scan needs it.
//!
//! The process has one small pool of threads. Its queue is bounded, and a request that does not fit
//! is dropped: the scan then waits for its block as usual. A reader that needs a block during its
//! read-ahead waits for that read (see `BlockCache::get_or_load`). A request does not keep a reader
//! open.

use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use evenkeel_common::Wait;
use evenkeel_common::thread::spawn_restarted;

use crate::index::BlockLocation;
use crate::reader::HFileReader;

/// Threads of the pool.
const THREADS: usize = 2;
/// The maximum of queued requests.
const QUEUE_BLOCKS_MAX: usize = 64;

type ReadAheadRequest = (Weak<HFileReader>, BlockLocation);

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
                // Errors are ignored: the scan reads the block itself and reports the error.
                drop(reader.upgrade().map(|reader| reader.load_data(at, true, Wait::Allowed)));
            }
        };
        spawn_restarted("read-ahead", run).ok()
    });
    (started.count() > 0).then_some(sender)
}

/// Requests that a data block is read into the cache. Drops the request if the queue is full.
pub(crate) fn request(reader: &Arc<HFileReader>, at: BlockLocation) {
    let Some(queue) = queue() else { return };
    match queue.try_send((Arc::downgrade(reader), at)) {
        Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
    }
}
