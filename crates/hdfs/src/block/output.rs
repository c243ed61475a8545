//! A block being written.
//!
//! In the *fan-out* layout each DataNode of the block has its own pipeline of length one, and the
//! same packets go to all of them in parallel: an acknowledgement means that the DataNode has
//! written the bytes to its kernel, or has fsynced them. In the *chain* layout packets go to the
//! first DataNode, which forwards them: with three replicas the writer sends a third of the bytes.
//!
//! Packets are pipelined: a packet is sent without waiting for the previous ones.
//! [`BlockOutput::acked`] advances when **every** DataNode has acknowledged a packet.
//!
//! # Invariants
//! * Sequence numbers are dense; each DataNode acknowledges them in order.
//! * A packet begins on a chunk boundary: the bytes of an incomplete chunk are sent again with the
//!   bytes that follow.
//! * To sync bytes that were already sent, the writer sends an *empty* packet: a DataNode does not
//!   fsync for a packet that repeats bytes.
//! * After the first failure of any DataNode the output is broken: its connections are closed, and
//!   every later call fails. It never continues on the other DataNodes.
//! * Memory: unacknowledged bytes are at most [`IN_FLIGHT_BYTES_MAX`] plus one append, in a chain
//!   [`CHAIN_IN_FLIGHT_BYTES_MAX`].
//!
//! **Deadlines.** A packet of a fan-out must be acknowledged within `Settings::ack_timeout`: the
//! writers of a log wait for it, and the late DataNodes have failed. A chain carries bulk data, and
//! its packets may wait long behind each other. It breaks after `Settings::chain_timeout` without
//! progress, which is an acknowledgement or bytes that the socket accepts. Which DataNode of the
//! chain is late is then unknown, so none is excluded.
//!
//! A fan-out with a [`StallLimit`] also breaks when all DataNodes but one have acknowledged a
//! packet and that one does not: `crate::stall`.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_common::{clock, thread};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Settings;
use crate::block::packet::{self, CHUNK_BYTES, put_packet};
use crate::block::peer::{DataNodeConnection, DataNodeError};
use crate::hadoop::hdfs::{DatanodeInfoProto, ExtendedBlockProto, LocatedBlockProto};
use crate::stall::StallLimit;

/// The limit of unacknowledged bytes; a writer blocks beyond it.
pub(crate) const IN_FLIGHT_BYTES_MAX: usize = 64 << 20;

/// The limit of unacknowledged bytes of a chain: Hadoop's client has at most 80 packets of 64 KiB
/// (`dfs.client.write.max-packets-in-flight`).
pub(crate) const CHAIN_IN_FLIGHT_BYTES_MAX: usize = 80 * (64 << 10);

/// The limit of unacknowledged packets; a writer blocks beyond it.
const IN_FLIGHT_PACKETS_MAX: usize = 4096;

/// How the DataNodes of a block are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// One connection to each.
    FanOut,
    /// One connection to the first, which forwards the packets.
    Chain,
}

/// How durable flushed bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushLevel {
    /// Each DataNode has written the bytes to its kernel: they survive process crashes.
    Flushed,
    /// Each DataNode has fsynced the bytes: they survive a power loss.
    Synced,
}

/// A packet that not all DataNodes have acknowledged.
#[derive(Debug)]
struct InFlight {
    /// The end of its data within the block.
    end: u64,
    bytes: usize,
    since: Instant,
    first_ack: Option<Instant>,
    acks: usize,
    /// When all DataNodes but one had acknowledged it; `None` also if no more logs may break.
    others_acked: Option<Instant>,
    /// It is a sync, or a sync before it was unacknowledged: disks decide how long it takes.
    waits_for_disk: bool,
}

/// A DataNode that acknowledged a packet much later than another one.
#[derive(Clone, Debug)]
pub(crate) struct SlowAck {
    pub(crate) location: usize,
    pub(crate) took: Duration,
    pub(crate) bytes: usize,
}

