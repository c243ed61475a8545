//! [`Histories`]: clients that increment, check and change, append to and read a few shared rows
//! during a whole test. What they saw must be linearizable.
//!
//! The clients are those of [`interop::registers`], in epochs of some seconds with new rows each.
//! After an epoch each of its rows is read once more, and the history of each is checked. At the
//! end all rows are read again.
//!
//! Calls are made once, but increments are repeated until a server answers. A server that gets the
//! regions of one that was killed finds the nonces of increments in its log. A region that is moved
//! leaves them behind, in HBase, too. So an increment must not wait for its next try while its
//! region moves twice: the pauses between tries are short.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_client::{ClientConfig, ColumnFamilyDescriptor, Connection, Table, TableDescriptor};
use interop::cluster::{Cluster, TIMEOUT};
use interop::registers::Registers;
use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::runtime::Runtime;

use crate::scene::{Scene, must};

/// The table of the shared rows.
pub const REGISTERS: &str = "registers";
/// The first row of its second region.
const SPLIT: &str = "80";
/// The time of an epoch.
const EPOCH: Duration = Duration::from_secs(4);
/// A worker's pause between two operations.
const PAUSE: Duration = Duration::from_millis(40);
/// The first pause between the tries of an increment. The longest is 200 times as long.
const REPEAT_PAUSE: Duration = Duration::from_millis(1);
/// The timeout of one call. It is longer than a healthy cluster lets a client wait.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);
/// The operations of which the shortest test makes several times as many.
const OPERATIONS_MIN: u64 = 1_000;

/// See the module's documentation.
pub struct Histories {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Result<[u64; 2], String>>,
}

impl Histories {
    /// Creates the table, and starts the clients.
    pub fn start(scene: &Scene) -> Self {
        let families = ["a", "b"].map(|name| ColumnFamilyDescriptor::new(name.as_bytes()).expect("legal"));
        let descriptor = TableDescriptor::new(REGISTERS.parse().expect("legal"));
        let descriptor = families.into_iter().fold(descriptor, TableDescriptor::with_family);
        let splits = [Bytes::from(SPLIT)];
        scene.runtime.block_on(scene.admin.create_table(&descriptor, &splits)).expect("created");

        let (over, runtime) = (Arc::<AtomicBool>::default(), Runtime::new().expect("a runtime"));
        let [once, repeating] = [0, u32::MAX].map(|retries| table(&scene.cluster, &runtime, retries));
        let ends = Arc::clone(&over);
        let run = move || runtime.block_on(run(&once, &repeating, &ends));
        Self { over, thread: std::thread::spawn(run) }
    }

    /// Ends the clients, and checks what they saw.
    pub fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        let [answered, unanswered] = must(self.thread.join().expect("the histories went on"));
        println!("{answered} operations on shared rows are linearizable, {unanswered} had no response");
        assert!(answered > OPERATIONS_MIN, "only {answered} operations");
    }
}

/// The table, by a client that repeats a call this often.
fn table(cluster: &Cluster, runtime: &Runtime, retries: u32) -> Table {
    let config = ClientConfig {
        retries,
        pause: REPEAT_PAUSE,
        rpc_timeout: CALL_TIMEOUT,
        operation_timeout: TIMEOUT,
        ..ClientConfig::zookeeper("127.0.0.1", cluster.zookeeper_port(), "/hbase")
    };
    let connection = runtime.block_on(Connection::connect(config)).expect("a connection");
    connection.table(REGISTERS.parse().expect("legal"))
}

/// Runs epochs until `over`. Returns the operations with and without a response.
async fn run(once: &Table, repeating: &Table, over: &AtomicBool) -> Result<[u64; 2], String> {
    let mut registers = Registers::new().repeating_increments(repeating.clone(), PAUSE);
    let mut rng = StdRng::seed_from_u64(u64::from(std::process::id()));
    for epoch in 0.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        let ends = Arc::<AtomicBool>::default();
        let running = registers.start(epoch, once, &ends, &mut rng);
        let began = Instant::now();
        while began.elapsed() < EPOCH && !over.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        ends.store(true, Ordering::Relaxed);
        registers.verify(running, repeating).await?;
    }
    registers.verify_settled(repeating).await?;
    Ok(registers.operations)
}
