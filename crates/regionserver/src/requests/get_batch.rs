//! [`GetBatch`]: single Gets that came together, read together.
//!
//! The single Gets of one turn of a connection are mostly alike but for the row: a batch in all but
//! the message. So they are read like the Gets of a Multi. Gets of one region that differ in
//! nothing but the row are of one *kind*; those of a kind are read one after the other by one
//! [`GetReader`], which prefetches the rows that come next.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::{TryError, TryResult, Wait};
use evenkeel_protocol::pb;
use evenkeel_region::region::Region;
use evenkeel_region::scanner::ScannerContext;

use crate::RegionServer;
use crate::requests::caller::{Caller, Reply};
use crate::requests::get::GetReader;
use crate::requests::inline::SLICE;

/// A Get is compared with this many kinds, the last ones: such a search is short beside reading the
/// row.
pub(crate) const KINDS_COMPARED_MAX: usize = 16;

/// Single Gets that are read together. Each comes with a `T`, by which it is answered.
pub struct GetBatch<T> {
    kinds: Vec<GetKind>,
    gets: Vec<SingleGet<T>>,
}

/// What Gets of one kind have in common.
struct GetKind {
    region: Arc<Region>,
    /// Names no row.
    get: pb::Get,
}

struct SingleGet<T> {
    kind: usize,
    row: Bytes,
    /// `None` once the Get was answered.
    responder: Option<T>,
}

impl<T> GetBatch<T> {
    /// No Gets.
    pub const EMPTY: Self = Self { kinds: Vec::new(), gets: Vec::new() };

    /// The number of Gets.
    pub fn len(&self) -> usize {
        self.gets.len()
    }

    /// Whether there is no Get.
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

    /// Reads the Gets without waiting and within one [`SLICE`], and passes the outcome of each to
    /// `answer`, with its region and row. `caller` names the caller of a Get.
    /// A Get that would wait, or comes after the slice, has the outcome `WouldWait`. If a Get
    /// panics, its `T` is dropped. The batch is empty on return.
    ///
    /// Returns the bytes of the largest row.
    pub fn read(
        &mut self,
        server: &RegionServer,
        caller: impl Fn(&T) -> Caller,
        mut answer: impl FnMut(T, (&Region, &[u8]), TryResult<Reply<pb::GetResponse>>),
    ) -> u64 {
        let mut largest = 0;
        let mut context = ScannerContext::within(Some(SLICE));
        for (number, kind) in self.kinds.iter().enumerate() {
            let mut reader = GetReader::new(server, &kind.region, Wait::Never);
            for at in 0..self.gets.len() {
                let (get, later) = match self.gets[at..].split_first_mut() {
                    Some((get, later)) if get.kind == number => (get, later),
                    _ => continue,
                };
                let Some(responder) = get.responder.take() else { continue };
                let row = &get.row;
                let place = (&*kind.region, &row[..]);
                let later = later.iter().filter(|get| get.kind == number).map(|get| &get.row[..]);
                let upcoming = std::iter::once(&row[..]).chain(later);
                let read = catch_unwind(AssertUnwindSafe(|| {
                    if context.slice.is_over() {
                        // An earlier Get used up the slice. This one may be short.
                        answer(responder, place, Err(TryError::WouldWait));
                        return 0;
                    }
                    let caller = caller(&responder);
                    match reader.reply(0, &kind.get, row, upcoming, &caller, &mut context) {
                        Ok((reply, bytes)) => {
                            answer(responder, place, Ok(reply));
                            bytes
                        }
                        Err(error) => {
                            answer(responder, place, Err(error));
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
