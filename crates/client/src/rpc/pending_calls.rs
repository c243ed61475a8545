//! [`PendingCalls`]: the calls in flight on one socket, and its outbox of bytes to write.
//!
//! One lock guards both. A call is registered and encoded in one step, into the buffer that the
//! writing task takes as a whole; so requests of many tasks leave in one write and need no buffers
//! of their own. The lock is never held over an await. A pending call is an entry with its task's
//! waker. Its future removes the entry when it completes or is dropped; a later response is
//! dropped.
//!
//! Calls with a long timeout have no timer of their own: [`PendingCalls::expire`] runs every
//! [`SWEEP`].

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::collections::HashMap;
use std::future::Future;
use std::hash::{BuildHasherDefault, Hasher};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::frame::{self, Response};
use super::{Call, compress::CellBlockCodec};
use crate::error::{Error, Result};

/// The interval at which expired calls are failed. A call with a timeout below [`OWN_TIMER_MAX`]
/// has its own timer.
pub(super) const SWEEP: Duration = Duration::from_millis(250);
/// Timeouts below this have a timer of their own.
pub(super) const OWN_TIMER_MAX: Duration = Duration::from_secs(2);
/// Bytes in the outbox beyond which further calls wait before they are encoded.
const OUTBOX_BYTES_MAX: usize = 4 << 20;

/// Hashes call ids, which are consecutive numbers.
#[derive(Debug, Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.0 = self.0 << 8 | u64::from(*b));
    }

    fn write_u32(&mut self, id: u32) {
        self.0 = u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Debug)]
enum CallState {
    Waiting { waker: Option<Waker>, method: &'static str, deadline: Instant, limit: Duration },
    Done(Result<Response>),
}

#[derive(Debug, Default)]
struct State {
    entries: HashMap<u32, CallState, BuildHasherDefault<IdHasher>>,
    next_id: u32,
    outbox: Vec<u8>,
    /// Why the socket is closed.
    closed: Option<Error>,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct PendingCalls {
    address: String,
    state: Mutex<State>,
    /// Notified when the outbox becomes non-empty.
    pub(super) work: Notify,
    /// Notified when the outbox has been taken.
    capacity_freed: Notify,
}

impl PendingCalls {
    pub(super) fn new(address: &str) -> Self {
        Self {
            address: address.to_owned(),
            state: Mutex::default(),
            work: Notify::new(),
            capacity_freed: Notify::new(),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.state.lock().closed.is_none()
    }

    /// Registers a call and encodes its request, once the outbox has space.
    pub(super) async fn enter(
        &self,
        call: &Call<'_>,
        compressor: Option<CellBlockCodec>,
    ) -> Result<ResponseFuture<'_>> {
        loop {
            let room = self.capacity_freed.notified();
            if let Some(response) = self.try_enter(call, compressor)? {
                return Ok(response);
            }
            let timed_out = |_| timed_out(call.method, &self.address, call.timeout);
            timeout(call.timeout, room).await.map_err(timed_out)?;
        }
    }

    fn try_enter(
        &self,
        call: &Call<'_>,
        compressor: Option<CellBlockCodec>,
    ) -> Result<Option<ResponseFuture<'_>>> {
        let mut state = self.state.lock();
        if let Some(error) = &state.closed {
            return Err(error.clone());
        }
        if state.outbox.len() >= OUTBOX_BYTES_MAX {
            return Ok(None);
        }
        let id = state.next_id;
        // Ids stay below 2^31: servers use the largest ones for responses to no call.
        state.next_id = (id + 1) & 0x7fff_ffff;
        let was_idle = state.outbox.is_empty();
        frame::request(&mut state.outbox, id, call, compressor)?;
        let (limit, deadline) = (call.timeout, Instant::now() + call.timeout);
        state.entries.insert(id, CallState::Waiting { waker: None, method: call.method, deadline, limit });
        drop(state);
        if was_idle {
            self.work.notify_one();
        }
        Ok(Some(ResponseFuture { calls: self, id }))
    }

    /// Swaps the outbox with the emptied buffer of the last write.
    pub(super) fn take_outbox(&self, buffer: &mut Vec<u8>) {
        buffer.clear();
        std::mem::swap(&mut self.state.lock().outbox, buffer);
        self.capacity_freed.notify_waiters();
    }

