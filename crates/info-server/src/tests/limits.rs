//! Peers that are slow, garbled or endless: each takes a bounded time, and the others are served.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{WAIT_MAX, body_of, connect, exchange, get, read_all, serve, status_of};
use crate::request::{Method, Request};
use crate::response::{Body, Response};
use crate::routes::{Page, Routes};
use crate::server::{BODY_BYTES_MAX, HEAD_BYTES_MAX, InfoServer, InfoServerHandle, Limits, UNSENT_BYTES_MAX};

/// A page that returns the parameters of forms.
struct Form;

impl Page for Form {
    fn respond(&self, request: &Request) -> Response {
        assert_eq!(request.method, Method::Post, "only POST is sent here");
        Response::text(format!("{:?}", request.parameters))
    }

    fn accepts_post(&self) -> bool {
        true
    }
}

const LARGE: usize = UNSENT_BYTES_MAX / 4;

fn routes() -> Routes {
    Routes::new()
        .page("/ok", Arc::new(|_: &Request| Response::text("OK\n")))
        .page("/panic", Arc::new(|_: &Request| -> Response { panic!("a page") }))
        .page("/large", Arc::new(|_: &Request| Response::text(vec![b'x'; LARGE])))
        .page("/header", Arc::new(|_: &Request| Response::redirect("/a\r\nx-evil: 1")))
        .page("/form", Arc::new(Form))
        .prefix("/static/", Arc::new(|request: &Request| Response::text(request.path.clone())))
}

fn short() -> Limits {
    Limits {
        connections: 4,
        connections_of_address: 8,
        unsent_bytes: UNSENT_BYTES_MAX,
        header_time: Duration::from_secs(1),
        body_time: Duration::from_secs(1),
        life: Duration::from_secs(2),
    }
}

fn server() -> InfoServerHandle {
    serve(routes(), short())
}

fn assert_serves(server: &InfoServerHandle) {
    assert_eq!(body_of(&get(server, "/ok")), "OK\n");
}

#[test]
fn responses_have_the_headers_of_hbase() {
    let response = get(&server(), "/ok");
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    for header in [
        "x-content-type-options: nosniff",
        "x-xss-protection: 1; mode=block",
        "x-frame-options: DENY",
        "cache-control: no-cache",
        "content-type: text/plain;charset=utf-8",
        "content-length: 3",
    ] {
        assert!(response.contains(&format!("{header}\r\n")), "{header} in {response}");
    }
}

