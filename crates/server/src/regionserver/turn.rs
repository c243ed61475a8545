//! Single writes of one turn: looked up side by side, then made one after another.
//!
//! A client with many threads sends their Puts over one connection, so many of them lie in its read buffer when a turn
//! begins. Made as they are read, each would walk down its region's skip list alone and wait for memory at every node
//! (see [`region::look_ahead`]). So a turn only decodes them, and makes them when it has run all its other calls. Their
//! answers leave no later for it: they wait for the log, which is woken at the end of the turn.
//!
//! Calls of one connection whose answers nobody has seen have no order among them, here as in HBase, where several
//! handlers run them.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use evenkeel_common::Result;
use evenkeel_protocol::pb;
use evenkeel_region::region::{self, Region};
use evenkeel_rpc::{Call, DetachedResponder};

use super::caller::{Caller, answer};
use super::{RegionServer, mutate};

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

thread_local! {
    /// The writes of the turn that this thread runs; `None` outside of turns.
    static PUT_OFF: RefCell<Option<Vec<Write>>> = const { RefCell::new(None) };
}

/// Runs the calls of a turn, and then the single writes among them.
pub fn turn(server: &RegionServer, calls: &mut dyn FnMut()) {
    /// Ends the turn also when a call panics; writes that were put off are answered as they are dropped.
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            drop(PUT_OFF.take());
        }
    }
    let _end = End;
    PUT_OFF.set(Some(Vec::new()));
    calls();
    let writes = PUT_OFF.take().unwrap_or_default();
    if writes.len() > 1 {
        region::look_ahead(writes.iter().filter_map(Write::place));
    }
    writes.into_iter().for_each(|write| write.make(server));
}

/// Makes a write at the end of this thread's turn, or now when there is none.
pub fn put_off(server: &RegionServer, write: Write) {
    let now = PUT_OFF.with_borrow_mut(|writes| match writes {
        Some(writes) => {
            writes.push(write);
            None
        }
        None => Some(write),
    });
    if let Some(write) = now {
        write.make(server);
    }
}

impl Write {
    /// Where it will be written, as far as that can be told.
    fn place(&self) -> Option<(&Region, &[u8])> {
        Some((self.region.as_ref().ok()?, self.request.mutation.row.as_deref()?))
    }

    /// Makes it. A write that panics has dropped its responder, which answered; the turn's others are made even so.
    pub fn make(self, server: &RegionServer) {
        let Self { call, request, region, reply } = self;
        let done = Box::new(|outcome| answer(reply, outcome));
        let made = catch_unwind(AssertUnwindSafe(|| {
            mutate::mutate(server, region, &request, call.cell_reader(), Caller::of(&call), done);
        }));
        if made.is_err() {
            tracing::error!("a write panicked");
        }
    }
}
