//! Tests of the endpoint over sockets, of the tree, and of hostile packets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_common::Budget;
use evenkeel_common::clock::ManualClock;
use evenkeel_rpc::InputBudget;
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::jute::{Reader, Write, frame};
use super::ops::{self, ConnectionAction};
use super::protocol::op;
use super::{ConnectionBudgets, Stat, ZkConfig, ZnodeTree, serve};

const TIMEOUT: Duration = Duration::from_secs(10);

// ---- a server and a client

struct TestServer {
    address: SocketAddr,
    tree: Arc<ZnodeTree>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<()>>,
}

impl TestServer {
    async fn start(config: ZkConfig) -> Self {
        Self::over(ZnodeTree::new(), config).await
    }

    async fn over(tree: ZnodeTree, config: ZkConfig) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let tree = Arc::new(tree);
        tree.set("/hbase/hbaseid", "id").unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move {
            let _ = stopped.await;
        };
        let task = tokio::spawn(serve(listener, tree.clone(), config, shutdown));
        Self { address, tree, stop, task }
    }

    async fn default() -> Self {
        Self::start(ZkConfig::default()).await
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap().unwrap();
    }

    async fn client(&self) -> Client {
        Client::connect(self.address, 10_000, 0, [0; 16]).await
    }
}

struct Client {
    stream: TcpStream,
    session: i64,
    password: [u8; 16],
    timeout_ms: i32,
}

fn connect_packet(timeout_ms: i32, session: i64, password: &[u8], flag: bool) -> Vec<u8> {
    let mut out = Vec::new();
    frame(&mut out, |out| {
        out.int(0);
        out.long(0);
        out.int(timeout_ms);
        out.long(session);
        out.buffer(password);
        if flag {
            out.boolean(false);
        }
    });
    out
}

async fn read_packet(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let read = async {
        let length = stream.read_i32().await?;
        let mut packet = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut packet).await?;
        Ok(packet)
    };
    timeout(TIMEOUT, read).await.expect("a packet in time")
}

impl Client {
    async fn connect(address: SocketAddr, timeout_ms: i32, session: i64, password: [u8; 16]) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&connect_packet(timeout_ms, session, &password, true)).await.unwrap();
        let reply = read_packet(&mut stream).await.unwrap();
        assert_eq!(reply.len(), 37);
        assert_eq!(reply[36], 0, "never read-only");
        let mut reader = Reader::new(&reply[4..]);
        let (timeout_ms, session) = (reader.int().unwrap(), reader.long().unwrap());
        let password = reader.buffer().unwrap().try_into().unwrap();
        Self { stream, session, password, timeout_ms }
    }

    async fn send(&mut self, xid: i32, op: i32, body: impl FnOnce(&mut Vec<u8>)) {
        let mut out = Vec::new();
        frame(&mut out, |out| {
            out.int(xid);
            out.int(op);
            body(out);
        });
        self.stream.write_all(&out).await.unwrap();
    }

    /// xid, err and body of the next packet.
    async fn receive(&mut self) -> (i32, i32, Vec<u8>) {
        let packet = read_packet(&mut self.stream).await.unwrap();
        let mut reader = Reader::new(&packet);
        let (xid, _zxid, err) = (reader.int().unwrap(), reader.long().unwrap(), reader.int().unwrap());
        (xid, err, packet[16..].to_vec())
    }

    async fn call(&mut self, op: i32, body: impl FnOnce(&mut Vec<u8>)) -> (i32, Vec<u8>) {
        self.send(7, op, body).await;
        let (xid, err, body) = self.receive().await;
        assert_eq!(xid, 7);
        (err, body)
    }

    /// A request that carries a path and a watch flag.
    async fn read(&mut self, op: i32, path: &str, watch: bool) -> (i32, Vec<u8>) {
        self.call(op, |out| {
            out.buffer(path.as_bytes());
            out.boolean(watch);
        })
        .await
    }

    async fn event(&mut self) -> (i32, String) {
        let (xid, err, body) = self.receive().await;
        assert_eq!((xid, err), (-1, 0));
        event_of(&body)
    }

    async fn ended(&mut self) {
        let mut rest = Vec::new();
        // A reset ends it too.
        let _ = timeout(TIMEOUT, self.stream.read_to_end(&mut rest)).await.expect("the end in time");
        assert!(rest.is_empty(), "{rest:?}");
    }
}

