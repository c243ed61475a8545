//! The part of ZooKeeper's protocol that an HBase client needs: open a session, read one node,
//! close the session.
//!
//! ```text
//! frame    = i32 len | body
//! string, buffer = i32 len (-1: none) | bytes                      all numbers are big-endian
//! connect  = i32 0 | i64 0 | i32 session ms | i64 0 | buffer of 16 zeros | bool read-only will do
//! accepted = i32 0 | i32 session ms (0: refused) | i64 session | buffer | bool (new servers only)
//! request  = i32 xid | i32 operation (4: get data) | string path | bool watch
//! close    = i32 xid | i32 operation (-11)
//! reply    = i32 xid | i64 zxid | i32 error (0: none, -101: no node) | buffer data | stat
//! ```
//!
//! A client library would add sixty crates for this. Watches, authentication and TLS are absent;
//! clusters that need the latter two are reached by the other registries.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use evenkeel_common::length;
use std::time::Duration;

use rand::seq::SliceRandom;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::error::{Error, Result};

/// The timeout of a session, in ms; far more than a lookup takes.
const SESSION_MS: i32 = 30_000;
/// Bytes of the largest reply that is read (`jute.maxbuffer` is 1 MiB).
const REPLY_BYTES_MAX: usize = 4 << 20;
const GET_DATA: i32 = 4;
const CLOSE_SESSION: i32 = -11;
const NO_NODE: i32 = -101;

/// The data of a node. Tries the servers `host:port,host:port` in a random order until one answers.
///
/// # Errors
/// [`Error::NoServer`] if there is no such node; [`Error::Connection`] if no server answers, each
/// within `limit`.
pub(super) async fn read(quorum: &str, path: &str, limit: Duration) -> Result<Vec<u8>> {
    let mut servers: Vec<_> = quorum.split(',').map(str::trim).filter(|s| !s.is_empty()).collect();
    servers.shuffle(&mut rand::rng());
    let mut last = Error::InvalidArgument("no ZooKeeper server is configured".to_owned());
    for server in servers {
        let lost = |why: String| Error::Connection(format!("ZooKeeper {server}: {path}: {why}"));
        match timeout(limit, read_from(server, path)).await {
            Ok(Ok(Some(data))) => return Ok(data),
            Ok(Ok(None)) => return Err(Error::NoServer(format!("ZooKeeper has no {path}"))),
            Ok(Err(error)) => last = lost(error.to_string()),
            Err(_) => last = lost("no reply in time".to_owned()),
        }
    }
    Err(last)
}

async fn read_from(server: &str, path: &str) -> std::io::Result<Option<Vec<u8>>> {
    let mut socket = TcpStream::connect(server).await?;
    socket.set_nodelay(true)?;
    socket.write_all(&connect()).await?;
    accepted(&frame(&mut socket).await?)?;
    socket.write_all(&[get_data(path), close()].concat()).await?;
    data(&frame(&mut socket).await?)
}

async fn frame(socket: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let len = usize::try_from(socket.read_i32().await?).ok().filter(|len| *len <= REPLY_BYTES_MAX);
    let mut body = vec![0; len.ok_or_else(|| bad("a length"))?];
    socket.read_exact(&mut body).await?;
    Ok(body)
}

fn framed(body: &[u8]) -> Vec<u8> {
    [&length::must_i32(body.len()).to_be_bytes()[..], body].concat()
}

fn connect() -> Vec<u8> {
    let mut body = vec![0; 4 + 8];
    body.extend(SESSION_MS.to_be_bytes());
    body.extend([0; 8]);
    body.extend(16i32.to_be_bytes());
    body.extend([0; 16]);
    body.push(1);
    framed(&body)
}

fn get_data(path: &str) -> Vec<u8> {
    let mut body = [1i32, GET_DATA, length::must_i32(path.len())].map(i32::to_be_bytes).concat();
    body.extend(path.as_bytes());
    body.push(0);
    framed(&body)
}

fn close() -> Vec<u8> {
    framed(&[2, CLOSE_SESSION].map(i32::to_be_bytes).concat())
}

fn accepted(body: &[u8]) -> std::io::Result<()> {
    match take_i32(body, 4) {
        Some(session_ms) if session_ms > 0 => Ok(()),
        Some(_) => Err(bad("a refusal of the session")),
        None => Err(bad("a short reply")),
    }
}

/// A node's data; `None` when there is no such node.
fn data(body: &[u8]) -> std::io::Result<Option<Vec<u8>>> {
    match take_i32(body, 12) {
        Some(0) => {}
        Some(NO_NODE) => return Ok(None),
        Some(error) => return Err(bad(&format!("error {error}"))),
        None => return Err(bad("a short reply")),
    }
    let len = take_i32(body, 16).ok_or_else(|| bad("a short reply"))?;
    let data = body.get(20..).and_then(|rest| rest.get(..usize::try_from(len).unwrap_or_default()));
    Ok(Some(data.ok_or_else(|| bad("a short reply"))?.to_vec()))
}

fn take_i32(body: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(*body.get(at..)?.first_chunk()?))
}

fn bad(what: &str) -> std::io::Error {
    std::io::Error::other(format!("ZooKeeper sent {what}"))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// A server that accepts a session and answers the read with `reply`.
    async fn server(reply: Vec<u8>) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.expect("a client");
            assert_eq!(frame(&mut socket).await.expect("connects").len(), 45);
            let accept = [&[0; 4][..], &SESSION_MS.to_be_bytes(), &[0; 8], &16i32.to_be_bytes(), &[0; 17]];
            socket.write_all(&framed(&accept.concat())).await.expect("sent");
            let request = frame(&mut socket).await.expect("a request");
            assert_eq!(&request[12..request.len() - 1], b"/hbase/master");
            socket.write_all(&reply).await.expect("sent");
            let _ = frame(&mut socket).await;
        });
        address
    }

    async fn read_of(reply: Vec<u8>) -> Result<Vec<u8>> {
        read(&server(reply).await, "/hbase/master", Duration::from_secs(5)).await
    }

    #[tokio::test]
    async fn present_and_absent_nodes_are_distinguished() {
        let reply = |error: i32, rest: &[u8]| framed(&[&[0; 12][..], &error.to_be_bytes(), rest].concat());
        let there = reply(0, &[&3i32.to_be_bytes()[..], b"abc", &[0; 68]].concat());
        assert_eq!(read_of(there).await.expect("read"), b"abc");
        assert!(matches!(read_of(reply(NO_NODE, b"")).await, Err(Error::NoServer(_))));
        for bad in [reply(-4, b""), reply(0, &[0, 0, 0, 9, 1]), framed(b""), b"\x7f\xff\xff\xff".to_vec()] {
            assert!(matches!(read_of(bad).await, Err(Error::Connection(_))));
        }
    }

    #[tokio::test]
    async fn the_next_zookeeper_server_is_tried() {
        let reply = framed(&[&[0; 16][..], &1i32.to_be_bytes(), b"x"].concat());
        let quorum = format!("127.0.0.1:1,{}", server(reply).await);
        assert_eq!(read(&quorum, "/hbase/master", Duration::from_secs(5)).await.expect("read"), b"x");
        assert!(matches!(read("127.0.0.1:1", "/x", Duration::from_secs(5)).await, Err(Error::Connection(_))));
    }
}
