//! Many writes to a row that stays locked, and a write to another row.
//!
//! The log does not sync, so an Increment keeps its row locked while it waits until the Increment
//! before it is durable. There are more writes to that row than handler threads.

use std::io::ErrorKind;
use std::time::Duration;

use bytes::Bytes;
use evenkeel_common::Durability;
use evenkeel_fs::{Fault, FaultyFileSystem, Latch, MemoryFileSystem, Op};
use evenkeel_protocol::pb;
use evenkeel_region::operations::Scan;
use evenkeel_region::region::Region;
use evenkeel_wal::WalConfig;
use prost::Message;

use super::inline::{Client, Served, block_of, get_request, increment, multi, put_request, regex_filter};
use crate::testing::*;

const TIMEOUT: Duration = Duration::from_secs(20);
/// More than the handler threads of a class.
const WRITES: usize = 60;

/// A server whose row `r` is locked until [`LockedRow::unlock`].
struct LockedRow {
    served: Served,
    latch: Latch,
    /// The client whose second Increment holds the lock.
    locking: Client,
}

impl LockedRow {
    fn new() -> Self {
        let (fs, latch) = (FaultyFileSystem::new(MemoryFileSystem::new()), Latch::new());
        let served = Served::over(fs.clone(), WalConfig::default());
        put(&served.region, &[cell(b"r", b"n", &1u64.to_be_bytes())]);
        fs.inject(Fault::on(Op::Flush, "/WALs/").always().waits_for(&latch));
        let mut locking = served.client();
        let (request, block) = increment(&served.region, b"r");
        (0..2).for_each(|_| locking.send("Mutate", &request.encode_to_vec(), &block));
        Self { served, latch, locking }
    }

    fn unlock(&mut self) {
        assert!(has_no_reply(&self.locking), "the row was locked until now");
        self.latch.open();
        (0..2).for_each(|_| drop(self.locking.receive().expect("written")));
    }
}

fn has_no_reply(client: &Client) -> bool {
    client.stream.set_nonblocking(true).expect("set");
    let is_empty = client.stream.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    client.stream.set_nonblocking(false).expect("set");
    is_empty
}

/// A write to the locked row.
struct LockedWrite {
    method: &'static str,
    param: Vec<u8>,
    cells: Vec<u8>,
}

impl LockedWrite {
    fn new(method: &'static str, param: &impl Message, cells: Vec<u8>) -> Self {
        Self { method, param: param.encode_to_vec(), cells }
    }
}

/// One write of each kind to the row `r`.
fn kinds_of_writes(region: &Region) -> Vec<LockedWrite> {
    let (to_increment, counted) = increment(region, b"r");
    let put = put_request(region, b"r");
    let cells = || block_of(&[cell(b"r", b"q", b"v")]);
    let row = || Bytes::from_static(b"r");
    let check = |filter: Option<pb::Filter>| {
        let is_absent = pb::Comparator {
            name: "org.apache.hadoop.hbase.filter.NullComparator".to_owned(),
            serialized_comparator: None,
        };
        let condition = match filter {
            Some(filter) => pb::Condition { row: row(), filter: Some(filter), ..Default::default() },
            None => pb::Condition {
                row: row(),
                family: Some(Bytes::from_static(b"f")),
                qualifier: Some(Bytes::from_static(b"absent")),
                compare_type: Some(pb::CompareType::Equal as i32),
                comparator: Some(is_absent),
                ..Default::default()
            },
        };
        pb::MutateRequest { condition: Some(condition), ..put.clone() }
    };
    let action = |mutation: &pb::MutateRequest| pb::Action {
        index: Some(0),
        mutation: Some(mutation.mutation.clone()),
        ..Default::default()
    };
    let mut atomic = multi(region, vec![action(&put)]);
    atomic.region_action.iter_mut().for_each(|of| of.atomic = Some(true));
    let get =
        pb::Action { index: Some(1), get: Some(get_request(region, b"a", None).get), ..Default::default() };
    vec![
        LockedWrite::new("Mutate", &to_increment, counted.clone()),
        LockedWrite::new("Mutate", &put, cells()),
        LockedWrite::new("Mutate", &check(None), cells()),
        LockedWrite::new("Mutate", &check(Some(regex_filter("v"))), cells()),
        LockedWrite::new("Multi", &multi(region, vec![action(&put)]), cells()),
        LockedWrite::new("Multi", &atomic, cells()),
        LockedWrite::new("Multi", &multi(region, vec![action(&put), get]), cells()),
        LockedWrite::new("Multi", &multi(region, vec![action(&to_increment)]), counted),
    ]
}

#[test]
fn writes_to_a_locked_row_leave_handlers_for_those_to_other_rows() {
    let mut row = LockedRow::new();
    let served = &row.served;
    // Not in the log, and so not behind its sync.
    let (mut other_row, counted) = increment(served.quiet(), b"xylem");
    other_row.mutation.durability = Some(Durability::SkipWal as i32);
    let mut other = served.client();
    other.stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    let mut waiting = Vec::new();
    for write in kinds_of_writes(&served.region) {
        let mut client = served.client();
        (0..WRITES).for_each(|_| client.send(write.method, &write.param, &write.cells));
        other.call("Mutate", &other_row, &counted).expect("written");
        waiting.push(client);
    }
    assert!(waiting.iter().all(has_no_reply), "they wait for the row");
    row.unlock();
    for mut client in waiting {
        (0..WRITES).for_each(|_| drop(client.receive().expect("written")));
    }
}

/// The batch with the locked row waits. The one after it writes another row of the same batch.
#[test]
fn a_multi_writes_a_row_in_the_order_of_its_actions() {
    let mut row = LockedRow::new();
    let served = &row.served;
    let action = |row: &[u8]| pb::Action {
        index: Some(0),
        mutation: Some(put_request(&served.region, row).mutation),
        ..Default::default()
    };
    let mut request = multi(&served.region, vec![action(b"a"), action(b"r")]);
    request.region_action.extend(multi(&served.region, vec![action(b"a")]).region_action);
    let cells = [cell(b"a", b"q", b"first"), cell(b"r", b"q", b"v"), cell(b"a", b"q", b"last")];
    let mut client = served.client();
    client.send("Multi", &request.encode_to_vec(), &block_of(&cells));
    // Enough for the later batch, if it did not wait.
    std::thread::sleep(Duration::from_millis(100));
    row.unlock();
    client.receive().expect("written");
    let found = row.served.region.get(Scan::get("a")).expect("read");
    assert_eq!(found.get(0).value(), b"last");
}
