//! Batches: actions grouped by server and region into Multi calls, with an outcome and retries for
//! each.
//!
//! A round locates the regions of the remaining actions, sends all servers their actions
//! concurrently, in calls of at most [`CALL_ACTIONS_MAX`] actions and about [`CALL_BYTES_MAX`]
//! bytes, and keeps the actions that failed and may be retried for the next round. An action keeps
//! its nonce over all rounds.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_protocol::pb;
use tokio::task::JoinSet;

use crate::cells::CellBlock;
use crate::connection::Connection;
use crate::error::{Error, Result};
use crate::location::{CachedLocation, Seek};
use crate::operation::{Action, Mutation};
use crate::result::RowResult;
use crate::retry::Retry;
use crate::table::Table;

/// Actions in one call (HBase's servers warn above 5,000: `hbase.rpc.rows.warning.threshold`).
const CALL_ACTIONS_MAX: usize = 4000;
/// Bytes of cells in one call; the last action may exceed it.
const CALL_BYTES_MAX: usize = 8 << 20;

/// An action with its index in the batch.
#[derive(Debug)]
struct IndexedAction {
    index: usize,
    nonce: u64,
    action: Action,
}

/// Actions of one region of a call.
#[derive(Debug)]
struct RegionBatch {
    at: Arc<CachedLocation>,
    items: Vec<IndexedAction>,
}

/// An action of a round, with its outcome.
#[derive(Debug)]
struct SentAction {
    item: IndexedAction,
    /// Where it was sent; `None` if its region was not found.
    at: Option<Arc<CachedLocation>>,
    outcome: Result<RowResult>,
}

pub(crate) async fn run(table: &Table, actions: Vec<Action>) -> Vec<Result<RowResult>> {
    let mut outcomes: Vec<_> =
        actions.iter().map(|_| Err(Error::Protocol("an action without an outcome".to_owned()))).collect();
    let mut todo = Vec::new();
    for (index, action) in actions.into_iter().enumerate() {
        let sizes = |m: &Mutation| m.check_size(table.connection().config().cell_bytes_max);
        let checked = action.check().and_then(|()| match &action {
            Action::Mutation(mutation) => sizes(mutation),
            Action::Get(_) => Ok(()),
        });
        match checked {
            Ok(()) => todo.push(IndexedAction { index, nonce: nonce(table.connection(), &action), action }),
            Err(error) => set(&mut outcomes, index, Err(error)),
        }
    }
    let mut retry = Retry::new(table.connection().config());
    while !todo.is_empty() {
        let round = round(table, todo, &retry).await;
        todo = settle(table, round, &mut outcomes, &mut retry).await;
    }
    outcomes
}

fn nonce(connection: &Connection, action: &Action) -> u64 {
    match action {
        Action::Mutation(mutation) if mutation.needs_nonce() => connection.nonce(),
        _ => 0,
    }
}

fn set(outcomes: &mut [Result<RowResult>], index: usize, outcome: Result<RowResult>) {
    if let Some(slot) = outcomes.get_mut(index) {
        *slot = outcome;
    }
}

/// Stores the final outcomes, waits for the retry pause, and returns the actions to retry.
async fn settle(
    table: &Table,
    round: Vec<SentAction>,
    outcomes: &mut [Result<RowResult>],
    retry: &mut Retry,
) -> Vec<IndexedAction> {
    let (mut again, mut last) = (Vec::new(), None);
    let has_progress = round.iter().any(|sent| sent.outcome.is_ok());
    for SentAction { item, at, outcome } in round {
        match outcome {
            Err(error) if !error.is_final() => {
                if let Some(at) = &at {
                    table.connection().locations().on_error(at, &error);
                }
                last = Some((at, error.clone()));
                again.push((item, error));
            }
            outcome => set(outcomes, item.index, outcome),
        }
    }
    let Some((at, error)) = last else { return Vec::new() };
    if error.retries_at_once() && !has_progress {
        retry.count_attempt();
    }
    match table.recover(at.as_ref(), error, retry).await {
        Ok(()) => again.into_iter().map(|(item, _)| item).collect(),
        Err(end) => {
            for (item, error) in again {
                let attempts = match &end {
                    Error::RetriesExhausted { attempts, .. } => Some(*attempts),
                    _ => None,
                };
                let exhausted = |attempts| Error::RetriesExhausted { attempts, last: Box::new(error) };
                set(outcomes, item.index, Err(attempts.map_or_else(|| end.clone(), exhausted)));
            }
            Vec::new()
        }
    }
}

