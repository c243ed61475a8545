//! [`ReplyList`]: a list of a reply, charged while it grows.

use std::sync::Arc;

use evenkeel_common::{Charge, ErrorKind, HBaseError, Result};
use prost::Message;

use crate::Master;

/// Messages of a reply. Their bytes are charged to the unread replies until the list is complete;
/// then the RPC server charges the encoded reply.
pub(crate) struct ReplyList<M> {
    messages: Vec<M>,
    charge: Charge,
}

impl<M: Message> ReplyList<M> {
    /// Appends a message.
    ///
    /// # Errors
    /// `CallQueueTooBigException` if there is no space for it: clients back off.
    pub(crate) fn push(&mut self, message: M) -> Result<()> {
        let bytes = size_of::<M>() + message.encoded_len();
        if !self.charge.acquire(bytes as u64) {
            let sum = self.charge.units().saturating_add(bytes as u64);
            let message = format!(
                "a response of {sum} bytes exceeds the budget of responses that clients have not read"
            );
            return Err(HBaseError::new(ErrorKind::CallQueueTooBig, message));
        }
        self.messages.push(message);
        Ok(())
    }

    /// Returns the messages.
    pub(crate) fn into_messages(self) -> Vec<M> {
        self.messages
    }
}

impl Master {
    /// Returns an empty list of a reply.
    pub(crate) fn reply_list<M: Message>(&self) -> ReplyList<M> {
        let charge = Charge::none(Arc::clone(self.parts.regionserver.unsent_budget()));
        ReplyList { messages: Vec::new(), charge }
    }
}
