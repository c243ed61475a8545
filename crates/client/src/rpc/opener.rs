//! [`Opener`]: the step between a TCP connect and the first request, for TLS and SASL.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::error::Result;

/// `HBas`, version 0, SIMPLE authentication.
pub(super) const PREAMBLE: &[u8] = b"HBas\0\x50";

/// A bidirectional byte stream: a socket, or TLS or SASL on top of one.
pub trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// A transport that is ready for the connection header.
pub struct Opened {
    /// The transport.
    pub transport: Box<dyn Transport>,
    /// Sent before the connection header, in the same write: HBase's preamble, or nothing if it was
    /// sent already, as with SASL.
    pub preamble: Vec<u8>,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("preamble", &self.preamble).finish_non_exhaustive()
    }
}

/// The future of [`Opener::open`].
pub type Opening<'a> = Pin<Box<dyn Future<Output = Result<Opened>> + Send + 'a>>;

/// Establishes a transport on a TCP connection. A TLS opener does the handshake and returns HBase's
/// preamble. A SASL opener sends `HBas`, 0 and its method (81 Kerberos, 82 token), exchanges tokens
/// (`u32 len | bytes` to the server, `u32 status | u32 len | bytes` back) and returns a transport
/// that wraps data as the quality of protection demands.
///
/// An opener for TLS, with any TLS library behind `tls_handshake`:
///
/// ```no_run
/// use std::sync::Arc;
///
/// use evenkeel_client::{ClientConfig, Error, Opened, Opener, Opening, Transport};
/// use tokio::net::TcpStream;
///
/// #[derive(Debug)]
/// struct Tls;
///
/// # type Handshake = std::io::Result<TcpStream>;
/// # async fn tls_handshake(_: &str, socket: TcpStream) -> Handshake { Ok(socket) }
/// impl Opener for Tls {
///     fn open<'a>(&'a self, address: &'a str, _: &'static str, socket: TcpStream) -> Opening<'a> {
///         Box::pin(async move {
///             let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
///             let encrypted = tls_handshake(host, socket).await;
///             let encrypted = encrypted.map_err(|e| Error::Connection(e.to_string()))?;
///             let transport: Box<dyn Transport> = Box::new(encrypted);
///             // `HBas`, version 0, and 80 for simple authentication, which TLS does not change.
///             Ok(Opened { transport, preamble: b"HBas\0\x50".to_vec() })
///         })
///     }
/// }
///
/// let mut config = ClientConfig::new(["master:16000"]);
/// config.opener = Some(Arc::new(Tls));
/// ```
///
/// The connect timeout bounds it. Without an opener ([`crate::ClientConfig::opener`]) sockets are
/// used unchanged.
pub trait Opener: Send + Sync + fmt::Debug {
    /// Opens a socket to `service` (as `ClientService`) at `address` (`host:port`).
    fn open<'a>(&'a self, address: &'a str, service: &'static str, socket: TcpStream) -> Opening<'a>;
}
