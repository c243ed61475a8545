//! Hostile clients: what they do, what is watched meanwhile, and what must hold.
//!
//! | file | holds |
//! |---|---|
//! | `mod.rs` | [`Attack`], [`Stage`], and how an attack is run and judged |
//! | `witness.rs` | other clients: what they wait, and what a bare echo waits at the same time |
//! | `connections.rs` | attacks by connections and their states |
//! | `calls.rs` | attacks by calls |
//! | `zookeeper.rs` | attacks on the ZooKeeper endpoint |

pub mod calls;
pub mod connections;
pub mod witness;
pub mod zookeeper;

use std::any::Any;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_protocol::pb;

use self::witness::{Witness, WitnessReport};
use crate::common::{Server, raw};

/// What clients hold when their attack ends: connections, above all.
pub type Held = Box<dyn Any + Send>;

/// One line of the table.
pub struct Attack {
    /// Its name, which `EVENKEEL_HOSTILE_ONLY` selects by.
    pub name: &'static str,
    /// Does it until [`Stage::runs`] says no, and returns what is held while the server is
    /// inspected.
    pub run: fn(&Stage) -> Held,
    /// How much the server's resident memory may grow, MiB.
    pub grown_mib_max: u64,
    /// How much of that may be left when the clients are gone: what the allocator keeps, and cells
    /// that are not flushed.
    pub left_mib_max: u64,
}

/// Attacks that it does not withstand yet in a build without optimization: others' Puts wait for
/// some hundred milliseconds. They are run when they are asked for by name.
pub fn unmet() -> impl Iterator<Item = &'static Attack> {
    calls::UNMET.iter()
}

/// The table of attacks that the server withstands.
pub fn withstood() -> impl Iterator<Item = &'static Attack> {
    [connections::ATTACKS, calls::ATTACKS, zookeeper::ATTACKS].into_iter().flatten()
}

/// Requests, replies and buffers of them, scanners and the reserve of 256 MiB come to 46 MiB.
const PARTS_MIB: u64 = 46;
/// What the allocator keeps of short-lived memory, stacks, and blocks that a cache takes.
const MARGIN_MIB: u64 = 26;
/// What the allocator keeps of memory that was given back to it.
const LEFT_MIB: u64 = 40;
/// All of MemStores, with the slack of their chunks.
const MEMSTORES_MIB: u64 = 104;

impl Attack {
    /// An attack that may use what clients' calls have.
    pub const fn new(name: &'static str, run: fn(&Stage) -> Held) -> Self {
        let grown_mib_max = PARTS_MIB + MARGIN_MIB;
        Self { name, run, grown_mib_max, left_mib_max: LEFT_MIB }
    }

    /// One that writes: MemStores may fill.
    pub const fn that_writes(name: &'static str, run: fn(&Stage) -> Held) -> Self {
        let grown_mib_max = PARTS_MIB + MARGIN_MIB + MEMSTORES_MIB;
        Self { name, run, grown_mib_max, left_mib_max: LEFT_MIB + MEMSTORES_MIB }
    }
}

/// What an attack has: the server's ports, a region, and its time.
#[derive(Clone)]
pub struct Stage {
    pub regionserver: u16,
    pub master: u16,
    pub zookeeper: u16,
    /// A table of small rows, `r0000` and so on, and four of 3 MB, `b0` and so on.
    pub target: pb::RegionSpecifier,
    /// The table of other clients.
    pub bystander: pb::RegionSpecifier,
    pub until: Instant,
    /// Whether attacks are as large as a hostile client would make them.
    pub is_full_size: bool,
}

/// Bytes of a value of the target's small rows.
pub const SMALL_VALUE_BYTES: usize = 500;
pub const SMALL_ROWS: usize = 2000;
pub const BIG_ROWS: usize = 4;

impl Stage {
    /// How many of something an attack has: what a build without optimization can be asked each
    /// time, or all.
    pub fn sized(&self, usual: usize, full: usize) -> usize {
        if self.is_full_size { full } else { usual }
    }

