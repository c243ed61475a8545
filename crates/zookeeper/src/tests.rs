//! Tests of the endpoint over sockets, of the tree, and of hostile packets.

mod limits;
mod packets;
mod sessions;
mod watches;

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
use super::protocol::op;
use super::requests::{self, ConnectionAction};
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
