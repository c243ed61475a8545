//! Runs the calls of one turn of a connection together.
//!
//! A client with many threads sends their calls over one connection, so its read buffer often holds
//! many calls when a turn begins. [`ClientRunner`] handles them like a batch. It first *begins*
//! each call: it hands work that needs a handler thread to one, runs a Multi of only reads or only
//! writes immediately, and decodes and keeps single Gets and writes. Then it runs the calls that it
//! kept:
//!
//! * **Gets**: read like the Gets of a Multi, see [`super::get_batch`]. If there are many, or their
//!   replies are likely large, they are read before the batch ends, because the replies of a turn
//!   are written out when they reach a certain size.
//! * **Writes**: the positions of all rows are looked up together, then the writes are made in
//!   turn. Writes made as they are decoded would each walk the region's skip list alone and miss
//!   the CPU cache at every node (see [`region::prefetch_write_positions`]). Keeping the writes
//!   delays no reply: the replies wait for the log, which is woken when the batch ends.
//!
//! A write that would have to wait continues on a handler thread. So do the writes that are left
//! when the turn's time slice ends (see [`super::inline`]).
//!
//! Calls of one connection whose replies the client has not seen have no order among them. The same
//! holds in HBase, where several handlers run them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use evenkeel_common::Result;
use evenkeel_common::clock;
use evenkeel_common::thread::run_call;
use evenkeel_protocol::pb;
use evenkeel_region::region::{self, Operation, Region};
use evenkeel_rpc::{BatchRunner, Call, CallBatch, CallClass, DetachedResponder, Respond, Responder};
use evenkeel_wal::WakeBatch;

use crate::requests::caller::Caller;
use crate::requests::get_batch::{GetBatch, GetOutcome};
use crate::requests::inline::{Handlers, RunsOn, SLICE, class_of_writes};
use crate::requests::mutate;
use crate::requests::pending_reply::PendingReply;
use crate::requests::request_target::row_detail;
use crate::services::client::ClientService;

/// A decoded single write.
pub struct Write {
    /// Its call.
    pub call: Call,
    /// The decoded message of the call.
    pub request: pb::MutateRequest,
    /// The region that the message names, or why it was not found.
    pub region: Result<Arc<Region>>,
    /// Sends the outcome.
    pub reply: DetachedResponder,
}

/// The maximum number of Gets that are read together.
const GETS_MAX: u64 = 64;
/// The maximum expected size, in bytes, of the cells of Gets that are read together. Each row is
/// expected to be as large as the largest recent one.
const GETS_BYTES: u64 = 64 * 1024;
/// Each time Gets are read, the size of the largest recent row decays by this fraction.
const SIZE_DECAY: u64 = 8;
/// The clock is read once per this many writes.
const WRITES_PER_TIME_CHECK: usize = 8;

/// The row sizes of recent Gets, which limit how many Gets are read together.
struct RowSizeEstimate {
    /// Bytes of the largest.
    largest: u64,
}

impl RowSizeEstimate {
    /// Returns the maximum number of Gets to read together.
    fn gets_max(&self) -> usize {
        (GETS_BYTES / self.largest.max(1)).clamp(1, GETS_MAX) as usize
    }

    /// Records the largest row, in bytes, of the Gets that were just read.
    fn note(&mut self, largest: u64) {
        self.largest = largest.max(self.largest - self.largest / SIZE_DECAY);
    }
}

/// Decoded calls that run together, when all calls of the batch have begun or earlier.
pub struct KeptCalls {
    /// Single Gets.
    pub gets: GetBatch<(Call, Responder)>,
    /// Single writes.
    pub writes: Vec<Write>,
    /// Wakes the log once for all writes of the batch. `Some` after the first write.
    pub wakes: Option<WakeBatch>,
}

/// A connection thread's instance of [`ClientService`]. It reuses the memory of its lists from
/// batch to batch.
pub struct ClientRunner {
    service: ClientService,
    kept: KeptCalls,
    recent: RowSizeEstimate,
}

impl BatchRunner for ClientRunner {
    fn run(&mut self, calls: &mut CallBatch<'_>) {
        while let Some((call, reply)) = calls.next_call() {
            self.begin(call, reply);
        }
        self.finish();
    }
}