    /// Whether the attack goes on.
    pub fn runs(&self) -> bool {
        Instant::now() < self.until
    }

    /// A connection that has said nothing. It never waits for long, whatever the server does.
    pub fn connect(&self, port: u16) -> Option<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_write_timeout(Some(Duration::from_millis(100))).ok()?;
        stream.set_read_timeout(Some(Duration::from_millis(100))).ok()?;
        stream.set_nodelay(true).ok()?;
        Some(stream)
    }

    /// A connection of a service.
    pub fn service(&self, port: u16, service: &str) -> Option<TcpStream> {
        let mut stream = self.connect(port)?;
        push(&mut stream, &raw::opening(&raw::connection_header(service)));
        Some(stream)
    }

    /// A connection of ClientService.
    pub fn client(&self) -> Option<TcpStream> {
        self.service(self.regionserver, "ClientService")
    }

    /// Keeps `count` connections that `open` opens, and does `go_on` to each in turn until the time
    /// is over; a new one takes the place of each that the server ended.
    pub fn keep(
        &self,
        count: usize,
        mut open: impl FnMut() -> Option<TcpStream>,
        mut go_on: impl FnMut(&mut TcpStream) -> bool,
    ) -> Held {
        let mut all = Vec::new();
        while self.runs() {
            while all.len() < count && self.runs() {
                match open() {
                    Some(stream) => all.push(stream),
                    None => sleep(Duration::from_millis(1)),
                }
            }
            let before = all.len();
            all.retain_mut(|stream| !self.runs() || (!is_ended(stream) && go_on(stream)));
            sleep(Duration::from_millis(if all.len() < before { 1 } else { 10 }));
        }
        Box::new(all)
    }
}

/// Sends what the server takes within the time that a connection waits; whether all of it.
pub fn push(stream: &mut TcpStream, bytes: &[u8]) -> bool {
    stream.write_all(bytes).is_ok()
}

/// Whether the server ended the connection. What it sent stays unread.
pub fn is_ended(stream: &TcpStream) -> bool {
    if stream.set_nonblocking(true).is_err() {
        return true;
    }
    let ended = match stream.peek(&mut [0; 1]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    };
    ended || stream.set_nonblocking(false).is_err()
}

/// Reads and throws away what is there.
pub fn drain(stream: &mut TcpStream) {
    let _ = stream.set_nonblocking(true);
    let mut sink = vec![0; 1 << 20];
    while matches!(stream.read(&mut sink), Ok(1..)) {}
    let _ = stream.set_nonblocking(false);
}

/// What an attack came to.
pub struct Report {
    pub grown_mib: u64,
    pub left_mib: u64,
    pub descriptors: usize,
    pub witness: WitnessReport,
    /// What does not hold.
    pub faults: Vec<String>,
}

/// A row that other clients use.
pub fn bystander_row(n: usize) -> String {
    format!("row{:03}", n % 100)
}

/// What may be left of connections when the clients are gone, and after what time.
const LEFT_DESCRIPTORS_MAX: usize = 8;
const GIVE_BACK: Duration = Duration::from_secs(8);

/// Runs an attack for `time` beside other clients.
pub fn run(attack: &Attack, server: &mut Server, stage: &Stage, time: Duration) -> Report {
    let (rss_before, descriptors_before) = (server.resident_bytes(), server.descriptors());
    let witness = Witness::start(stage);
    sleep(Duration::from_millis(100));
    let stage = Stage { until: Instant::now() + time, ..stage.clone() };
    let mut peak = (rss_before, descriptors_before);
    let mut look = |server: &Server| {
        peak = (peak.0.max(server.resident_bytes()), peak.1.max(server.descriptors()));
    };
    let held = std::thread::scope(|scope| {
        let hostile = scope.spawn(|| (attack.run)(&stage));
        while !hostile.is_finished() {
            look(server);
            sleep(Duration::from_millis(5));
        }
        hostile.join().expect("an attack that ends")
    });
    look(server);
    let witness = witness.stop();
    let mut faults = witness.faults();
    faults.extend(serves_new_clients(&stage).err());
    look(server);
    drop(held);
    let left = given_back(server, rss_before + (attack.left_mib_max << 20), descriptors_before, &mut faults);
    let mib = |bytes: u64| bytes.saturating_sub(rss_before) >> 20;
    if mib(peak.0) > attack.grown_mib_max {
        faults.push(format!("memory grew by {} MiB, {} allowed", mib(peak.0), attack.grown_mib_max));
    }
    if !server.runs() {
        faults.push("the server ended".to_owned());
    }
    Report { grown_mib: mib(peak.0), left_mib: mib(left), descriptors: peak.1, witness, faults }
}

