//! Calls to a master that refuses, over a socket, found through ZooKeeper.

use std::sync::mpsc::{Receiver, channel};

use evenkeel_client::RemoteException;
use evenkeel_common::clock;
use evenkeel_fs::{CreateOptions, FileSystem, MemoryFileSystem};
use evenkeel_process::{FailureReason, StopRequest};
use evenkeel_zookeeper::ZnodeTree;
use evenkeel_zookeeper::znodes::Znodes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::*;
use crate::fenced_fs::FencedFileSystem;
use crate::session::tests::{port, runtime, serve_zookeeper, settings};

const SKEW: &str = "Server h,16020,7 has been rejected; Reported time is too far out of sync with master.  \
                    Time difference of 40000ms > max allowed of 30000ms";
const DEAD: &str = "Server REPORT rejected; currently processing h,16020,7 as dead server";

fn exception(class: &str) -> Error {
    Error::Remote(Box::new(RemoteException::new(class, "text")))
}

/// An exception, as a stock master sends it: the text has the class and the stack.
type Refusal = (&'static str, &'static str);

const NOT_YET: Refusal = ("org.apache.hadoop.hbase.ipc.ServerNotRunningYetException", "not yet");
const OUT_OF_SYNC: Refusal = ("org.apache.hadoop.hbase.ClockOutOfSyncException", SKEW);
const IS_DEAD: Refusal = ("org.apache.hadoop.hbase.YouAreDeadException", DEAD);

fn refusal(call_id: Option<u32>, (class, text): Refusal) -> Vec<u8> {
    let exception = pb::ExceptionResponse {
        exception_class_name: Some(class.to_owned()),
        stack_trace: Some(format!("{class}: {text}\n\tat org.apache.hadoop.hbase.master.X.y(X.java:1)\n")),
        ..Default::default()
    };
    pb::ResponseHeader { call_id, exception: Some(exception), ..Default::default() }
        .encode_length_delimited_to_vec()
}

/// Answers the calls of a connection with these exceptions in turn, and further ones with the last.
async fn refuse(mut socket: TcpStream, refusals: &[Refusal]) -> std::io::Result<()> {
    let mut preamble = [0; 6];
    socket.read_exact(&mut preamble).await?;
    let mut refusals = refusals.iter().copied();
    let mut last = NOT_YET;
    // The first frame has the connection's header.
    for number in 0.. {
        let mut frame = vec![0; socket.read_u32().await? as usize];
        socket.read_exact(&mut frame).await?;
        if number > 0 {
            last = refusals.next().unwrap_or(last);
            let call = pb::RequestHeader::decode_length_delimited(&*frame)?;
            let reply = refusal(call.call_id, last);
            socket.write_u32(u32::try_from(reply.len()).expect("short")).await?;
            socket.write_all(&reply).await?;
        }
    }
    Ok(())
}

/// A server in a cluster whose master refuses its calls.
struct TestServer {
    session: Arc<Session>,
    master: Arc<ClusterConnection>,
    abort: Arc<Abort>,
    stopped: Receiver<String>,
    _stop: oneshot::Sender<()>,
}

impl TestServer {
    fn refused(refusals: &'static [Refusal]) -> Self {
        let (runtime, stop) = runtime();
        let (listener, master) = port();
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(refuse(socket, refusals));
            }
            Ok::<_, std::io::Error>(())
        });
        let tree = Arc::new(ZnodeTree::new());
        let znodes = Znodes::new(Arc::clone(&tree), settings(1).znodes, "test");
        let name = ServerName::new("127.0.0.1", master, 1);
        let set = znodes.create_base_nodes().and_then(|()| znodes.set_master(Some((&name, 16010))));
        set.and_then(|()| znodes.set_cluster_id("id"))
            .and_then(|()| znodes.set_running(Some("now")))
            .expect("legal");
        let settings = settings(serve_zookeeper(&runtime, tree));
        let settings = ClusterSettings { session_timeout: Duration::from_secs(60), ..settings };
        let failure = FailureReason::default();
        let session = Session::open(&runtime, &settings, &failure).expect("a session");
        session.wait_for_cluster().expect("a cluster");
        let (tell, stopped) = channel();
        let stops: StopRequest = Arc::new(move |reason: &str| drop(tell.send(reason.to_owned())));
        let abort = Abort::new(failure, stops, Arc::clone(session.lease()));
        let master = ClusterConnection::new(&session, &runtime, &settings, "2.6.4");
        Self { session, master, abort, stopped, _stop: stop }
    }

    fn report(&self) {
        let server = (&ServerName::new("h", 16020, 7)).into();
        self.master.region_server_report(pb::RegionServerReportRequest { server, load: None });
    }
}

#[test]
fn a_permanent_refusal_is_not_retried() {
    let refused = exception("org.apache.hadoop.hbase.ClockOutOfSyncException");
    assert!(hbase_error("RegionServerStartup", &refused).is_do_not_retry());
    let dead = exception("org.apache.hadoop.hbase.YouAreDeadException");
    assert!(is_of(&dead, YOU_ARE_DEAD) && hbase_error("", &dead).is_do_not_retry());
    let later = exception("org.apache.hadoop.hbase.ipc.ServerNotRunningYetException");
    assert!(!hbase_error("RegionServerStartup", &later).is_do_not_retry());
    assert!(!hbase_error("", &Error::Connection("lost".into())).is_do_not_retry());
}

#[test]
fn a_server_that_the_master_has_declared_dead_aborts() {
    let server = TestServer::refused(&[NOT_YET, IS_DEAD]);
    let memory: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
    let storage = FencedFileSystem::new(memory, Arc::clone(server.session.lease()));
    let write = |path: &str| storage.create(path.as_ref(), CreateOptions::LOG).map(drop);
    server.master.send_reports(&server.abort);
    server.report();
    // The first refusal has no consequence.
    assert!(
        server.stopped.recv_timeout(Duration::from_millis(300)).is_err() && server.session.lease().holds()
    );
    write("/before").expect("it is alive");

    let began = clock::monotonic();
    server.report();
    let reason = server.stopped.recv_timeout(Duration::from_secs(20)).expect("the process is told");
    assert_eq!(reason, format!("{}: {DEAD}", IS_DEAD.0));
    assert!(server.abort.is_aborting() && !server.session.lease().holds());
    write("/after").expect_err("another server has the regions");
    assert!(clock::since(began) < Duration::from_secs(20));
}

#[test]
fn a_refused_clock_is_named_in_one_line() {
    let server = TestServer::refused(&[OUT_OF_SYNC]);
    let asked = server.master.region_server_startup(pb::RegionServerStartupRequest {
        port: 16020,
        server_start_code: 7,
        server_current_time: 40_000,
        use_this_hostname_instead: Some("h".to_owned()),
    });
    let error = asked.expect_err("refused");
    assert!(error.is_do_not_retry());
    assert_eq!(error.message(), format!("RegionServerStartup: {}: {SKEW}", OUT_OF_SYNC.0));
}
