//! [`InfoServer`]: the port, the thread `info`, and the limits of its connections.
//!
//! # Limits
//! | a peer | effect |
//! |---|---|
//! | opens more than [`Limits::connections_of_address`] | the next ones are closed |
//! | opens, with others, more than [`Limits::connections`] | the next ones wait in the kernel |
//! | sends no header, or one slowly | closed after [`Limits::header_time`] |
//! | sends a header of more than [`HEAD_BYTES_MAX`] | status 431, closed |
//! | sends the body of a POST slowly | status 408 after [`Limits::body_time`] |
//! | sends a body of more than [`BODY_BYTES_MAX`] | status 413, closed |
//! | stays connected, or reads a response slowly | see below |
//! | requests large responses and reads none | status 503 beyond [`Limits::unsent_bytes`] |
//!
//! A connection accepts no more requests after [`Limits::life`], and then has the same time again
//! to read its last response. So no slow peer can hold a connection for longer than twice that
//! time.
//!
//! # Memory
//! A response of more than [`SMALL_BYTES`] counts until it is sent or its connection is closed. A
//! response in pieces counts what they hold until they are created.
//! Together these responses may hold [`Limits::unsent_bytes`], or be a single larger one. Beyond
//! that they are dropped. Small responses, such as `/health`, are always sent.
//!
//! # Failures
//! The response of a page that panics has status 500. If the system has no descriptor for a new
//! connection, the server pauses and retries. If the thread ends for another reason, the supervisor
//! is notified.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use evenkeel_common::thread::{Supervisor, catch, spawn_essential};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, PRAGMA};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method as HttpMethod, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{sleep, timeout};

use crate::request::{Method, Request};
use crate::response::{self, Response};
use crate::routes::{Page, Routes};

/// The maximum size of a request's line and headers.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
/// The maximum number of headers of a request.
const HEADERS_MAX: usize = 100;
/// The maximum size of a request's body.
pub const BODY_BYTES_MAX: usize = 64 << 10;
/// Responses up to this size do not count as unsent.
pub const SMALL_BYTES: usize = 64 << 10;
/// The default of [`Limits::unsent_bytes`].
pub const UNSENT_BYTES_MAX: usize = 64 << 20;
/// The pieces of a response that are sent at a time take up to this size, about.
const PIECES_BYTES: usize = 256 << 10;
/// Unsent bytes are counted in this unit.
const UNSENT_UNIT: usize = 1 << 10;
/// The pause after the system could not accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The headers that every response of HBase has.
const HEADERS: [(&str, &str); 3] = [
    ("x-content-type-options", "nosniff"),
    ("x-xss-protection", "1; mode=block"),
    ("x-frame-options", "DENY"),
];

/// The limits of connections. See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum number of concurrent connections.
    pub connections: usize,
    /// The maximum number of concurrent connections of one address, so that connections remain for
    /// clients at other addresses.
    pub connections_of_address: usize,
    /// The maximum bytes of large responses that peers have not read yet.
    pub unsent_bytes: usize,
    /// The time limit of a request's header, from the connection or the last response on.
    pub header_time: Duration,
    /// The time limit of a request's body.
    pub body_time: Duration,
    /// The age at which a connection accepts no more requests.
    pub life: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 64,
            connections_of_address: 48,
            unsent_bytes: UNSENT_BYTES_MAX,
            header_time: Duration::from_secs(20),
            body_time: Duration::from_secs(10),
            life: Duration::from_secs(60),
        }
    }
}

/// A bound port that is not served yet: connections wait.
#[derive(Debug)]
pub struct InfoServer {
    listener: TcpListener,
    address: SocketAddr,
    limits: Limits,
}

