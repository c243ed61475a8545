//! The calls of one turn of a connection, run together.
//!
//! A client with many threads sends their calls over one connection, and its read buffer holds many
//! of them when a turn begins: a batch in all but the message. [`ClientRunner`] therefore first
//! *plans* each call of the batch: what needs a handler thread goes there, a Multi of reads or
//! writes is run at once, and single Gets and writes are decoded and kept. Then it runs what it
//! kept:
//!
//! * **Gets**: read like the Gets of a Multi, see [`super::get_batch`]. They are read before the
//!   batch ends when they are many or their answers are likely large, since the answers of a turn
//!   are written when they come to some size.
//! * **Writes**: their rows are looked up side by side, then the writes are made one after another.
//!   Made as they are decoded, each would walk its region's skip list alone and wait for memory at
//!   every node (see [`region::prefetch_write_positions`]). This delays no answer: the answers wait
//!   for the log, which is woken when the batch ends.
//!
//! A write that would have to wait continues on a handler thread, and so do the writes that are not
//! made when the turn's time slice is over (see [`super::inline`]).
//!
//! Calls of one connection whose answers the client has not seen have no order among them, here as
//! in HBase, where several handlers run them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use evenkeel_common::Result;
use evenkeel_common::clock;
use evenkeel_protocol::pb;
use evenkeel_region::region::{self, Operation, Region};
use evenkeel_rpc::{
    BatchRunner, Call, CallBatch, CallClass, DetachedResponder, Respond, Responder, run_call,
};
use evenkeel_wal::WakeBatch;

use crate::requests::caller::Caller;
use crate::requests::get_batch::GetBatch;
use crate::requests::inline::{RunsOn, SLICE, class_of_writes};
use crate::requests::mutate;
use crate::requests::pending_reply::PendingReply;
use crate::requests::subject::row_detail;
use crate::services::client::ClientService;

/// A single write that has been decoded.
pub struct Write {
    /// Its call.
    pub call: Call,
    /// The message of that call.
    pub request: pb::MutateRequest,
    /// The region that the message names.
    pub region: Result<Arc<Region>>,
    /// Where the outcome goes.
    pub reply: DetachedResponder,
}

/// The most Gets that are read together.
const GETS_MAX: u64 = 64;
/// The most bytes of cells that Gets read together are expected to have, each as large as the
/// largest recent one.
const GETS_BYTES: u64 = 64 * 1024;
/// Each time Gets are read, the size of the largest recent one shrinks by this fraction.
const SIZE_DECAY: u64 = 8;
/// How many writes are made between two looks at the clock.
const WRITES_PER_TIME_CHECK: usize = 8;

/// How large the rows of recent Gets were, which says how many are read together.
struct RecentRows {
    /// Bytes of the largest.
    largest: u64,
}

impl RecentRows {
    /// The most Gets to read together now.
    fn gets_max(&self) -> usize {
        (GETS_BYTES / self.largest.max(1)).clamp(1, GETS_MAX) as usize
    }

    /// Gets were read, the largest row of which had this many bytes.
    fn note(&mut self, largest: u64) {
        self.largest = largest.max(self.largest - self.largest / SIZE_DECAY);
    }
}

/// Calls of a batch that were decoded, and run when the batch has been planned.
pub struct Planned {
    /// Single Gets.
    pub gets: GetBatch<(Call, Responder)>,
    /// Single writes.
    pub writes: Vec<Write>,
    /// Lets the log hear of the batch's writes together. `Some` once the batch has made one.
    pub wakes: Option<WakeBatch>,
}

/// A connection thread's part of [`ClientService`]. The memory of its lists is kept from batch to
/// batch.
pub struct ClientRunner {
    service: ClientService,
    planned: Planned,
    recent: RecentRows,
}

impl BatchRunner for ClientRunner {
    fn run(&mut self, calls: &mut CallBatch<'_>) {
        while let Some((call, reply)) = calls.next_call() {
            self.plan(call, reply);
        }
        self.finish();
    }
}

impl ClientRunner {
    /// The part of a thread that has run nothing yet.
    pub fn new(service: ClientService) -> Self {
        let recent = RecentRows { largest: GETS_BYTES };
        Self { service, planned: Planned { gets: GetBatch::EMPTY, writes: Vec::new(), wakes: None }, recent }
    }

