//! The client against scripted NameNodes.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::fake::{FakeNameNode, ScriptedReply, quick};
use crate::hadoop::hdfs::{DeleteResponseProto, IsFileClosedResponseProto, Rename2ResponseProto};
use crate::namenode::NameNode;
use crate::{HdfsError, Settings};

fn deleted() -> ScriptedReply {
    ScriptedReply::of(&DeleteResponseProto { result: true })
}

/// A server that gives each of these replies once, and then answers that the file was deleted.
fn scripted(replies: Vec<fn() -> ScriptedReply>) -> FakeNameNode {
    let next = AtomicUsize::new(0);
    FakeNameNode::start(move |_| {
        replies.get(next.fetch_add(1, Ordering::SeqCst)).map_or_else(deleted, |reply| reply())
    })
}

#[test]
fn a_lost_response_is_retried_with_the_same_ids() {
    for lost in [|| ScriptedReply::Close, || ScriptedReply::Half(vec![8, 1]), || ScriptedReply::Silence]
        as [fn() -> ScriptedReply; 3]
    {
        let server = scripted(vec![lost]);
        let namenode = NameNode::new(&server.settings());
        assert!(namenode.delete("/f", false).expect("deleted"));
        let calls = server.calls();
        assert_eq!(calls.len(), 2);
        assert_eq!((&calls[0].client_id, calls[0].call_id), (&calls[1].client_id, calls[1].call_id));
        assert_eq!((calls[0].retry, calls[1].retry), (0, 1));
        assert_eq!(calls[0].client_id.len(), 16);
        assert!(namenode.delete("/f", false).expect("deleted"));
        let next = server.calls()[2].clone();
        assert_eq!((next.call_id, next.retry), (calls[0].call_id + 1, 0), "a new call has new ids");
    }
}

#[test]
fn a_standby_fails_over_to_the_active_namenode() {
    let standby = FakeNameNode::start(|_| ScriptedReply::standby());
    let active = FakeNameNode::start(|_| deleted());
    let settings = quick(Settings::of_namenodes([standby.address.clone(), active.address.clone()]));
    let namenode = NameNode::new(&settings);
    assert!(namenode.delete("/f", false).expect("deleted"));
    assert!(namenode.delete("/g", false).expect("deleted"));
    let (first, second) = (standby.calls(), active.calls());
    assert_eq!((first.len(), second.len()), (1, 2), "the active one is remembered");
    assert_eq!((&first[0].client_id, first[0].call_id), (&second[0].client_id, second[0].call_id));
    assert_eq!(second[0].retry, 1);
}

#[test]
fn a_failover_in_the_middle_of_a_rename_has_one_outcome() {
    let dying = FakeNameNode::start(|_| ScriptedReply::Close);
    let heir = FakeNameNode::start(|_| ScriptedReply::of(&Rename2ResponseProto {}));
    let settings = quick(Settings::of_namenodes([dying.address.clone(), heir.address.clone()]));
    NameNode::new(&settings).rename("/a", "/b").expect("renamed");
    let (first, second) = (dying.calls(), heir.calls());
    assert_eq!(first[0].call_id, second[0].call_id);
    assert_eq!(first[0].client_id, second[0].client_id);
}

#[test]
fn an_unreachable_namenode_fails_over() {
    let closed = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").to_string();
    let active = FakeNameNode::start(|_| deleted());
    let settings = quick(Settings::of_namenodes([closed, active.address.clone()]));
    assert!(NameNode::new(&settings).delete("/f", false).expect("deleted"));
}

#[test]
fn a_silent_namenode_costs_one_timeout() {
    let silent = FakeNameNode::start(|_| ScriptedReply::Silence);
    let active = FakeNameNode::start(|_| deleted());
    let settings = quick(Settings::of_namenodes([silent.address.clone(), active.address.clone()]));
    let start = Instant::now();
    assert!(NameNode::new(&settings).delete("/f", false).expect("deleted"));
    let took = start.elapsed();
    assert!(
        took >= settings.call_timeout && took < settings.call_timeout + Duration::from_secs(5),
        "{took:?}"
    );
}