fn event_of(body: &[u8]) -> (i32, String) {
    let mut reader = Reader::new(body);
    let (kind, state, path) = (reader.int().unwrap(), reader.int().unwrap(), reader.string().unwrap());
    assert_eq!(state, 3);
    (kind, path.to_owned())
}

fn stat_of(bytes: &[u8]) -> Stat {
    assert_eq!(bytes.len(), 68);
    let mut r = Reader::new(bytes);
    Stat {
        czxid: r.long().unwrap(),
        mzxid: r.long().unwrap(),
        ctime: r.long().unwrap(),
        mtime: r.long().unwrap(),
        version: r.int().unwrap(),
        cversion: r.int().unwrap(),
        aversion: r.int().unwrap(),
        ephemeral_owner: r.long().unwrap(),
        data_length: r.int().unwrap(),
        num_children: r.int().unwrap(),
        pzxid: r.long().unwrap(),
    }
}

fn quick_ticks() -> ZkConfig {
    ZkConfig { tick_ms: 20, session_timeout_min_ms: 40, session_timeout_max_ms: 1_000, ..ZkConfig::default() }
}

// ---- requests

#[tokio::test]
async fn reads_answer_data_stat_and_children() {
    let server = TestServer::default().await;
    server.tree.set("/hbase/rs/a", "").unwrap();
    server.tree.set("/hbase/rs/b", "").unwrap();
    let mut client = server.client().await;
    let (err, body) = client.read(op::GET_DATA, "/hbase/hbaseid", false).await;
    assert_eq!((err, &body[..6]), (0, &[0, 0, 0, 2, b'i', b'd'][..]));
    assert_eq!(stat_of(&body[6..]), server.tree.exists("/hbase/hbaseid").unwrap());
    let (err, body) = client.read(op::EXISTS, "/hbase", false).await;
    assert_eq!((err, stat_of(&body).num_children), (0, 2));
    let (_, body) = client.read(op::GET_CHILDREN, "/hbase/rs", false).await;
    assert_eq!(body, [0, 0, 0, 2, 0, 0, 0, 1, b'a', 0, 0, 0, 1, b'b']);
    let (_, body) = client.read(op::GET_CHILDREN2, "/", false).await;
    assert_eq!(body[..13], *b"\0\0\0\x01\0\0\0\x05hbase");
    assert_eq!(stat_of(&body[13..]).cversion, 1);
    let (err, body) = client.call(op::GET_ACL, |out| out.buffer(b"/hbase")).await;
    assert_eq!((err, &body[..8]), (0, &[0, 0, 0, 1, 0, 0, 0, 1][..]));
    let (err, body) = client.call(op::SYNC, |out| out.buffer(b"/x")).await;
    assert_eq!((err, body), (0, b"\0\0\0\x02/x".to_vec()));
    let (_, body) = client.call(op::GET_ALL_CHILDREN_NUMBER, |out| out.buffer(b"/")).await;
    assert_eq!(body, [0, 0, 0, 5]);
    for op in [op::EXISTS, op::GET_DATA, op::GET_CHILDREN, op::GET_CHILDREN2] {
        assert_eq!(client.read(op, "/hbase/root-region-server", false).await, (-101, vec![]));
    }
    for (xid, op) in [(-2, op::PING), (-4, op::AUTH)] {
        client.send(xid, op, |_| ()).await;
        assert_eq!(client.receive().await, (xid, 0, vec![]));
    }
}

#[tokio::test]
async fn writes_are_refused_and_the_connection_lives() {
    let server = TestServer::default().await;
    let mut client = server.client().await;
    assert_eq!(client.call(op::CREATE, |out| out.buffer(b"/hbase")).await.0, -110);
    assert_eq!(client.call(op::CREATE2, |out| out.buffer(b"/new")).await.0, -119);
    for op in
        [op::DELETE, op::SET_DATA, op::SET_ACL, op::CHECK, op::MULTI, op::RECONFIG, op::DELETE_CONTAINER]
    {
        assert_eq!(client.call(op, |_| ()).await, (-119, vec![]));
    }
    assert_eq!(client.call(999, |_| ()).await, (-6, vec![]));
    assert_eq!(client.call(op::GET_DATA, |out| out.int(-5)).await, (-5, vec![]));
    assert_eq!(client.call(op::GET_DATA, |out| out.buffer(&[0xFF, 0xFE])).await, (-5, vec![]));
    assert_eq!(client.read(op::EXISTS, "/hbase", false).await.0, 0);
    assert!(server.tree.exists("/new").is_none());
}

