//! Histories of single rows, and the check that they are linearizable.
//!
//! A row is a small state ([`RowState`]): a register, a pair of columns of two families that is
//! written by one mutation, a counter, and a list that is appended to. Each operation has the times
//! of its send and of its response. A history is linearizable if each operation can be assigned one
//! time between these two, such that each response agrees with the state at that time.
//!
//! An operation without a response (its connection broke, or the call timed out) may take effect at
//! any time after its send, or never. An operation that the server refused is not part of the
//! history.
//!
//! The check processes the times in order and keeps the set of all possible states of the row, each
//! with the set of pending operations that have taken effect ("just-in-time linearization", Lowe
//! 2017). It is exact. Its cost is exponential in the number of concurrently pending operations,
//! which the workers bound: a worker sends nothing more to a row after an operation without a
//! response.

use std::collections::HashSet;

/// The content of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RowState {
    /// The register, `a:v`.
    pub register: Option<u64>,
    /// The pair, `a:p` and `b:p`, always equal.
    pub pair: Option<u64>,
    /// The counter, `a:n`.
    pub counter: Option<i64>,
    /// Bytes of the list, `b:l`, and a digest of them.
    pub list: (usize, u64),
}

/// An operation on a row, with its response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Writes the register.
    Put(u64),
    /// Writes both columns of the pair by one mutation of each family.
    PutPair(u64),
    /// Writes the register if it holds a value; returns whether it did.
    CheckAndPut {
        /// The value that the register must hold; `None` for no cell.
        expected: Option<u64>,
        /// The value to write.
        value: u64,
        /// True if the register was written.
        done: bool,
    },
    /// Adds to the counter; the second number is the response. A repeated call may be answered
    /// without one.
    Increment(i64, Option<i64>),
    /// Appends to the list; with the response.
    Append(Vec<u8>, (usize, u64)),
    /// Reads the row; the response is the state.
    Get(RowState),
}

impl Operation {
    /// The state after the operation, if the response agrees with the state before it. Without
    /// `answered`, the response is ignored.
    fn apply(&self, before: &RowState, answered: bool) -> Option<RowState> {
        let mut after = before.clone();
        let fits = match self {
            Self::Put(value) => {
                after.register = Some(*value);
                true
            }
            Self::PutPair(value) => {
                after.pair = Some(*value);
                true
            }
            Self::CheckAndPut { expected, value, done } => {
                let holds = before.register == *expected;
                if holds {
                    after.register = Some(*value);
                }
                holds == *done
            }
            Self::Increment(amount, response) => {
                let sum = before.counter.unwrap_or(0).wrapping_add(*amount);
                after.counter = Some(sum);
                response.is_none_or(|response| response == sum)
            }
            Self::Append(bytes, response) => {
                after.list = append(before.list, bytes);
                after.list == *response
            }
            Self::Get(response) => before == response,
        };
        (fits || !answered).then_some(after)
    }
}

/// A list after an append: bytes and digest (FNV-1a, which is incremental).
pub fn append((len, digest): (usize, u64), bytes: &[u8]) -> (usize, u64) {
    let start = if len == 0 { 0xcbf2_9ce4_8422_2325 } else { digest };
    let digest = bytes.iter().fold(start, |d, b| (d ^ u64::from(*b)).wrapping_mul(0x100_0000_01b3));
    (len + bytes.len(), digest)
}

/// One operation of a history.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The time of its send, in ns of the run.
    pub sent_ns: u64,
    /// The time of its response; `None` for none.
    pub answered_ns: Option<u64>,
    /// The operation. Its response is meaningless if none came.
    pub operation: Operation,
}

/// The largest number of states between two times; beyond it the history is reported as undecided.
const STATES_MAX: usize = 200_000;

/// The result of a check.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Some order explains all responses.
    Linearizable,
    /// No order explains the response of the entry with this index and those before it.
    Violation(usize),
    /// Too many operations without a response.
    Undecided,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Configuration {
    state: RowState,
    /// Bit `i`: the operation in slot `i` of the pending ones has taken effect.
    applied: u64,
}

/// Checks if some order of a row's operations explains all responses. The row has no cell at the
/// start.
pub fn check(entries: &[Entry]) -> Verdict {
    let mut moments: Vec<(u64, bool, usize)> = Vec::with_capacity(entries.len() * 2);
    for (index, entry) in entries.iter().enumerate() {
        moments.push((entry.sent_ns, false, index));
        moments.extend(entry.answered_ns.map(|at| (at, true, index)));
    }
    // At equal times, sends precede responses: the operations overlap.
    moments.sort_unstable();
    let mut slots: [Option<usize>; 64] = [None; 64];
    let mut possible = HashSet::from([Configuration { state: RowState::default(), applied: 0 }]);
    for (_, is_response, index) in moments {
        if !is_response {
            let Some(slot) = slots.iter_mut().find(|slot| slot.is_none()) else { return Verdict::Undecided };
            *slot = Some(index);
            continue;
        }
        let Some(slot) = slots.iter().position(|slot| *slot == Some(index)) else { continue };
        let Some(next) = after_response(entries, &slots, possible, slot) else { return Verdict::Undecided };
        possible = next;
        slots[slot] = None;
        if possible.is_empty() {
            return Verdict::Violation(index);
        }
    }
    Verdict::Linearizable
}

/// All configurations in which the operation in `slot` has taken effect by this time. `None` if
/// they are too many.
fn after_response(
    entries: &[Entry],
    slots: &[Option<usize>; 64],
    possible: HashSet<Configuration>,
    slot: usize,
) -> Option<HashSet<Configuration>> {
    let (mut seen, mut next): (HashSet<_>, HashSet<_>) = (possible.clone(), HashSet::new());
    let mut todo: Vec<_> = possible.into_iter().collect();
    while let Some(configuration) = todo.pop() {
        if configuration.applied & (1 << slot) != 0 {
            let applied = configuration.applied & !(1 << slot);
            next.insert(Configuration { applied, ..configuration });
            continue;
        }
        for (at, pending) in slots.iter().enumerate() {
            let Some(entry) = pending.and_then(|index| entries.get(index)) else { continue };
            if configuration.applied & (1 << at) != 0 {
                continue;
            }
            let after = entry.operation.apply(&configuration.state, entry.answered_ns.is_some());
            let after =
                after.map(|state| Configuration { state, applied: configuration.applied | (1 << at) });
            todo.extend(after.filter(|after| seen.insert(after.clone())));
        }
        if seen.len() > STATES_MAX {
            return None;
        }
    }
    Some(next)
}