/// A block being written: see the module documentation.
#[derive(Debug)]
pub(crate) struct BlockOutput {
    block: LocatedBlockProto,
    peers: Vec<DataNodeConnection>,
    /// The bytes from the last sent chunk boundary on.
    buffer: Vec<u8>,
    /// The offset of `buffer` in the block.
    buffer_start: u64,
    /// The end of the bytes already put into packets.
    sent: u64,
    acked: u64,
    next_seqno: i64,
    /// Unacknowledged packets, oldest first.
    in_flight: VecDeque<InFlight>,
    in_flight_bytes: usize,
    last_sent: Instant,
    layout: Layout,
    /// The time without an acknowledgement, or in a chain without progress, after which the output
    /// breaks.
    timeout: Duration,
    stall_limit: Option<StallLimit>,
    /// True if a stall broke the output.
    is_stalled: bool,
    /// True after the last packet was sent: a DataNode that has acknowledged it closes its
    /// connection.
    last_packet_sent: bool,
    failure: Option<String>,
    /// True once its file is queued for recovery.
    is_abandoned: bool,
    failed: Vec<usize>,
    slow: Vec<SlowAck>,
}

impl BlockOutput {
    /// Creates the block on all its locations.
    ///
    /// # Errors
    /// Returns the locations that failed, each with its error.
    pub(crate) fn open(
        block: LocatedBlockProto,
        layout: Layout,
        client_name: &str,
        settings: &Settings,
    ) -> Result<Self, Vec<DataNodeError>> {
        let peers = match layout {
            Layout::FanOut => open_all(&block, client_name, settings)?,
            Layout::Chain => {
                let peer = DataNodeConnection::open(&block, 0, block.locs.len(), client_name, settings);
                vec![peer?]
            }
        };
        let timeout = match layout {
            Layout::FanOut => settings.ack_timeout,
            Layout::Chain => settings.chain_timeout(block.locs.len()),
        };
        Ok(Self {
            block,
            peers,
            buffer: Vec::new(),
            buffer_start: 0,
            sent: 0,
            acked: 0,
            next_seqno: 0,
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            last_sent: clock::monotonic(),
            layout,
            timeout,
            stall_limit: None,
            is_stalled: false,
            last_packet_sent: false,
            failure: None,
            is_abandoned: false,
            failed: Vec::new(),
            slow: Vec::new(),
        })
    }

    /// Makes a fan-out break by stalls.
    pub(crate) fn limit_stalls(&mut self, limit: StallLimit) {
        self.stall_limit = Some(limit);
    }

    /// Returns true if a stall broke the output.
    pub(crate) fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    /// Returns the block with the length that all DataNodes have acknowledged.
    pub(crate) fn block(&self) -> ExtendedBlockProto {
        ExtendedBlockProto { num_bytes: Some(self.acked), ..self.block.b.clone() }
    }

    /// Bytes appended, sent or not.
    pub(crate) fn position(&self) -> u64 {
        self.buffer_start + self.buffer.len() as u64
    }

    /// Bytes that every DataNode has acknowledged.
    pub(crate) fn acked(&self) -> u64 {
        self.acked
    }

    /// The DataNodes of the block.
    pub(crate) fn locations(&self) -> &[DatanodeInfoProto] {
        &self.block.locs
    }

    /// Returns the DataNodes whose failures broke the output.
    pub(crate) fn failed(&self) -> Vec<DatanodeInfoProto> {
        self.failed.iter().filter_map(|&location| self.block.locs.get(location).cloned()).collect()
    }

    /// Returns and clears the slow acknowledgements since the last call.
    pub(crate) fn take_slow(&mut self) -> Vec<SlowAck> {
        std::mem::take(&mut self.slow)
    }

    /// Appends bytes to the buffer.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.check()?;
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    /// Sends full packets of `data_bytes` (a multiple of the chunk size) while the buffer holds
    /// enough bytes; blocks while too many bytes are unacknowledged.
    pub(crate) fn send_full(&mut self, data_bytes: usize) -> io::Result<()> {
        while self.buffer.len() >= data_bytes {
            self.send_data(data_bytes, false)?;
        }
        Ok(())
    }

    /// Sends all appended bytes. Returns the sequence number after the last packet: once all
    /// packets before it are acknowledged, the bytes have the requested durability.
    pub(crate) fn send(&mut self, level: FlushLevel) -> io::Result<i64> {
        self.check()?;
        let sync = level == FlushLevel::Synced;
        while self.buffer.len() > packet::DATA_BYTES_MAX {
            self.send_data(packet::DATA_BYTES_MAX, false)?;
        }
        if self.position() > self.sent {
            self.send_data(self.buffer.len(), sync)?;
        } else if sync {
            self.send_packet(self.sent, 0, false, true)?;
        }
        Ok(self.next_seqno)
    }