#[tokio::test]
async fn timeouts_are_negotiated_and_old_clients_get_no_flag() {
    let server = TestServer::default().await;
    for (asked, granted) in [(-1, 4_000), (10_000, 10_000), (90_000, 40_000)] {
        assert_eq!(Client::connect(server.address, asked, 0, [0; 16]).await.timeout_ms, granted);
    }
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&connect_packet(5_000, 0, &[], false)).await.unwrap();
    assert_eq!(read_packet(&mut stream).await.unwrap().len(), 36);
}

#[test]
fn settings_come_from_the_site_file() {
    let mut conf = evenkeel_common::Configuration::new();
    let config = ZkConfig::from_configuration(&conf).unwrap();
    assert_eq!((config.session_timeout_min_ms, config.session_timeout_max_ms), (4_000, 90_000));
    assert_eq!((config.connections_per_address_max, config.packet_bytes_max), (300, 0xF_FFFF));
    conf.set("hbase.zookeeper.property.tickTime", "6000");
    conf.set("hbase.zookeeper.property.maxSessionTimeout", "11999");
    let error = ZkConfig::from_configuration(&conf).unwrap_err().to_string();
    assert!(
        error.contains("maxSessionTimeout = \"11999\" (command line): expected an integer from 12000"),
        "{error}"
    );
}

// ---- watches

#[tokio::test]
async fn watches_fire_once() {
    let server = TestServer::default().await;
    let mut client = server.client().await;
    assert_eq!(client.read(op::EXISTS, "/hbase/master", true).await.0, -101);
    assert_eq!(client.read(op::GET_CHILDREN, "/hbase", true).await.0, 0);
    server.tree.set("/hbase/master", "1").unwrap();
    assert_eq!(client.event().await, (1, "/hbase/master".into()));
    assert_eq!(client.event().await, (4, "/hbase".into()));
    server.tree.set("/hbase/master", "2").unwrap();
    server.tree.set("/hbase/other", "").unwrap();
    assert_eq!(client.read(op::GET_DATA, "/hbase/master", true).await.0, 0, "no event before it");
    server.tree.set("/hbase/master", "3").unwrap();
    assert_eq!(client.event().await, (3, "/hbase/master".into()));
    assert_eq!(client.read(op::GET_DATA, "/hbase/master", true).await.0, 0);
    assert_eq!(client.read(op::GET_CHILDREN2, "/hbase/master", true).await.0, 0);
    assert!(server.tree.remove("/hbase/master"));
    assert_eq!(client.event().await, (2, "/hbase/master".into()));
    assert_eq!(
        client.read(op::GET_DATA, "/hbase/master", true).await.0,
        -101,
        "one event for the removal, no watch here"
    );
    server.tree.set("/hbase/master", "4").unwrap();
    assert_eq!(client.read(op::EXISTS, "/hbase/master", false).await.0, 0);
    assert_eq!(server.tree.watch_count(), 0);
}

#[tokio::test]
async fn a_watch_event_precedes_the_reply_with_its_change() {
    let server = TestServer::default().await;
    let tree = server.tree.clone();
    let mut client = server.client().await;
    let writer = std::thread::spawn(move || {
        for _ in 0..300 {
            tree.set("/hbase/hbaseid", "x").unwrap();
            std::thread::sleep(Duration::from_micros(200));
        }
    });
    let mut seen = 0;
    while seen < 300 {
        let (err, body) = client.read(op::GET_DATA, "/hbase/hbaseid", true).await;
        assert_eq!(err, 0);
        let watched = stat_of(&body[body.len() - 68..]).version;
        client
            .send(8, op::EXISTS, |out| {
                out.buffer(b"/hbase/hbaseid");
                out.boolean(false);
            })
            .await;
        let (xid, _, body) = client.receive().await;
        seen = match xid {
            -1 => {
                let (_, _, body) = client.receive().await;
                let changed = stat_of(&body).version;
                assert!(changed > watched, "the event was early");
                changed
            }
            _ => {
                assert_eq!(stat_of(&body).version, watched, "the event was late");
                if watched < 300 {
                    assert_eq!(client.event().await.0, 3);
                }
                watched
            }
        };
    }
    writer.join().unwrap();
}

