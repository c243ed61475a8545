//! One connection: a four-letter word, or the handshake and then requests until either side closes
//! it.
//!
//! The task waits for bytes, for events, for the session's timeout and for another connection to
//! take the session over. It holds at most one packet of input beyond the answered ones, and
//! flushes replies at [`REPLY_BYTES_FLUSHED`]. An incomplete packet is charged to the budgets of
//! the RPC ports from its first byte on, and must make progress like their requests. Replies that
//! the socket does not accept at once are charged to their budget of replies. An idle connection
//! has no buffer.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use evenkeel_rpc::ReceiveDeadline;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use super::budgets::ConnectionBudgets;
use super::four_letter_words;
use super::protocol::{Connect, write_connected};
use super::requests::{self, ConnectionAction};
use super::server::Server;
use super::session::{AttachError, SessionHandle};
use super::tree::WatcherId;

/// The limit on the time until a new connection has sent its first packet.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// The limit on the time until the client of a four-letter word closes the connection.
const HANG_UP_MAX: Duration = Duration::from_secs(1);

/// Bytes of replies collected before they are written.
const REPLY_BYTES_FLUSHED: usize = 64 << 10;

/// Bytes of replies up to which they are not counted while they are written.
const REPLY_BYTES_UNCOUNTED: usize = 4 << 10;

/// Bytes per read from the socket.
const READ_BYTES: usize = 8 << 10;

/// Longest connect request: a session's id and password, and some numbers.
const CONNECT_BYTES_MAX: usize = 1 << 10;

/// How often the progress of an incomplete packet is checked.
const PROGRESS_CHECK_PERIOD: Duration = Duration::from_secs(1);

/// Serves a connection to its end.
pub(super) async fn serve(server: &Server, stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut wire = Wire::new(stream, server.budgets().clone(), server.receive_timeout());
    let Some(first) = timeout(HANDSHAKE_MAX, first_packet(server, &mut wire)).await?? else { return Ok(()) };
    let Some(session) = handshake(server, &mut wire, &first).await? else { return Ok(()) };
    drop(first);
    wire.packet_bytes_max = server.packet_bytes_max();
    let (watcher, due) = server.tree().open_watcher();
    let mut connection = Connection { server, wire, session, watcher, due };
    connection.run().await
}

/// Reads the connect request; `None` if the connection sent a four-letter word.
async fn first_packet(server: &Server, wire: &mut Wire) -> io::Result<Option<Bytes>> {
    while wire.input.len() < 4 {
        wire.fill().await?;
        wire.wait_for_more()?;
    }
    if let Some(word) =
        wire.input.first_chunk::<4>().copied().filter(|word| four_letter_words::is_word(*word))
    {
        let text = four_letter_words::reply(word, &server.stats());
        wire.stream.write_all(text.as_bytes()).await?;
        wire.hang_up().await?;
        return Ok(None);
    }
    loop {
        if let Some(packet) = wire.next_packet()? {
            return Ok(Some(packet));
        }
        wire.fill().await?;
    }
}

/// Answers the connect request; `None` if it got no session.
async fn handshake(server: &Server, wire: &mut Wire, packet: &[u8]) -> io::Result<Option<SessionHandle>> {
    let connect = Connect::read(packet).map_err(|_| invalid("not a connect request"))?;
    let timeout_ms = server.negotiate(connect.timeout_ms);
    match server.sessions().attach(connect.session_id, connect.password, Duration::from_millis(timeout_ms)) {
        Ok(session) => {
            let shown_ms = i32::try_from(timeout_ms).unwrap_or(i32::MAX);
            write_connected(&mut wire.out, session.id, session.password, shown_ms, connect.has_read_only);
            let written = wire.flush(HANDSHAKE_MAX).await;
            if written.is_err() {
                server.sessions().detach(&session, Instant::now());
            }
            written.map(|()| Some(session))
        }
        Err(AttachError::Expired) => {
            write_connected(&mut wire.out, 0, [0; 16], 0, connect.has_read_only);
            wire.flush(HANDSHAKE_MAX).await?;
            wire.hang_up().await.map(|()| None)
        }
        Err(AttachError::Full) => Err(io::Error::other("too many sessions")),
    }
}

