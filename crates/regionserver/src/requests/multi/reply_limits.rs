//! [`ReplyLimits`]: how large the reply to a Multi may become.

use std::sync::Arc;

use evenkeel_common::{ErrorKind, HBaseError, Result};
use evenkeel_region::scanner::ScannerContext;
use evenkeel_rpc::Charge;

use crate::RegionServer;
use crate::requests::caller::Caller;

/// What a reply grows by before it takes more room.
const ROOM_STEP: u64 = 64 << 10;

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
    /// The room for replies that the cells take.
    pub room: Charge,
    /// There was none for more.
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
            room: Charge::none(Arc::clone(&server.unsent)),
            has_no_room: false,
        }
    }

    /// Takes room for a row that is being read and has grown to `row_bytes`.
    ///
    /// # Errors
    /// `CallQueueTooBigException`, at which clients back off, if the reply has no row yet.
    /// Otherwise `MultiActionResultTooLarge`, at which a client asks for the rest at once.
    pub fn grow_to(&mut self, row_bytes: u64) -> Result<()> {
        let bytes = self.result_bytes + row_bytes;
        // Small replies touch no count that others share.
        if bytes <= self.room.units() + ROOM_STEP || self.room.take(bytes - self.room.units()) {
            return Ok(());
        }
        self.has_no_room = true;
        Err(match self.result_bytes {
            0 => no_room(bytes),
            _ => self.too_large_error(0),
        })
    }

    /// Counts the cells of a row that was read.
    ///
    /// # Errors
    /// As [`ReplyLimits::grow_to`]: the row should be dropped.
    pub fn add_cells(&mut self, bytes: u64) -> Result<()> {
        self.grow_to(bytes)?;
        self.result_bytes += bytes;
        Ok(())
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

/// The error of a row for which there is no room beside replies that clients have not taken.
pub fn no_room(bytes: u64) -> HBaseError {
    let message = format!(
        "a row of {bytes} bytes and more finds no room beside replies that clients have not taken yet"
    );
    HBaseError::new(ErrorKind::CallQueueTooBig, message)
}
