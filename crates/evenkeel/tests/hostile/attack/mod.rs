//! Hostile clients: their attacks, the observation of the server, and the conditions that must
//! hold. [`Attack`] and [`AttackContext`] run an attack and judge it.
//!
//! | module | contents |
//! |---|---|
//! | `other_clients` | other clients: their latencies, and those of an echo at the same time |
//! | `connections` | attacks by connections and their states |
//! | `calls` | attacks by calls |
//! | `administration` | attacks by an administrator's calls, and bulk loads |
//! | `zookeeper` | attacks on the ZooKeeper endpoint |

pub mod administration;
pub mod calls;
pub mod connections;
pub mod other_clients;
pub mod zookeeper;

use std::any::Any;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_protocol::pb;

use self::other_clients::{OtherClients, OtherClientsReport};
use crate::common::{Server, raw};
use crate::requests::TableTarget;

/// Resources that clients hold when their attack ends, mainly connections.
pub type HeldResources = Box<dyn Any + Send>;

/// One line of the table.
pub struct Attack {
    /// Its name, which `EVENKEEL_HOSTILE_ONLY` selects by.
    pub name: &'static str,
    /// Attacks until [`AttackContext::runs`] returns false. Returns what is held while the server
    /// is inspected.
    pub run: fn(&AttackContext) -> HeldResources,
    /// The limit for growth of the server's resident memory, in MiB.
    pub grown_mib_max: u64,
    /// The limit for growth that remains when the clients are gone: memory retained by the
    /// allocator, and unflushed cells.
    pub left_mib_max: u64,
}

/// The table of attacks.
pub fn attacks() -> impl Iterator<Item = &'static Attack> {
    [connections::ATTACKS, calls::ATTACKS, administration::ATTACKS, zookeeper::ATTACKS].into_iter().flatten()
}

/// The sum of requests, replies and their buffers, scanners and the reserve of 256 MiB is 46 MiB.
const PARTS_MIB: u64 = 46;
/// Short-lived memory retained by the allocator, stacks, and blocks added to a cache.
const MARGIN_MIB: u64 = 26;
/// The server's memory without its program: the plan, and the margin. What earlier attacks left
/// counts, too.
const PLAN_MIB: u64 = 256 + MARGIN_MIB;
/// Freed memory that the allocator retains.
const LEFT_MIB: u64 = 40;
/// All MemStores, with the slack of their chunks.
const MEMSTORES_MIB: u64 = 104;

impl Attack {
    /// An attack that may use the memory of clients' calls.
    pub const fn new(name: &'static str, run: fn(&AttackContext) -> HeldResources) -> Self {
        let grown_mib_max = PARTS_MIB + MARGIN_MIB;
        Self { name, run, grown_mib_max, left_mib_max: LEFT_MIB }
    }

    /// An attack that writes: MemStores may fill.
    pub const fn that_writes(name: &'static str, run: fn(&AttackContext) -> HeldResources) -> Self {
        let grown_mib_max = PARTS_MIB + MARGIN_MIB + MEMSTORES_MIB;
        Self { name, run, grown_mib_max, left_mib_max: LEFT_MIB + MEMSTORES_MIB }
    }
}

/// The parameters of an attack: the server's ports, the regions, and its duration.
#[derive(Clone)]
pub struct AttackContext {
    pub regionserver: u16,
    pub master: u16,
    pub zookeeper: u16,
    /// The info ports of the RegionServer and the master.
    pub info_ports: [u16; 2],
    /// A table of small rows, `r0000` and so on, and four of 3 MB, `b0` and so on.
    pub read_region: pb::RegionSpecifier,
    /// The table of other clients.
    pub bystander_region: pb::RegionSpecifier,
    /// A table that administrators change.
    pub administered: TableTarget,
    /// A store file that can be loaded into its region.
    pub loadable: PathBuf,
    pub until: Instant,
    /// True if attacks have the size that a hostile client would choose.
    pub is_full_size: bool,
}

/// Bytes of a value of the small rows.
pub const SMALL_VALUE_BYTES: usize = 500;
pub const SMALL_ROWS: usize = 2000;
pub const BIG_ROWS: usize = 4;

impl AttackContext {
    /// The size of an attack: what an unoptimized build can process, or the full size.
    pub fn sized(&self, usual: usize, full: usize) -> usize {
        if self.is_full_size { full } else { usual }
    }

    /// Returns true while the attack continues.
    pub fn runs(&self) -> bool {
        Instant::now() < self.until
    }

    /// A connection that has sent no bytes. Its reads and writes time out soon.
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

