//! The atomic path: writes that are made as a whole, with or without conditions and reads before
//! them.
//!
//! A write passes through these functions: [`Region::write_atomically`] starts its nonce,
//! [`Region::write_waiting`] locks its rows, [here or elsewhere](super::row_lock_waiter),
//! [`Region::check_and_apply`] reads, and adds its cells to the log and the MemStore, and
//! [`PendingWrite`] makes it durable and visible.

use std::cmp::Ordering as Order;
use std::sync::Arc;

use evenkeel_common::{
    CellBuffer, Charge, Durability, ErrorKind, HBaseError, KeyValue, Result, TryError, TryResult, Wait,
    cpu_slot,
};
use evenkeel_metrics::waits::{self, Cause};
use evenkeel_protocol::pb::CompareType;

use super::pending_write::{Applied, PendingWrite, WriteResponder};
use super::prepare::PreparedCells;
use super::row_lock_waiter::{self, RowLockWaiter};
use super::{TryWriteResult, stronger};
use crate::operations::{
    CheckAndMutateResult, Completion, Condition, ConditionTest, Families, FamilyColumns, Mutation,
    MutationKind, MutationResult, Scan,
};
use crate::region::nonce::{NonceKey, NonceSource, NonceStart, RunningNonce};
use crate::region::row_lock::{LockMode, RowGuard, RowLockTimeout};
use crate::region::{Region, RegionCount};

/// Results of a write up to this size are not charged: each call in flight counts as much.
const RESULT_BYTES_FREE: u64 = 1 << 10;
/// The results of a write may have this fraction (1/`RESULT_DIVISOR`) of the free budget of
/// replies, so that other replies find some.
const RESULT_DIVISOR: u64 = 3;

/// A write of the atomic path that waits for its rows. Its nonce, if it has one, is running.
struct WaitingWrite {
    mutations: Vec<Mutation>,
    conditions: Vec<Condition>,
    nonce: NonceKey,
    running: RunningNonce,
    responder: WriteResponder,
}

/// The locks of the rows of a write.
struct LockedRows<'a> {
    mode: LockMode,
    _guard: RowGuard<'a>,
}

impl Region {
    /// Makes one write.
    pub fn mutate(
        self: &Arc<Self>,
        mutation: Mutation,
        source: NonceSource,
        waits: RowLockWaiter<'_>,
        done: Completion<MutationResult>,
    ) {
        self.write_atomically(vec![mutation], Vec::new(), source, waits, WriteResponder::Mutation(done));
    }

    /// As [`Region::mutate`] for a Put or Delete, but returns instead of waiting.
    pub fn try_mutate(
        self: &Arc<Self>,
        mutation: Mutation,
        done: Completion<MutationResult>,
    ) -> TryWriteResult<(Mutation, Completion<MutationResult>)> {
        let none = NonceKey { group: 0, nonce: 0 };
        let mutations = std::slice::from_ref(&mutation);
        let rows = self.lock_rows_of(mutations, &[], RowLockTimeout::Never);
        match rows.and_then(|rows| self.check_and_apply(rows, mutations, Vec::new(), none, Wait::Never)) {
            Err(TryError::Failed(error)) => done(Err(error)),
            Err(TryError::WouldWait | TryError::TimeSliceOver) => {
                return TryWriteResult::WouldWait((mutation, done));
            }
            Ok(None) => done(Ok(MutationResult::default())),
            Ok(Some((applied, result))) => {
                PendingWrite::new(self, applied, result, WriteResponder::Mutation(done)).start();
            }
        }
        TryWriteResult::Started
    }

    /// Makes several writes to rows of this region, all or none; with conditions, only if all of
    /// them hold.
    pub fn mutate_rows(
        self: &Arc<Self>,
        mutations: Vec<Mutation>,
        conditions: Vec<Condition>,
        source: NonceSource,
        waits: RowLockWaiter<'_>,
        done: Completion<CheckAndMutateResult>,
    ) {
        self.write_atomically(mutations, conditions, source, waits, WriteResponder::Checked(done));
    }

