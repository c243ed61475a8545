//! The monitor of one connection thread. It closes only connections that hold resources that others
//! need, and those whose clients are gone.
//!
//! | connection | is closed |
//! |---|---|
//! | no ConnectionHeader | after `handshake_timeout`; under pressure after [`IDLE_MIN`] |
//! | a request that stops arriving | after `receive_timeout`; under input pressure after 1 s |
//! | closed by its client while the server does not read from it | at the next check |
//! | idle | by HBase's settings; under pressure after [`IDLE_MIN`] |
//!
//! *Pressure*: few connections or little input budget are left. Closing an idle connection helps
//! the input budget only if its ConnectionHeader is charged to it. The settings are in
//! [`IdleConfig`](super::IdleConfig); [`ReceiveDeadline`](super::ReceiveDeadline) defines what
//! counts as arriving.
//!
//! Few connections are left when less than a 16th of `connections_max` are free. Connections
//! without a ConnectionHeader are closed first, then those that are idle longest.
//!
//! An idle connection is not closed directly: its task first checks again for received bytes, so no
//! request that arrived is lost. A request that arrives later is not run; its client sees the
//! closed connection and sends the request again on another one.
//!
//! A connection that receives nothing for [`BUFFER_IDLE_MAX`] releases the unused part of its read
//! buffer.

use std::cmp::Reverse;
use std::rc::{Rc, Weak};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use evenkeel_common::clock;
use tokio::sync::Notify;

use crate::connection::{ConnectionShared, MonitorRequest};
use crate::connection_report::REPORTED_MAX;
use crate::connection_thread::ConnectionThread;

/// Interval between checks of all connections of the thread; shorter if timeouts are short.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// A connection releases its read buffer after this time without a byte.
const BUFFER_IDLE_MAX: Duration = Duration::from_secs(1);
/// An idle connection may be closed in favour of another one after this time.
const IDLE_MIN: Duration = Duration::from_secs(1);
/// One of this number of connections is kept free as long as there are idle connections.
const RESERVE_DIVISOR: usize = 16;

/// A connection whose ConnectionHeader has not arrived.
pub(crate) struct PendingHandshake {
    since: Instant,
    end: Notify,
}

impl PendingHandshake {
    pub fn now() -> Rc<Self> {
        Rc::new(PendingHandshake { since: clock::monotonic(), end: Notify::new() })
    }

    /// Resolves when the connection must end in favour of another one.
    pub async fn ended(&self) {
        self.end.notified().await;
    }
}

impl ConnectionThread {
    /// The monitor; see the module's documentation. Runs until it is dropped.
    pub async fn monitor_connections(&self) {
        let idle = self.config().idle;
        let look = CHECK_INTERVAL.min(self.config().receive_timeout / 4).max(Duration::from_millis(5));
        let mut scan_at = clock::monotonic() + idle.scan_interval;
        loop {
            tokio::time::sleep(look).await;
            let now = clock::monotonic();
            self.end_late(now);
            self.check_unread_peers();
            self.report_connections(now);
            if self.input().is_short() {
                self.close_pending_handshakes(now, usize::MAX);
            }
            let mut unused = self.unused(now);
            self.free_connections(now, &mut unused);
            if now >= scan_at {
                scan_at = now + idle.scan_interval;
                self.end_idle(now, &unused);
            }
        }
    }

    fn each_connection(&self, mut look: impl FnMut(&Rc<ConnectionShared>)) {
        let connections = self.connections.borrow();
        connections.values().filter_map(Weak::upgrade).for_each(|connection| look(&connection));
    }

    /// Lists the detached calls, and the connections if reports are requested.
    fn report_connections(&self, now: Instant) {
        let (mut reports, mut running) = (Vec::new(), Vec::new());
        self.each_connection(|connection| connection.list_running(&mut running, REPORTED_MAX));
        *self.counters.running.lock() = running;
        if self.reports().are_wanted(now) {
            self.each_connection(|connection| {
                if reports.len() < REPORTED_MAX {
                    reports.push(connection.report(now));
                }
            });
        }
        *self.counters.reports.lock() = reports;
    }

