//! Single Gets and writes of one turn.
//!
//! A client with many threads sends their calls over one connection, so many of them lie in its read buffer when a turn
//! begins: a batch in all but the message. So a turn only decodes them, and does them together when it has run all its other
//! calls.
//!
//! # Gets
//! They are read as a batch is, see [`super::together`]; before the turn is over when they are many, or their answers
//! likely large, for the answers of a turn are to leave when they come to some size.
//!
//! # Writes
//! They are looked up side by side, then made one after another. Made as they are read, each would walk down its region's
//! skip list alone and wait for memory at every node (see [`region::look_ahead`]). Their answers leave no later for it: they
//! wait for the log, which is woken at the end of the turn.
//!
//! Writes that would have to wait go on on handler threads, and so do those that are not made when the turn's slice of time is
//! over (see [`super::inline`]).
//!
//! Calls of one connection whose answers nobody has seen have no order among them, here as in HBase, where several
//! handlers run them.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use evenkeel_common::Result;
use evenkeel_protocol::pb;
use evenkeel_region::region::{self, Region};
use evenkeel_rpc::{Call, CallClass, DetachedResponder, Respond, Responder};

use super::caller::{Caller, answer};
use super::client::ClientService;
use super::inline::{Attempt, RunsOn, SLICE, class_of_writes};
use super::mutate;
use super::together::Gets;

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

/// Gets that are read together, at most.
const GETS_MAX: u64 = 64;
/// So many Gets are read together as have so many bytes of cells, if all are as large as the largest one of late.
const GETS_BYTES: u64 = 64 * 1024;
/// How large the largest one was is forgotten by one part in so many each time that some are read.
const FORGETTING: u64 = 8;

/// What a turn puts off.
struct Turn {
    is_running: bool,
    writes: Vec<Write>,
    gets: Gets<(Call, Responder)>,
    /// Bytes of the largest row that was read of late.
    get_bytes: u64,
}

impl Turn {
    /// Gets that are read together now, at most.
    fn gets_max(&self) -> usize {
        (GETS_BYTES / self.get_bytes.max(1)).clamp(1, GETS_MAX) as usize
    }

    /// Some were read, of which the largest has so many bytes.
    fn note_read(&mut self, largest: u64) {
        self.get_bytes = largest.max(self.get_bytes - self.get_bytes / FORGETTING);
    }

    fn take_gets(&mut self) -> Gets<(Call, Responder)> {
        std::mem::replace(&mut self.gets, Gets::NONE)
    }
}

thread_local! {
    /// The memory of its lists stays.
    static TURN: RefCell<Turn> = const {
        RefCell::new(Turn { is_running: false, writes: Vec::new(), gets: Gets::NONE, get_bytes: GETS_BYTES })
    };
}

/// Runs the calls of a turn, and then the single Gets and writes among them.
pub fn turn(service: &ClientService, calls: &mut dyn FnMut()) {
    /// Ends the turn also when a call panics; what was put off is answered as it is dropped.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            if TURN.with_borrow(|turn| turn.is_running) {
                drop(end());
            }
        }
    }
    let _end = End;
    TURN.with_borrow_mut(|turn| turn.is_running = true);
    calls();
    let (gets, mut writes) = end();
    read(service, gets);
    if writes.len() > 1 {
        region::look_ahead(writes.iter().filter_map(Write::place));
    }
    make(service, &mut writes);
    TURN.with_borrow_mut(|turn| turn.writes = writes);
}

/// How often the clock is looked at while writes are made.
const WRITES_PER_TIME_CHECK: usize = 8;

/// Makes writes for a slice of time, the rest on handler threads.
fn make(service: &ClientService, writes: &mut Vec<Write>) {
    let mut end = None;
    let mut is_over = false;
    for (at, write) in writes.drain(..).enumerate() {
        if at > 0 && at % WRITES_PER_TIME_CHECK == 0 {
            let now = Instant::now();
            is_over |= now >= *end.get_or_insert(now + SLICE);
        }
        match is_over {
            false => write.make(service, RunsOn::Connection(service.executor())),
            true => write.make_aside(service),
        }
    }
}

