//! [`ReplyLimits`]: bounds the size of the reply to a Multi.

use std::sync::Arc;

use evenkeel_common::{Charge, ErrorKind, HBaseError, Result, TryError};
use evenkeel_region::scanner::{ReplyCharge, ScannerContext, TimeSlice};

use crate::RegionServer;
use crate::requests::caller::Caller;

/// A reply up to this size takes nothing from the reply budget while it is built.
const UNCHARGED_BYTES_MAX: u64 = 64 << 10;

/// The limits of a reply, and its size so far.
pub(super) struct ReplyLimits {
    /// When the cells read exceed this many bytes, the rest is not read.
    result_bytes_max: u64,
    /// The maximum bytes of blocks read, from the settings alone: a reply does not hold the blocks.
    block_bytes_max: u64,
    /// Bytes of cells read so far.
    pub result_bytes: u64,
    /// Bytes that outcomes have added to the reply so far, apart from the cells of rows.
    pub reply_bytes: u64,
    /// True if a row exceeded the budget for replies.
    budget_exhausted: bool,
    /// The maximum bytes of the reply, and of blocks read, that the quotas of the present region
    /// allow.
    quota_bytes_max: u64,
}

impl ReplyLimits {
    pub fn new(server: &RegionServer, caller: &Caller) -> Self {
        Self {
            result_bytes_max: match caller.has_version(1, 2) {
                true => server.result_bytes_max(),
                false => server.result_bytes_max_single_reply(),
            },
            block_bytes_max: server.config.result_bytes_max,
            result_bytes: 0,
            reply_bytes: 0,
            budget_exhausted: false,
            quota_bytes_max: u64::MAX,
        }
    }

    /// Creates the context of the reads for a reply, with the charge of their cells. `slice` limits
    /// the time that the reads may take.
    pub fn context(server: &RegionServer, slice: TimeSlice) -> ScannerContext {
        let mut context = ScannerContext::within(slice);
        let unsent = Charge::none(Arc::clone(&server.unsent));
        context.set_charge(ReplyCharge::new(unsent, UNCHARGED_BYTES_MAX));
        context
    }

    /// Sets the limit of the quotas of the region whose actions come next; `None` for none.
    pub fn limit_by_quota(&mut self, bytes_max: Option<u64>) {
        self.quota_bytes_max = bytes_max.unwrap_or(u64::MAX);
    }

    /// Counts the cells of a row that was read and charges them.
    ///
    /// # Errors
    /// `CallQueueTooBigException` if they exceed the budget for replies. The caller must drop the
    /// row.
    pub fn add_cells(&mut self, bytes: u64, context: &mut ScannerContext) -> Result<()> {
        if let Some(charge) = context.charge_mut() {
            charge.charge_row(bytes)?;
        }
        self.result_bytes += bytes;
        Ok(())
    }

    /// Returns the error of a row that could not be read or kept. If the row exceeded the budget
    /// for replies, this is `CallQueueTooBigException` while the reply has no row, at which clients
    /// back off; otherwise `MultiActionResultTooLarge`, at which a client immediately requests the
    /// rest.
    pub fn row_error(&mut self, error: TryError) -> TryError {
        let TryError::Failed(failure) = &error else { return error };
        if failure.kind() != ErrorKind::CallQueueTooBig {
            return error;
        }
        self.budget_exhausted = true;
        if self.result_bytes > 0 { self.too_large_error(0).into() } else { error }
    }

    /// Returns the error for the remaining actions if the reply is full. Clients that do not know
    /// this error have a larger limit: a third of the free budget.
    pub fn too_large(&self, caller: &Caller, context: &ScannerContext) -> Option<HBaseError> {
        let is_full = self.budget_exhausted
            || self.result_bytes > self.result_bytes_max
            || self.reply_bytes > self.result_bytes_max
            || (caller.has_version(1, 2)
                && (context.block_size + self.reply_bytes > self.block_bytes_max.min(self.quota_bytes_max)
                    || self.result_bytes > self.quota_bytes_max));
        is_full.then(|| self.too_large_error(context.block_size))
    }

    fn too_large_error(&self, block_bytes: u64) -> HBaseError {
        let message = format!("Max size exceeded CellSize: {} BlockSize: {block_bytes}", self.result_bytes);
        HBaseError::new(ErrorKind::MultiActionResultTooLarge, message)
    }
}
