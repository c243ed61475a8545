//! [`Client`]: sends messages to a collector by POST, over HTTP/1.1, each on a new connection.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use opentelemetry_http::{HttpClient, HttpError};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// The time limit of a message, from the connect to the last byte of the response.
const TIME_MAX: Duration = Duration::from_secs(10);
/// The maximum length of a response, which describes rejected spans.
const RESPONSE_BYTES_MAX: usize = 64 << 10;

/// See the module's documentation. The SDK calls it on its own thread, which may wait.
#[derive(Debug)]
pub(crate) struct Client {
    runtime: Runtime,
    /// True if the last message failed: the start and the end of an outage are one log line each.
    is_failing: Mutex<bool>,
}

impl Client {
    /// # Errors
    /// I/O errors of the creation of the runtime.
    pub(crate) fn new() -> std::io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        Ok(Self { runtime, is_failing: Mutex::default() })
    }

    fn note(&self, sent: &Result<Response<Bytes>, HttpError>) {
        let failure = match sent {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("status {}", response.status())),
            Err(error) => Some(error.to_string()),
        };
        let Ok(mut is_failing) = self.is_failing.lock() else { return };
        match &failure {
            Some(error) if !*is_failing => tracing::warn!(error, "spans cannot be sent; they are dropped"),
            None if *is_failing => tracing::info!("spans are sent again"),
            _ => {}
        }
        *is_failing = failure.is_some();
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = self.runtime.block_on(async {
            let late = |_| HttpError::from(format!("no response in {} s", TIME_MAX.as_secs()));
            timeout(TIME_MAX, post(request)).await.map_err(late).and_then(|sent| sent)
        });
        self.note(&sent);
        sent
    }
}

async fn post(request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let host = request.uri().host().ok_or("the endpoint has no host")?.to_owned();
    let port = request.uri().port_u16().unwrap_or(80);
    let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let (mut head, body) = request.into_parts();
    head.headers.insert(HOST, HeaderValue::from_str(&format!("{host}:{port}"))?);
    let path = head.uri.path_and_query().map_or("/", |path| path.as_str()).parse()?;
    head.uri = path;
    let exchange = async move {
        let response = sender.send_request(Request::from_parts(head, Full::new(body))).await?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await?.to_bytes();
        Ok(Response::from_parts(head, body))
    };
    // The exchange drops its sender at its end, which ends the connection.
    let (response, _ended) = tokio::join!(exchange, connection);
    response
}
