//! [`ReplyCharge`]: what the cells of a reply take from the budget of replies.
//!
//! Replies share a [`Budget`](evenkeel_common::Budget). A cell is charged before it is copied, so
//! threads that read large values never hold more bytes of copies than the budget. Small replies
//! are not charged, so that they touch no count that other threads share.

use evenkeel_common::{Charge, ErrorKind, HBaseError, Result};

/// See the module's documentation.
#[derive(Debug)]
pub struct ReplyCharge {
    charge: Charge,
    /// The bytes that the reply may have beyond its charge.
    uncharged_max: u64,
    /// Bytes of the rows that the reply keeps.
    rows_bytes: u64,
}

impl ReplyCharge {
    /// The charge of an empty reply. The first `uncharged_max` bytes are free.
    pub fn new(charge: Charge, uncharged_max: u64) -> Self {
        Self { charge, uncharged_max, rows_bytes: 0 }
    }

    /// Returns the units that the reply holds of the budget.
    pub fn into_charge(self) -> Charge {
        self.charge
    }

    /// Charges a row of `row_bytes` that the reply keeps.
    ///
    /// # Errors
    /// As [`ReplyCharge::grow_to`].
    pub fn charge_row(&mut self, row_bytes: u64) -> Result<()> {
        self.grow_to(row_bytes)?;
        self.rows_bytes += row_bytes;
        Ok(())
    }

    /// Charges a row that grows to `row_bytes`. The reply may still drop it.
    ///
    /// # Errors
    /// `CallQueueTooBigException` if the budget is exhausted; clients back off.
    pub(super) fn grow_to(&mut self, row_bytes: u64) -> Result<()> {
        let bytes = self.rows_bytes.saturating_add(row_bytes);
        let charged = self.charge.units();
        if bytes <= charged + self.uncharged_max || self.charge.acquire(bytes - charged) {
            return Ok(());
        }
        let message = format!(
            "a row of {row_bytes} bytes and more exceeds the budget of replies that clients have not read"
        );
        Err(HBaseError::new(ErrorKind::CallQueueTooBig, message))
    }

    /// Returns the bytes to which a row may grow before it is charged.
    pub(super) fn row_bytes_uncharged(&self) -> u64 {
        (self.charge.units() + self.uncharged_max).saturating_sub(self.rows_bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use evenkeel_common::Budget;

    use super::*;

    #[test]
    fn rows_charge_the_budget_until_the_reply_is_dropped() {
        let budget = Budget::new(1000);
        let mut charge = ReplyCharge::new(Charge::none(Arc::clone(&budget)), 100);
        charge.charge_row(100).expect("free");
        assert_eq!((budget.used(), charge.row_bytes_uncharged()), (0, 0));
        charge.grow_to(50).expect("room");
        assert_eq!((budget.used(), charge.row_bytes_uncharged()), (150, 150));
        charge.charge_row(150).expect("within what was taken and what is free");
        assert_eq!((budget.used(), charge.rows_bytes), (150, 250));
        let refused = charge.grow_to(751).expect_err("no room");
        assert_eq!(refused.kind(), ErrorKind::CallQueueTooBig);
        charge.grow_to(750).expect("all that is left");
        drop(charge.into_charge());
        assert_eq!(budget.used(), 0);
    }
}
