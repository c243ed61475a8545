//! [`RequestTarget`]: region, row and operation of a request, for the metrics of tables and users,
//! and the ledger.

use std::sync::Arc;

use evenkeel_common::Binary;
use evenkeel_metrics::RequestDetail;
use evenkeel_metrics::ledger::ROW_BYTES_MAX;
use evenkeel_region::region::{Operation, Region};
use evenkeel_rpc::CallTimes;

use crate::user_times::CountedUser;

/// How many bytes of a row a pending write keeps.
const ROW_KEPT: usize = 32;

/// The subject of a write of one row whose outcome is known later.
///
/// It copies the beginning of the row: a slice would pin the connection's read buffer.
pub struct RequestTarget {
    region: Arc<Region>,
    operation: Operation,
    /// True for a conditional write.
    is_conditional: bool,
    /// The times of the caller's operations, if they are counted.
    user: Option<CountedUser>,
    row: [u8; ROW_KEPT],
    row_bytes: usize,
}

impl RequestTarget {
    /// Creates the subject of an operation, which may be conditional, on a row of a region.
    pub fn new(
        region: &Arc<Region>,
        (operation, is_conditional): (Operation, bool),
        row: &[u8],
        user: Option<CountedUser>,
    ) -> Self {
        let mut kept = [0; ROW_KEPT];
        let row_bytes = row.len().min(ROW_KEPT);
        kept.iter_mut().zip(row).for_each(|(to, from)| *to = *from);
        Self { region: Arc::clone(region), operation, is_conditional, user, row: kept, row_bytes }
    }

    /// Returns the details that the ledger keeps.
    pub fn detail(&self) -> RequestDetail {
        let detail = row_detail(&self.region, self.row.get(..self.row_bytes).unwrap_or_default());
        RequestDetail { operation: self.operation_in_region(), ..detail }
    }

    fn operation_in_region(&self) -> &'static str {
        match self.operation {
            _ if self.is_conditional => "checkAndMutate",
            Operation::Put => "put",
            Operation::Delete => "delete",
            Operation::Increment => "increment",
            Operation::Append => "append",
            _ => "batchMutate",
        }
    }

    /// Records the times of the operation, whose reply was sent.
    pub fn record(&self, times: &CallTimes) {
        let of_table = self.region.operation_times();
        let ns = times.processing_ns();
        of_table.record_ns(self.operation, ns);
        self.user.iter().for_each(|times| times.record_ns(self.operation, ns));
        if self.is_conditional {
            of_table.record_ns(Operation::CheckAndMutate, ns);
        }
    }
}

/// Returns the details that the ledger keeps of a request for one row.
pub fn row_detail(region: &Region, row: &[u8]) -> RequestDetail {
    RequestDetail {
        region: Binary(region.info().name()).to_string(),
        row: row.get(..ROW_BYTES_MAX).unwrap_or(row).to_vec(),
        ..RequestDetail::default()
    }
}