    /// Keeps `count` connections from `open`, and calls `go_on` for each in turn until the attack
    /// ends. Replaces each connection that the server closed.
    pub fn keep(
        &self,
        count: usize,
        mut open: impl FnMut() -> Option<TcpStream>,
        mut go_on: impl FnMut(&mut TcpStream) -> bool,
    ) -> HeldResources {
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

/// Sends bytes until the connection's timeout. Returns true if all were sent.
pub fn push(stream: &mut TcpStream, bytes: &[u8]) -> bool {
    stream.write_all(bytes).is_ok()
}

/// Returns true if the server closed the connection. Received bytes stay unread.
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

/// Reads and discards the available bytes.
pub fn drain(stream: &mut TcpStream) {
    let _ = stream.set_nonblocking(true);
    let mut sink = vec![0; 1 << 20];
    while matches!(stream.read(&mut sink), Ok(1..)) {}
    let _ = stream.set_nonblocking(false);
}

/// The result of an attack.
pub struct Report {
    pub grown_mib: u64,
    pub total_mib: u64,
    pub left_mib: u64,
    pub descriptors: usize,
    pub other_clients: OtherClientsReport,
    /// The conditions that failed.
    pub faults: Vec<String>,
}

/// A row that other clients use.
pub fn bystander_row(n: usize) -> String {
    format!("row{:03}", n % 100)
}

/// The number of connections that may be left when the clients are gone, and the time limit.
const LEFT_DESCRIPTORS_MAX: usize = 8;
const GIVE_BACK: Duration = Duration::from_secs(8);

/// Runs an attack for `time` beside other clients.
pub fn run(attack: &Attack, server: &mut Server, context: &AttackContext, time: Duration) -> Report {
    let (rss_before, descriptors_before) = (server.resident_bytes(), server.descriptors());
    let other_clients = OtherClients::start(context);
    sleep(Duration::from_millis(100));
    let context = AttackContext { until: Instant::now() + time, ..context.clone() };
    let mut peak = (rss_before, descriptors_before);
    let mut anonymous = 0;
    let mut look = |server: &Server| {
        peak = (peak.0.max(server.resident_bytes()), peak.1.max(server.descriptors()));
        anonymous = server.anonymous_bytes().max(anonymous);
    };
    let held = std::thread::scope(|scope| {
        let hostile = scope.spawn(|| (attack.run)(&context));
        while !hostile.is_finished() {
            look(server);
            sleep(Duration::from_millis(5));
        }
        hostile.join().expect("an attack that ends")
    });
    look(server);
    let other_clients = other_clients.stop();
    let mut faults = other_clients.faults();
    faults.extend(serves_new_clients(&context).err());
    look(server);
    drop(held);
    let left = given_back(server, rss_before + (attack.left_mib_max << 20), descriptors_before, &mut faults);
    let mib = |bytes: u64| bytes.saturating_sub(rss_before) >> 20;
    if mib(peak.0) > attack.grown_mib_max {
        faults.push(format!("memory grew by {} MiB, {} allowed", mib(peak.0), attack.grown_mib_max));
    }
    let total_mib = anonymous >> 20;
    if total_mib > PLAN_MIB {
        faults.push(format!("the server takes {total_mib} MiB, {PLAN_MIB} allowed"));
    }
    if !server.runs() {
        faults.push("the server ended".to_owned());
    }
    Report {
        grown_mib: mib(peak.0),
        total_mib,
        left_mib: mib(left),
        descriptors: peak.1,
        other_clients,
        faults,
    }
}

/// Waits until the server has released the clients' resources; returns its resident bytes.
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

/// Checks that a new client is admitted, may write a small and a large value, and the log rolls.
fn serves_new_clients(context: &AttackContext) -> Result<(), String> {
    let put = |bytes: usize| {
        let value = pb::mutation_proto::column_value::QualifierValue {
            qualifier: Some(Bytes::from_static(b"large")),
            value: Some(Bytes::from(vec![1; bytes])),
            ..Default::default()
        };
        raw::call(1, "Mutate", &put_request(&context.bystander_region, "large", vec![value]))
    };
    retried("a small Put of a new client", context.regionserver, "ClientService", &put(10), 5)?;
    retried("a Put of 1 MiB of a new client", context.regionserver, "ClientService", &put(1 << 20), 5)?;
    let roll = raw::call(1, "RollWALWriter", &pb::RollWalWriterRequest {});
    retried("rolling the log", context.regionserver, "AdminService", &roll, 10)
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
    Ok(header.exception.map(|exception| {
        let trace = exception.stack_trace.unwrap_or_default();
        trace.lines().next().map_or(exception.exception_class_name.unwrap_or_default(), str::to_owned)
    }))
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