    /// Makes writes to one row if a condition on it holds.
    pub fn check_and_mutate(
        self: &Arc<Self>,
        condition: Condition,
        mutations: Vec<Mutation>,
        source: NonceSource,
        waits: RowLockWaiter<'_>,
        done: Completion<CheckAndMutateResult>,
    ) {
        if mutations.iter().any(|m| m.row != condition.row) {
            return done(Err(HBaseError::do_not_retry("Action's getRow must match")));
        }
        self.write_atomically(mutations, vec![condition], source, waits, WriteResponder::Checked(done));
    }

    fn write_atomically(
        self: &Arc<Self>,
        mutations: Vec<Mutation>,
        conditions: Vec<Condition>,
        source: NonceSource,
        waits: RowLockWaiter<'_>,
        responder: WriteResponder,
    ) {
        let nonce = mutations.iter().map(|m| m.nonce).find(|n| *n != 0).unwrap_or(0);
        let key = NonceKey { group: source.group, nonce };
        let mut parts = Some((mutations, conditions, responder));
        let started = self.env.nonces.start(key, source.owner, || {
            let (region, parts) = (Arc::clone(self), parts.take());
            Box::new(move |made| {
                if let Some((mutations, _, responder)) = parts {
                    responder.respond(if made {
                        region.duplicate_result(&mutations)
                    } else {
                        Err(previous_attempt_failed())
                    });
                }
            })
        });
        let Some((mutations, conditions, responder)) = parts else { return };
        match started {
            NonceStart::Running => {}
            NonceStart::Duplicate => responder.respond(self.duplicate_result(&mutations)),
            NonceStart::Full => responder.respond(Err(self.too_many_nonces())),
            NonceStart::Proceed => {
                let running = RunningNonce::new(&self.env.nonces, key);
                self.write_waiting(
                    WaitingWrite { mutations, conditions, nonce: key, running, responder },
                    waits,
                );
            }
        }
    }

    fn write_waiting(self: &Arc<Self>, write: WaitingWrite, waits: RowLockWaiter<'_>) {
        let rows = self.lock_rows_of(&write.mutations, &write.conditions, waits.here());
        if let (Err(TryError::WouldWait), RowLockWaiter::LongWaitThreads(threads)) = (&rows, waits) {
            let region = Arc::clone(self);
            return row_lock_waiter::run_on(threads, move || {
                region.write_waiting(write, RowLockWaiter::CallingThread)
            });
        }
        let WaitingWrite { mutations, conditions, nonce, running, responder } = write;
        // If the write panics, its nonce ends before the responder is dropped: the client may send
        // it again at once.
        let running = running;
        let made =
            rows.and_then(|rows| self.check_and_apply(rows, &mutations, conditions, nonce, Wait::Allowed));
        match made {
            Ok(Some((applied, result))) => {
                PendingWrite::new(self, applied, result, responder).with_nonce(running).start();
            }
            Ok(None) => {
                running.end(false);
                // The cells that decided it were durable before they were read, and the row has
                // been locked since.
                responder.respond(Ok(CheckAndMutateResult::default()));
            }
            Err(unapplied) => {
                running.end(false);
                responder.respond(Err(unapplied.into_failure()));
            }
        }
    }

    fn too_many_nonces(&self) -> HBaseError {
        let region = self.info.name_text();
        let message = format!("too many recent operations with nonces; try again later, regionName={region}");
        HBaseError::new(ErrorKind::RegionTooBusy, message)
    }