async fn round(table: &Table, todo: Vec<IndexedAction>, retry: &Retry) -> Vec<SentAction> {
    let mut sent = Vec::new();
    let mut servers: HashMap<String, ServerBatch> = HashMap::new();
    let mut unreached = None;
    for item in todo {
        let seek = Seek::At(item.action.row());
        // If hbase:meta does not answer, the other actions use only the cache.
        let location = match &unreached {
            Some(error) => table.cached_location(seek).ok_or_else(|| Error::clone(error)),
            None => table.locate(seek, retry).await,
        };
        match location {
            Ok(at) => match servers.get_mut(&*at.address()) {
                Some(shares) => shares.add(at, item),
                None => servers.entry(at.address()).or_default().add(at, item),
            },
            Err(error) => {
                unreached = unreached.or_else(|| error.is_unreachable().then(|| error.clone()));
                sent.push(SentAction { item, at: None, outcome: Err(error) });
            }
        }
    }
    let timeout = retry.call_timeout(table.connection().config().rpc_timeout);
    let mut calls: Vec<_> = servers.into_values().flat_map(|shares| split(shares.list)).collect();
    let last = calls.pop();
    // The last call is made in this task, so that a batch of one call spawns none.
    let mut others = JoinSet::new();
    for shares in calls {
        others.spawn(call(table.connection().clone(), shares, timeout));
    }
    if let Some(shares) = last {
        sent.extend(call(table.connection().clone(), shares, timeout).await);
    }
    while let Some(done) = others.join_next().await {
        // If a call's task panicked, its actions would keep their default outcome, an error.
        sent.extend(done.unwrap_or_default());
    }
    sent
}

/// The batches of one server's regions. `by_location` finds one by the address of its location,
/// which the batch keeps alive.
#[derive(Debug, Default)]
struct ServerBatch {
    list: Vec<RegionBatch>,
    by_location: HashMap<usize, usize>,
}

impl ServerBatch {
    fn add(&mut self, at: Arc<CachedLocation>, item: IndexedAction) {
        match self.by_location.entry(Arc::as_ptr(&at) as usize) {
            Entry::Occupied(share) => {
                if let Some(batch) = self.list.get_mut(*share.get()) {
                    batch.items.push(item);
                }
            }
            Entry::Vacant(vacant) => {
                vacant.insert(self.list.len());
                self.list.push(RegionBatch { at, items: vec![item] });
            }
        }
    }
}

/// Splits a server's batches into calls of bounded size.
fn split(shares: Vec<RegionBatch>) -> Vec<Vec<RegionBatch>> {
    let mut calls: Vec<Vec<RegionBatch>> = vec![Vec::new()];
    let (mut count, mut bytes) = (0, 0);
    for RegionBatch { at, items } in shares {
        for item in items {
            if count >= CALL_ACTIONS_MAX || bytes >= CALL_BYTES_MAX {
                calls.push(Vec::new());
                (count, bytes) = (0, 0);
            }
            count += 1;
            bytes += item.action.bytes();
            match calls.last_mut() {
                Some(call) => match call.last_mut().filter(|share| Arc::ptr_eq(&share.at, &at)) {
                    Some(share) => share.items.push(item),
                    None => call.push(RegionBatch { at: at.clone(), items: vec![item] }),
                },
                None => calls.push(vec![RegionBatch { at: at.clone(), items: vec![item] }]),
            }
        }
    }
    calls.retain(|call| !call.is_empty());
    calls
}

async fn call(connection: Connection, shares: Vec<RegionBatch>, timeout: Duration) -> Vec<SentAction> {
    let mut block = Vec::new();
    let region_action =
        shares.iter().map(|share| region_action(share, &mut block, connection.config().tags)).collect();
    let request =
        pb::MultiRequest { region_action, nonce_group: Some(connection.nonce_group()), condition: None };
    let Some(at) = shares.first().map(|share| share.at.clone()) else { return Vec::new() };
    match connection.call_region(&at, "Multi", &request, &block, timeout).await {
        Ok((response, cells)) => read(shares, &response, cells),
        Err(error) => fail(shares, &error),
    }
}

/// Indexes start at 1, so that 0 means none, as in some servers and clients.
fn region_action(share: &RegionBatch, block: &mut Vec<u8>, with_tags: bool) -> pb::RegionAction {
    let actions =
        (1..).zip(&share.items).map(|(i, item)| item.action.message(i, item.nonce, block, with_tags));
    pb::RegionAction { region: share.at.specifier(), action: actions.collect(), ..Default::default() }
}