/// Ends this thread's turn; what is to be done.
fn end() -> (Gets<(Call, Responder)>, Vec<Write>) {
    TURN.with_borrow_mut(|turn| {
        turn.is_running = false;
        (turn.take_gets(), std::mem::take(&mut turn.writes))
    })
}

/// Reads a row at the end of this thread's turn, or before it with others, or now when there is no turn.
pub fn put_off_get(service: &ClientService, region: Arc<Region>, get: pb::Get, call: Call, reply: Responder) {
    let now = TURN.with_borrow_mut(|turn| {
        turn.gets.push(region, get, (call, reply));
        let is_time = !turn.is_running || turn.gets.count() >= turn.gets_max();
        is_time.then(|| turn.take_gets())
    });
    if let Some(gets) = now {
        read(service, gets);
    }
}

/// Reads rows together, if there are any.
fn read(service: &ClientService, mut gets: Gets<(Call, Responder)>) {
    if gets.count() == 0 {
        return TURN.with_borrow_mut(|turn| turn.gets = gets);
    }
    let caller = |(call, _): &(Call, Responder)| Caller::of(call);
    let largest = gets.read(service.server(), caller, |(call, reply), system, outcome| match outcome {
        Attempt::Done(outcome) => answer(reply, outcome),
        Attempt::WouldWait => service.aside_counted(CallClass::General, system, call, reply),
        Attempt::TookLong => service.aside_counted(CallClass::Scan, system, call, reply),
    });
    TURN.with_borrow_mut(|turn| {
        turn.gets = gets;
        turn.note_read(largest);
    });
}

/// Makes a write at the end of this thread's turn, or now when there is none.
pub fn put_off(service: &ClientService, write: Write) {
    let now = TURN.with_borrow_mut(|turn| match turn.is_running {
        true => {
            turn.writes.push(write);
            None
        }
        false => Some(write),
    });
    if let Some(write) = now {
        write.make(service, RunsOn::Connection(service.executor()));
    }
}

impl Write {
    /// Where it will be written, as far as that can be told.
    fn place(&self) -> Option<(&Region, &[u8])> {
        Some((self.region.as_ref().ok()?, self.request.mutation.row.as_deref()?))
    }

    /// Makes it. A write that panics has dropped its responder, which answered; the turn's others are made even so.
    pub fn make(self, service: &ClientService, runs_on: RunsOn<'_>) {
        let Self { call, request, region, reply } = self;
        let made = catch_unwind(AssertUnwindSafe(|| {
            let block = match call.cell_reader() {
                Ok(block) => block,
                Err(error) => return reply.send_error(&error),
            };
            let done = Box::new(|outcome| answer(reply, outcome));
            let region = mutate::Target { region, runs_on };
            mutate::mutate(service.server(), region, &request, block, Caller::of(&call), done);
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
        let mut turn = Turn { is_running: true, writes: Vec::new(), gets: Gets::NONE, get_bytes: GETS_BYTES };
        assert_eq!(turn.gets_max(), 1, "nothing is known yet");
        (0..60).for_each(|_| turn.note_read(200));
        assert_eq!(turn.gets_max(), GETS_MAX as usize);
        turn.note_read(4 * GETS_BYTES);
        assert_eq!(turn.gets_max(), 1);
        (0..10).for_each(|_| turn.note_read(200));
        assert_eq!(turn.gets_max(), 1, "a large one is not forgotten at once");
        turn.note_read(GETS_BYTES / 4);
        (0..200).for_each(|_| turn.note_read(GETS_BYTES / 4));
        assert_eq!(turn.gets_max(), 4);
        (0..200).for_each(|_| turn.note_read(0));
        assert_eq!(turn.gets_max(), GETS_MAX as usize, "nothing was found");
    }
}