fn invalid(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// A connection with a session. On drop, for any reason, its watches are removed and the session
/// waits for another connection.
struct Connection<'a> {
    server: &'a Server,
    wire: Wire,
    session: SessionHandle,
    watcher: WatcherId,
    due: Arc<Notify>,
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        self.server.tree().close_watcher(self.watcher);
        self.server.sessions().detach(&self.session, Instant::now());
    }
}

impl Connection<'_> {
    async fn run(&mut self) -> io::Result<()> {
        let mut deadline = self.deadline();
        loop {
            match self.answer_input().await? {
                ConnectionAction::Serve => {}
                ConnectionAction::Close => return self.close().await,
                ConnectionAction::Drop => return Err(invalid("a packet without header, or events lost")),
            }
            let next_check = self.wire.next_check(deadline);
            tokio::select! {
                filled = self.wire.fill() => {
                    filled?;
                    self.check_progress()?;
                    deadline = self.deadline();
                }
                () = self.due.notified() => self.send_events().await?,
                () = self.session.taken_over.notified() => return Ok(()),
                () = sleep_until(next_check) => {
                    self.check_progress()?;
                    self.wire.shrink_input();
                    if Instant::now() < deadline {
                        continue;
                    }
                    tracing::debug!(session = self.session.id, "session expired");
                    self.server.sessions().close(&self.session);
                    return Ok(());
                }
            }
        }
    }

    /// Fails if an incomplete packet makes no progress.
    fn check_progress(&self) -> io::Result<()> {
        match self.wire.is_late() {
            true => Err(invalid("a packet that stalled")),
            false => Ok(()),
        }
    }

    fn session_timeout(&self) -> Duration {
        self.session.timeout
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.session_timeout()
    }

    /// Answers every complete packet received.
    async fn answer_input(&mut self) -> io::Result<ConnectionAction> {
        while let Some(packet) = self.wire.next_packet()? {
            let next = requests::answer(self.server.tree(), self.watcher, &packet, &mut self.wire.out);
            self.server.count_packet();
            if next != ConnectionAction::Serve {
                return Ok(next);
            }
            if self.wire.out.len() >= REPLY_BYTES_FLUSHED {
                self.wire.flush(self.session_timeout()).await?;
            }
        }
        self.wire.flush(self.session_timeout()).await?;
        Ok(ConnectionAction::Serve)
    }

    async fn send_events(&mut self) -> io::Result<()> {
        let taken = self.server.tree().step(self.watcher, |_, _, _| ());
        let (events, ()) = taken.ok_or_else(|| invalid("events lost"))?;
        requests::write_events(&mut self.wire.out, &events);
        self.wire.flush(self.session_timeout()).await
    }

    async fn close(&mut self) -> io::Result<()> {
        self.server.sessions().close(&self.session);
        self.wire.flush(self.session_timeout()).await?;
        self.wire.hang_up().await
    }
}

/// The socket with its input and output buffers.
struct Wire {
    stream: TcpStream,
    input: BytesMut,
    out: Vec<u8>,
    packet_bytes_max: usize,
    budgets: ConnectionBudgets,
    /// Bytes of the input that are charged to the budgets.
    held: u64,
    /// The progress of the incomplete packet.
    progress: Option<ReceiveDeadline>,
    receive_timeout: Duration,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.release();
    }
}

impl Wire {
    fn new(stream: TcpStream, budgets: ConnectionBudgets, receive_timeout: Duration) -> Self {
        let packet_bytes_max = CONNECT_BYTES_MAX;
        Self {
            stream,
            input: BytesMut::new(),
            out: Vec::new(),
            packet_bytes_max,
            budgets,
            held: 0,
            progress: None,
            receive_timeout,
        }
    }

