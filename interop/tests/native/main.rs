//! The native client (`evenkeel-client`) against stock HBase and against Evenkeel, with the same
//! code: its operations (`suite`), and that none is lost or applied twice while sockets break,
//! regions move and the server is killed (`faults`).
//!
//! `EVENKEEL_INTEROP_TARGET` has no effect here: both servers are started.

mod faults;
mod suite;

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use evenkeel_client::{ClientConfig, Connection};
use interop::{Server, ServerKind, start_evenkeel_with, start_stock_with, work};

/// Serializes tests that run a stock server, because it needs much memory.
static ONE_STOCK_SERVER: Mutex<()> = Mutex::new(());

/// The directory and ports of a server that may be killed and restarted.
pub struct Site {
    kind: ServerKind,
    settings: Vec<(String, String)>,
}

impl Site {
    /// A new directory and free ports.
    pub fn new(kind: ServerKind) -> Self {
        let name = format!("native-{kind:?}.{}.{}", std::process::id(), rand_port());
        let folder: PathBuf = work().join("run").join(name);
        let mut settings = vec![("hbase.rootdir".to_owned(), format!("file://{}/hbase", folder.display()))];
        let held = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let keys = ["hbase.zookeeper.property.clientPort", "hbase.master.port", "hbase.regionserver.port"];
        for (key, socket) in keys.iter().zip(&held) {
            settings.push(((*key).to_owned(), socket.local_addr().expect("an address").port().to_string()));
        }
        Self { kind, settings }
    }

    /// Starts the server, on the data of an earlier one if there was one.
    pub fn start(&self) -> Server {
        let started = match self.kind {
            ServerKind::Stock => start_stock_with(&self.settings),
            ServerKind::Evenkeel => start_evenkeel_with(&self.settings),
        };
        started.unwrap_or_else(|why| panic!("{why}"))
    }

    fn setting(&self, key: &str) -> &str {
        self.settings.iter().find(|(k, _)| k == key).map_or("", |(_, value)| value)
    }

    /// Settings of a client that uses the ZooKeeper registry.
    pub fn config(&self) -> ClientConfig {
        let port = self.setting("hbase.zookeeper.property.clientPort").parse().expect("a port");
        patient(ClientConfig::zookeeper("127.0.0.1", port, "/hbase"))
    }

    /// Settings of a client that uses the master registry.
    pub fn config_by_master(&self) -> ClientConfig {
        patient(ClientConfig::new([format!("127.0.0.1:{}", self.setting("hbase.master.port"))]))
    }
}

fn patient(config: ClientConfig) -> ClientConfig {
    ClientConfig {
        rpc_timeout: Duration::from_secs(20),
        operation_timeout: Duration::from_secs(120),
        pause: Duration::from_millis(20),
        retries: 200,
        ..config
    }
}

fn rand_port() -> u16 {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
    socket.local_addr().expect("an address").port()
}

/// A connection.
pub async fn connect(config: ClientConfig) -> Connection {
    Connection::connect(config).await.expect("the server answers")
}

fn run(kind: ServerKind) {
    let _turn = match kind {
        ServerKind::Stock => Some(ONE_STOCK_SERVER.lock().unwrap_or_else(|poisoned| poisoned.into_inner())),
        ServerKind::Evenkeel => None,
    };
    let site = Site::new(kind);
    let server = site.start();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        suite::all(&site).await;
        faults::all(&site, server).await;
    });
}

#[test]
fn stock() {
    run(ServerKind::Stock);
}

#[test]
fn evenkeel() {
    run(ServerKind::Evenkeel);
}
