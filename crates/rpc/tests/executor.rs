//! Handler threads: classes do not starve each other, stopping answers everybody.

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use evenkeel_common::turns;
use evenkeel_protocol::pb;
use evenkeel_rpc::{
    Call, CallClass, Executor, ExecutorConfig, Respond, Responder, RpcServer, RpcServerConfig, Service,
};
use prost::Message;
use support::{Client, connection_header, eventually, framed, message, request};

/// Runs each call on the class its method names, for as many milliseconds as its parameter says: asleep, or at work, or
/// waiting in a lent turn.
struct ByClass(Arc<Executor>, Arc<AtWork>);

/// Calls at work now, and at most.
#[derive(Default)]
struct AtWork(AtomicUsize, AtomicUsize);

impl AtWork {
    fn begin(&self) {
        let now = self.0.fetch_add(1, Relaxed) + 1;
        self.1.fetch_max(now, Relaxed);
    }

    fn end(&self) {
        self.0.fetch_sub(1, Relaxed);
    }

    fn work_for(&self, millis: u64) {
        let until = Instant::now() + Duration::from_millis(millis);
        self.begin();
        while Instant::now() < until {
            std::thread::sleep(Duration::from_micros(100));
            self.end();
            turns::pass();
            self.begin();
        }
        self.end();
    }
}

impl Service for ByClass {
    fn name(&self) -> &'static str {
        "ClientService"
    }

    fn methods(&self) -> &'static [&'static str] {
        &["General", "Priority", "Scan"]
    }

    fn call(&self, call: Call, reply: Responder) {
        let class = match call.method {
            "General" => CallClass::General,
            "Priority" => CallClass::Priority,
            _ => CallClass::Scan,
        };
        let at_work = Arc::clone(&self.1);
        self.0.submit(class, call, reply, move |call, reply| {
            let param: pb::NameBytesPair = call.decode().unwrap();
            let (how, millis) = param.name.split_once(' ').unwrap_or(("asleep", &param.name));
            let time = millis.parse().map(Duration::from_millis);
            match (how, time) {
                ("asleep", Ok(time)) => std::thread::sleep(time),
                ("lent", Ok(time)) => turns::lend(|| std::thread::sleep(time)),
                ("work", Ok(time)) => at_work.work_for(time.as_millis() as u64),
                _ => panic!("a panic made for a test"),
            }
            reply.send(&message(std::thread::current().name().unwrap_or_default(), &param.value.unwrap()));
        });
    }
}

fn start(scan_handlers: usize) -> (Arc<Executor>, evenkeel_rpc::RpcServerHandle, Client) {
    let (executor, handle, client, _) = start_watched(scan_handlers);
    (executor, handle, client)
}

/// One scan computes at once, for 5 ms when others wait.
fn start_watched(
    scan_handlers: usize,
) -> (Arc<Executor>, evenkeel_rpc::RpcServerHandle, Client, Arc<AtWork>) {
    let config = ExecutorConfig {
        server_name: "test".to_owned(),
        general_handlers: 1,
        priority_handlers: 1,
        scan_handlers,
        write_handlers: 1,
        scans_at_once: 1,
        scan_turn: Duration::from_millis(5),
        queue_calls_max: 100,
        ..ExecutorConfig::default()
    };
    let executor = Arc::new(Executor::start(&config).unwrap());
    let at_work = Arc::<AtWork>::default();
    let config = RpcServerConfig::at(SocketAddr::from(([127, 0, 0, 1], 0)));
    let service = ByClass(executor.clone(), at_work.clone());
    let handle = RpcServer::bind(config).unwrap().serve(vec![Arc::new(service)]).unwrap();
    let mut client = Client::raw(handle.local_addr());
    client.send(b"HBas\x00\x50");
    client.send(&framed(&connection_header().encode_to_vec()));
    (executor, handle, client, at_work)
}

fn send(client: &mut Client, id: u32, method: &str, millis: &str) {
    client.send(&request(id, method, &message(millis, b"v")));
}

#[test]
fn system_tables_are_served_while_users_fill_their_queue() {
    let (executor, _handle, mut client) = start(1);
    (0..20).for_each(|id| send(&mut client, id, "General", "50"));
    eventually("general calls wait", || executor.queued(CallClass::General) > 10);
    send(&mut client, 100, "Priority", "0");
    send(&mut client, 101, "Scan", "0");
    let mut first: Vec<_> = (0..4).map(|_| client.response()).collect();
    first.sort_by_key(|response| std::cmp::Reverse(response.call_id()));
    assert_eq!((first[0].call_id(), first[1].call_id()), (101, 100));
    assert_eq!(first[0].message().name, "scan-0");
    assert_eq!(first[1].message().name, "priority-0");
}