    /// Waits until all packets before `seqno` are acknowledged by every DataNode.
    pub(crate) fn wait(&mut self, seqno: i64) -> io::Result<()> {
        while self.acked_seqno() < seqno {
            self.check()?;
            self.pump(self.timeout)?;
        }
        // Bytes that were acknowledged before a failure are durable.
        Ok(())
    }

    /// Sends the remaining bytes and the last packet, and waits until every DataNode has finished
    /// the block.
    pub(crate) fn finish(&mut self, level: FlushLevel) -> io::Result<()> {
        self.send(FlushLevel::Flushed)?;
        let sync = level == FlushLevel::Synced;
        self.last_packet_sent = true;
        self.send_packet(self.sent, 0, true, sync)?;
        self.wait(self.next_seqno)?;
        self.peers.clear();
        Ok(())
    }

    /// Handles arrived acknowledgements and sends queued bytes without blocking; sends a heartbeat
    /// if nothing was sent for `idle`.
    pub(crate) fn tick(&mut self, idle: Duration) -> io::Result<()> {
        self.check()?;
        self.pump(Duration::ZERO)?;
        if clock::since(self.last_sent) >= idle {
            let mut bytes = Vec::new();
            put_packet(&mut bytes, 0, packet::HEARTBEAT, b"", false, false);
            self.send_all(&Bytes::from(bytes))?;
        }
        Ok(())
    }

    /// Breaks the output, unless it is broken, and closes its connections. Returns true at the
    /// first call.
    pub(crate) fn abandon(&mut self, why: &str) -> bool {
        self.failure.get_or_insert_with(|| why.to_owned());
        self.peers.clear();
        !std::mem::replace(&mut self.is_abandoned, true)
    }

