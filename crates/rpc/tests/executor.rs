//! Handler threads: classes do not starve each other, and stopping answers all calls.

mod support;

use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use evenkeel_common::cpu_slot;
use evenkeel_metrics::waits::{self, Cause};
use evenkeel_protocol::pb;
use evenkeel_rpc::{
    Call, CallClass, Executor, ExecutorConfig, Respond, Responder, RpcServer, RpcServerConfig, Service,
};
use prost::Message;
use support::{Client, connection_header, eventually, framed, message, request};

/// Runs each call on the class that its method names, for the number of milliseconds in its
/// parameter: asleep, computing, or waiting with its slot released; or until its caller is gone.
struct ByClass(Arc<Executor>, Arc<AtWork>);

/// Computing calls: the current number and its maximum.
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
            cpu_slot::yield_if_due();
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
                ("released", Ok(time)) => cpu_slot::release_during(|| std::thread::sleep(time)),
                ("awaited", Ok(_)) => {
                    let state = call.caller_state();
                    while state.check().is_ok() {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
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

/// One scan computes at a time, for 5 ms if others wait.
fn start_watched(
    scan_handlers: usize,
) -> (Arc<Executor>, evenkeel_rpc::RpcServerHandle, Client, Arc<AtWork>) {
    let config = ExecutorConfig {
        server_name: "test".to_owned(),
        general_handlers: 1,
        priority_handlers: 1,
        scan_handlers,
        write_handlers: 1,
        computing_at_once: 1,
        time_slice: Duration::from_millis(5),
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
fn a_short_scan_waits_one_turn_of_each_long_one() {
    let (executor, _handle, mut client, at_work) = start_watched(8);
    (0..4).for_each(|id| send(&mut client, id, "Scan", "work 900"));
    eventually("the last has begun", || executor.queued(CallClass::Scan) == 0);
    send(&mut client, 4, "Scan", "work 1");
    let responses: Vec<_> = (0..5).map(|_| client.response().call_id()).collect();
    assert_eq!(responses[0], 4, "{responses:?}");
    assert_eq!(at_work.1.load(Relaxed), 1, "at work at once");
}

#[test]
fn a_scan_that_waits_for_disk_releases_its_turn() {
    let (_executor, _handle, mut client, at_work) = start_watched(4);
    (0..3).for_each(|id| send(&mut client, id, "Scan", "released 1000"));
    (3..6).for_each(|id| send(&mut client, id, "Scan", "work 20"));
    let began_at = Instant::now();
    let mut responses: Vec<_> = (0..6).map(|_| client.response().call_id()).collect();
    assert!(began_at.elapsed() < Duration::from_millis(2500), "they waited one after the other");
    responses[..3].sort_unstable();
    assert_eq!(responses[..3], [3, 4, 5], "{responses:?}");
    assert_eq!(at_work.1.load(Relaxed), 1, "at work at once");
}

#[test]
fn turns_continue_with_busy_threads_and_after_panics() {
    let (_executor, _handle, mut client, at_work) = start_watched(2);
    for id in 0..8 {
        send(&mut client, id, "Scan", if id % 3 == 2 { "panic" } else { "work 30" });
    }
    let responses: Vec<_> = (0..8).map(|_| client.response()).collect();
    assert_eq!(responses.iter().filter(|response| response.header.exception.is_some()).count(), 2);
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
    let responses: Vec<_> = (0..6).map(|_| client.response()).collect();
    let refused = responses.iter().filter(|response| response.header.exception.is_some());
    assert_eq!(refused.map(|response| response.call_id()).filter(|id| *id >= 3).count(), 3);
    assert_eq!(responses.iter().filter(|response| response.header.exception.is_none()).count(), 3);
}

/// Writes that wait for one lock, each with work to do once it holds the lock: an executor that
/// lets one compute at a time, and a channel that reports each write that has ended.
fn writes_behind_a_lock(
    writes: usize,
    resume_wait_max: Duration,
    lock: &Arc<RwLock<()>>,
    work: impl Fn() + Send + Sync + 'static,
) -> (Executor, Receiver<()>) {
    let config = ExecutorConfig {
        write_handlers: writes,
        computing_at_once: 1,
        resume_wait_max,
        ..ExecutorConfig::default()
    };
    let executor = Executor::start(&config).unwrap();
    let (tell, told) = channel();
    let (waiting, work) = (Arc::<AtomicUsize>::default(), Arc::new(work));
    for _ in 0..writes {
        let (lock, tell) = (Arc::clone(lock), tell.clone());
        let (waiting, work) = (Arc::clone(&waiting), Arc::clone(&work));
        executor.submit_continuation(CallClass::Write, None, move || {
            let _held = cpu_slot::release_and_requeue(|| {
                waiting.fetch_add(1, Relaxed);
                lock.read()
            });
            work();
            tell.send(()).unwrap();
        });
    }
    eventually("all wait for the lock", || waiting.load(Relaxed) == writes);
    (executor, told)
}

#[test]
fn writes_released_by_one_lock_run_in_turns() {
    const WRITES: usize = 16;
    let (lock, at_work) = (Arc::new(RwLock::new(())), Arc::<AtWork>::default());
    let held = lock.write().unwrap();
    let own = Arc::clone(&at_work);
    let (_executor, told) = writes_behind_a_lock(WRITES, Duration::from_secs(60), &lock, move || {
        own.begin();
        std::thread::sleep(Duration::from_millis(5));
        own.end();
    });
    drop(held);
    (0..WRITES).for_each(|_| told.recv_timeout(Duration::from_secs(60)).unwrap());
    assert_eq!(at_work.1.load(Relaxed), 1, "at work at once");
}

#[test]
fn a_write_runs_without_a_turn_if_its_holder_blocks() {
    const WRITES: usize = 4;
    let (lock, arrived) = (Arc::new(RwLock::new(())), Arc::<AtomicUsize>::default());
    let held = lock.write().unwrap();
    // Each holds its slot until all others have arrived: no slot is released.
    let (executor, told) = writes_behind_a_lock(WRITES, Duration::from_millis(10), &lock, move || {
        arrived.fetch_add(1, Relaxed);
        let deadline = Instant::now() + Duration::from_secs(20);
        while arrived.load(Relaxed) < WRITES && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(arrived.load(Relaxed), WRITES);
    });
    drop(held);
    (0..WRITES).for_each(|_| told.recv_timeout(Duration::from_secs(60)).unwrap());
    // All slots were returned: further writes run, one at a time.
    let (again, told) = channel();
    executor.submit_continuation(CallClass::Write, None, move || again.send(()).unwrap());
    told.recv_timeout(Duration::from_secs(60)).unwrap();
}

#[test]
fn stopping_ends_writes_that_wait_for_a_turn() {
    let lock = Arc::new(RwLock::new(()));
    let held = lock.write().unwrap();
    let (executor, told) = writes_behind_a_lock(8, Duration::from_secs(3600), &lock, || {
        std::thread::sleep(Duration::from_millis(20));
    });
    drop(held);
    told.recv_timeout(Duration::from_secs(60)).unwrap();
    executor.shutdown();
    assert_eq!(told.iter().take(7).count(), 7);
}

#[test]
fn a_running_call_sees_that_its_client_is_gone() {
    let (executor, _handle, mut client) = start(1);
    send(&mut client, 1, "General", "awaited 0");
    eventually("it runs", || executor.active(CallClass::General) == 1);
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(executor.active(CallClass::General), 1, "its client still waits");
    drop(client);
    eventually("it ends", || executor.active(CallClass::General) == 0);
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
    let responses: Vec<_> = (0..10).map(|_| client.response()).collect();
    let stopped = "org.apache.hadoop.hbase.regionserver.RegionServerStoppedException";
    let refused = responses.iter().filter(|response| response.header.exception.is_some());
    assert_eq!(refused.filter(|response| response.exception_class() == stopped).count(), 9);
    send(&mut client, 11, "General", "0");
    assert!(client.response().header.exception.is_some());
}

#[test]
fn an_executor_without_threads_is_refused() {
    let whole = ExecutorConfig::default;
    for config in [
        ExecutorConfig { priority_handlers: 0, ..whole() },
        ExecutorConfig { scan_handlers: 0, ..whole() },
        ExecutorConfig { computing_at_once: 0, ..whole() },
    ] {
        assert!(Executor::start(&config).is_err());
    }
}

#[test]
fn connections_take_turns_in_a_queue() {
    const FLOOD: usize = 200;
    let config = ExecutorConfig { write_handlers: 1, ..ExecutorConfig::default() };
    let executor = Executor::start(&config).unwrap();
    let peer = |port: u16| Some(SocketAddr::from(([127, 0, 0, 1], port)));
    let (begin, begun) = channel::<()>();
    executor.submit_continuation(CallClass::Write, None, move || begun.recv().unwrap());
    let done = Arc::<AtomicUsize>::default();
    for _ in 0..FLOOD {
        let done = Arc::clone(&done);
        executor.submit_continuation(CallClass::Write, peer(1), move || {
            done.fetch_add(1, Relaxed);
        });
    }
    let (tell, told) = channel();
    let before = Arc::clone(&done);
    executor.submit_continuation(CallClass::Write, peer(2), move || {
        let waited = waits::take().map(|waits| waits.of(Cause::Thread));
        tell.send((before.load(Relaxed), waited)).unwrap();
    });
    let held = Duration::from_millis(50);
    std::thread::sleep(held);
    begin.send(()).unwrap();
    let (before, waited) = told.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!(before, 1, "one call of the other connection went first");
    assert!(waited.is_some_and(|waited| waited >= held), "the wait has its cause: {waited:?}");
    eventually("the others run, too", || done.load(Relaxed) == FLOOD);
}