fn fail(shares: Vec<RegionBatch>, error: &Error) -> Vec<SentAction> {
    let each = |RegionBatch { at, items }| {
        items.into_iter().map(move |item| SentAction {
            item,
            at: Some(Arc::clone(&at)),
            outcome: Err(error.clone()),
        })
    };
    shares.into_iter().flat_map(each).collect()
}

fn read(shares: Vec<RegionBatch>, response: &pb::MultiResponse, mut cells: CellBlock) -> Vec<SentAction> {
    let mut sent = Vec::new();
    let mut region_results = response.region_action_result.iter();
    for share in shares {
        let missing = || Error::Protocol("a Multi response without one of its regions".to_owned());
        let Some(region_result) = region_results.next() else {
            sent.extend(fail(vec![share], &missing()));
            continue;
        };
        match &region_result.exception {
            Some(exception) => sent.extend(fail(vec![share], &Error::of_pair(exception))),
            None => read_share(share, region_result, &mut cells, &mut sent),
        }
    }
    sent
}

fn read_share(
    share: RegionBatch,
    region_result: &pb::RegionActionResult,
    cells: &mut CellBlock,
    sent: &mut Vec<SentAction>,
) {
    let mut results: HashMap<u32, Result<RowResult>> = HashMap::with_capacity(share.items.len());
    for each in &region_result.result_or_exception {
        // Cells follow in the order of the results, so every result is read, even an unexpected
        // one.
        let result = match (&each.exception, &each.result) {
            (Some(exception), _) => Err(Error::of_pair(exception)),
            (None, Some(result)) => cells.result(result),
            (None, None) => Ok(RowResult::default()),
        };
        results.insert(each.index(), result);
    }
    for (index, item) in (1..).zip(share.items) {
        let missing = || Err(Error::Protocol("a Multi response without one of its actions".to_owned()));
        let outcome = results.remove(&index).unwrap_or_else(missing);
        sent.push(SentAction { item, at: Some(share.at.clone()), outcome });
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use evenkeel_common::{RegionInfo, ServerName};

    use super::*;
    use crate::location::RegionLocation;
    use crate::operation::{Get, Put};

    fn share(start: &'static str, actions: Vec<Action>) -> RegionBatch {
        let region = RegionInfo::new("t".parse().expect("legal"), start.into(), Bytes::new(), 1);
        let at = Arc::new(CachedLocation::new(RegionLocation {
            region,
            server: ServerName::new("h", 1, 1),
            seq_num: 1,
        }));
        let items =
            actions.into_iter().enumerate().map(|(index, action)| IndexedAction { index, nonce: 0, action });
        RegionBatch { at, items: items.collect() }
    }

    fn gets(rows: &[&str]) -> Vec<Action> {
        rows.iter().map(|row| Get::new(row).into()).collect()
    }

    #[test]
    fn calls_stay_within_their_bounds() {
        let puts =
            (0..10).map(|i| Put::new(format!("{i}")).column("f", "q", vec![0; CALL_BYTES_MAX / 3]).into());
        let calls = split(vec![share("", puts.collect())]);
        let sizes: Vec<_> =
            calls.iter().map(|call| call.iter().map(|s| s.items.len()).sum::<usize>()).collect();
        assert_eq!(sizes, [3, 3, 3, 1]);
        let many = (0..CALL_ACTIONS_MAX + 1).map(|i| Get::new(format!("{i}")).into()).collect();
        assert_eq!(split(vec![share("", many)]).len(), 2);
    }

    #[test]
    fn outcomes_find_their_actions_by_index() {
        let exception = pb::NameBytesPair { name: "a.B".into(), value: Some("a.B: no".into()) };
        let entry =
            |index, exception| pb::ResultOrException { index: Some(index), exception, ..Default::default() };
        let first = pb::RegionActionResult {
            result_or_exception: vec![entry(2, Some(exception.clone())), entry(1, None)],
            ..Default::default()
        };
        let second = pb::RegionActionResult { exception: Some(exception), ..Default::default() };
        let response = pb::MultiResponse { region_action_result: vec![first, second], ..Default::default() };
        let shares =
            vec![share("", gets(&["a", "b", "c"])), share("m", gets(&["x"])), share("p", gets(&["z"]))];
        let sent = read(shares, &response, CellBlock::new(Bytes::new()));
        let kinds: Vec<_> = sent
            .iter()
            .map(|sent| match &sent.outcome {
                Ok(_) => "ok",
                Err(Error::Remote(_)) => "remote",
                Err(Error::Protocol(_)) => "protocol",
                Err(_) => "other",
            })
            .collect();
        assert_eq!(kinds, ["ok", "remote", "protocol", "remote", "protocol"]);
    }
}