#[tokio::test]
async fn reset_watches_report_missed_events() {
    let server = TestServer::default().await;
    for path in ["/a", "/b", "/c"] {
        server.tree.set(path, "").unwrap();
    }
    let since = server.tree.zxid();
    server.tree.set("/b", "new").unwrap();
    server.tree.remove("/c");
    server.tree.set("/d", "").unwrap();
    let mut client = server.client().await;
    for op in [op::SET_WATCHES, op::SET_WATCHES2] {
        client
            .send(-8, op, |out| {
                out.long(since);
                out.strings(["/a", "/b", "/c"].into_iter());
                out.strings(["/d", "/e"].into_iter());
                out.strings(["/a", "/"].into_iter());
                out.strings(["/p"].into_iter());
                out.strings(["/r"].into_iter());
            })
            .await;
        assert_eq!(client.receive().await, (-8, 0, vec![]));
        let mut events = Vec::new();
        for _ in 0..4 {
            events.push(client.event().await);
        }
        events.sort();
        let expected = [(1, "/d"), (2, "/c"), (3, "/b"), (4, "/")];
        assert_eq!(events, expected.map(|(kind, path)| (kind, path.to_owned())));
    }
    server.tree.set("/e", "").unwrap();
    assert_eq!(client.event().await, (1, "/e".into()));
    server.tree.set("/a/b", "").unwrap();
    assert_eq!(client.event().await, (4, "/a".into()));
    server.tree.set("/p", "").unwrap();
    server.tree.set("/p/q", "").unwrap();
    assert_eq!([client.event().await, client.event().await], [(1, "/p".into()), (4, "/p".into())]);
    server.tree.set("/r/s/t", "").unwrap();
    let events = [client.event().await, client.event().await, client.event().await];
    assert_eq!(events, ["/r", "/r/s", "/r/s/t"].map(|path| (1, path.to_owned())));
}

#[tokio::test]
async fn watches_can_be_added_checked_removed_and_are_bounded() {
    let server = TestServer::default().await;
    let mut client = server.client().await;
    let typed = |path: &'static str, kind| {
        move |out: &mut Vec<u8>| {
            out.buffer(path.as_bytes());
            out.int(kind);
        }
    };
    assert_eq!(client.call(op::ADD_WATCH, typed("/hbase", 1)).await, (0, vec![0; 4]));
    assert_eq!(client.call(op::ADD_WATCH, typed("/hbase", 2)).await.0, -8);
    assert_eq!(client.call(op::CHECK_WATCHES, typed("/hbase", 3)).await.0, 0);
    assert_eq!(client.call(op::REMOVE_WATCHES, typed("/hbase", 3)).await.0, 0);
    assert_eq!(client.call(op::REMOVE_WATCHES, typed("/hbase", 3)).await.0, -121);
    client.read(op::EXISTS, "/hbase", true).await;
    assert_eq!(client.call(op::CHECK_WATCHES, typed("/hbase", 1)).await.0, -121);
    assert_eq!(client.call(op::REMOVE_WATCHES, typed("/hbase", 2)).await.0, 0);
    assert_eq!(server.tree.watch_count(), 0);

    let path = |i: usize| format!("/{i}/{}", "x".repeat(900_000));
    let mut refused = 0;
    for i in 0..6 {
        refused += i32::from(client.read(op::EXISTS, &path(i), true).await.0 == -1);
    }
    assert_eq!(refused, 2, "4 MiB of watches hold four of these");
    drop(client);
    while server.tree.watch_count() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until no memory is charged to any client.
async fn given_back(tree: &ZnodeTree) {
    let nothing = async {
        while tree.client_bytes() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TIMEOUT, nothing).await.expect("everything is given back");
}