#[test]
fn paths_and_methods_have_their_status() {
    let server = server();
    let status = |request: &str| {
        let request = format!("{request} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        let response = exchange(&server, request.as_bytes());
        (status_of(&response).to_owned(), body_of(&response).to_owned())
    };
    assert_eq!(status("GET /static/a%20b"), ("200".to_owned(), "/static/a b".to_owned()));
    assert_eq!(status("HEAD /ok"), ("200".to_owned(), String::new()));
    for (request, expected) in [
        ("GET /none", "404"),
        ("GET /ok/", "404"),
        ("GET /%ff", "400"),
        ("POST /ok", "405"),
        ("TRACE /ok", "405"),
        ("DELETE /form", "405"),
    ] {
        assert_eq!(status(request).0, expected, "{request}");
    }
    assert!(!get(&server, "/header").to_lowercase().contains("\r\nx-evil"), "no header is split");
}

#[test]
fn a_page_that_panics_is_an_error_and_the_next_request_is_served() {
    let server = server();
    let mut stream = connect(&server);
    stream
        .write_all(b"GET /panic HTTP/1.1\r\nHost: h\r\n\r\nGET /ok HTTP/1.1\r\nHost: h\r\n\r\n")
        .expect("sent");
    let responses = read_all(&mut stream);
    assert_eq!(status_of(&responses), "500");
    assert!(responses.ends_with("OK\n"), "{responses}");
}

fn pieces(held_bytes: usize, pieces: impl Iterator<Item = String> + Send + 'static) -> Response {
    Response { body: Body::Pieces { held_bytes, pieces: Box::new(pieces) }, ..Response::text("") }
}

#[test]
fn pieces_are_sent_in_their_order() {
    let page = |_: &Request| pieces(0, (0..300).map(|piece| format!("{piece:05}").repeat(10_000)));
    let server = serve(Routes::new().page("/pieces", Arc::new(page)), short());
    let response = exchange(&server, b"GET /pieces HTTP/1.0\r\nHost: h\r\n\r\n");
    let expected: String = (0..300).map(|piece| format!("{piece:05}").repeat(10_000)).collect();
    assert!(body_of(&response) == expected, "{} bytes", body_of(&response).len());
    let chunked = get(&server, "/pieces");
    assert!(chunked.contains("transfer-encoding: chunked\r\n") && chunked.ends_with("0\r\n\r\n"));
}

#[test]
fn a_piece_that_panics_cuts_the_response_off() {
    let page = |_: &Request| {
        pieces(0, ["first "].into_iter().map(str::to_owned).chain(std::iter::once_with(|| panic!("a piece"))))
    };
    let server = serve(routes().page("/pieces", Arc::new(page)), short());
    let response = get(&server, "/pieces");
    assert!(!response.ends_with("0\r\n\r\n"), "a client must see that it is cut off: {response}");
    assert_serves(&server);
}

#[test]
fn what_pieces_hold_counts_as_unsent() {
    let page = |_: &Request| pieces(UNSENT_BYTES_MAX, std::iter::repeat_with(|| "x".repeat(1 << 16)));
    let server = serve(routes().page("/pieces", Arc::new(page)), short());
    let mut unread = connect(&server);
    unread.write_all(b"GET /pieces HTTP/1.1\r\nHost: h\r\n\r\n").expect("sent");
    unread.read_exact(&mut [0; 9]).expect("it is sent");
    assert_eq!(status_of(&get(&server, "/pieces")), "503");
    drop(unread);
    let deadline = Instant::now() + WAIT_MAX;
    while status_of(&head_of(&server, "/pieces")) != "200" {
        assert!(Instant::now() < deadline, "the closed connection holds its memory");
    }
}

/// Returns the beginning of a response, and closes the connection.
fn head_of(server: &InfoServerHandle, path: &str) -> String {
    let mut stream = connect(server);
    write!(stream, "GET {path} HTTP/1.1\r\nHost: h\r\n\r\n").expect("sent");
    let mut head = [0; 16];
    stream.read_exact(&mut head).expect("a response");
    String::from_utf8_lossy(&head).into_owned()
}

#[test]
fn forms_are_read_up_to_a_limit() {
    let server = server();
    let post = |length: usize, body: &str| {
        let head = format!(
            "POST /form?q=1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {length}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\n\r\n{body}"
        );
        exchange(&server, head.as_bytes())
    };
    assert_eq!(body_of(&post(5, "a=1%3")), r#"[("q", "1"), ("a", "1%3")]"#);
    let large = "x".repeat(BODY_BYTES_MAX + 1);
    assert_eq!(status_of(&post(large.len(), &large)), "413");
    assert_eq!(status_of(&post(1 << 40, "")), "413");
    assert_eq!(status_of(&post(10, "short")), "408");
    assert_serves(&server);
}

#[test]
fn garbage_is_refused() {
    let server = server();
    let mut seed = 7_u64;
    for round in 0..200 {
        let mut bytes: Vec<u8> = (0..300)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                seed.to_be_bytes()[0]
            })
            .collect();
        if round % 2 == 0 {
            bytes.splice(0..0, *b"GET /ok HTTP/1.1\r\n\0");
        }
        bytes.extend(b"\r\n\r\n");
        let response = exchange(&server, &bytes);
        assert!(response.is_empty() || status_of(&response).starts_with('4'), "{response}");
    }
    let tls = exchange(&server, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03");
    assert!(tls.is_empty() || status_of(&tls) == "400", "{tls}");
    assert_serves(&server);
}

#[test]
fn an_endless_header_ends_with_its_limit() {
    let server = server();
    let long = exchange(&server, format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(HEAD_BYTES_MAX)).as_bytes());
    assert!(matches!(status_of(&long), "414" | "431"), "{long}");
    let many = "a: b\r\n".repeat(1_000);
    let many = exchange(&server, format!("GET /ok HTTP/1.1\r\n{many}\r\n").as_bytes());
    assert_eq!(status_of(&many), "431");
    // Endless input: the server closes while the peer still sends.
    let mut stream = connect(&server);
    let _start = stream.write_all(b"GET /ok HTTP/1.1\r\nx: ");
    let sent = (0..10_000).take_while(|_| stream.write_all(&[b'a'; 1 << 12]).is_ok()).count();
    assert!(sent < 10_000, "all was taken");
    assert_serves(&server);
}

/// An endless body of a request that needs none is not read.
#[test]
fn an_endless_body_is_not_read() {
    let server = server();
    let mut stream = connect(&server);
    stream.write_all(b"GET /ok HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n").expect("sent");
    let chunk = [b"1000\r\n".as_slice(), &[b'a'; 0x1000], b"\r\n"].concat();
    let sent = (0..10_000).take_while(|_| stream.write_all(&chunk).is_ok()).count();
    assert!(sent < 10_000, "all was taken");
    assert_serves(&server);
}

