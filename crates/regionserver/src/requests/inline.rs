//! What may run on a connection's thread, and where the rest goes.
//!
//! All connections of a thread wait for each other's calls. So what runs there neither waits nor
//! takes long: a call begins there only if it [looks short](looks_short), and has a [`SLICE`] of
//! time. What would wait, or takes longer after all, goes on on a handler thread.
//!
//! | work | on the connection's thread | else |
//! |---|---|---|
//! | to decode a frame | up to [`FRAME_BYTES_MAX`] | Mutate and Multi: Decode, else: Scan |
//! | to decompress a cell block | up to [`COMPRESSED_BYTES_MAX`] | the same |
//! | a Get, without [costly filters](is_cheap) | for a slice of the turn | again, class Scan |
//! | a Get of what is not in memory | | again, class General |
//! | a Multi | up to [`ACTIONS_MAX`] actions; Gets for a slice | class Scan |
//! | a Put or Delete that need not wait | for a slice of the turn's writes | class Write |
//! | a write behind a row's lock, a flush's swap, a full log | | goes on, class Write |
//! | a write that reads first | | class Write |
//!
//! Handlers of Scan, Decode and Write compute in turns, one a core in each class. Scan computes for
//! long. It does not wait for others' writes either, or scans would wait with it: writes that would
//! wait go on in class Write. Long writes are decoded and made in class Decode, for all handlers of
//! class Scan may have a scan that takes seconds. Where a request runs is a value ([`RunsOn`]) that
//! it is given.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_protocol::pb;
use evenkeel_region::ops::{Completion, Mutation, MutationResult};
use evenkeel_region::region::nonce::NonceSource;
use evenkeel_region::region::{BatchCompletion, Region, Tried};
use evenkeel_rpc::{Call, CallClass, Executor};

use crate::convert::multi::MultiRequest;

/// Longer frames are decoded by handlers: a tenth of a millisecond's copying, and a millisecond's
/// decoding of small parts.
pub const FRAME_BYTES_MAX: usize = 128 << 10;
/// Longer compressed cell blocks are, too: a byte may become a thousand.
pub const COMPRESSED_BYTES_MAX: usize = 1 << 10;
/// Requests of more actions are run by handlers.
pub const ACTIONS_MAX: usize = 256;
/// How long reads may compute, and writes. Long enough that a thread that was preempted meanwhile
/// has mostly not used it up.
pub const SLICE: Duration = Duration::from_millis(2);
/// Longer filters are read by handlers.
pub const FILTER_BYTES_MAX: usize = 1 << 10;

/// Comparators whose work on one value grows faster than the value, or that take long to be made.
/// `Substring` and `Regex` end alike.
const COSTLY: [&[u8]; 2] = [b"tringComparator", b"BigDecimalComparator"];

/// Whether a call can be begun on its connection's thread, by its lengths alone.
pub fn looks_short(call: &Call) -> bool {
    call.frame_bytes <= FRAME_BYTES_MAX
        && !(call.is_compressed() && call.cell_block_bytes() > COMPRESSED_BYTES_MAX)
}

/// Whether what a filter costs is bounded by the cells that it looks at.
pub fn is_cheap(filter: Option<&pb::Filter>) -> bool {
    let Some(filter) = filter else { return true };
    let bytes = filter.serialized_filter.as_deref().unwrap_or_default();
    let has = |name: &&[u8]| bytes.windows(name.len()).any(|part| part == *name);
    bytes.len() <= FILTER_BYTES_MAX && !COSTLY.iter().any(has)
}

/// Whether a batch can be begun on its connection's thread.
pub fn is_short(request: &MultiRequest) -> bool {
    let actions: usize = request.region_actions.iter().map(|of| of.actions.len() + 1).sum();
    actions <= ACTIONS_MAX && request.kinds.iter().all(|get| is_cheap(get.filter.as_ref()))
}

/// Where a request runs, as far as that says what it may do there.
#[derive(Clone, Copy)]
pub enum RunsOn<'a> {
    /// On a connection's thread: it may neither wait nor take long.
    Connection(&'a Arc<Executor>),
    /// On a handler that computes for long: it may wait for nothing but a disk that it reads.
    Computing(&'a Arc<Executor>),
    /// On a thread that may wait.
    Waiting,
}

impl<'a> RunsOn<'a> {
    /// The threads for writes that would have to wait; `None`: they wait here.
    pub fn handlers(self) -> Option<&'a Arc<Executor>> {
        match self {
            RunsOn::Connection(executor) | RunsOn::Computing(executor) => Some(executor),
            RunsOn::Waiting => None,
        }
    }

    /// Makes a Put or Delete, here if it need not wait.
    pub fn write(self, region: &Arc<Region>, mutation: Mutation, done: Completion<MutationResult>) {
        let Some(executor) = self.handlers() else { return region.mutate(mutation, NonceSource::NONE, done) };
        if let Tried::WouldWait((mutation, done)) = region.try_mutate(mutation, done) {
            let region = Arc::clone(region);
            executor
                .run_rest(class_of_writes(&region), move || region.mutate(mutation, NonceSource::NONE, done));
        }
    }

    /// Makes a batch of Puts and Deletes, here if it need not wait.
    pub fn write_batch(self, region: &Arc<Region>, mutations: Vec<Mutation>, done: BatchCompletion) {
        let Some(executor) = self.handlers() else { return region.batch_mutate(mutations, done) };
        if let Tried::WouldWait((mutations, done)) = region.try_batch_mutate(mutations, done) {
            let region = Arc::clone(region);
            executor.run_rest(class_of_writes(&region), move || region.batch_mutate(mutations, done));
        }
    }
}

/// Which threads make writes to a region that wait.
pub fn class_of_writes(region: &Region) -> CallClass {
    if region.info().table().is_system() { CallClass::Priority } else { CallClass::Write }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(bytes: &[u8]) -> pb::Filter {
        pb::Filter { name: "F".to_owned(), serialized_filter: Some(bytes.to_vec().into()) }
    }

    #[test]
    fn filters_with_costly_comparators_anywhere_in_them_are_not_cheap() {
        assert!(is_cheap(None) && is_cheap(Some(&pb::Filter::default())));
        assert!(is_cheap(Some(&filter(b"\x0a\x12org.apache.hadoop.hbase.filter.BinaryComparator"))));
        for costly in ["Substring", "RegexString", "BigDecimal"] {
            let bytes = format!("\x0a\x22org.apache.hadoop.hbase.filter.{costly}Comparator\x12\x01");
            assert!(!is_cheap(Some(&filter(bytes.as_bytes()))), "{costly}");
        }
        assert!(!is_cheap(Some(&filter(&[0; FILTER_BYTES_MAX + 1]))));
    }
}