#[tokio::test]
async fn memory_kept_for_connections_is_bounded_and_released() {
    const PART: u64 = 256 << 10;
    let server = TestServer::over(ZnodeTree::new().with_memory_limit(PART), ZkConfig::default()).await;
    // Watches, in separate requests and many at once.
    let mut clients = Vec::new();
    for at in 0..20 {
        let mut client = server.client().await;
        for watch in 0..20 {
            client.read(op::EXISTS, &format!("/w{at}/{watch}"), true).await;
        }
        let paths: Vec<String> = (0..400).map(|watch| format!("/many{at}/{watch}")).collect();
        client
            .call(op::SET_WATCHES, |out| {
                out.long(i64::MAX);
                for list in [&[][..], &paths, &[]] {
                    out.strings(list.iter().map(String::as_str));
                }
            })
            .await;
        assert!(server.tree.client_bytes() <= PART, "{}", server.tree.client_bytes());
        clients.push(client);
    }
    assert!(server.tree.client_bytes() > PART / 2);
    assert_eq!(
        server.client().await.read(op::EXISTS, "/hbase/hbaseid", true).await.0,
        0,
        "one more finds room"
    );
    drop(clients);
    given_back(&server.tree).await;

    // Events of a client that does not read.
    let mut deaf = server.client().await;
    deaf.call(op::ADD_WATCH, |out| {
        out.buffer(b"/hbase");
        out.int(1);
    })
    .await;
    for at in 0..20_000 {
        server.tree.set(&format!("/hbase/{}", at % 100), "x").unwrap();
        assert!(server.tree.client_bytes() <= PART, "{}", server.tree.client_bytes());
        if at % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    drop(deaf);
    given_back(&server.tree).await;
    assert_eq!(server.tree.watch_count(), 0);
}

// ---- sessions

#[tokio::test]
async fn disconnected_sessions_end_for_new_ones() {
    let server = TestServer::over(ZnodeTree::new().with_memory_limit(1 << 10), ZkConfig::default()).await;
    let stays = server.client().await;
    for _ in 0..600 {
        drop(server.client().await);
    }
    let mut next = server.client().await;
    assert_eq!(next.read(op::EXISTS, "/hbase", false).await.0, 0);
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"mntr").await.unwrap();
    let mut text = String::new();
    timeout(TIMEOUT, stream.read_to_string(&mut text)).await.unwrap().unwrap();
    let sessions = text.lines().find_map(|line| line.strip_prefix("zk_global_sessions\t")).unwrap();
    assert!(sessions.parse::<usize>().unwrap() <= 256, "{sessions}");
    drop(stays);
}

#[tokio::test]
async fn a_session_moves_to_its_next_connection() {
    let server = TestServer::default().await;
    let mut first = server.client().await;
    let (id, password) = (first.session, first.password);
    assert!(id > 0);
    let mut second = Client::connect(server.address, 10_000, id, password).await;
    assert_eq!((second.session, second.password), (id, password));
    first.ended().await;
    assert_eq!(second.read(op::EXISTS, "/hbase", false).await.0, 0);

    let mut stranger = Client::connect(server.address, 10_000, id, [1; 16]).await;
    assert_eq!((stranger.session, stranger.timeout_ms), (0, 0));
    stranger.ended().await;
    assert_eq!(second.read(op::EXISTS, "/hbase", false).await.0, 0);

    second.send(9, op::CLOSE_SESSION, |_| ()).await;
    assert_eq!(second.receive().await, (9, 0, vec![]));
    second.ended().await;
    assert_eq!(Client::connect(server.address, 10_000, id, password).await.session, 0);
}

#[tokio::test]
async fn silent_sessions_expire_with_and_without_connection() {
    let server = TestServer::start(quick_ticks()).await;
    let mut silent = Client::connect(server.address, 100, 0, [0; 16]).await;
    silent.ended().await;
    assert_eq!(Client::connect(server.address, 100, silent.session, silent.password).await.session, 0);

    let mut alive = Client::connect(server.address, 1_000, 0, [0; 16]).await;
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(150)).await;
        alive.send(-2, op::PING, |_| ()).await;
        assert_eq!(alive.receive().await.0, -2);
    }
    let (id, password) = (alive.session, alive.password);
    drop(alive);
    assert_eq!(Client::connect(server.address, 1_000, id, password).await.session, id);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(Client::connect(server.address, 1_000, id, password).await.session, 0);
}

