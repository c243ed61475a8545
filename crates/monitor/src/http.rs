//! [`Client`]: fetches pages over HTTP/1.1, one connection each, with limits on time and bytes.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::ErrorText;
use crate::address::Address;

/// The time limit of a page, from connecting to the last byte.
const TIME_MAX: Duration = Duration::from_secs(10);
/// The maximum size of a page: about that of `/jmx` of a server with 100,000 regions.
const BODY_BYTES_MAX: usize = 512 << 20;

/// A page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The status, such as 200.
    pub status: u16,
    /// The body.
    pub body: Bytes,
}

/// Fetches pages of one server.
#[derive(Debug)]
pub struct Client {
    address: Address,
    runtime: Runtime,
}

impl Client {
    /// Creates a client that has not connected yet.
    ///
    /// # Errors
    /// If the system does not provide an event queue.
    pub fn new(address: Address) -> Result<Self, ErrorText> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        Ok(Self { address, runtime })
    }

    /// Returns the server's address.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// Fetches a page, regardless of its status.
    ///
    /// # Errors
    /// One line with the address: no process listens there, or the response is late, not HTTP, or
    /// too long.
    pub fn get(&self, path: &str) -> Result<Page, ErrorText> {
        let fetched = self.runtime.block_on(async { timeout(TIME_MAX, self.fetch(path)).await });
        let late = |_| format!("no response in {} s", TIME_MAX.as_secs());
        let page = fetched.map_err(late).and_then(|page| page);
        page.map_err(|error| format!("http://{}{path}: {error}", self.address))
    }

    /// Fetches a page that must exist.
    ///
    /// # Errors
    /// As [`Client::get`], and for another status than 200.
    pub fn get_ok(&self, path: &str) -> Result<Bytes, ErrorText> {
        let page = self.get(path)?;
        match page.status {
            200 => Ok(page.body),
            status => Err(format!("http://{}{path}: status {status}", self.address)),
        }
    }

    async fn fetch(&self, path: &str) -> Result<Page, String> {
        let stream = TcpStream::connect(self.address.to_socket()).await.map_err(|e| e.to_string())?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|e| e.to_string())?;
        let request = hyper::Request::get(path)
            .header(HOST, self.address.to_string())
            .body(Empty::<Bytes>::new())
            .map_err(|e| e.to_string())?;
        let exchange = async {
            let response = sender.send_request(request).await.map_err(|e| e.to_string())?;
            let status = response.status().as_u16();
            let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await;
            Ok(Page { status, body: body.map_err(|e| e.to_string())?.to_bytes() })
        };
        tokio::pin!(exchange);
        let mut connection = std::pin::pin!(connection);
        tokio::select! {
            page = &mut exchange => page,
            // The connection may end when the response has arrived.
            ended = &mut connection => match ended {
                Ok(()) => exchange.await,
                Err(error) => Err(error.to_string()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use super::*;

    /// Returns a client of a server that answers one connection with these bytes.
    fn answers(bytes: &'static str) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut request = [0; 1024];
            let _read = stream.read(&mut request);
            let _written = stream.write_all(bytes.as_bytes());
        });
        Client::new(Address::parse(&address).expect("an address")).expect("a client")
    }

    #[test]
    fn a_page_has_a_status_and_a_body() {
        let client = answers("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 3\r\n\r\nno\n");
        assert_eq!(client.get("/ready"), Ok(Page { status: 503, body: Bytes::from("no\n") }));
        let client = answers("HTTP/1.1 404 Not Found\r\nconnection: close\r\n\r\n");
        assert!(client.get_ok("/x").is_err_and(|error| error.ends_with("/x: status 404")));
    }

    #[test]
    fn malformed_responses_are_errors_with_the_address() {
        for bytes in ["", "SSH-2.0-x\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nno\n"] {
            let client = answers(bytes);
            let error = client.get("/jmx").expect_err("no response");
            assert!(error.starts_with(&format!("http://{}/jmx: ", client.address())), "{error}");
        }
    }
}