    /// Locks the rows of a write of the atomic path.
    ///
    /// # Errors
    /// Errors of the region's state and of the mutations' targets; those of [`RowLocks::lock`].
    fn lock_rows_of(
        self: &Arc<Self>,
        mutations: &[Mutation],
        conditions: &[Condition],
        wait: RowLockTimeout,
    ) -> TryResult<LockedRows<'_>> {
        self.check_resources()?;
        mutations.iter().try_for_each(|m| self.check_target(m))?;
        conditions.iter().try_for_each(|c| self.check_row(&c.row, "doCheckAndRowMutate"))?;
        let rows = mutations.iter().map(|m| &m.row[..]).chain(conditions.iter().map(|c| &c.row[..]));
        let mode = if mutations.len() > 1 || !conditions.is_empty() || mutations.iter().any(reads_first) {
            LockMode::Exclusive
        } else {
            LockMode::Shared
        };
        Ok(LockedRows { mode, _guard: self.row_locks.lock(rows, mode, wait)? })
    }

    /// Checks the conditions and applies the write. Returns `None` if a condition does not hold.
    fn check_and_apply(
        self: &Arc<Self>,
        rows: LockedRows<'_>,
        mutations: &[Mutation],
        conditions: Vec<Condition>,
        nonce: NonceKey,
        wait: Wait,
    ) -> Result<Option<(Applied, CheckAndMutateResult)>, TryError> {
        if rows.mode == LockMode::Exclusive {
            if wait == Wait::Never {
                return Err(TryError::WouldWait);
            }
            // The cells read below must not be hidden after this write was computed from them.
            waits::time(Cause::EarlierWrites, || {
                cpu_slot::release_and_requeue(|| self.mvcc.wait_for(self.mvcc.write_point()));
            });
        }
        let now_ms = self.env.stores.clock.now_ms();
        let mut put_timestamp = now_ms;
        let is_conditional = !conditions.is_empty();
        for condition in conditions {
            match self.test(condition)? {
                Some(matched) => put_timestamp = put_timestamp.max(matched),
                None => {
                    self.counts.add(RegionCount::ChecksFailed, 1);
                    return Ok(None);
                }
            }
        }
        mutations.iter().try_for_each(|m| self.check_cells(m))?;
        let mut results = CellBuffer::new();
        let (mut prepared, mut durability) = (PreparedCells::of(mutations), Durability::SkipWal);
        for mutation in mutations {
            self.prepare(mutation, (now_ms, put_timestamp), &mut prepared, &mut results)?;
            durability = stronger(durability, self.durability_of(mutation));
        }
        let charge = charge_results(mutations, &results)?;
        let applied = self.apply(prepared.cells, durability, nonce, wait);
        if !matches!(applied, Err(TryError::WouldWait)) {
            self.count_writes(mutations.len() as u64, mutations);
        }
        let applied = applied?;
        drop(rows);
        if is_conditional {
            self.counts.add(RegionCount::ChecksPassed, 1);
        }
        if applied.logged.is_none() {
            self.count_unlogged(mutations.len(), &applied.cells);
        }
        let returns = mutations.iter().any(|m| reads_first(m) && m.return_results);
        let cells = returns.then_some(results);
        let grown_bytes = self.count_growth(mutations, &applied.cells);
        Ok(Some((applied, CheckAndMutateResult { success: true, cells, grown_bytes, charge })))
    }

    /// Reports the bytes that Increments and Appends have written beyond those of their mutations,
    /// and returns them.
    fn count_growth(&self, mutations: &[Mutation], written: &[KeyValue]) -> u64 {
        if !mutations.iter().any(reads_first) {
            return 0;
        }
        let given = mutations.iter().flat_map(|mutation| &mutation.cells).map(KeyValue::bytes_len).sum();
        let written: usize = written.iter().map(KeyValue::bytes_len).sum();
        let grown_bytes = written.saturating_sub(given) as u64;
        self.env.events.write_grew(grown_bytes);
        grown_bytes
    }

    /// Returns the timestamp of the matching cell if the condition holds; 0 if it holds without a
    /// cell.
    fn test(&self, condition: Condition) -> Result<Option<i64>> {
        let Condition { row, test, time_range } = condition;
        let mut scan = Scan { time_range, ..Scan::get(row) };
        match test {
            ConditionTest::Filter(filter) => {
                scan.filter = Some(filter);
                let found = self.read_row_now(scan)?;
                Ok((!found.is_empty()).then(|| found.get(0).timestamp()))
            }
            ConditionTest::Column { family, qualifier, op, comparator } => {
                self.check_family(&family)?;
                scan.families = [FamilyColumns { family, qualifiers: Some([qualifier].into()) }].into();
                let found = self.read_row_now(scan)?;
                let cell = if found.is_empty() { None } else { Some(found.get(0)) };
                let holds = match cell {
                    None => comparator.value().is_empty() && op != CompareType::NotEqual,
                    Some(cell) if comparator.value().is_empty() => {
                        cell.value().is_empty() == (op != CompareType::NotEqual)
                    }
                    Some(cell) => condition_holds(op, comparator.value().cmp(cell.value()))?,
                };
                Ok(holds.then(|| cell.map_or(0, |c| c.timestamp())))
            }
        }
    }

    /// Returns the result of a repeated Increment or Append: the current cells of its columns.
    fn duplicate_result(&self, mutations: &[Mutation]) -> Result<CheckAndMutateResult> {
        let mut cells = CellBuffer::new();
        for mutation in mutations.iter().filter(|m| reads_first(m) && m.return_results) {
            let mut scan = Scan { time_range: mutation.time_range, ..Scan::get(mutation.row.clone()) };
            scan.families = columns_of(mutation);
            self.get(scan)?.iter().for_each(|cell| cells.push(&cell));
        }
        let charge = charge_results(mutations, &cells)?;
        Ok(CheckAndMutateResult { success: true, cells: Some(cells), grown_bytes: 0, charge })
    }
}