#[tokio::test]
async fn sessions_outlive_a_restart() {
    let at = |now_ms| ZkConfig { clock: ManualClock::at(now_ms), ..ZkConfig::default() };
    let server = TestServer::start(at(1_700_000_000_000)).await;
    let mut client = server.client().await;
    server.stop().await;
    client.ended().await;
    let server = TestServer::start(at(1_700_000_005_000)).await;
    let again = Client::connect(server.address, 10_000, client.session, client.password).await;
    assert_eq!((again.session, again.password), (client.session, client.password));
    assert!(server.client().await.session > client.session);
    assert_eq!(Client::connect(server.address, 10_000, client.session, [9; 16]).await.session, 0);
    assert_eq!(Client::connect(server.address, 10_000, -5, client.password).await.session, 0);
}

// ---- limits and other inputs

#[tokio::test]
async fn four_letter_words_are_answered() {
    let server = TestServer::default().await;
    let _client = server.client().await;
    for (word, expected) in [
        ("ruok", "imok"),
        ("isro", "rw"),
        ("stat\n", "Mode: standalone"),
        ("srvr", "Node count: 3"),
        ("mntr", "zk_znode_count\t3\n"),
        ("conf", "tickTime=2000\n"),
        ("envi", "zookeeper.version=3."),
    ] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(word.as_bytes()).await.unwrap();
        let mut text = String::new();
        timeout(TIMEOUT, stream.read_to_string(&mut text)).await.unwrap().unwrap();
        assert!(text.contains(expected), "{word}: {text}");
        assert_eq!(word.starts_with("stat"), text.contains("Clients:\n /127.0.0.1:"), "{text}");
    }
}

#[tokio::test]
async fn connections_per_address_are_limited_and_released() {
    let config = ZkConfig { connections_per_address_max: 2, ..ZkConfig::default() };
    let server = TestServer::start(config).await;
    let first = server.client().await;
    let _second = server.client().await;
    let mut third = TcpStream::connect(server.address).await.unwrap();
    let _ = third.write_all(&connect_packet(10_000, 0, &[], true)).await;
    assert!(matches!(timeout(TIMEOUT, third.read(&mut [0; 8])).await.unwrap(), Ok(0) | Err(_)));
    drop(first);
    loop {
        let mut next = TcpStream::connect(server.address).await.unwrap();
        let _ = next.write_all(&connect_packet(10_000, 0, &[], true)).await;
        if next.read_i32().await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn garbage_closes_only_its_connection() {
    let server = TestServer::default().await;
    let mut client = server.client().await;
    let long = 0x10_0000_i32.to_be_bytes();
    for garbage in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xFF; 64], &[0, 0, 0, 0], &[0, 0, 0, 3, 1, 2, 3], &long, &[0; 48]]
    {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        let mut rest = Vec::new();
        let _ = timeout(TIMEOUT, stream.read_to_end(&mut rest)).await.expect("closed");
        assert!(rest.is_empty());
    }
    let mut headless = server.client().await;
    headless.stream.write_all(&[0, 0, 0, 2, 0, 0]).await.unwrap();
    headless.ended().await;
    assert_eq!(client.read(op::EXISTS, "/hbase", false).await.0, 0);
}

#[tokio::test]
async fn pipelined_and_torn_packets_are_answered_in_order() {
    let server = TestServer::default().await;
    let mut client = server.client().await;
    let mut packets = Vec::new();
    for xid in 0..2_000 {
        frame(&mut packets, |out| {
            out.int(xid);
            out.int(op::EXISTS);
            out.buffer(b"/hbase");
            out.boolean(xid % 2 == 0);
        });
    }
    let (mut input, mut output) = client.stream.split();
    let write = async {
        for piece in packets.chunks(1_013) {
            output.write_all(piece).await.unwrap();
        }
    };
    let read = async {
        for expected in 0..2_000 {
            let length = input.read_i32().await.unwrap();
            let mut packet = vec![0; length as usize];
            input.read_exact(&mut packet).await.unwrap();
            assert_eq!(packet[..4], i32::to_be_bytes(expected));
        }
    };
    timeout(TIMEOUT, async { tokio::join!(write, read) }).await.unwrap();
}

#[tokio::test]
async fn shutdown_ends_connections_and_frees_the_port() {
    let server = TestServer::default().await;
    let mut client = server.client().await;
    let address = server.address;
    server.stop().await;
    client.ended().await;
    TcpListener::bind(address).await.unwrap();
}

// ---- the tree

