//! [`PendingReply`]: the reply to a request whose outcome is known later, mostly a write's.
//!
//! ```text
//!            the region takes          it is durable           the write throttle
//!            the write                 and visible             lets go
//!   decoded ----------------> begun ----------------> ended ---------------------> sent
//!      |                   (`PendingWrite` in region)   |                            ^
//!      +-- refused: busy, malformed, not served here ---+------ not held back -------+
//! ```
//!
//! From *begun* to *ended* the region has the write, and the states between are its own: logged,
//! durable, visible (see `region/pending_write.rs`). The hold is computed when the write begins,
//! because it depends on what the write adds to the MemStores; a write that is refused since the
//! server is busy is held, too, or its client would come again at once.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_common::{Charge, Result};
use evenkeel_metrics::Cause;
use evenkeel_rpc::DetachedResponder;
use prost::Message;

use crate::background::Background;
use crate::requests::caller::{Reply, answer_detailed};
use crate::requests::subject::Subject;

/// Where a reply goes.
enum Recipient<M> {
    /// To a client. The charge is what the decoded request takes from the budget, until the reply
    /// is sent.
    Client(DetachedResponder, Option<Charge>),
    /// To a function.
    Function(Box<dyn FnOnce(Result<Reply<M>>) + Send>),
}

/// See the module's documentation.
pub struct PendingReply<M> {
    recipient: Recipient<M>,
    /// How long the reply is held back, and by whom.
    hold: Option<(Duration, Arc<Background>)>,
    /// What the request is about, once that is known.
    subject: Option<Subject>,
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

    /// Says what the request is about.
    pub fn set_subject(&mut self, subject: Subject) {
        self.subject = Some(subject);
    }

    /// Holds the reply back once the outcome is known, so that writers slow down before memory is
    /// short.
    pub fn hold_for(&mut self, hold: Duration, background: &Arc<Background>) {
        self.hold = (!hold.is_zero()).then(|| (hold, Arc::clone(background)));
    }

    /// Sends the outcome, at once or when the hold is over. May be called on any thread.
    pub fn send(self, outcome: Result<Reply<M>>) {
        let Self { mut recipient, hold, subject } = self;
        match hold {
            None => recipient.give(outcome, subject),
            Some((hold, background)) => {
                recipient.leave_thread(hold);
                background.write_throttle().hold(hold, move || recipient.give(outcome, subject))
            }
        }
    }
}

impl<M: Message> Recipient<M> {
    /// The reply is held back, and given by another thread.
    fn leave_thread(&mut self, hold: Duration) {
        if let Self::Client(reply, _) = self {
            reply.leave_thread();
            reply.note_wait(Cause::Throttle, hold);
        }
    }

    fn give(self, outcome: Result<Reply<M>>, subject: Option<Subject>) {
        match self {
            Self::Client(reply, charge) => {
                let detail = || subject.as_ref().map(Subject::detail).unwrap_or_default();
                let times = answer_detailed(reply, outcome, detail);
                if let Some(subject) = &subject {
                    subject.record(&times);
                }
                drop(charge);
            }
            Self::Function(function) => function(outcome),
        }
    }
}
