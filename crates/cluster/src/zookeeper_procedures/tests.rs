//! A test plays the master, over a ZooKeeper endpoint in this process.

use std::sync::atomic::{AtomicUsize, Ordering};

use evenkeel_zookeeper::{ZkConfig, ZnodeTree};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use super::*;

const BASE: &str = "/hbase/flush-table-proc";
const WAIT: Duration = Duration::from_secs(30);

/// Records its calls.
#[derive(Default)]
struct Recorded {
    calls: Mutex<Vec<String>>,
    fails: bool,
    commits: AtomicUsize,
}

impl Work for Recorded {
    fn prepare(&self, name: &str, data: &[u8]) -> Result<()> {
        self.calls.lock().push(format!("prepare {name} {}", data.escape_ascii()));
        match self.fails {
            true => Err(HBaseError::io("the disk is full")),
            false => Ok(()),
        }
    }

    fn commit(&self, name: &str, _data: &[u8]) -> Result<()> {
        self.calls.lock().push(format!("commit {name}"));
        self.commits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

struct Scene {
    runtime: Runtime,
    master: Client,
    work: Arc<Recorded>,
    server: ServerName,
}

impl Scene {
    fn new(fails: bool) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let tree = Arc::new(ZnodeTree::new());
        let (config, forever) = (ZkConfig::default(), std::future::pending());
        runtime.spawn(evenkeel_zookeeper::serve(listener, tree, config, forever));
        let connect = || runtime.block_on(Client::connect(&address)).expect("a session");
        let work = Arc::new(Recorded { fails, ..Recorded::default() });
        let server = ServerName::new("h", 16020, 7);
        let pool = Arc::new(start_pool(&Supervisor::log_only()).expect("threads"));
        let parts = (WAIT, Arc::clone(&work) as Arc<dyn Work>, pool);
        let member = Arc::new(Member::new(connect(), BASE, &server, parts));
        runtime.spawn(member.take_part(runtime.handle().clone()));
        let scene = Self { master: connect(), runtime, work, server };
        scene.wait_for(&format!("{BASE}/acquired"));
        scene
    }

    fn create(&self, path: &str, data: &[u8]) {
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        self.runtime.block_on(self.master.create(path, data, &options)).expect("created");
    }

    fn delete(&self, path: &str) {
        self.runtime.block_on(self.master.delete(path, None)).expect("deleted");
    }

    /// Waits for a node, and returns its message.
    fn wait_for(&self, path: &str) -> Vec<u8> {
        let read = async {
            loop {
                match self.master.get_data(path).await {
                    Ok((data, _)) => return data,
                    Err(ZkError::NoNode) => sleep(Duration::from_millis(5)).await,
                    Err(error) => panic!("{path}: {error}"),
                }
            }
        };
        let data = self.runtime.block_on(async { timeout(WAIT, read).await }).expect(path);
        znodes::unframe(&data).and_then(|data| data.strip_prefix(PB_MAGIC)).unwrap_or_default().to_vec()
    }

    fn has(&self, path: &str) -> bool {
        self.runtime.block_on(self.master.check_stat(path)).expect("looked").is_some()
    }

    fn wait_for_calls(&self, expected: &[&str]) {
        let reached = async {
            while *self.work.calls.lock() != expected {
                sleep(Duration::from_millis(5)).await;
            }
        };
        let reached = self.runtime.block_on(async { timeout(WAIT, reached).await });
        reached.unwrap_or_else(|_| panic!("{:?} and not {expected:?}", self.work.calls.lock()));
    }
}

fn families() -> Bytes {
    znodes::frame("master:16000", &pb::NameStringPair { name: "families".into(), value: "f,g".into() })
}

#[test]
fn a_server_commits_after_all_servers_are_ready() {
    let scene = Scene::new(false);
    let server = scene.server.to_string();
    // A second procedure of the same name, after the master has removed the first.
    for round in 1..=2 {
        scene.create(&format!("{BASE}/acquired/t"), &families());
        scene.wait_for(&format!("{BASE}/acquired/t/{server}"));
        assert_eq!(scene.work.commits.load(Ordering::Relaxed), round - 1, "others are not ready");
        scene.create(&format!("{BASE}/reached/t"), &[]);
        scene.wait_for(&format!("{BASE}/reached/t/{server}"));
        assert_eq!(scene.work.commits.load(Ordering::Relaxed), round);
        for node in ["acquired", "reached"] {
            scene.delete(&format!("{BASE}/{node}/t/{server}"));
            scene.delete(&format!("{BASE}/{node}/t"));
        }
    }
    let prepare = "prepare t \\n\\x08families\\x12\\x03f,g";
    scene.wait_for_calls(&[prepare, "commit t", prepare, "commit t"]);
}

#[test]
fn an_error_is_sent_to_the_master() {
    let scene = Scene::new(true);
    scene.create(&format!("{BASE}/acquired/t"), &znodes::frame("master:16000", &()));
    let sent = scene.wait_for(&format!("{BASE}/abort/t"));
    let sent = pb::ForeignExceptionMessage::decode(&sent[..]).expect("a message");
    assert_eq!(sent.source(), scene.server.to_string());
    let error = sent.generic_exception.expect("an error");
    assert_eq!((error.class_name(), error.message()), ("java.io.IOException", "the disk is full"));
    assert!(!scene.has(&format!("{BASE}/acquired/t/{}", scene.server)), "it is not ready");
    scene.wait_for_calls(&["prepare t "]);
}

#[test]
fn a_procedure_that_is_given_up_is_not_committed() {
    let scene = Scene::new(false);
    let server = scene.server.to_string();
    // One that was given up before this server began.
    scene.create(&format!("{BASE}/abort/early"), &[]);
    scene.create(&format!("{BASE}/acquired/early"), &znodes::frame("master:16000", &()));
    // Two that are given up while it waits for the others: by an error, and by the master.
    for name in ["failed", "removed"] {
        scene.create(&format!("{BASE}/acquired/{name}"), &znodes::frame("master:16000", &()));
        scene.wait_for(&format!("{BASE}/acquired/{name}/{server}"));
    }
    scene.create(&format!("{BASE}/abort/failed"), &[]);
    scene.delete(&format!("{BASE}/acquired/removed/{server}"));
    scene.delete(&format!("{BASE}/acquired/removed"));
    // A node without a message is no procedure.
    scene.create(&format!("{BASE}/acquired/empty"), &[]);
    scene.create(&format!("{BASE}/acquired/last"), &znodes::frame("master:16000", &()));
    scene.wait_for(&format!("{BASE}/acquired/last/{server}"));
    scene.create(&format!("{BASE}/reached/last"), &[]);
    scene.wait_for(&format!("{BASE}/reached/last/{server}"));
    scene.create(&format!("{BASE}/reached/failed"), &[]);
    sleep_a_moment();
    scene.wait_for_calls(&["prepare failed ", "prepare removed ", "prepare last ", "commit last"]);
}

/// Longer than the member needs to see a node.
fn sleep_a_moment() {
    std::thread::sleep(Duration::from_millis(200));
}

#[test]
fn procedures_above_the_limit_begin_when_others_end() {
    let scene = Scene::new(false);
    let server = scene.server.to_string();
    let names: Vec<String> = (0..RUNNING_MAX + 3).map(|number| format!("t{number}")).collect();
    for name in &names {
        scene.create(&format!("{BASE}/acquired/{name}"), &znodes::frame("master:16000", &()));
    }
    for name in &names {
        scene.create(&format!("{BASE}/reached/{name}"), &[]);
    }
    for name in &names {
        scene.wait_for(&format!("{BASE}/reached/{name}/{server}"));
    }
    assert_eq!(scene.work.commits.load(Ordering::Relaxed), names.len());
}
