//! [`ReplyLimits`]: how large the reply to a Multi may become.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_common::{Charge, ErrorKind, HBaseError, Result, TryError};
use evenkeel_region::scanner::{ReplyCharge, ScannerContext};

use crate::RegionServer;
use crate::requests::caller::Caller;

/// A reply of up to this many bytes takes no room before it is sent.
const UNCHARGED_BYTES_MAX: u64 = 64 << 10;

/// How large a reply may become, and how large it is.
pub(super) struct ReplyLimits {
    /// Bytes of cells after which the rest is not read.
    result_bytes_max: u64,
    /// As many bytes of blocks may be looked into as the settings say: a reply does not hold them.
    block_bytes_max: u64,
    /// Bytes of cells read so far.
    pub result_bytes: u64,
    /// What actions have left to be told so far.
    pub told_bytes: u64,
    /// There was no room for a row.
    has_no_room: bool,
}

impl ReplyLimits {
    pub fn new(server: &RegionServer, caller: &Caller) -> Self {
        Self {
            result_bytes_max: match caller.has_version(1, 2) {
                true => server.result_bytes_max(),
                false => server.result_bytes_max_uncut(),
            },
            block_bytes_max: server.config.result_bytes_max,
            result_bytes: 0,
            told_bytes: 0,
            has_no_room: false,
        }
    }

    /// The context of the reads for a reply, with the room that their cells take. `slice` is how
    /// long they may take here; `None` for no limit.
    pub fn context(server: &RegionServer, slice: Option<Duration>) -> ScannerContext {
        let mut context = ScannerContext::within(slice);
        let unsent = Charge::none(Arc::clone(&server.unsent));
        context.set_charge(ReplyCharge::new(unsent, UNCHARGED_BYTES_MAX));
        context
    }

    /// Counts the cells of a row that was read, and takes room for them.
    ///
    /// # Errors
    /// `CallQueueTooBigException` if there is none: the row should be dropped.
    pub fn add_cells(&mut self, bytes: u64, context: &mut ScannerContext) -> Result<()> {
        if let Some(charge) = context.charge_mut() {
            charge.charge_row(bytes)?;
        }
        self.result_bytes += bytes;
        Ok(())
    }

    /// The error of a row that could not be read or kept. For lack of room that is
    /// `CallQueueTooBigException`, at which clients back off, if the reply has no row yet;
    /// otherwise `MultiActionResultTooLarge`, at which a client asks for the rest at once.
    pub fn row_error(&mut self, error: TryError) -> TryError {
        let TryError::Failed(failure) = &error else { return error };
        if failure.kind() != ErrorKind::CallQueueTooBig {
            return error;
        }
        self.has_no_room = true;
        if self.result_bytes > 0 { self.too_large_error(0).into() } else { error }
    }

    /// The error of actions for which the reply has no room. Clients that do not know it get as
    /// much as there is room for.
    pub fn too_large(&self, caller: &Caller, context: &ScannerContext) -> Option<HBaseError> {
        let is_full = self.has_no_room
            || self.result_bytes > self.result_bytes_max
            || self.told_bytes > self.result_bytes_max
            || (caller.has_version(1, 2) && context.block_size + self.told_bytes > self.block_bytes_max);
        is_full.then(|| self.too_large_error(context.block_size))
    }

    fn too_large_error(&self, block_bytes: u64) -> HBaseError {
        let message = format!("Max size exceeded CellSize: {} BlockSize: {block_bytes}", self.result_bytes);
        HBaseError::new(ErrorKind::MultiActionResultTooLarge, message)
    }
}