#[test]
fn stats_count_changes() {
    let clock = ManualClock::at(1_000);
    let tree = ZnodeTree::with_clock(clock.clone());
    let first = tree.zxid();
    assert_eq!(first, 1_000 << 20);
    let created = tree.set("/a", "x").unwrap();
    assert_eq!((created.czxid, created.mzxid, created.pzxid), (first + 1, first + 1, first + 1));
    assert_eq!((created.ctime, created.version, created.data_length), (1_000, 0, 1));
    clock.set_ms(2_000);
    let changed = tree.set("/a", "xyz").unwrap();
    assert_eq!(changed, Stat { mzxid: first + 2, mtime: 2_000, version: 1, data_length: 3, ..created });
    tree.set("/a/b/c", "").unwrap();
    let parent = tree.exists("/a").unwrap();
    assert_eq!(parent, Stat { cversion: 1, num_children: 1, pzxid: first + 3, ..changed });
    assert!(!tree.ensure("/a/b").unwrap());
    assert!(tree.remove("/a/b"));
    assert_eq!(
        tree.exists("/a").unwrap(),
        Stat { cversion: 2, num_children: 0, pzxid: first + 6, ..changed }
    );
    assert!(tree.exists("/a/b/c").is_none());
    assert!(!tree.remove("/a/b") && !tree.remove("/"));
    assert_eq!((tree.node_count(), tree.zxid()), (2, first + 6));
    assert_eq!(tree.set("/", "root").unwrap().version, 1);
    assert_eq!(tree.children("/").unwrap(), ["a"]);
}

#[test]
fn bad_paths_are_refused() {
    let tree = ZnodeTree::new();
    for path in ["", "a", "/a/", "//", "/a//b", "/.", "/a/..", "/a\0b", "/a\n"] {
        assert!(tree.set(path, "").is_err() && tree.ensure(path).is_err(), "{path:?}");
        assert!(!tree.remove(path));
    }
    assert_eq!(tree.node_count(), 1);
    assert!(tree.set("/a.b:c,d/é", "").is_ok());
}

// ---- hostile packets

/// A well-formed request of any kind.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let path = prop::sample::select(vec!["/", "/hbase", "/hbase/hbaseid", "/none", "", "x", "/hbase/"]);
    let op = prop_oneof![-12..24_i32, 99..108_i32];
    (any::<i32>(), op, prop::collection::vec(path, 0..4), any::<[u8; 4]>()).prop_map(
        |(xid, op, paths, flags)| {
            let mut out = Vec::new();
            out.int(xid);
            out.int(op);
            if matches!(op, op::SET_WATCHES | op::SET_WATCHES2) {
                out.long(i64::from(flags[0]) << 50);
                (0..5).for_each(|_| out.strings(paths.iter().copied()));
            } else {
                paths.iter().take(1).for_each(|path| out.buffer(path.as_bytes()));
                out.extend(flags.map(|flag| flag & 3));
            }
            out
        },
    )
}

/// The same with bytes changed, cut off or added.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let edits = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (request(), edits, any::<prop::sample::Index>(), prop::bool::ANY).prop_map(
        |(mut packet, edits, end, cut)| {
            for (at, byte) in edits {
                let at = at.index(packet.len());
                packet[at] = byte;
            }
            if cut {
                packet.truncate(end.index(packet.len() + 1));
            }
            packet
        },
    )
}

