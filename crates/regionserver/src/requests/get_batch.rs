//! [`GetBatch`]: single Gets that arrived together and are read together.
//!
//! The single Gets of one turn of a connection mostly differ only in the row, like the Gets of a
//! Multi. So they are read like the Gets of a Multi. Gets of one region that differ only in the row
//! are of one *kind*. One [`GetReader`] reads all Gets of a kind in turn and prefetches the rows
//! that come next.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::{TryResult, Wait};
use evenkeel_protocol::pb;
use evenkeel_region::region::Region;
use evenkeel_region::scanner::{ScannerContext, TimeSlice};

use crate::RegionServer;
use crate::requests::caller::{Caller, Reply};
use crate::requests::get::{self, GetReader};
use crate::requests::inline::SLICE;

/// A Get is compared with at most this many kinds, the most recent ones. This search is cheap
/// compared with reading the row.
pub(crate) const KINDS_COMPARED_MAX: usize = 16;

/// What became of a Get of a batch.
pub enum GetOutcome {
    /// It was read, would have to wait, exceeded the slice, or failed.
    Tried(TryResult<Reply<pb::GetResponse>>),
    /// An earlier Get used up the time slice, so this one was not tried. It may be short.
    NotTried,
}

/// Single Gets that are read together. Each has a `T`, the responder that answers it.
pub struct GetBatch<T> {
    kinds: Vec<GetKind>,
    gets: Vec<SingleGet<T>>,
}

/// The parts that all Gets of a kind share.
struct GetKind {
    region: Arc<Region>,
    /// Its row is empty.
    get: pb::Get,
}

struct SingleGet<T> {
    kind: usize,
    row: Bytes,
    /// `None` after the Get was answered.
    responder: Option<T>,
}

impl<T> GetBatch<T> {
    /// The empty batch.
    pub const EMPTY: Self = Self { kinds: Vec::new(), gets: Vec::new() };

    /// The number of Gets.
    pub fn len(&self) -> usize {
        self.gets.len()
    }

    /// Returns true if the batch has no Gets.
    pub fn is_empty(&self) -> bool {
        self.gets.is_empty()
    }

    /// Adds a Get.
    pub fn push(&mut self, region: Arc<Region>, mut get: pb::Get, responder: T) {
        let row = std::mem::take(&mut get.row);
        let compared = self.kinds.iter().enumerate().rev().take(KINDS_COMPARED_MAX);
        let is_alike = |kind: &GetKind| Arc::ptr_eq(&kind.region, &region) && kind.get == get;
        let kind = compared.filter(|(_, kind)| is_alike(kind)).map(|(at, _)| at).next();
        let kind = kind.unwrap_or_else(|| {
            self.kinds.push(GetKind { region, get });
            self.kinds.len() - 1
        });
        self.gets.push(SingleGet { kind, row, responder: Some(responder) });
    }

    /// Reads the Gets without blocking, within one [`SLICE`]. Passes the outcome of each Get to
    /// `done`, with its region and row. `caller` returns the caller of a Get. If a Get panics, its
    /// `T` is dropped. Each Get is checked against the quotas just before it is read, and gives
    /// back what it has taken if it is not finished. The batch is empty on return.
    ///
    /// Returns the size in bytes of the largest row.
    pub fn read(
        &mut self,
        server: &RegionServer,
        caller: impl Fn(&T) -> Caller,
        mut done: impl FnMut(T, (&Region, &[u8]), GetOutcome),
    ) -> u64 {
        let mut largest = 0;
        let mut context = ScannerContext::within(TimeSlice::new(SLICE));
        for (number, kind) in self.kinds.iter().enumerate() {
            let mut reader = GetReader::new(server, &kind.region, Wait::Never);
            for at in 0..self.gets.len() {
                let (get, later) = match self.gets.get_mut(at..).and_then(<[_]>::split_first_mut) {
                    Some((get, later)) if get.kind == number => (get, later),
                    _ => continue,
                };
                let Some(responder) = get.responder.take() else { continue };
                let row = &get.row;
                let target = (&*kind.region, &row[..]);
                let later = later.iter().filter(|get| get.kind == number).map(|get| &get.row[..]);
                let upcoming = std::iter::once(&row[..]).chain(later);
                let read = catch_unwind(AssertUnwindSafe(|| {
                    if context.slice.is_over() {
                        done(responder, target, GetOutcome::NotTried);
                        return 0;
                    }
                    let caller = caller(&responder);
                    let mut quota = match get::check_quota(server, &kind.region, &caller) {
                        Ok(quota) => quota,
                        Err(refused) => {
                            done(responder, target, GetOutcome::Tried(Err(refused.into())));
                            return 0;
                        }
                    };
                    let to = (&caller, &mut quota);
                    match reader.reply(0, &kind.get, row, upcoming, to, &mut context) {
                        Ok((reply, bytes)) => {
                            drop(quota);
                            done(responder, target, GetOutcome::Tried(Ok(reply)));
                            bytes
                        }
                        Err(error) => {
                            if error.is_unfinished() {
                                quota.give_back();
                            }
                            done(responder, target, GetOutcome::Tried(Err(error)));
                            0
                        }
                    }
                }));
                match read {
                    Ok(bytes) => largest = largest.max(bytes),
                    Err(_) => {
                        tracing::error!("a Get panicked");
                        reader = GetReader::new(server, &kind.region, Wait::Never);
                    }
                }
            }
        }
        self.gets.clear();
        self.kinds.clear();
        largest
    }
}