/// Charges the cells that Increments and Appends return to the budget of replies, before the write
/// is made: a write that is made must be acknowledged. The reply may be held for a second.
///
/// # Errors
/// `CallQueueTooBigException` if they have more than a third of what is free; clients back off.
fn charge_results(mutations: &[Mutation], results: &CellBuffer) -> Result<Option<Charge>> {
    let bytes = results.encoded_len() as u64;
    let budget = mutations.iter().find_map(|mutation| mutation.reply_budget.as_ref());
    let Some(budget) = budget.filter(|_| bytes > RESULT_BYTES_FREE) else { return Ok(None) };
    let mut charge = Charge::none(Arc::clone(budget));
    if bytes <= budget.free() / RESULT_DIVISOR && charge.acquire(bytes) {
        return Ok(Some(charge));
    }
    let message =
        format!("{bytes} bytes that a write returns exceed the budget of replies that clients have not read");
    Err(HBaseError::new(ErrorKind::CallQueueTooBig, message))
}

/// The error for a retry that waited for an operation which then failed. The client retries.
fn previous_attempt_failed() -> HBaseError {
    HBaseError::io("an earlier attempt of this operation has failed")
}

/// Returns true if `value OP cell` holds, given the order of the condition's value relative to the
/// cell's.
fn condition_holds(op: CompareType, value_to_cell: Order) -> Result<bool> {
    Ok(match op {
        CompareType::Less => value_to_cell.is_lt(),
        CompareType::LessOrEqual => value_to_cell.is_le(),
        CompareType::Equal => value_to_cell.is_eq(),
        CompareType::NotEqual => value_to_cell.is_ne(),
        CompareType::GreaterOrEqual => value_to_cell.is_ge(),
        CompareType::Greater => value_to_cell.is_gt(),
        CompareType::NoOp => return Err(HBaseError::do_not_retry("Unknown Compare op NO_OP")),
    })
}

fn reads_first(mutation: &Mutation) -> bool {
    matches!(mutation.kind, MutationKind::Increment | MutationKind::Append)
}