#[test]
fn long_scans_take_turns_and_a_short_one_waits_for_one_turn_of_each() {
    let (executor, _handle, mut client, at_work) = start_watched(8);
    (0..4).for_each(|id| send(&mut client, id, "Scan", "work 900"));
    eventually("the last has begun", || executor.queued(CallClass::Scan) == 0);
    send(&mut client, 4, "Scan", "work 1");
    let answers: Vec<_> = (0..5).map(|_| client.response().call_id()).collect();
    assert_eq!(answers[0], 4, "{answers:?}");
    assert_eq!(at_work.1.load(Relaxed), 1, "at work at once");
}

#[test]
fn a_scan_that_waits_for_a_disk_lends_its_turn() {
    let (_executor, _handle, mut client, at_work) = start_watched(4);
    (0..3).for_each(|id| send(&mut client, id, "Scan", "lent 1000"));
    (3..6).for_each(|id| send(&mut client, id, "Scan", "work 20"));
    let began_at = Instant::now();
    let mut answers: Vec<_> = (0..6).map(|_| client.response().call_id()).collect();
    assert!(began_at.elapsed() < Duration::from_millis(2500), "they waited one after the other");
    answers[..3].sort_unstable();
    assert_eq!(answers[..3], [3, 4, 5], "{answers:?}");
    assert_eq!(at_work.1.load(Relaxed), 1, "at work at once");
}

#[test]
fn turns_go_on_when_every_thread_has_a_call_and_when_one_panics() {
    let (_executor, _handle, mut client, at_work) = start_watched(2);
    for id in 0..8 {
        send(&mut client, id, "Scan", if id % 3 == 2 { "panic" } else { "work 30" });
    }
    let answers: Vec<_> = (0..8).map(|_| client.response()).collect();
    assert_eq!(answers.iter().filter(|answer| answer.header.exception.is_some()).count(), 2);
    assert_eq!(at_work.1.load(Relaxed), 1, "at work at once");
}

#[test]
fn stopping_ends_scans_that_wait_for_their_turn() {
    let (executor, _handle, mut client) = start(3);
    (0..3).for_each(|id| send(&mut client, id, "Scan", "work 1500"));
    eventually("all have begun", || executor.queued(CallClass::Scan) == 0);
    (3..6).for_each(|id| send(&mut client, id, "Scan", "work 1500"));
    eventually("the rest waits", || executor.queued(CallClass::Scan) == 3);
    executor.shutdown();
    let answers: Vec<_> = (0..6).map(|_| client.response()).collect();
    let refused = answers.iter().filter(|answer| answer.header.exception.is_some());
    assert_eq!(refused.map(|answer| answer.call_id()).filter(|id| *id >= 3).count(), 3);
    assert_eq!(answers.iter().filter(|answer| answer.header.exception.is_none()).count(), 3);
}

#[test]
fn a_job_that_panics_is_answered_and_its_thread_lives() {
    let (_executor, _handle, mut client) = start(1);
    send(&mut client, 1, "General", "panic");
    assert_eq!(client.response().exception_class(), "java.io.IOException");
    send(&mut client, 2, "General", "0");
    assert_eq!(client.response().message().value.unwrap(), b"v"[..]);
}

#[test]
fn stopping_ends_running_calls_and_answers_waiting_ones() {
    let (executor, _handle, mut client) = start(1);
    (0..10).for_each(|id| send(&mut client, id, "General", "200"));
    eventually("the rest waits", || executor.queued(CallClass::General) == 9);
    let start = Instant::now();
    executor.shutdown();
    assert!(start.elapsed() < Duration::from_secs(5));
    let answers: Vec<_> = (0..10).map(|_| client.response()).collect();
    let stopped = "org.apache.hadoop.hbase.regionserver.RegionServerStoppedException";
    let refused = answers.iter().filter(|answer| answer.header.exception.is_some());
    assert_eq!(refused.filter(|answer| answer.exception_class() == stopped).count(), 9);
    send(&mut client, 11, "General", "0");
    assert!(client.response().header.exception.is_some());
}

#[test]
fn an_executor_without_threads_is_refused() {
    let whole = ExecutorConfig::default;
    for config in [
        ExecutorConfig { priority_handlers: 0, ..whole() },
        ExecutorConfig { scan_handlers: 0, ..whole() },
        ExecutorConfig { scans_at_once: 0, ..whole() },
    ] {
        assert!(Executor::start(&config).is_err());
    }
}
