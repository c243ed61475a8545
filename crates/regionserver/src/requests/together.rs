//! Single Gets read together.
//!
//! Those of one turn of a connection are mostly alike but for the row: a batch in all but the message. So they are read as
//! a batch is. Those of one region, with nothing different but the row, are of one *kind*; those of a kind are read one
//! after the other by one reader, which looks ahead for the rows that come next ([`RowReader::prefetch_rows`]).
//!
//! A reader holds on to files and blocks, but no longer than it takes to read the Gets of its kind.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::{Result, turns};
use evenkeel_protocol::pb;
use evenkeel_region::region::{Region, RowReader};
use evenkeel_region::scanner::ScannerContext;

use crate::RegionServer;
use crate::requests::caller::{Caller, Reply};
use crate::requests::get;
use crate::requests::inline::{Attempt, SLICE};

/// A Get is compared with so many kinds, the last ones: a search among them is still short beside reading it.
pub(crate) const KINDS_COMPARED_MAX: usize = 16;

/// Gets that are to be read together. Each comes with what its answer is given with.
pub struct Gets<T> {
    kinds: Vec<Kind>,
    gets: Vec<One<T>>,
}

/// What Gets of one kind have in common.
struct Kind {
    region: Arc<Region>,
    /// Names no row.
    get: pb::Get,
}

struct One<T> {
    kind: usize,
    row: Bytes,
    /// `None` once it was answered.
    of: Option<T>,
}

/// The outcome of a Get, unless it is to be read elsewhere.
pub type Outcome = Attempt<Result<Reply<pb::GetResponse>>>;

impl<T> Gets<T> {
    /// No Gets.
    pub const NONE: Self = Self { kinds: Vec::new(), gets: Vec::new() };

    /// How many there are.
    pub fn count(&self) -> usize {
        self.gets.len()
    }

    /// Adds a Get.
    pub fn push(&mut self, region: Arc<Region>, mut get: pb::Get, of: T) {
        let row = std::mem::take(&mut get.row);
        let compared = self.kinds.iter().enumerate().rev().take(KINDS_COMPARED_MAX);
        let is_alike = |kind: &Kind| Arc::ptr_eq(&kind.region, &region) && kind.get == get;
        let kind = compared.filter(|(_, kind)| is_alike(kind)).map(|(at, _)| at).next();
        let kind = kind.unwrap_or_else(|| {
            self.kinds.push(Kind { region, get });
            self.kinds.len() - 1
        });
        self.gets.push(One { kind, row, of: Some(of) });
    }

    /// Reads them, without waiting and in one [`SLICE`], and has each answered: `caller` says who asks, `answer` is given the outcome, and whether
    /// it is of a table of HBase's own. Of one that panics, what its answer would have been given with is dropped. None is left;
    /// returns the bytes of the largest row.
    pub fn read(
        &mut self,
        server: &RegionServer,
        caller: impl Fn(&T) -> Caller,
        mut answer: impl FnMut(T, bool, Outcome),
    ) -> u64 {
        let mut largest = 0;
        let mut context = ScannerContext::of_slice(Some(SLICE));
        for (number, kind) in self.kinds.iter().enumerate() {
            let mut reader = None;
            for at in 0..self.gets.len() {
                let (one, later) = match self.gets[at..].split_first_mut() {
                    Some((one, later)) if one.kind == number => (one, later),
                    _ => continue,
                };
                let Some(of) = one.of.take() else { continue };
                let of_kind = later.iter().filter(|one| one.kind == number).map(|one| &one.row[..]);
                let next = std::iter::once(&one.row[..]).chain(of_kind);
                let done = catch_unwind(AssertUnwindSafe(|| {
                    let is_system = kind.region.info().table().is_system();
                    if context.gave_up() {
                        // The slice is used up. It need not take long itself.
                        answer(of, is_system, Attempt::WouldWait);
                        return 0;
                    }
                    let outcome = turns::without_waiting(|| {
                        kind.read(server, &mut reader, &one.row, next, &caller(&of), &mut context)
                    });
                    let (outcome, bytes) = match outcome {
                        _ if context.gave_up() => {
                            reader = None;
                            (Attempt::TookLong, 0)
                        }
                        None => (Attempt::WouldWait, 0),
                        Some(Ok((reply, bytes))) => (Attempt::Done(Ok(reply)), bytes),
                        Some(Err(error)) => (Attempt::Done(Err(error)), 0),
                    };
                    answer(of, is_system, outcome);
                    bytes
                }));
                match done {
                    Ok(bytes) => largest = largest.max(bytes),
                    Err(_) => {
                        tracing::error!("a Get panicked");
                        reader = None;
                    }
                }
            }
        }
        self.gets.clear();
        self.kinds.clear();
        largest
    }
}

impl Kind {
    /// Reads a row by what read the last one, which is not kept after an error; `next` are this row and those after it.
    fn read<'a, 'r>(
        &'a self,
        server: &RegionServer,
        reader: &mut Option<RowReader<'a>>,
        row: &Bytes,
        next: impl Iterator<Item = &'r [u8]> + Clone,
        caller: &Caller,
        context: &mut ScannerContext,
    ) -> Result<(Reply<pb::GetResponse>, u64)> {
        let reads = reader.get_or_insert_with(|| self.region.row_reader());
        reads.prefetch_rows(0, next);
        let outcome = get::one(server, reads, (row, 0), &self.get, caller, context);
        match outcome {
            _ if context.gave_up() => reads.forget(),
            Ok(_) => reads.count(),
            Err(_) => *reader = None,
        }
        outcome
    }
}