fn columns_of(mutation: &Mutation) -> Families {
    let mut columns: Vec<_> = mutation
        .cells
        .iter()
        .map(|c| (c.as_cell().family().to_vec(), c.as_cell().qualifier().to_vec()))
        .collect();
    columns.sort();
    columns.dedup();
    let chunks = columns.chunk_by(|a, b| a.0 == b.0);
    let family = |chunk: &[(Vec<u8>, Vec<u8>)]| FamilyColumns {
        family: chunk.first().map(|(family, _)| family.clone()).unwrap_or_default().into(),
        qualifiers: Some(chunk.iter().map(|(_, q)| q.clone().into()).collect()),
    };
    chunks.map(family).collect()
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use evenkeel_common::CellRef;

    use super::*;
    use crate::filter::{Filter, ReturnCode};
    use crate::region::RegionEvents;
    use crate::region::testing::{region, region_with};

    const SOURCE: NonceSource = NonceSource { group: 1, owner: 1 };

    struct Panics;

    impl Filter for Panics {
        fn filter_cell(&mut self, _cell: &CellRef<'_>) -> Result<ReturnCode> {
            panic!("a filter's bug")
        }
    }

    impl RegionEvents for Panics {
        fn flush_wanted(&self, _: &Arc<Region>) {
            panic!("a listener's bug")
        }
    }

    fn increment(row: &str, nonce: u64) -> Mutation {
        let cell = KeyValue::put(row.as_bytes(), b"f", b"q", i64::MAX, &1_u64.to_be_bytes());
        Mutation { nonce, ..Mutation::new(MutationKind::Increment, row.as_bytes().to_vec(), vec![cell]) }
    }

    /// Returns the outcome, or `None` if there is none.
    fn outcome_of(
        make: impl FnOnce(Completion<CheckAndMutateResult>),
    ) -> Option<Result<CheckAndMutateResult>> {
        let (sender, receiver) = std::sync::mpsc::channel();
        drop(catch_unwind(AssertUnwindSafe(|| make(Box::new(move |outcome| drop(sender.send(outcome)))))));
        receiver.recv_timeout(std::time::Duration::from_secs(5)).ok()
    }

    #[test]
    fn a_panicking_write_releases_its_nonce_and_row() {
        let region = region();
        region.mutate_wait(increment("r", 0)).expect("made");
        let condition = |filter: Option<Panics>| match filter {
            Some(filter) => ConditionTest::Filter(Box::new(filter)),
            None => ConditionTest::Column {
                family: b"f".to_vec().into(),
                qualifier: b"q".to_vec().into(),
                op: CompareType::NotEqual,
                comparator: crate::filter::comparator_from_proto(&evenkeel_protocol::pb::Comparator {
                    name: "org.apache.hadoop.hbase.filter.NullComparator".to_owned(),
                    serialized_comparator: None,
                })
                .expect("legal"),
            },
        };
        let make = |filter: Option<Panics>| {
            let test = condition(filter);
            let condition =
                Condition { row: b"r".to_vec().into(), test, time_range: crate::operations::TimeRange::ALL };
            outcome_of(|done| {
                region.check_and_mutate(
                    condition,
                    vec![increment("r", 7)],
                    SOURCE,
                    RowLockWaiter::CallingThread,
                    done,
                )
            })
        };
        assert!(make(Some(Panics)).is_none_or(|outcome| outcome.is_err()));
        let outcome = make(None).expect("the nonce does not stay running").expect("made");
        assert!(outcome.success);
    }

    #[test]
    fn a_panic_between_log_and_memstore_does_not_block_writes() {
        let region = region_with(Arc::new(Panics), 1);
        let put = |row: &str, value: &[u8]| {
            let cell = KeyValue::put(row.as_bytes(), b"f", b"q", 5, value);
            Mutation::new(MutationKind::Put, row.as_bytes().to_vec(), vec![cell])
        };
        // Every write is past the size of a flush, and so panics.
        for row in ["a", "b", "a"] {
            assert!(
                outcome_of(|done| region.mutate_rows(
                    vec![put(row, b"v")],
                    Vec::new(),
                    SOURCE,
                    RowLockWaiter::CallingThread,
                    done
                ))
                .is_none()
            );
        }
        assert!(region.get(Scan::get("a")).expect("read").is_empty(), "nobody was told that it was made");
        let (read, written) = (region.mvcc.read_point(), region.mvcc.write_point());
        assert_eq!(read, written, "no write number is left open");
    }
}
