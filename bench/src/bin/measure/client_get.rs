//! `client_get [TASKS [GETS]]`: CPU of a Get in the native client, against a synthetic RegionServer
//! on a separate thread that answers each Get with one cell of 100 bytes.
//!
//! The client runs on one thread; the kernel's part of its sockets is included. The times of both
//! threads are printed, for their ratio, since the machine's speed varies.

#[path = "../../../../crates/client/tests/fake/mod.rs"]
mod fake;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use evenkeel_bench::thread_cpu;
use evenkeel_client::{ClientConfig, Connection, Get, Table};

use crate::{Outcome, number};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Starts the server on a thread; returns its address and its CPU time.
fn server() -> (String, Arc<AtomicUsize>) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let cpu_ns = Arc::new(AtomicUsize::new(0));
    let counter = cpu_ns.clone();
    std::thread::spawn(move || {
        runtime().block_on(async {
            let fake = fake::Fake::start(100).await;
            sender.send(fake.address.clone()).expect("the client waits");
            loop {
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
                counter.store(thread_cpu().as_nanos() as usize, Ordering::Relaxed);
            }
        });
    });
    (receiver.recv().expect("a server"), cpu_ns)
}

async fn gets(table: &Table, tasks: usize, count: usize) {
    let each = count / tasks;
    let one = |task: usize| {
        let table = table.clone();
        tokio::spawn(async move {
            for i in 0..each {
                let get = Get::new(format!("{task:04}{i:08}")).column("f", "q");
                let result = table.get(get).await.expect("a row");
                assert_eq!(result.value("f", "q").map(<[u8]>::len), Some(100));
            }
        })
    };
    let tasks: Vec<_> = (0..tasks).map(one).collect();
    for task in tasks {
        task.await.expect("no panic");
    }
}

pub fn run(args: &[String]) -> Outcome {
    let (tasks, count): (usize, usize) = (number(args, 0, 64)?, number(args, 1, 1_000_000)?);
    let (address, server_cpu_ns) = server();
    runtime().block_on(async {
        let connection = Connection::connect(ClientConfig::new([address])).await.expect("connected");
        let table = connection.table("t".parse().expect("legal"));
        gets(&table, tasks, count / 10).await;
        let (cpu, server_cpu, start) =
            (thread_cpu(), server_cpu_ns.load(Ordering::Relaxed), Instant::now());
        gets(&table, tasks, count).await;
        let cpu = (thread_cpu() - cpu).as_nanos() as f64 / count as f64;
        let server_cpu = (server_cpu_ns.load(Ordering::Relaxed) - server_cpu) as f64 / count as f64;
        let per_second = count as f64 / start.elapsed().as_secs_f64();
        println!(
            "{tasks} tasks: {per_second:.0} Gets/s; CPU a Get: client {cpu:.0} ns, synthetic server {server_cpu:.0} ns"
        );
    });
    Ok(())
}