    /// Decodes a call and runs it, hands it to a handler thread, or keeps it for
    /// [`ClientRunner::finish`].
    pub fn plan(&mut self, call: Call, reply: Responder) {
        let Self { service, planned, .. } = self;
        run_call(call.method, || service.plan(call, reply, planned));
        if self.planned.gets.len() >= self.recent.gets_max() {
            self.read();
        }
    }

    /// Runs what was kept.
    pub fn finish(&mut self) {
        self.read();
        self.write();
        self.planned.wakes = None;
    }

    /// Reads the Gets that were kept.
    fn read(&mut self) {
        let gets = &mut self.planned.gets;
        if gets.is_empty() {
            return;
        }
        let service = &self.service;
        let caller = |(call, _): &(Call, Responder)| Caller::of(call);
        let largest = gets.read(service.server(), caller, |(call, reply), (region, row), outcome| {
            let system = region.info().table().is_system();
            let detail = || row_detail(region, row);
            let times = service.answer_or_read_again(call, reply, system, outcome, detail);
            if let Some(times) = times {
                region.operation_times().record_ns(Operation::Get, times.processing_ns());
            }
        });
        self.recent.note(largest);
    }

    /// Makes the writes that were kept, for a time slice; the rest on handler threads.
    fn write(&mut self) {
        let Self { service, planned: Planned { writes, wakes, .. }, .. } = self;
        if writes.is_empty() {
            return;
        }
        wakes.get_or_insert_with(WakeBatch::begin);
        if writes.len() > 1 {
            region::prefetch_write_positions(writes.iter().filter_map(Write::place));
        }
        let mut end = None;
        let mut is_over = false;
        for (at, write) in writes.drain(..).enumerate() {
            if at > 0 && at % WRITES_PER_TIME_CHECK == 0 {
                let now = clock::monotonic();
                is_over |= now >= *end.get_or_insert(now + SLICE);
            }
            match is_over {
                false => write.make(service, RunsOn::Connection(service.executor())),
                true => write.make_aside(service),
            }
        }
    }
}

impl Write {
    /// The region and row that it writes, as far as they are known.
    fn place(&self) -> Option<(&Region, &[u8])> {
        Some((self.region.as_ref().ok()?, self.request.mutation.row.as_deref()?))
    }

    /// Makes the write. If it panics, its responder is dropped, which answers; the batch's other
    /// writes are made.
    pub fn make(self, service: &ClientService, runs_on: RunsOn<'_>) {
        let Self { call, request, region, reply } = self;
        let made = catch_unwind(AssertUnwindSafe(|| {
            let block = match call.cell_reader() {
                Ok(block) => block,
                Err(error) => return reply.send_error(&error),
            };
            let reply = PendingReply::to_client(reply, None);
            let region = mutate::Target { region, runs_on };
            mutate::mutate(service.server(), region, &request, block, Caller::of(&call), reply);
        }));
        if made.is_err() {
            tracing::error!("a write panicked");
        }
    }

    /// Makes it on a handler thread.
    fn make_aside(self, service: &ClientService) {
        let class = self.region.as_ref().map_or(CallClass::Write, |region| class_of_writes(region));
        let own = service.clone();
        service.executor().run_rest(class, move || self.make(&own, RunsOn::Waiting));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_large_gets_are_read_together_and_many_small_ones() {
        let mut recent = RecentRows { largest: GETS_BYTES };
        assert_eq!(recent.gets_max(), 1, "nothing is known yet");
        (0..60).for_each(|_| recent.note(200));
        assert_eq!(recent.gets_max(), GETS_MAX as usize);
        recent.note(4 * GETS_BYTES);
        assert_eq!(recent.gets_max(), 1);
        (0..10).for_each(|_| recent.note(200));
        assert_eq!(recent.gets_max(), 1, "a large one is not forgotten at once");
        recent.note(GETS_BYTES / 4);
        (0..200).for_each(|_| recent.note(GETS_BYTES / 4));
        assert_eq!(recent.gets_max(), 4);
        (0..200).for_each(|_| recent.note(0));
        assert_eq!(recent.gets_max(), GETS_MAX as usize, "nothing was found");
    }
}
