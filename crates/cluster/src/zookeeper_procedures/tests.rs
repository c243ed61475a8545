//! A test plays the master, in the tree of a ZooKeeper endpoint.

use std::sync::atomic::{AtomicUsize, Ordering};

use evenkeel_zookeeper::{ZkConfig, ZnodeTree};
use parking_lot::Mutex;
use tokio::net::TcpListener;

use super::*;
use crate::session::tests::runtime;

const BASE: &str = "/hbase/flush-table-proc";
const WAIT: Duration = Duration::from_secs(30);

/// Records its calls.
#[derive(Default)]
struct Recorded {
    calls: Arc<Mutex<Vec<String>>>,
    fails: bool,
    commits: Arc<AtomicUsize>,
    /// Held by a test while prepared work waits.
    gate: Arc<Mutex<()>>,
}

impl Work for Recorded {
    fn prepare(&self, name: &str, data: &[u8]) -> Result<Vec<Task>> {
        let call = format!("prepare {name} {}", data.escape_ascii());
        let (calls, fails, gate) = (Arc::clone(&self.calls), self.fails, Arc::clone(&self.gate));
        Ok(vec![Box::new(move || {
            calls.lock().push(call);
            drop(gate.lock());
            if fails { Err(HBaseError::io("the disk is full")) } else { Ok(()) }
        })])
    }

    fn commit(&self, name: &str, _data: &[u8]) -> Result<Vec<Task>> {
        let (call, calls, commits) =
            (format!("commit {name}"), Arc::clone(&self.calls), Arc::clone(&self.commits));
        Ok(vec![Box::new(move || {
            calls.lock().push(call);
            commits.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })])
    }
}

/// Writes as a server of ZooKeeper does.
struct Tree(Arc<ZnodeTree>);

impl CreateNode for Tree {
    fn create_node<'a>(&'a self, path: &'a str, data: &'a [u8]) -> Written<'a> {
        let parent = path.rsplit_once('/').map(|(parent, _)| parent).unwrap_or_default();
        let outcome = match (self.0.exists(path), parent.is_empty() || self.0.exists(parent).is_some()) {
            (Some(_), _) => Err(ZkError::NodeExists),
            (None, false) => Err(ZkError::NoNode),
            (None, true) => {
                self.0.set(path, data.to_vec()).expect("a path");
                Ok(())
            }
        };
        Box::pin(async { outcome })
    }
}

struct Scene {
    runtime: Handle,
    _stop: oneshot::Sender<()>,
    tree: Arc<ZnodeTree>,
    work: Arc<Recorded>,
    server: ServerName,
}

impl Scene {
    fn new(fails: bool) -> Self {
        let (runtime, stop) = runtime();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let tree = Arc::new(ZnodeTree::new());
        tree.ensure("/hbase").expect("a path");
        let (config, forever) = (ZkConfig::default(), std::future::pending());
        runtime.spawn(evenkeel_zookeeper::serve(listener, Arc::clone(&tree), config, forever));
        let client = runtime.block_on(Client::connect(&address)).expect("a session");
        let writer = Arc::new(Tree(Arc::clone(&tree)));
        let work = Arc::new(Recorded { fails, ..Recorded::default() });
        let server = ServerName::new("h", 16020, 7);
        let pool = Arc::new(start_pool(&Supervisor::log_only()).expect("threads"));
        let parts = (WAIT, Arc::clone(&work) as Arc<dyn Work>, pool);
        let member = Arc::new(Member::new((client, writer), BASE, &server, parts));
        runtime.spawn(member.take_part(runtime.clone()));
        let scene = Self { runtime, _stop: stop, tree, work, server };
        scene.wait_for(&format!("{BASE}/abort"));
        scene
    }

    fn create(&self, path: &str, data: &[u8]) {
        assert!(!self.has(path), "{path} is there");
        self.tree.set(path, data.to_vec()).expect("a path");
    }

    fn delete(&self, path: &str) {
        assert!(self.tree.remove(path), "{path} is not there");
    }

    /// Waits for a node, and returns its message.
    fn wait_for(&self, path: &str) -> Vec<u8> {
        let read = async {
            loop {
                match self.tree.get(path) {
                    Some((data, _)) => return data,
                    None => sleep(Duration::from_millis(5)).await,
                }
            }
        };
        let data = self.runtime.block_on(async { timeout(WAIT, read).await }).expect(path);
        znodes::unframe(&data).and_then(|data| data.strip_prefix(PB_MAGIC)).unwrap_or_default().to_vec()
    }

    fn has(&self, path: &str) -> bool {
        self.tree.exists(path).is_some()
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

/// Another server's error ends a procedure while this one still works for it, and the master begins
/// a procedure of the same name.
#[test]
fn a_run_of_an_earlier_procedure_does_not_answer_for_a_later_one() {
    for fails in [false, true] {
        let scene = Scene::new(fails);
        let server = scene.server.to_string();
        let work = scene.work.gate.lock();
        scene.create(&format!("{BASE}/acquired/t"), &znodes::frame("master:16000", &()));
        scene.wait_for_calls(&["prepare t "]);
        scene.delete(&format!("{BASE}/acquired/t"));
        scene.create(&format!("{BASE}/acquired/t"), &znodes::frame("master:16000", &()));
        sleep_a_moment();
        scene.wait_for_calls(&["prepare t "]);
        drop(work);
        // The second run begins after the first has ended, and answers.
        scene.wait_for_calls(&["prepare t ", "prepare t "]);
        match fails {
            true => drop(scene.wait_for(&format!("{BASE}/abort/t"))),
            false => drop(scene.wait_for(&format!("{BASE}/acquired/t/{server}"))),
        }
    }
}

#[test]
fn an_error_is_not_sent_for_a_procedure_that_is_gone() {
    let scene = Scene::new(true);
    let work = scene.work.gate.lock();
    scene.create(&format!("{BASE}/acquired/t"), &znodes::frame("master:16000", &()));
    scene.wait_for_calls(&["prepare t "]);
    scene.delete(&format!("{BASE}/acquired/t"));
    drop(work);
    scene.create(&format!("{BASE}/acquired/u"), &znodes::frame("master:16000", &()));
    scene.wait_for(&format!("{BASE}/abort/u"));
    sleep_a_moment();
    assert!(!scene.has(&format!("{BASE}/abort/t")));
}
