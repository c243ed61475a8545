//! Answering a call, on the connection's own thread or from another one.
//!
//! A [`Responder`] belongs to the connection's thread. Its answer is encoded straight into the
//! connection's outbox: no lock, no channel, no allocation but the outbox's growth; all answers of
//! one turn leave in one vectored write. [`Responder::detach`] makes a [`DetachedResponder`] that
//! may move to another thread; its answer is encoded there and handed to the connection through its
//! inbox.
//!
//! A call is always answered: a responder that is dropped answers with an exception, unless it was
//! [`silently_dropped`](Respond::silently_dropped) because nobody waits for the answer.

use std::rc::Rc;
use std::sync::Arc;

use evenkeel_common::{HBaseError, Result};
use prost::Message;

use crate::call::ConnectionInfo;
use crate::cell_block::CellBlockWriter;
use crate::connection::{Inbox, Outgoing};
use crate::gather::Gather;
use crate::reply::{no_room, write_exception, write_result};

/// What both kinds of responder can do.
pub trait Respond: Sized {
    /// The connection the answer goes to.
    fn connection(&self) -> &Arc<ConnectionInfo>;

    /// The client's number for the call.
    fn call_id(&self) -> u32;

    /// Answers with a message, and with cells beside it if `cells` is not empty.
    fn send_cells<M: Message>(self, message: &M, cells: Option<CellBlockWriter>);

    /// Answers with an exception.
    fn send_error(self, error: &HBaseError);

    /// Ends the call without an answer: its time is up or its socket is gone.
    fn silently_dropped(self);

    /// A writer of cell blocks as the client reads them; `None` when it wants cells inside
    /// messages.
    fn cell_block_writer(&self) -> Option<CellBlockWriter> {
        self.connection().cell_block_writer()
    }

    /// Answers with a message alone.
    fn send<M: Message>(self, message: &M) {
        self.send_cells(message, None);
    }

    /// Answers with a message or an exception.
    fn send_result<M: Message>(self, result: Result<M>) {
        match result {
            Ok(message) => self.send(&message),
            Err(error) => self.send_error(&error),
        }
    }
}

/// The exception of a call whose service gave no answer.
fn unanswered() -> HBaseError {
    HBaseError::io("the server ended the call without an answer")
}

fn encode_result<M: Message>(
    out: &mut Gather,
    call_id: u32,
    message: &M,
    cells: Option<CellBlockWriter>,
    bytes_max: u64,
) {
    let block = cells.map(CellBlockWriter::finish).transpose();
    match block.and_then(|block| write_result(out, call_id, message, block, bytes_max)) {
        Ok(()) => {}
        Err(error) => write_exception(out, call_id, &error),
    }
}

/// Answers a call on the connection's own thread. See the module's documentation.
pub struct Responder {
    connection: Rc<Outgoing>,
    call_id: u32,
    frame_bytes: usize,
    open: bool,
}

impl Responder {
    pub(crate) fn new(connection: Rc<Outgoing>, call_id: u32, frame_bytes: usize) -> Self {
        connection.call_started(frame_bytes);
        Responder { connection, call_id, frame_bytes, open: true }
    }

    /// Makes the answer independent of this thread.
    pub fn detach(mut self) -> DetachedResponder {
        self.open = false;
        self.connection.call_detached();
        DetachedResponder {
            info: self.connection.info().clone(),
            inbox: self.connection.inbox().clone(),
            call_id: self.call_id,
            frame_bytes: self.frame_bytes,
            open: true,
        }
    }

    fn finish(&mut self, write: impl FnOnce(&mut Gather, u32)) {
        self.open = false;
        self.connection.answer(|out| write(out, self.call_id));
        self.connection.call_ended(self.frame_bytes);
    }
}

impl Respond for Responder {
    fn connection(&self) -> &Arc<ConnectionInfo> {
        self.connection.info()
    }

    fn call_id(&self) -> u32 {
        self.call_id
    }

    fn send_cells<M: Message>(mut self, message: &M, cells: Option<CellBlockWriter>) {
        let bytes_max = self.connection.inbox().answer_bytes_max();
        self.finish(|out, call_id| encode_result(out, call_id, message, cells, bytes_max));
    }

    fn send_error(mut self, error: &HBaseError) {
        self.finish(|out, call_id| write_exception(out, call_id, error));
    }

    fn silently_dropped(mut self) {
        self.finish(|_, _| ());
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if self.open {
            self.finish(|out, call_id| write_exception(out, call_id, &unanswered()));
        }
    }
}

/// Answers a call from any thread. See the module's documentation.
pub struct DetachedResponder {
    info: Arc<ConnectionInfo>,
    inbox: Arc<Inbox>,
    call_id: u32,
    frame_bytes: usize,
    open: bool,
}

impl DetachedResponder {
    fn finish(&mut self, write: impl FnOnce(&mut Gather, u32)) {
        self.open = false;
        let mut answer = Gather::new();
        if !self.info.is_closed() {
            write(&mut answer, self.call_id);
        }
        if !self.inbox.has_taken_room(&answer) {
            // Others were faster.
            let error = no_room(answer.len());
            answer = Gather::new();
            write_exception(&mut answer, self.call_id, &error);
        }
        self.inbox.push(answer, self.frame_bytes);
    }
}

impl Respond for DetachedResponder {
    fn connection(&self) -> &Arc<ConnectionInfo> {
        &self.info
    }

    fn call_id(&self) -> u32 {
        self.call_id
    }

    fn send_cells<M: Message>(mut self, message: &M, cells: Option<CellBlockWriter>) {
        let bytes_max = self.inbox.answer_bytes_max();
        self.finish(|out, call_id| encode_result(out, call_id, message, cells, bytes_max));
    }

    fn send_error(mut self, error: &HBaseError) {
        self.finish(|out, call_id| write_exception(out, call_id, error));
    }

    fn silently_dropped(mut self) {
        self.finish(|_, _| ());
    }
}

impl Drop for DetachedResponder {
    fn drop(&mut self) {
        if self.open {
            self.finish(|out, call_id| write_exception(out, call_id, &unanswered()));
        }
    }
}