/// Silent connections, and connections that send a byte now and then, use up the limit. They are
/// closed after the time limit of a header, and the next client is served.
#[test]
fn slow_headers_do_not_block_the_server() {
    let server = server();
    let begun = Instant::now();
    let mut slow: Vec<TcpStream> = (0..short().connections).map(|_| connect(&server)).collect();
    let dripping = slow.pop().expect("one");
    let drip = std::thread::spawn(move || drip_header(dripping));
    assert_serves(&server);
    assert!(begun.elapsed() < WAIT_MAX / 3, "{:?}", begun.elapsed());
    slow.iter_mut().for_each(|stream| drop(read_all(stream)));
    assert!(drip.join().expect("ended") < WAIT_MAX / 3);
}

/// One address cannot take all connections, and gets its own back.
#[test]
fn one_address_leaves_connections_to_others() {
    let limits = Limits { connections: 8, connections_of_address: 2, ..short() };
    let server = serve(routes(), limits);
    let mut idle: Vec<TcpStream> = (0..6).map(|_| connect(&server)).collect();
    let closed = idle.split_off(2);
    closed.into_iter().for_each(|mut stream| assert_eq!(read_all(&mut stream), ""));
    let mut other = from_address("127.0.0.2", &server);
    other.write_all(b"GET /ok HTTP/1.0\r\n\r\n").expect("sent");
    assert_eq!(body_of(&read_all(&mut other)), "OK\n");
    drop(idle);
    let deadline = Instant::now() + WAIT_MAX;
    while !get(&server, "/ok").ends_with("OK\n") {
        assert!(Instant::now() < deadline, "the connections are not given back");
    }
}

/// Opens a connection from another address of this machine.
fn from_address(address: &str, server: &InfoServerHandle) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind(std::net::SocketAddr::new(address.parse().expect("an address"), 0)).expect("bound");
        socket.connect(server.address()).await.expect("a connection").into_std().expect("a stream")
    });
    stream.set_nonblocking(false).expect("set");
    stream.set_read_timeout(Some(WAIT_MAX)).expect("set");
    stream
}

/// Sends a byte of a header every 20 ms. Returns how long the server accepted that.
fn drip_header(mut stream: TcpStream) -> Duration {
    let begun = Instant::now();
    while begun.elapsed() < WAIT_MAX && stream.write_all(b"G").is_ok() {
        std::thread::sleep(Duration::from_millis(20));
    }
    begun.elapsed()
}

#[test]
fn an_idle_connection_is_closed_after_its_last_response() {
    let server = server();
    let begun = Instant::now();
    let mut stream = connect(&server);
    stream.write_all(b"GET /ok HTTP/1.1\r\nHost: h\r\n\r\n").expect("sent");
    assert!(read_all(&mut stream).ends_with("OK\n"));
    assert!((short().header_time..WAIT_MAX / 3).contains(&begun.elapsed()), "{:?}", begun.elapsed());
}

/// A connection ends even if requests keep coming.
#[test]
fn a_busy_connection_closes_at_its_maximum_age() {
    let server = server();
    let (mut stream, begun) = (connect(&server), Instant::now());
    let mut response = [0; 4096];
    while stream.write_all(b"GET /ok HTTP/1.1\r\nHost: h\r\n\r\n").is_ok() {
        match stream.read(&mut response) {
            Ok(length) if length > 0 => {}
            _ => break,
        }
        assert!(begun.elapsed() < WAIT_MAX, "still served");
    }
    assert!(begun.elapsed() >= short().life, "{:?}", begun.elapsed());
    assert_serves(&server);
}

/// Readers that do not read hold a limited part of the memory for a limited time.
#[test]
fn unread_responses_are_bounded() {
    let server = serve(routes(), Limits { connections: 8, life: Duration::from_secs(4), ..short() });
    let request = b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n";
    let mut readers: Vec<TcpStream> = (0..4).map(|_| connect(&server)).collect();
    for reader in &mut readers {
        reader.write_all(request).expect("sent");
        // The first byte of the response: it is counted from here on.
        reader.read_exact(&mut [0]).expect("a response");
    }
    assert_eq!(status_of(&get(&server, "/large")), "503");
    assert_serves(&server);
    let deadline = Instant::now() + WAIT_MAX;
    while status_of(&get(&server, "/large")) != "200" {
        assert!(Instant::now() < deadline, "the readers are never given up");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(readers);
}

#[test]
fn dropping_the_handle_frees_the_port() {
    let server = server();
    let address = server.address();
    let mut idle = connect(&server);
    assert_serves(&server);
    drop(server);
    assert_eq!(read_all(&mut idle), "");
    drop(InfoServer::bind(address).expect("the port is free"));
}
