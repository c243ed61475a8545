//! Servers on loopback, and clients that speak raw HTTP to them.

mod limits;
mod pages;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use evenkeel_common::thread::Supervisor;

use crate::routes::Routes;
use crate::server::{InfoServer, InfoServerHandle, Limits};

/// A test that waits longer has failed.
const WAIT_MAX: Duration = Duration::from_secs(30);

fn serve(routes: Routes, limits: Limits) -> InfoServerHandle {
    let server = InfoServer::bind("127.0.0.1:0").expect("a port").with_limits(limits);
    server.serve(routes, &Supervisor::log_only()).expect("a thread")
}

fn connect(server: &InfoServerHandle) -> TcpStream {
    let stream = TcpStream::connect(server.address()).expect("a connection");
    stream.set_read_timeout(Some(WAIT_MAX)).expect("set");
    stream.set_write_timeout(Some(WAIT_MAX)).expect("set");
    stream
}

/// Returns everything that the server sends in response to these bytes until it closes the
/// connection.
fn exchange(server: &InfoServerHandle, request: &[u8]) -> String {
    let mut stream = connect(server);
    // The server may close before it has read everything.
    let _cut_off = stream.write_all(request);
    read_all(&mut stream)
}

/// Reads the rest. A reset of the connection ends it like a close.
fn read_all(stream: &mut TcpStream) -> String {
    let (mut all, mut part) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(length) => all.extend_from_slice(&part[..length]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&all)),
        }
    }
    String::from_utf8_lossy(&all).into_owned()
}

fn get(server: &InfoServerHandle, path: &str) -> String {
    exchange(server, format!("GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").as_bytes())
}

fn status_of(response: &str) -> &str {
    response.split(' ').nth(1).unwrap_or_else(|| panic!("no status: {response:?}"))
}

fn body_of(response: &str) -> &str {
    response.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no body: {response:?}")).1
}