impl ClientRunner {
    /// Creates the runner of a new thread.
    pub fn new(service: ClientService) -> Self {
        let recent = RowSizeEstimate { largest: GETS_BYTES };
        Self { service, kept: KeptCalls { gets: GetBatch::EMPTY, writes: Vec::new(), wakes: None }, recent }
    }

    /// Decodes a call and runs it, hands it to a handler thread, or keeps it for
    /// [`ClientRunner::finish`].
    pub fn begin(&mut self, call: Call, reply: Responder) {
        let Self { service, kept, .. } = self;
        run_call(call.method, || service.begin(call, reply, kept));
        if self.kept.gets.len() >= self.recent.gets_max() {
            self.read();
        }
    }

    /// Runs the calls that were kept.
    pub fn finish(&mut self) {
        self.read();
        self.write();
        self.kept.wakes = None;
    }

    /// Reads the Gets that were kept.
    fn read(&mut self) {
        let gets = &mut self.kept.gets;
        if gets.is_empty() {
            return;
        }
        let service = &self.service;
        let caller = |(call, _): &(Call, Responder)| Caller::of(service.server(), call);
        let largest = gets.read(service.server(), caller, |(call, reply), (region, row), outcome| {
            let is_system = || region.info().table().is_system();
            let user = service
                .server()
                .user_times()
                .id_of(call.connection.user.as_deref(), call.connection.peer.ip());
            let detail = || row_detail(region, row);
            let times = match outcome {
                GetOutcome::Tried(read) => service.reply_or_read_again(call, reply, is_system, read, detail),
                GetOutcome::NotTried => {
                    service.read_on_handler(call, reply, is_system());
                    None
                }
            };
            if let Some(times) = times {
                region.operation_times().record_ns(Operation::Get, times.processing_ns());
                service.server().user_times().record_ns(user, Operation::Get, times.processing_ns());
            }
        });
        self.recent.note(largest);
    }

    /// Makes the writes that were kept, for one time slice; hands the rest to handler threads.
    fn write(&mut self) {
        let Self { service, kept: KeptCalls { writes, wakes, .. }, .. } = self;
        if writes.is_empty() {
            return;
        }
        wakes.get_or_insert_with(WakeBatch::begin);
        if writes.len() > 1 {
            region::prefetch_write_positions(writes.iter().filter_map(Write::target));
        }
        let mut end = None;
        let mut is_over = false;
        for (at, write) in writes.drain(..).enumerate() {
            if at > 0 && at % WRITES_PER_TIME_CHECK == 0 {
                let now = clock::monotonic();
                is_over |= now >= *end.get_or_insert(now + SLICE);
            }
            match is_over {
                false => {
                    let handlers = Handlers::for_call(service.executor(), &write.call);
                    write.make(service, RunsOn::Connection(handlers));
                }
                true => write.make_on_handler(service),
            }
        }
    }
}

impl Write {
    /// Returns the region and row of the write, if both are known.
    fn target(&self) -> Option<(&Region, &[u8])> {
        Some((self.region.as_ref().ok()?, self.request.mutation.row.as_deref()?))
    }

    /// Makes the write. If it panics, its responder is dropped, which answers with an error; the
    /// other writes of the batch are still made.
    pub fn make(self, service: &ClientService, runs_on: RunsOn<'_>) {
        let Self { call, request, region, reply } = self;
        let made = catch_unwind(AssertUnwindSafe(|| {
            let block = match call.cell_reader() {
                Ok(block) => block,
                Err(error) => return reply.send_error(&error),
            };
            let reply = PendingReply::to_client(reply, None);
            let region = mutate::Target { region, runs_on };
            mutate::mutate(
                service.server(),
                region,
                &request,
                block,
                Caller::of(service.server(), &call),
                reply,
            );
        }));
        if made.is_err() {
            tracing::error!("a write panicked");
        }
    }

    /// Makes the write on a handler thread.
    fn make_on_handler(self, service: &ClientService) {
        let class = self.region.as_ref().map_or(CallClass::Write, |region| class_of_writes(region));
        let own = service.clone();
        let handlers = Handlers::for_call(service.executor(), &self.call);
        handlers.continue_writing(class, move |runs_on| self.make(&own, runs_on));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_large_gets_are_read_together_and_many_small_ones() {
        let mut recent = RowSizeEstimate { largest: GETS_BYTES };
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
