//! [`PendingReply`]: the reply to a request whose outcome is known later, usually a write.
//!
//! ```text
//!            the region takes          it is durable           the write throttle
//!            the write                 and visible             releases it
//!   decoded ----------------> begun ----------------> ended ---------------------> sent
//!      |                   (`PendingWrite` in region)   |                            ^
//!      +-- refused: busy, malformed, not served here ---+------ not held back -------+
//! ```
//!
//! Between *begun* and *ended* the region owns the write, with its own states: logged, durable,
//! visible (see `region/write/pending_write.rs`). The hold is computed when the write begins,
//! because it depends on what the write adds to the MemStores. What an Increment or Append adds is
//! known only when the region has read the old values; its hold may be extended when it ends. The
//! refusal of a write to a busy server is held too: otherwise its client would retry immediately.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_common::{Charge, Result};
use evenkeel_metrics::Cause;
use evenkeel_rpc::DetachedResponder;
use prost::Message;

use crate::background::Background;
use crate::requests::caller::{Reply, send_reply_detailed};
use crate::requests::request_target::RequestTarget;

/// The recipient of a reply.
enum Recipient<M> {
    /// To a client. The charge is what the decoded request takes from the request budget until the
    /// reply is sent.
    Client(DetachedResponder, Option<Charge>),
    /// To a function.
    Function(Box<dyn FnOnce(Result<Reply<M>>) + Send>),
}

/// See the module's documentation.
pub struct PendingReply<M> {
    recipient: Recipient<M>,
    /// How long to hold the reply, and the [`Background`] whose throttle holds it.
    hold: Option<(Duration, Arc<Background>)>,
    /// Region, row and operation of the request, if known.
    subject: Option<RequestTarget>,
}

impl<M: Message + 'static> PendingReply<M> {
    /// The reply to a call.
    pub fn to_client(reply: DetachedResponder, charge: Option<Charge>) -> Self {
        Self { recipient: Recipient::Client(reply, charge), hold: None, subject: None }
    }

    /// A reply for a function of this process.
    pub fn to_function(function: impl FnOnce(Result<Reply<M>>) + Send + 'static) -> Self {
        Self { recipient: Recipient::Function(Box::new(function)), hold: None, subject: None }
    }

    /// Sets the region, row and operation of the request.
    pub fn set_subject(&mut self, subject: RequestTarget) {
        self.subject = Some(subject);
    }

    /// Holds the reply once the outcome is known, so that writers slow down before memory runs out.
    pub fn hold_for(&mut self, hold: Duration, background: &Arc<Background>) {
        self.hold = (!hold.is_zero()).then(|| (hold, Arc::clone(background)));
    }

    /// Extends the hold of a write that has
    /// [grown](evenkeel_region::operations::MutationResult::grown_bytes).
    pub fn extend_hold(&mut self, grown_bytes: u64, background: &Arc<Background>) {
        let hold = background.hold_for_growth(grown_bytes);
        if self.hold.as_ref().map_or(Duration::ZERO, |(present, _)| *present) < hold {
            self.hold_for(hold, background);
        }
    }

    /// Collects the request's waits on this thread before another thread sends the outcome.
    pub fn leave_thread(&mut self) {
        if let Recipient::Client(reply, _) = &mut self.recipient {
            reply.leave_thread();
        }
    }

    /// Sends the outcome, immediately or when the hold ends. May be called on any thread.
    pub fn send(self, outcome: Result<Reply<M>>) {
        let Self { mut recipient, hold, subject } = self;
        match hold {
            None => recipient.send(outcome, subject),
            Some((hold, background)) => {
                recipient.detach(hold);
                background.write_throttle().hold(hold, move || recipient.send(outcome, subject))
            }
        }
    }
}

impl<M: Message> Recipient<M> {
    /// Notes that the reply is held and that another thread sends it.
    fn detach(&mut self, hold: Duration) {
        if let Self::Client(reply, _) = self {
            reply.leave_thread();
            reply.note_wait(Cause::Throttle, hold);
        }
    }

    fn send(self, outcome: Result<Reply<M>>, subject: Option<RequestTarget>) {
        match self {
            Self::Client(reply, charge) => {
                let detail = || subject.as_ref().map(RequestTarget::detail).unwrap_or_default();
                let times = send_reply_detailed(reply, outcome, detail);
                if let Some(subject) = &subject {
                    subject.record(&times);
                }
                drop(charge);
            }
            Self::Function(function) => function(outcome),
        }
    }
}