#[test]
fn retriable_exceptions_are_retried_on_the_same_namenode() {
    let retriable: fn() -> ScriptedReply =
        || ScriptedReply::Exception("org.apache.hadoop.ipc.RetriableException", "NameNode still not started");
    let starting: fn() -> ScriptedReply = || {
        let class = "org.apache.hadoop.hdfs.server.namenode.SafeModeException";
        ScriptedReply::Exception(class, "Cannot delete /f. Name node is in safe mode.")
    };
    let server = scripted(vec![retriable, starting]);
    assert!(NameNode::new(&server.settings()).delete("/f", false).expect("deleted"));
    assert_eq!(server.calls().iter().map(|call| call.retry).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(server.calls().iter().all(|call| call.connection == 0), "the connection lives");
}

#[test]
fn retries_are_bounded() {
    let server = FakeNameNode::start(|_| ScriptedReply::Close);
    let error = NameNode::new(&server.settings()).delete("/f", false).expect_err("no reply");
    assert!(matches!(error, HdfsError::Transport(_)), "{error}");
    assert_eq!(server.calls().len(), 6);
}

#[test]
fn exceptions_keep_their_class_and_first_line() {
    let lost: fn() -> ScriptedReply = || {
        let class = "org.apache.hadoop.hdfs.server.namenode.LeaseExpiredException";
        ScriptedReply::Exception(class, "File is not open for writing: /f")
    };
    let server = scripted(vec![lost]);
    let namenode = NameNode::new(&server.settings());
    let error = namenode.complete("/f", 7, None).expect_err("fenced");
    assert!(error.is_fenced());
    assert_eq!(error.to_string(), "LeaseExpiredException: File is not open for writing: /f");
    let error = io::Error::from(error);
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    assert!(crate::error::is_fenced(&error));
    assert_eq!(server.calls().len(), 1, "it is a reply");
}

#[test]
fn a_fatal_reply_ends_its_connection_and_no_other_call() {
    let server = scripted(vec![|| ScriptedReply::Fatal("org.apache.hadoop.ipc.RpcServerException")]);
    let namenode = NameNode::new(&server.settings());
    assert!(namenode.delete("/f", false).expect_err("fatal").remote().is_some());
    assert!(namenode.delete("/f", false).expect("deleted"));
    assert_eq!(server.calls()[1].connection, 1);
}

#[test]
fn garbage_is_refused() {
    let frames: [fn() -> ScriptedReply; 4] = [
        || ScriptedReply::Raw(vec![0x7f, 0xff, 0xff, 0xff, 1, 2, 3]),
        || ScriptedReply::Raw(vec![0xff, 0xff, 0xff, 0xff]),
        || ScriptedReply::Raw(vec![0, 0, 0, 2, 0xff, 0xff]),
        || ScriptedReply::Raw(vec![0, 0, 0, 0]),
    ];
    for frame in frames {
        let server = FakeNameNode::start(move |_| frame());
        assert!(NameNode::new(&server.settings()).is_file_closed("/f").is_err());
    }
}

#[test]
fn a_connection_that_the_server_closed_is_replaced_at_once() {
    let server = scripted(vec![deleted, || ScriptedReply::Close]);
    let settings = Settings { retry_pause: Duration::from_secs(60), ..server.settings() };
    let namenode = NameNode::new(&settings);
    assert!(namenode.delete("/f", false).expect("deleted"));
    assert!(namenode.delete("/f", false).expect("deleted, without a pause"));
    assert_eq!(server.calls().len(), 3);
}

/// The death of a NameNode closes all of its idle connections.
#[test]
fn idle_connections_of_a_dead_namenode_cost_no_retries() {
    let is_dead = Arc::new(AtomicBool::new(false));
    let dead = Arc::clone(&is_dead);
    let all_called = std::sync::Barrier::new(4);
    let server = FakeNameNode::start(move |_| match dead.load(Ordering::SeqCst) {
        true => ScriptedReply::Close,
        false => {
            all_called.wait();
            deleted()
        }
    });
    let settings = Settings { call_timeout: Duration::from_secs(20), ..server.settings() };
    let namenode = NameNode::new(&settings);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert!(namenode.delete("/f", false).expect("deleted")));
        }
    });
    let calls = server.calls();
    let idle = calls.iter().map(|call| call.connection).max().expect("one");
    assert_eq!((calls.len(), idle), (4, 3), "all connections are idle");
    is_dead.store(true, Ordering::SeqCst);
    namenode.delete("/f", false).expect_err("it is dead");
    let last = server.calls().split_off(calls.len());
    let is_new: Vec<bool> = last.iter().map(|call| call.connection > idle).collect();
    assert_eq!(is_new, [false, true, true, true, true, true, true], "one idle one, then all attempts");
    assert_eq!(last.iter().map(|call| call.retry).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn threads_call_concurrently() {
    let server = FakeNameNode::start(|_| {
        std::thread::sleep(Duration::from_millis(50));
        ScriptedReply::of(&IsFileClosedResponseProto { result: true })
    });
    let namenode = NameNode::new(&server.settings());
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| assert!(namenode.is_file_closed("/f").expect("answered")));
        }
    });
    let mut ids: Vec<i32> = server.calls().iter().map(|call| call.call_id).collect();
    ids.sort_unstable();
    assert_eq!(ids, [0, 1, 2, 3, 4, 5]);
}