    /// The reason why the output is broken.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    fn check(&self) -> io::Result<()> {
        match &self.failure {
            None => Ok(()),
            Some(why) => Err(io::Error::new(io::ErrorKind::BrokenPipe, why.clone())),
        }
    }

    fn acked_seqno(&self) -> i64 {
        self.next_seqno - i64::try_from(self.in_flight.len()).unwrap_or(i64::MAX)
    }

    /// Sends the first `len` bytes of the buffer and drops its complete chunks.
    fn send_data(&mut self, len: usize, sync: bool) -> io::Result<()> {
        self.sent = self.buffer_start + len as u64;
        self.send_packet(self.buffer_start, len, false, sync)?;
        let complete = len - len % CHUNK_BYTES;
        self.buffer.drain(..complete);
        self.buffer_start += complete as u64;
        Ok(())
    }

    fn send_packet(&mut self, offset: u64, len: usize, is_last: bool, sync: bool) -> io::Result<()> {
        self.wait_for_window()?;
        let mut bytes = Vec::new();
        let data = self.buffer.get(..len).unwrap_or_default();
        put_packet(&mut bytes, offset, self.next_seqno, data, is_last, sync);
        let now = clock::monotonic();
        self.in_flight.push_back(InFlight {
            end: self.sent,
            bytes: bytes.len(),
            since: now,
            first_ack: None,
            acks: 0,
            others_acked: None,
            waits_for_disk: sync || self.in_flight.iter().any(|packet| packet.waits_for_disk),
        });
        self.in_flight_bytes += bytes.len();
        self.next_seqno += 1;
        self.send_all(&Bytes::from(bytes))
    }

    fn wait_for_window(&mut self) -> io::Result<()> {
        loop {
            self.check()?;
            let bytes_max = match self.layout {
                Layout::FanOut => IN_FLIGHT_BYTES_MAX,
                Layout::Chain => CHAIN_IN_FLIGHT_BYTES_MAX,
            };
            if self.in_flight_bytes < bytes_max && self.in_flight.len() < IN_FLIGHT_PACKETS_MAX {
                return Ok(());
            }
            self.pump(self.timeout)?;
        }
    }

    fn send_all(&mut self, bytes: &Bytes) -> io::Result<()> {
        self.last_sent = clock::monotonic();
        let failures: Vec<DataNodeError> =
            self.peers.iter_mut().filter_map(|peer| peer.send(bytes.clone()).err()).collect();
        self.fail_with(failures)
    }

    /// Waits until a socket is ready, at most `wait` and at most until the deadline, and handles
    /// the ready sockets.
    fn pump(&mut self, wait: Duration) -> io::Result<()> {
        let wait = self.time_left().map_or(wait, |left| wait.min(left));
        let ready = self.poll(wait)?;
        let mut failures = Vec::new();
        for (index, flags) in ready {
            if let Err(e) = self.handle(index, flags) {
                failures.push(e);
            }
        }
        self.retire();
        self.fail_with(failures)?;
        self.check_deadline()
    }

    fn poll(&self, wait: Duration) -> io::Result<Vec<(usize, PollFlags)>> {
        let interest = |peer: &DataNodeConnection| match peer.has_unsent() {
            true => PollFlags::IN | PollFlags::OUT,
            false => PollFlags::IN,
        };
        let open = self.peers.iter().enumerate().filter(|(_, peer)| !self.is_done(peer));
        let (indexes, mut fds): (Vec<usize>, Vec<PollFd<'_>>) =
            open.map(|(index, peer)| (index, PollFd::new(peer.socket(), interest(peer)))).unzip();
        let timeout = Timespec::try_from(wait).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
            Err(e) => return Err(e.into()),
        }
        let ready = indexes.into_iter().zip(fds.iter().map(PollFd::revents));
        Ok(ready.filter(|(_, flags)| !flags.is_empty()).collect())
    }

    /// Returns true if the DataNode has acknowledged the last packet of the block.
    fn is_done(&self, peer: &DataNodeConnection) -> bool {
        self.last_packet_sent && peer.next_ack == self.next_seqno
    }

    fn handle(&mut self, index: usize, flags: PollFlags) -> Result<(), DataNodeError> {
        let Some(peer) = self.peers.get_mut(index) else { return Ok(()) };
        if flags.contains(PollFlags::OUT) {
            peer.send_queued()?;
        }
        if flags == PollFlags::OUT {
            return Ok(());
        }
        let first = peer.next_ack;
        let outcome = peer.receive();
        let (location, next, is_closed) = (peer.location, peer.next_ack, peer.is_closed());
        let fail = |error: io::Error| Err(DataNodeError { location, error });
        if next > self.next_seqno {
            return fail(io::Error::other(format!("ack {} of a packet that was not sent", next - 1)));
        }
        self.record_acks(location, first, next);
        outcome?;
        if is_closed && !(self.last_packet_sent && next == self.next_seqno) {
            return fail(io::Error::new(io::ErrorKind::ConnectionReset, "it closed the connection"));
        }
        Ok(())
    }

    /// Records the times at which one DataNode acknowledged packets `first..next`.
    fn record_acks(&mut self, location: usize, first: i64, next: i64) {
        let (now, oldest, others) =
            (clock::monotonic(), self.acked_seqno(), self.peers.len().saturating_sub(1));
        for seqno in first..next {
            let index = usize::try_from(seqno - oldest).ok();
            let Some(packet) = index.and_then(|index| self.in_flight.get_mut(index)) else { continue };
            packet.acks += 1;
            if packet.acks == others {
                packet.others_acked = Some(now);
            }
            let took = now.duration_since(packet.since);
            match packet.first_ack {
                None => packet.first_ack = Some(now),
                // A DataNode is slow only if another one was much faster: otherwise the delay was
                // on our side.
                Some(first) if now.duration_since(first) > took / 2 => {
                    self.slow.push(SlowAck { location, took, bytes: packet.bytes });
                }
                Some(_) => {}
            }
        }
    }

    /// Drops the packets that every DataNode has acknowledged.
    fn retire(&mut self) {
        let Some(all_acked) = self.peers.iter().map(|peer| peer.next_ack).min() else { return };
        while self.acked_seqno() < all_acked {
            let Some(packet) = self.in_flight.pop_front() else { return };
            self.acked = packet.end;
            self.in_flight_bytes -= packet.bytes;
        }
    }

    /// Returns the time until the output breaks by a stall or by its deadline; `None` if nothing is
    /// unacknowledged.
    fn time_left(&self) -> Option<Duration> {
        let left = self.deadline_left()?;
        Some(self.stall_time_left().map_or(left, |stall| stall.min(left)))
    }

    /// Returns the time until the output breaks without an acknowledgement, or in a chain without
    /// progress; `None` if nothing is unacknowledged.
    fn deadline_left(&self) -> Option<Duration> {
        let oldest = self.in_flight.front()?;
        let progress = self.peers.iter().map(|peer| peer.progress).max();
        let since = match self.layout {
            Layout::FanOut => oldest.since,
            Layout::Chain => progress.map_or(oldest.since, |at| at.max(oldest.since)),
        };
        Some(self.timeout.saturating_sub(clock::since(since)))
    }

    /// Returns the time until the output breaks because one DataNode is behind all others. The end
    /// of a block may take its time, because no writer waits for it.
    fn stall_time_left(&self) -> Option<Duration> {
        let limit = self.stall_limit.as_ref().filter(|_| !self.last_packet_sent)?;
        let packet = self.in_flight.front()?;
        let others_acked = packet.others_acked?;
        let disk_time = match packet.waits_for_disk {
            true => others_acked.saturating_duration_since(packet.since),
            false => Duration::ZERO,
        };
        Some(limit.time_left(others_acked, disk_time, self.in_flight_bytes))
    }

    /// Breaks the output if one DataNode stalls, unless too many have done so.
    fn check_stall(&mut self) -> io::Result<()> {
        if self.stall_time_left().is_none_or(|left| !left.is_zero()) {
            return Ok(());
        }
        if !self.stall_limit.as_ref().is_some_and(StallLimit::take) {
            self.in_flight.front_mut().into_iter().for_each(|packet| packet.others_acked = None);
            return Ok(());
        }
        self.is_stalled = true;
        let acked = self.acked_seqno();
        self.fail_late(&format!("all other DataNodes have acknowledged packet {acked}"))
    }

    /// Breaks the output by the DataNodes that have not acknowledged the oldest packet.
    fn fail_late(&mut self, why: &str) -> io::Result<()> {
        let acked = self.acked_seqno();
        let late = self.peers.iter().filter(|peer| peer.next_ack <= acked).map(|peer| DataNodeError {
            location: peer.location,
            error: io::Error::new(io::ErrorKind::TimedOut, why.to_owned()),
        });
        let late = late.collect();
        self.fail_with(late)
    }

    fn check_deadline(&mut self) -> io::Result<()> {
        self.check_stall()?;
        if self.deadline_left().is_none_or(|left| !left.is_zero()) {
            return Ok(());
        }
        let acked = self.acked_seqno();
        if self.layout == Layout::Chain {
            let what = format!("the chain made no progress: packet {acked} was not acknowledged");
            self.failure.get_or_insert(what);
            self.peers.clear();
            return self.check();
        }
        self.fail_late(&format!("packet {acked} was not acknowledged"))
    }

    /// Marks the output as broken if there are failures.
    fn fail_with(&mut self, failures: Vec<DataNodeError>) -> io::Result<()> {
        if failures.is_empty() {
            return Ok(());
        }
        let reasons: Vec<String> = failures.iter().map(|failure| self.describe(failure)).collect();
        self.failed.extend(failures.iter().map(|failure| failure.location));
        self.failure.get_or_insert_with(|| reasons.join("; "));
        self.peers.clear();
        self.check()
    }

    fn describe(&self, failure: &DataNodeError) -> String {
        let node = self.block.locs.get(failure.location);
        let node =
            node.map_or_else(|| "?".into(), |info| format!("{}:{}", info.id.ip_addr, info.id.xfer_port));
        format!("DataNode {node}: {}", failure.error)
    }
}

/// Opens a connection to each location, in parallel.
fn open_all(
    block: &LocatedBlockProto,
    client_name: &str,
    settings: &Settings,
) -> Result<Vec<DataNodeConnection>, Vec<DataNodeError>> {
    let open = |location: usize| DataNodeConnection::open(block, location, 1, client_name, settings);
    let opened: Vec<Result<DataNodeConnection, Vec<DataNodeError>>> = std::thread::scope(|scope| {
        let others: Vec<_> = (1..block.locs.len())
            .map(|at| (at, thread::spawn_scoped(scope, "hdfs-connect", move || open(at))))
            .collect();
        let mut opened = vec![open(0)];
        for (location, handle) in others {
            let at = |error| vec![DataNodeError { location, error }];
            let joined = handle.map_err(at).and_then(|handle| {
                handle.join().unwrap_or_else(|_| Err(at(io::Error::other("connecting panicked"))))
            });
            opened.push(joined);
        }
        opened
    });
    let (mut peers, mut failures) = (Vec::new(), Vec::new());
    for outcome in opened {
        match outcome {
            Ok(peer) => peers.push(peer),
            Err(errors) => failures.extend(errors),
        }
    }
    if failures.is_empty() { Ok(peers) } else { Err(failures) }
}