    fn end_late(&self, now: Instant) {
        let timeout = self.config().receive_timeout;
        let allowed = self.input().timeout(timeout);
        let mut ended = 0;
        self.each_connection(|connection| {
            if connection.has_late_input(now, timeout, allowed) {
                connection.request(MonitorRequest::Close);
                ended += 1;
            }
        });
        if ended > 0 {
            tracing::warn!(connections = ended, "closing connections with late requests");
        }
    }

    /// Requests that the connections from which the server does not read look for the end of their
    /// streams. The calls of a client that is gone end early, which frees what they hold.
    fn check_unread_peers(&self) {
        self.each_connection(|connection| {
            if !connection.is_read() {
                connection.request(MonitorRequest::CheckPeer);
            }
        });
    }

    /// Returns the idle connections, each with its idle time's start, the longest idle last. Also
    /// requests the release of unused read buffers.
    fn unused(&self, now: Instant) -> Vec<(Reverse<Instant>, Rc<ConnectionShared>)> {
        let mut unused = Vec::new();
        let is_short = self.input().is_short();
        self.each_connection(|connection| {
            if connection.has_buffer() && connection.silence(now) >= BUFFER_IDLE_MAX {
                connection.request(MonitorRequest::ReleaseBuffer);
            }
            let Some(since) = connection.idle_since(now) else { return };
            let age = now.saturating_duration_since(since);
            if age >= IDLE_MIN && is_short && connection.header_bytes() > 0 {
                connection.request(MonitorRequest::CloseIdle);
            }
            if age >= IDLE_MIN {
                unused.push((Reverse(since), connection.clone()));
            }
        });
        unused.sort_by_key(|(since, _)| *since);
        unused
    }

    /// Returns this thread's share of `count`.
    fn part_of(&self, count: usize) -> usize {
        count.div_ceil(self.config().connection_threads.max(1))
    }

    fn open_connections(&self) -> usize {
        usize::try_from(self.shared.open_connections.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// Closes connections until enough are free again, and removes them from `unused`.
    fn free_connections(&self, now: Instant, unused: &mut Vec<(Reverse<Instant>, Rc<ConnectionShared>)>) {
        let connections_max = self.config().connections_max;
        let wanted =
            (self.open_connections() + 1).saturating_sub(connections_max - connections_max / RESERVE_DIVISOR);
        if wanted == 0 {
            return;
        }
        let wanted = self.part_of(wanted);
        let mut ended = self.close_pending_handshakes(now, wanted);
        let from = unused.len().saturating_sub(wanted - ended);
        for (_, connection) in unused.drain(from..) {
            connection.request(MonitorRequest::CloseIdle);
            ended += 1;
        }
        if ended > 0 {
            tracing::warn!(connections = ended, "closing idle connections: near the limit of connections");
        }
    }

    /// Closes up to `count` connections that have had time to send a ConnectionHeader. Returns
    /// their number.
    fn close_pending_handshakes(&self, now: Instant, count: usize) -> usize {
        let pending = self.pending_handshakes.borrow();
        let is_old =
            |handshake: &&Rc<PendingHandshake>| now.saturating_duration_since(handshake.since) >= IDLE_MIN;
        let old = pending.values().filter(is_old).take(count);
        old.map(|handshake| handshake.end.notify_one()).count()
    }

    /// Closes idle connections by HBase's settings.
    fn end_idle(&self, now: Instant, unused: &[(Reverse<Instant>, Rc<ConnectionShared>)]) {
        let idle = self.config().idle;
        if self.open_connections() < idle.threshold {
            return;
        }
        let is_due =
            |(since, _): &&(Reverse<Instant>, _)| now.saturating_duration_since(since.0) >= idle.time_max;
        let due = unused.iter().rev().take_while(is_due).take(self.part_of(idle.closed_max));
        due.for_each(|(_, connection)| connection.request(MonitorRequest::CloseIdleGracefully));
    }
}
