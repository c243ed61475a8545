//! [`Flights`]: one miss, one read.
//!
//! Of those who miss the same block at once, one reads it; the others wait for what it finds. When it fails, the next
//! one tries.

use std::collections::HashMap;
use std::sync::Arc;

use evenkeel_common::turns;
use parking_lot::{Condvar, Mutex};

use crate::{Block, BlockKey};

const STRIPES: usize = 16;

/// Reads that are under way.
#[derive(Debug, Default)]
pub(crate) struct Flights([Mutex<HashMap<BlockKey, Arc<Flight>>>; STRIPES]);

#[derive(Debug, Default)]
struct Flight {
    state: Mutex<State>,
    landed: Condvar,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Reading,
    Read(Block),
    Failed,
}

/// What to do about a miss.
pub(crate) enum Turn<'a> {
    /// Read it, and say so.
    Mine(Reading<'a>),
    /// Someone else has read it meanwhile.
    Done(Block),
    /// Someone else has tried.
    Failed,
}

/// The duty to read a block. Dropped without [`Reading::done`], it has failed.
pub(crate) struct Reading<'a> {
    flights: &'a Flights,
    key: BlockKey,
    flight: Arc<Flight>,
    found: Option<Block>,
}

impl Flights {
    /// Reads, or waits for who reads.
    pub fn join(&self, key: &BlockKey) -> Turn<'_> {
        let flight = {
            let mut stripe = self.stripe(key).lock();
            match stripe.get(key) {
                Some(flight) => Arc::clone(flight),
                None => {
                    let flight = Arc::<Flight>::default();
                    stripe.insert(*key, Arc::clone(&flight));
                    return Turn::Mine(Reading { flights: self, key: *key, flight, found: None });
                }
            }
        };
        let state = turns::lend(|| {
            let mut state = flight.state.lock();
            while matches!(*state, State::Reading) {
                flight.landed.wait(&mut state);
            }
            state
        });
        match &*state {
            State::Read(block) => Turn::Done(block.clone()),
            _ => Turn::Failed,
        }
    }

    fn stripe(&self, key: &BlockKey) -> &Mutex<HashMap<BlockKey, Arc<Flight>>> {
        &self.0[(key.offset >> 6) as usize % STRIPES]
    }
}

impl Reading<'_> {
    /// Hands the block to those who wait.
    pub fn done(mut self, block: &Block) {
        self.found = Some(block.clone());
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.flights.stripe(&self.key).lock().remove(&self.key);
        *self.flight.state.lock() = self.found.take().map_or(State::Failed, State::Read);
        self.flight.landed.notify_all();
    }
}