/// Waits until the server has given back what the clients made it hold; returns its resident bytes.
fn given_back(server: &Server, rss_max: u64, descriptors: usize, faults: &mut Vec<String>) -> u64 {
    let deadline = Instant::now() + GIVE_BACK;
    loop {
        let now = (server.resident_bytes(), server.descriptors());
        let is_back = (now.0 <= rss_max, now.1 <= descriptors + LEFT_DESCRIPTORS_MAX);
        if is_back == (true, true) {
            return now.0;
        }
        if Instant::now() > deadline {
            faults.push(format!(
                "not given back: {} MiB of {} allowed, {} descriptors of {descriptors} before",
                now.0 >> 20,
                rss_max >> 20,
                now.1
            ));
            return now.0;
        }
        sleep(Duration::from_millis(20));
    }
}

/// A client that comes now is let in, may write a small and a large value, and the log rolls.
fn serves_new_clients(stage: &Stage) -> Result<(), String> {
    let put = |bytes: usize| {
        let value = pb::mutation_proto::column_value::QualifierValue {
            qualifier: Some(Bytes::from_static(b"large")),
            value: Some(Bytes::from(vec![1; bytes])),
            ..Default::default()
        };
        raw::call(1, "Mutate", &put_request(&stage.bystander, "large", vec![value]))
    };
    retried("a small Put of a new client", stage.regionserver, "ClientService", &put(10), 5)?;
    retried("a Put of 1 MiB of a new client", stage.regionserver, "ClientService", &put(1 << 20), 5)?;
    let roll = raw::call(1, "RollWALWriter", &pb::RollWalWriterRequest {});
    retried("rolling the log", stage.regionserver, "AdminService", &roll, 10)
}

/// Sends a request on new connections until one answers it.
fn retried(what: &str, port: u16, service: &str, request: &[u8], seconds: u64) -> Result<(), String> {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let mut last = "no connection".to_owned();
    while Instant::now() < deadline {
        match once(port, service, request, deadline) {
            Ok(None) => return Ok(()),
            Ok(Some(exception)) => last = exception,
            Err(error) => last = error.to_string(),
        }
        sleep(Duration::from_millis(50));
    }
    Err(format!("{what}: not in {seconds} s, the last time {last}"))
}

fn once(port: u16, service: &str, request: &[u8], until: Instant) -> std::io::Result<Option<String>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    let time = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    stream.set_read_timeout(Some(time))?;
    stream.set_write_timeout(Some(time))?;
    stream.write_all(&raw::opening(&raw::connection_header(service)))?;
    stream.write_all(request)?;
    let (header, _) = raw::reply(&mut stream)?;
    Ok(header.exception.map(|exception| exception.exception_class_name.unwrap_or_default()))
}

/// A Put of these cells of the family f.
pub fn put_request(
    region: &pb::RegionSpecifier,
    row: &str,
    qualifier_value: Vec<pb::mutation_proto::column_value::QualifierValue>,
) -> pb::MutateRequest {
    pb::MutateRequest {
        region: region.clone(),
        mutation: pb::MutationProto {
            row: Some(Bytes::from(row.to_owned())),
            mutate_type: Some(pb::mutation_proto::MutationType::Put as i32),
            column_value: vec![pb::mutation_proto::ColumnValue {
                family: Bytes::from_static(b"f"),
                qualifier_value,
            }],
            ..Default::default()
        },
        ..Default::default()
    }
}
