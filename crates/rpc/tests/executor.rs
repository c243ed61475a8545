//! Handler threads: classes do not starve each other, stopping answers everybody.

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_protocol::pb;
use evenkeel_rpc::{
    Call, CallClass, Executor, ExecutorConfig, Respond, Responder, RpcServer, RpcServerConfig, Service,
};
use prost::Message;
use support::{Client, connection_header, eventually, framed, message, request};

/// Runs each call on the class its method names, for as many milliseconds as its parameter says.
struct ByClass(Arc<Executor>);

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
        self.0.submit(class, call, reply, |call, reply| {
            let param: pb::NameBytesPair = call.decode().unwrap();
            match param.name.parse() {
                Ok(millis) => std::thread::sleep(Duration::from_millis(millis)),
                Err(_) => panic!("a panic made for a test"),
            }
            reply.send(&message(std::thread::current().name().unwrap_or_default(), &param.value.unwrap()));
        });
    }
}

fn start(scan_handlers: usize) -> (Arc<Executor>, evenkeel_rpc::RpcServerHandle, Client) {
    let config = ExecutorConfig {
        server_name: "test".to_owned(),
        general_handlers: 1,
        priority_handlers: 1,
        scan_handlers,
        queue_calls_max: 100,
    };
    let executor = Arc::new(Executor::start(&config).unwrap());
    let config = RpcServerConfig::at(SocketAddr::from(([127, 0, 0, 1], 0)));
    let handle = RpcServer::bind(config).unwrap().serve(vec![Arc::new(ByClass(executor.clone()))]).unwrap();
    let mut client = Client::raw(handle.local_addr());
    client.send(b"HBas\x00\x50");
    client.send(&framed(&connection_header().encode_to_vec()));
    (executor, handle, client)
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
fn scans_share_the_general_threads_when_they_have_none() {
    let (_executor, _handle, mut client) = start(0);
    send(&mut client, 1, "Scan", "0");
    assert_eq!(client.response().message().name, "general-0");
}

#[test]
fn a_job_that_panics_is_answered_and_its_thread_lives() {
    let (_executor, _handle, mut client) = start(0);
    send(&mut client, 1, "General", "panic");
    assert_eq!(client.response().exception_class(), "java.io.IOException");
    send(&mut client, 2, "General", "0");
    assert_eq!(client.response().message().value.unwrap(), b"v"[..]);
}

#[test]
fn stopping_ends_running_calls_and_answers_waiting_ones() {
    let (executor, _handle, mut client) = start(0);
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
    let config = ExecutorConfig { priority_handlers: 0, ..ExecutorConfig::default() };
    assert!(Executor::start(&config).is_err());
}