    /// Takes a complete packet from the input, without its length. A length out of bounds is an
    /// error before its bytes are buffered.
    fn next_packet(&mut self) -> io::Result<Option<Bytes>> {
        let Some(length) = self.input.first_chunk::<4>().map(|bytes| i32::from_be_bytes(*bytes)) else {
            return self.wait_for_more();
        };
        let length = usize::try_from(length).ok().filter(|length| *length <= self.packet_bytes_max);
        let length = length.ok_or_else(|| invalid("packet length out of bounds"))?;
        if self.input.len() < 4 + length {
            return self.wait_for_more();
        }
        self.release();
        let mut packet = self.input.split_to(4 + length);
        Ok(Some(packet.split_off(4).freeze()))
    }

    /// Charges the bytes of an incomplete packet; without any, frees the buffer.
    fn wait_for_more(&mut self) -> io::Result<Option<Bytes>> {
        if self.input.is_empty() {
            self.input = BytesMut::new();
            return Ok(None);
        }
        let now = Instant::now().into_std();
        let progress = self.progress.unwrap_or_else(|| ReceiveDeadline::begin(now, self.receive_timeout));
        self.progress = Some(progress.advance(self.input.len(), now, self.receive_timeout));
        let more = (self.input.len() as u64).saturating_sub(self.held);
        if !self.budgets.charge_input(more) {
            return Err(invalid("the budget has no space for the rest of a packet"));
        }
        self.held += more;
        Ok(None)
    }

    /// Releases the bytes charged for a packet.
    fn release(&mut self) {
        self.budgets.release_input(std::mem::take(&mut self.held));
        self.progress = None;
    }

    /// When to check the connection next, at `deadline` at the latest.
    fn next_check(&self, deadline: Instant) -> Instant {
        match self.progress {
            Some(_) => deadline.min(Instant::now() + PROGRESS_CHECK_PERIOD),
            None => deadline,
        }
    }

    /// Shrinks the input buffer to the bytes received.
    fn shrink_input(&mut self) {
        if self.input.capacity() > 2 * self.input.len() {
            self.input = BytesMut::from(&self.input[..]);
        }
    }

    /// Returns true if an incomplete packet makes too little progress.
    fn is_late(&self) -> bool {
        let (now, timeout) = (Instant::now().into_std(), self.receive_timeout);
        self.progress.is_some_and(|progress| progress.is_late(now, timeout, self.budgets.timeout(timeout)))
    }

    /// Reads more input; the end of the stream is an error. Cancel-safe: no byte is lost if the
    /// future is dropped.
    async fn fill(&mut self) -> io::Result<()> {
        loop {
            self.stream.readable().await?;
            self.input.reserve(READ_BYTES);
            match self.stream.try_read_buf(&mut self.input) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    async fn flush(&mut self, within: Duration) -> io::Result<()> {
        if !self.out.is_empty() {
            let _counted = match self.out.len() {
                0..=REPLY_BYTES_UNCOUNTED => None,
                bytes => {
                    let counted = self.budgets.count_reply(bytes as u64);
                    Some(counted.ok_or_else(|| invalid("the budget has no space for a reply"))?)
                }
            };
            timeout(within, self.stream.write_all(&self.out)).await??;
            self.out = Vec::new();
        }
        Ok(())
    }

    /// Closes this side and waits a little for the other to close its side, so that unread bytes do
    /// not make the kernel discard the last reply.
    async fn hang_up(&mut self) -> io::Result<()> {
        self.stream.shutdown().await?;
        let mut rest = [0_u8; 512];
        let drain = async { while matches!(self.stream.read(&mut rest).await, Ok(1..)) {} };
        let _ = timeout(HANG_UP_MAX, drain).await;
        Ok(())
    }
}