/// Checks that the output is whole frames, the last of which echoes the xid.
fn check_output(packet: &[u8], next: ConnectionAction, out: &[u8]) {
    let mut rest = out;
    let mut last = None;
    while let Some((length, tail)) = rest.split_first_chunk::<4>() {
        let (body, tail) = tail.split_at(u32::from_be_bytes(*length) as usize);
        assert!(body.len() >= 16);
        (last, rest) = (Some(body), tail);
    }
    assert!(rest.is_empty());
    match next {
        ConnectionAction::Drop => assert!(out.is_empty()),
        ConnectionAction::Serve | ConnectionAction::Close => {
            assert_eq!(last.expect("a reply")[..4], packet[..4])
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_packet_gets_a_reply_or_ends_the_connection(
        packets in prop::collection::vec(prop_oneof![request(), mutated(), prop::collection::vec(any::<u8>(), 0..200)], 1..20)
    ) {
        let tree = ZnodeTree::new();
        tree.set("/hbase/hbaseid", "id").unwrap();
        let (watcher, _due) = tree.open_watcher();
        for packet in packets {
            let mut out = Vec::new();
            let next = ops::answer(&tree, watcher, &packet, &mut out);
            check_output(&packet, next, &out);
            prop_assert_eq!(next == ConnectionAction::Drop, packet.len() < 8);
            tree.set("/hbase/hbaseid", "id").unwrap();
            tree.remove("/none");
            tree.ensure("/none").unwrap();
        }
        prop_assert_eq!(tree.node_count(), 4);
        tree.close_watcher(watcher);
        prop_assert_eq!(tree.watch_count(), 0);
    }

    #[test]
    fn any_first_packet_is_a_connect_request_or_not(packet in prop::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(connect) = super::protocol::Connect::read(&packet) {
            prop_assert!(packet.len() >= 28 + connect.password.len());
        }
    }
}

// ---- packets that do not end

fn small_room() -> ConnectionBudgets {
    ConnectionBudgets {
        input: InputBudget::of(1 << 20),
        requests: Budget::new(1 << 20),
        replies: Budget::new(1 << 20),
    }
}

/// Returns true if the server ended the connection.
async fn is_ended(stream: &mut TcpStream) -> bool {
    matches!(timeout(Duration::from_millis(1), stream.read(&mut [0; 64])).await, Ok(Ok(0) | Err(_)))
}

async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    while !holds().await {
        assert!(tokio::time::Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn an_oversized_connect_request_closes_its_connection() {
    let server = TestServer::default().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&100_000_i32.to_be_bytes()).await.unwrap();
    eventually("it is closed", async || is_ended(&mut stream).await).await;
    server.stop().await;
}

#[tokio::test]
async fn incomplete_packets_are_counted_and_bounded() {
    let budgets = small_room();
    let server = TestServer::start(ZkConfig { budgets: budgets.clone(), ..ZkConfig::default() }).await;
    let mut clients = Vec::new();
    for _ in 0..20 {
        let mut client = server.client().await;
        let half = [&900_000_i32.to_be_bytes()[..], &[0; 200_000]].concat();
        let _ = client.stream.write_all(&half).await;
        clients.push(client.stream);
    }
    eventually("some find no room", async || {
        let mut ended = 0;
        for client in &mut clients {
            ended += usize::from(is_ended(client).await);
        }
        ended >= 10
    })
    .await;
    assert!(budgets.input.used() <= InputBudget::max_of(1 << 20), "{}", budgets.input.used());
    let mut other = server.client().await;
    other.send(1, op::PING, |_| ()).await;
    assert_eq!(other.receive().await.0, 1);
    drop(clients);
    eventually("all is given back", async || budgets.input.used() == 0 && budgets.requests.used() == 0).await;
    server.stop().await;
}

#[tokio::test]
async fn a_trickled_packet_times_out() {
    let config = ZkConfig { receive_timeout: Duration::from_millis(300), ..ZkConfig::default() };
    let server = TestServer::start(config).await;
    let mut client = server.client().await;
    client.stream.write_all(&100_000_i32.to_be_bytes()).await.unwrap();
    eventually("it is closed", async || {
        let _ = client.stream.write_all(&[0]).await;
        is_ended(&mut client.stream).await
    })
    .await;
    server.stop().await;
}

/// Each path of a missing node is an event: a request of 300 KB has replies of some megabytes.
#[tokio::test]
async fn unread_replies_are_counted_and_bounded() {
    let budgets = small_room();
    let server = TestServer::start(ZkConfig { budgets: budgets.clone(), ..ZkConfig::default() }).await;
    let paths: Vec<String> = (0..30_000).map(|n| format!("/{n:05}")).collect();
    let mut clients = Vec::new();
    for _ in 0..20 {
        let mut client = server.client().await;
        let mut packet = Vec::new();
        frame(&mut packet, |out| {
            out.int(-8);
            out.int(op::SET_WATCHES);
            out.long(0);
            out.strings(paths.iter().map(String::as_str));
            out.int(0);
            out.int(0);
        });
        let _ = client.stream.write_all(&packet).await;
        clients.push(client);
    }
    let mut other = server.client().await;
    other.send(1, op::PING, |_| ()).await;
    assert_eq!(other.receive().await.0, 1);
    assert!(budgets.replies.used() <= 1 << 20);
    drop(clients);
    eventually("all is given back", async || budgets.replies.used() == 0).await;
    server.stop().await;
}
