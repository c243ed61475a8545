//! Single Gets and writes of one turn.
//!
//! A client with many threads sends their calls over one connection, so many of them lie in its read buffer when a turn
//! begins: a batch in all but the message.
//!
//! # Gets
//! They are mostly alike but for the row. So what read one is kept, and reads the next one of this kind, if there is one
//! before the turn ends ([`Alike`]). It holds on to files and blocks, which is why it is not kept for longer: a turn takes a
//! millisecond or so.
//!
//! # Writes
//! They are looked up side by side, then made one after another.
//! Made as they are read, each would walk down its region's skip list alone and wait for memory at every node
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
use evenkeel_region::region::{self, Region, RowReader};
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

/// Kinds of Gets, by region too, of which readers are kept: a search among them is still short beside a Get.
pub(super) const KINDS_MAX: usize = 16;

/// Gets of one kind: of one region, and with nothing different but the row.
pub struct Alike {
    /// Without a row.
    pub get: pb::Get,
    /// Reads them; for it, all are of one kind.
    pub reader: RowReader<Arc<Region>>,
    /// It did not panic.
    is_sound: bool,
}

impl Alike {
    fn new(region: Arc<Region>, get: pb::Get) -> Self {
        Self { get, reader: region.owned_row_reader(), is_sound: true }
    }

    fn is_of(&self, region: &Arc<Region>, get: &pb::Get) -> bool {
        self.is_sound && Arc::ptr_eq(self.reader.region(), region) && self.get == *get
    }
}

/// Reads a row by what read such a Get before in this thread's turn, if there was one; else, and outside of turns, by a new
/// reader. After an error it is not kept.
///
/// # Errors
/// What `read` says.
pub fn read_alike<T>(
    region: Arc<Region>,
    get: pb::Get,
    read: impl FnOnce(&mut Alike) -> Result<T>,
) -> Result<T> {
    TURN.with_borrow_mut(|turn| {
        if !turn.is_running {
            return read(&mut Alike::new(region, get));
        }
        let at = turn.place_of(region, get);
        let gets = &mut turn.gets[at];
        gets.is_sound = false;
        let outcome = read(gets);
        match outcome {
            Ok(_) => gets.is_sound = true,
            Err(_) => drop(turn.gets.swap_remove(at)),
        }
        outcome
    })
}

/// What a turn keeps from one call to the next.
struct Turn {
    is_running: bool,
    writes: Vec<Write>,
    gets: Vec<Alike>,
    /// The place of the one that goes next when there are too many.
    next_gone: usize,
}

impl Turn {
    fn place_of(&mut self, region: Arc<Region>, get: pb::Get) -> usize {
        if let Some(at) = self.gets.iter().position(|kept| kept.is_of(&region, &get)) {
            return at;
        }
        let gets = Alike::new(region, get);
        if self.gets.len() < KINDS_MAX {
            self.gets.push(gets);
            return self.gets.len() - 1;
        }
        self.next_gone = (self.next_gone + 1) % KINDS_MAX;
        self.gets[self.next_gone] = gets;
        self.next_gone
    }
}

thread_local! {
    /// The memory of its lists stays.
    static TURN: RefCell<Turn> = const {
        RefCell::new(Turn { is_running: false, writes: Vec::new(), gets: Vec::new(), next_gone: 0 })
    };
}

/// Runs the calls of a turn, and then the single writes among them.
pub fn turn(server: &RegionServer, calls: &mut dyn FnMut()) {
    /// Ends the turn also when a call panics; writes that were put off are answered as they are dropped.
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
    let mut writes = end();
    if writes.len() > 1 {
        region::look_ahead(writes.iter().filter_map(Write::place));
    }
    writes.drain(..).for_each(|write| write.make(server));
    TURN.with_borrow_mut(|turn| turn.writes = writes);
}

/// Ends this thread's turn; the writes to be made.
fn end() -> Vec<Write> {
    TURN.with_borrow_mut(|turn| {
        turn.is_running = false;
        turn.gets.clear();
        std::mem::take(&mut turn.writes)
    })
}

/// Makes a write at the end of this thread's turn, or now when there is none.
pub fn put_off(server: &RegionServer, write: Write) {
    let now = TURN.with_borrow_mut(|turn| match turn.is_running {
        true => {
            turn.writes.push(write);
            None
        }
        false => Some(write),
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