/// A running server. Dropping it ends it and its connections.
#[derive(Debug)]
pub struct InfoServerHandle {
    address: SocketAddr,
    routes: Arc<CurrentRoutes>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The current routes.
#[derive(Debug)]
struct CurrentRoutes(RwLock<Arc<Routes>>);

impl CurrentRoutes {
    fn get(&self) -> Arc<Routes> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The state that all connections share.
struct Shared {
    routes: Arc<CurrentRoutes>,
    limits: Limits,
    unsent: Arc<Semaphore>,
    /// The number of connections of each address that has any.
    addresses: Mutex<HashMap<IpAddr, usize>>,
}

/// A connection that is counted while this exists.
struct ConnectionGuard {
    shared: Arc<Shared>,
    address: IpAddr,
}

impl ConnectionGuard {
    /// Counts a connection of this address, unless it has the maximum already.
    fn new(shared: Arc<Shared>, address: IpAddr) -> Option<Self> {
        let mut counts = shared.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= shared.limits.connections_of_address {
            return None;
        }
        *count += 1;
        drop(counts);
        Some(Self { shared, address })
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let mut counts = self.shared.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

/// The body of a response, as it is sent.
enum SentBody {
    Whole(Full<Bytes>),
    Pieces { pieces: Box<dyn Iterator<Item = String> + Send>, _unsent: OwnedSemaphorePermit },
}

impl hyper::body::Body for SentBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match &mut *self {
            Self::Whole(body) => {
                let frame = Pin::new(body).poll_frame(context);
                frame.map(|frame| frame.map(|frame| frame.map_err(|never| match never {})))
            }
            Self::Pieces { pieces, .. } => {
                let piece = catch("a piece of a page", || Ok(pieces.next()));
                let piece = piece.map_err(|error| io::Error::other(error.to_string())).transpose();
                Poll::Ready(piece.map(|piece| piece.map(|text| Frame::data(text.into()))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(body) if body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Pieces { .. } => SizeHint::default(),
        }
    }
}

/// The body of a large response, which counts as unsent while it exists.
struct CountedBody {
    body: Vec<u8>,
    _unsent: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for CountedBody {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

impl InfoServer {
    /// Binds a port; 0 binds a free one.
    ///
    /// # Errors
    /// I/O error if the address does not belong to this machine or the port is taken.
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, limits: Limits::default() })
    }

    /// Returns the address with the port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the limits.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// Serves these pages until the handle is dropped.
    ///
    /// # Errors
    /// I/O error if the thread or its runtime cannot be started.
    pub fn serve(self, routes: Routes, supervisor: &Supervisor) -> io::Result<InfoServerHandle> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let address = self.address;
        let routes = Arc::new(CurrentRoutes(RwLock::new(Arc::new(routes))));
        let of_thread = Arc::clone(&routes);
        let run = move || {
            let served = runtime.block_on(self.run(of_thread, stopped));
            served.map_err(|error| error.to_string())
        };
        let thread = spawn_essential("info", supervisor, run)?;
        Ok(InfoServerHandle { address, routes, stop: Some(stop), thread: Some(thread) })
    }

    async fn run(self, routes: Arc<CurrentRoutes>, stopped: oneshot::Receiver<()>) -> io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.listener)?;
        let unsent = Arc::new(Semaphore::new(self.limits.unsent_bytes / UNSENT_UNIT));
        let shared = Arc::new(Shared { routes, limits: self.limits, unsent, addresses: Mutex::default() });
        tokio::select! {
            () = accept(listener, shared) => {}
            // The handle was dropped.
            _ = stopped => {}
        }
        Ok(())
    }
}

impl InfoServerHandle {
    /// Returns the address with the port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Replaces the pages from the next request on.
    pub fn set_routes(&self, routes: Routes) {
        *self.routes.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(routes);
    }
}

impl Drop for InfoServerHandle {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

async fn accept(listener: tokio::net::TcpListener, shared: Arc<Shared>) {
    let connections = Arc::new(Semaphore::new(shared.limits.connections));
    // The semaphore is never closed.
    while let Ok(permit) = Arc::clone(&connections).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, peer)) => {
                let shared = Arc::clone(&shared);
                let Some(guard) = ConnectionGuard::new(Arc::clone(&shared), peer.ip()) else { continue };
                tokio::spawn(async move {
                    serve_connection(stream, shared).await;
                    drop((guard, permit));
                });
            }
            Err(error) => {
                tracing::debug!(%error, "the info port cannot accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_connection(stream: TcpStream, shared: Arc<Shared>) {
    let limits = shared.limits;
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, std::convert::Infallible>(shared.answer(request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_time)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let ended = match timeout(limits.life, connection.as_mut()).await {
        Ok(ended) => ended,
        Err(_) => {
            connection.as_mut().graceful_shutdown();
            timeout(limits.life, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection of the info port has ended");
    }
}

impl Shared {
    async fn answer(&self, request: hyper::Request<Incoming>) -> hyper::Response<SentBody> {
        let response = self.response(request).await.unwrap_or_else(|refusal| refusal);
        self.http_response(response)
    }

    /// Returns the page's response.
    ///
    /// # Errors
    /// The response to a request that reaches no page.
    async fn response(&self, request: hyper::Request<Incoming>) -> Result<Response, Response> {
        let (head, body) = request.into_parts();
        let decoded = Request::get(head.uri.path(), head.uri.query().unwrap_or_default());
        let mut request = decoded.ok_or_else(|| Response::error(400, "The address cannot be decoded."))?;
        let routes = self.routes.get();
        let page = routes.find(&request.path).ok_or_else(|| Response::error(404, "Not Found"))?;
        match head.method {
            HttpMethod::GET | HttpMethod::HEAD => {}
            HttpMethod::POST if page.accepts_post() => {
                request.method = Method::Post;
                self.read_form(body, &head.headers, &mut request).await?;
            }
            _ => return Err(not_allowed(page.as_ref())),
        }
        let what = format!("the page {:?}", request.path);
        catch(what, || Ok(page.respond(&request))).map_err(|_| Response::error(500, "Server Error"))
    }

    async fn read_form(
        &self,
        body: Incoming,
        headers: &HeaderMap,
        request: &mut Request,
    ) -> Result<(), Response> {
        let too_large = || Response::error(413, "The body is too large, or it was cut off.");
        if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
            return Err(too_large());
        }
        let collected = timeout(self.limits.body_time, Limited::new(body, BODY_BYTES_MAX).collect()).await;
        let body = collected
            .map_err(|_| Response::error(408, "The body took too long."))?
            .map_err(|_| too_large())?;
        let is_form = headers.get(CONTENT_TYPE).is_some_and(|content_type| {
            content_type.as_bytes().starts_with(b"application/x-www-form-urlencoded")
        });
        if !is_form {
            return Ok(());
        }
        let bytes = body.to_bytes();
        let form = std::str::from_utf8(&bytes).ok().and_then(|text| request.add_parameters(text));
        form.ok_or_else(|| Response::error(400, "The form cannot be decoded."))
    }

    fn http_response(&self, response: Response) -> hyper::Response<SentBody> {
        let Some(body) = self.counted(response.body) else {
            return self.http_response(Response::error(503, "Too many responses are unread."));
        };
        let mut http_response = hyper::Response::new(body);
        *http_response.status_mut() =
            StatusCode::from_u16(response.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = http_response.headers_mut();
        for (name, value) in HEADERS {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(PRAGMA, HeaderValue::from_static("no-cache"));
        if let Ok(content_type) = HeaderValue::try_from(response.content_type) {
            headers.insert(CONTENT_TYPE, content_type);
        }
        for (name, value) in response.headers {
            if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                headers.insert(name, value);
            }
        }
        http_response
    }

    /// Returns the body, counted as unsent while it exists; `None` if that exceeds the limit.
    fn counted(&self, body: response::Body) -> Option<SentBody> {
        match body {
            response::Body::Whole(body) if body.len() <= SMALL_BYTES => {
                Some(SentBody::Whole(Full::new(body.into())))
            }
            response::Body::Whole(body) => {
                let unsent = self.reserve(body.len())?;
                let body = Bytes::from_owner(CountedBody { body, _unsent: unsent });
                Some(SentBody::Whole(Full::new(body)))
            }
            response::Body::Pieces { held_bytes, pieces } => {
                Some(SentBody::Pieces { pieces, _unsent: self.reserve(held_bytes + PIECES_BYTES)? })
            }
        }
    }

    fn reserve(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let units = u32::try_from(bytes.min(self.limits.unsent_bytes) / UNSENT_UNIT).ok()?;
        Arc::clone(&self.unsent).try_acquire_many_owned(units).ok()
    }
}

fn not_allowed(page: &dyn Page) -> Response {
    let methods = if page.accepts_post() { "GET, HEAD, POST" } else { "GET, HEAD" };
    let mut response = Response::error(405, "The page does not answer this method.");
    response.headers.push(("allow", methods.to_owned()));
    response
}