    /// Completes calls with their responses.
    pub(super) fn answer(&self, responses: &mut Vec<(u32, Result<Response>)>) {
        let mut wakers = Vec::with_capacity(responses.len());
        let mut state = self.state.lock();
        for (id, response) in responses.drain(..) {
            // A response to a call that timed out or was dropped is ignored.
            let Some(entry) = state.entries.get_mut(&id) else { continue };
            if let CallState::Waiting { waker, .. } = std::mem::replace(entry, CallState::Done(response)) {
                wakers.extend(waker);
            }
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Fails the calls whose deadline has passed.
    pub(super) fn expire(&self) {
        let now = Instant::now();
        let mut wakers = Vec::new();
        let mut state = self.state.lock();
        for entry in state.entries.values_mut() {
            let CallState::Waiting { waker, method, deadline, limit } = entry else { continue };
            if *deadline <= now {
                wakers.extend(waker.take());
                *entry = CallState::Done(Err(timed_out(method, &self.address, *limit)));
            }
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Fails all pending and all future calls. The first reason is kept.
    pub(super) fn close(&self, error: Error) {
        let mut wakers = Vec::new();
        let mut state = self.state.lock();
        let reason = state.closed.get_or_insert(error).clone();
        state.outbox = Vec::new();
        for entry in state.entries.values_mut() {
            if let CallState::Waiting { waker, .. } = entry {
                wakers.extend(waker.take());
                *entry = CallState::Done(Err(reason.clone()));
            }
        }
        drop(state);
        self.capacity_freed.notify_waiters();
        wakers.into_iter().for_each(Waker::wake);
    }
}

pub(super) fn timed_out(method: &str, address: &str, limit: Duration) -> Error {
    Error::Timeout(format!("{method} at {address} after {limit:?}"))
}

/// The future of a call's response. Dropping it cancels the call.
#[derive(Debug)]
pub(super) struct ResponseFuture<'a> {
    calls: &'a PendingCalls,
    id: u32,
}

impl Future for ResponseFuture<'_> {
    type Output = Result<Response>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.calls.state.lock();
        match state.entries.get_mut(&self.id) {
            Some(CallState::Waiting { waker, .. }) => {
                match waker {
                    Some(known) => known.clone_from(context.waker()),
                    None => *waker = Some(context.waker().clone()),
                }
                return Poll::Pending;
            }
            Some(CallState::Done(_)) | None => {}
        }
        match state.entries.remove(&self.id) {
            Some(CallState::Done(response)) => Poll::Ready(response),
            _ => Poll::Ready(Err(Error::Connection(format!("{}: asked again", self.calls.address)))),
        }
    }
}

impl Drop for ResponseFuture<'_> {
    fn drop(&mut self) {
        let entry = self.calls.state.lock().entries.remove(&self.id);
        drop(entry);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use evenkeel_protocol::pb;

    use super::super::Service;
    use super::*;

    fn call(param: &pb::GetClusterIdRequest, timeout: Duration) -> Call<'_> {
        Call { service: Service::ClientMeta, method: "M", param, cells: &[], timeout, priority: 0 }
    }

    fn response(text: &'static str) -> Result<Response> {
        Ok(Response { message: Bytes::from_static(text.as_bytes()), cells: Bytes::new() })
    }

    #[tokio::test]
    async fn responses_match_calls_and_late_ones_are_dropped() {
        let calls = PendingCalls::new("h:1");
        let param = pb::GetClusterIdRequest {};
        let long = call(&param, Duration::from_secs(60));
        let a = calls.enter(&long, None).await.expect("entered");
        let b = calls.enter(&long, None).await.expect("entered");
        let dropped = calls.enter(&long, None).await.expect("entered");
        drop(dropped);
        calls.answer(&mut vec![
            (1, response("b")),
            (2, response("late")),
            (0, response("a")),
            (9, response("?")),
        ]);
        assert_eq!(&b.await.expect("answered").message[..], b"b");
        assert_eq!(&a.await.expect("answered").message[..], b"a");
        assert!(calls.state.lock().entries.is_empty());
    }

    #[tokio::test]
    async fn expiry_ends_late_calls_and_close_ends_all() {
        let calls = PendingCalls::new("h:1");
        let param = pb::GetClusterIdRequest {};
        let short = calls.enter(&call(&param, Duration::from_millis(2)), None).await.expect("entered");
        let long = calls.enter(&call(&param, Duration::from_secs(60)), None).await.expect("entered");
        tokio::time::sleep(Duration::from_millis(5)).await;
        calls.expire();
        assert!(matches!(short.await, Err(Error::Timeout(_))));
        calls.close(Error::Connection("gone".into()));
        assert!(matches!(long.await, Err(Error::Connection(_))));
        assert!(calls.enter(&call(&param, Duration::from_secs(3)), None).await.is_err());
        assert!(calls.state.lock().entries.is_empty());
    }

    #[tokio::test]
    async fn a_full_outbox_makes_callers_wait() {
        let calls = PendingCalls::new("h:1");
        let param = pb::GetClusterIdRequest {};
        let cells = vec![0; OUTBOX_BYTES_MAX];
        let large = Call { cells: &cells, ..call(&param, Duration::from_secs(60)) };
        let _first = calls.enter(&large, None).await.expect("entered");
        let second = timeout(Duration::from_millis(20), calls.enter(&large, None)).await;
        assert!(second.is_err(), "it waits");
        let (mut buffer, third) = (Vec::new(), calls.enter(&large, None));
        calls.take_outbox(&mut buffer);
        assert!(buffer.len() > OUTBOX_BYTES_MAX);
        third.await.expect("entered");
    }
}
