//! Other clients: small Gets and Puts to a separate table while an attack runs.
//!
//! Each sends its next request shortly after the last reply, so a stall shows as one long wait.
//! The percentiles are weighted by time: every request that would have been sent during a stall
//! counts as waiting for the rest of it (correction of coordinated omission). So one stall of 300
//! ms in 1.5 s is a fifth of all waits, and shows in the 99th percentile, regardless of the number
//! of quick replies.
//!
//! An echo over loopback with a millisecond of work is timed in the same way. On a busy machine it
//! waits for processors as the server's threads do, and the limit for the other clients grows with
//! it: a Put passes through twice as many threads, with more work. If the echo takes some
//! milliseconds, as on an otherwise idle machine of two processors, a stall of 100 ms fails; if it
//! takes 100 ms, a stall of half a second does.
//!
//! A Put also waits for a write to the log's file, which the file system delays while it commits
//! the syncs of other files. So small writes to a file beside the server's are timed, too, and the
//! limit for Puts grows with them.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use bytes::Bytes;
use evenkeel_protocol::pb;

use super::{AttackContext, bystander_row, put_request};
use crate::common::raw;

/// The limit of the 99th percentile if the echo takes no time.
const WAIT_MAX: Duration = Duration::from_millis(50);
/// The pause between a reply and the next request.
const PAUSE: Duration = Duration::from_millis(3);
/// The work of the echo.
const WORK: Duration = Duration::from_millis(1);
/// The timeout of a reply; it is a failure.
const REPLY_MAX: Duration = Duration::from_secs(20);

type Waits = JoinHandle<Result<Vec<Duration>, String>>;

/// The running clients.
pub struct OtherClients {
    stop: Arc<AtomicBool>,
    gets: Vec<Waits>,
    puts: Vec<Waits>,
    echo: Waits,
    file_writes: Waits,
}

/// Their latencies: the 99th percentile and the maximum.
#[derive(Debug)]
pub struct OtherClientsReport {
    pub gets: (Duration, Duration),
    pub puts: (Duration, Duration),
    pub echo: (Duration, Duration),
    pub file_writes: (Duration, Duration),
    pub failed: Vec<String>,
}

impl OtherClients {
    /// Two clients of each kind: the server's connection threads take turns at new connections.
    pub fn start(context: &AttackContext) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let client = |request: fn(&AttackContext, u32) -> Vec<u8>| {
            let (context, stop) = (context.clone(), Arc::clone(&stop));
            let mut stream = raw::connect(context.regionserver);
            stream.set_read_timeout(Some(REPLY_MAX)).expect("set");
            stream.set_nodelay(true).expect("set");
            std::thread::spawn(move || {
                waits(&stop, |n| {
                    stream.write_all(&request(&context, n)).map_err(|e| e.to_string())?;
                    let (header, _) = raw::reply(&mut stream).map_err(|e| e.to_string())?;
                    let class = header.exception.map(|e| e.exception_class_name.unwrap_or_default());
                    class.map_or(Ok(()), Err)
                })
            })
        };
        let gets = vec![client(get), client(get)];
        let puts = vec![client(put), client(put)];
        Self { gets, puts, echo: echo(&stop), file_writes: file_writes(context, &stop), stop }
    }

    pub fn stop(self) -> OtherClientsReport {
        self.stop.store(true, Relaxed);
        let mut failed = Vec::new();
        let mut of = |kind: &str, clients: Vec<Waits>| {
            let mut all = Vec::new();
            for client in clients {
                match client.join().expect("a client") {
                    Ok(waits) => all.extend(waits),
                    Err(error) => failed.push(format!("{kind}: {error}")),
                }
            }
            longest(all)
        };
        let (gets, puts, echo) =
            (of("a Get", self.gets), of("a Put", self.puts), of("the echo", vec![self.echo]));
        let file_writes = of("a write to a file", vec![self.file_writes]);
        OtherClientsReport { gets, puts, echo, file_writes, failed }
    }
}

impl OtherClientsReport {
    /// The limits of the 99th percentiles of Gets and of Puts.
    fn waits_max(&self) -> [Duration; 2] {
        let gets = WAIT_MAX + 4 * self.echo.0;
        [gets, gets + 2 * self.file_writes.0]
    }

    pub fn faults(&self) -> Vec<String> {
        let mut faults = self.failed.clone();
        let kinds = [("Gets", self.gets), ("Puts", self.puts)];
        for ((kind, (p99, max)), limit) in kinds.into_iter().zip(self.waits_max()) {
            if p99 > limit {
                let (echo, file) = (self.echo.0, self.file_writes.0);
                faults.push(format!(
                    "{kind} of others: P99 {p99:?}, longest {max:?}; {limit:?} allowed (the echo {echo:?}, writes to a file {file:?})"
                ));
            }
        }
        faults
    }
}

fn get(context: &AttackContext, n: u32) -> Vec<u8> {
    let get = pb::Get { row: Bytes::from(bystander_row(n as usize)), ..Default::default() };
    raw::call(n, "Get", &pb::GetRequest { region: context.bystander_region.clone(), get })
}

fn put(context: &AttackContext, n: u32) -> Vec<u8> {
    let value = pb::mutation_proto::column_value::QualifierValue {
        qualifier: Some(Bytes::from_static(b"q")),
        value: Some(Bytes::from_static(b"value")),
        ..Default::default()
    };
    raw::call(n, "Mutate", &put_request(&context.bystander_region, &bystander_row(n as usize), vec![value]))
}

/// The time of each round until the end.
fn waits(
    stop: &AtomicBool,
    mut round: impl FnMut(u32) -> Result<(), String>,
) -> Result<Vec<Duration>, String> {
    let mut waits = Vec::new();
    for n in (0..).take_while(|_| !stop.load(Relaxed)) {
        let began = Instant::now();
        round(n)?;
        waits.push(began.elapsed());
        sleep(PAUSE);
    }
    Ok(waits)
}

fn echo(stop: &Arc<AtomicBool>) -> Waits {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut client = TcpStream::connect(listener.local_addr().expect("its address")).expect("connects");
    client.set_nodelay(true).expect("set");
    std::thread::spawn(move || {
        let (mut server, _) = listener.accept().expect("a connection");
        let rounds = rounds_of(WORK);
        let mut byte = [0; 1];
        while server.read_exact(&mut byte).is_ok() {
            work(rounds);
            if server.write_all(&byte).is_err() {
                break;
            }
        }
    });
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        waits(&stop, |_| {
            client.write_all(&[1]).map_err(|e| e.to_string())?;
            client.read_exact(&mut [0; 1]).map_err(|e| e.to_string())
        })
    })
}

/// Small writes to a file on the server's file system.
fn file_writes(context: &AttackContext, stop: &Arc<AtomicBool>) -> Waits {
    let folder = context.loadable.parent().expect("the folder of the file");
    let mut file = tempfile::tempfile_in(folder).expect("a file");
    let stop = Arc::clone(stop);
    std::thread::spawn(move || waits(&stop, |_| file.write_all(&[1; 100]).map_err(|e| e.to_string())))
}

/// Keeps a processor busy.
fn work(rounds: u64) {
    for round in 0..rounds {
        std::hint::black_box(round);
    }
}

/// The number of rounds of [`work`] that take this long on an otherwise idle processor: the minimum
/// time of several tries.
fn rounds_of(time: Duration) -> u64 {
    let tries = (0..20).map(|_| {
        let began = Instant::now();
        work(10_000);
        began.elapsed()
    });
    let shortest = tries.min().unwrap_or_default().max(Duration::from_nanos(1));
    u64::try_from(10_000 * time.as_nanos() / shortest.as_nanos()).unwrap_or(0)
}

/// The 99th percentile, corrected for the requests that stalls put off, and the maximum.
fn longest(replies: Vec<Duration>) -> (Duration, Duration) {
    let mut waits = Vec::new();
    for reply in replies {
        let mut rest = Some(reply);
        while let Some(wait) = rest {
            waits.push(wait);
            rest = wait.checked_sub(PAUSE).filter(|wait| *wait > PAUSE);
        }
    }
    waits.sort_unstable();
    let p99 = waits.get(waits.len() * 99 / 100).copied().unwrap_or_default();
    (p99, waits.last().copied().unwrap_or_default())
}

#[test]
fn one_stall_shows_among_many_fast_responses() {
    let mut replies = vec![Duration::from_micros(100); 500];
    assert!(longest(replies.clone()).0 < Duration::from_millis(1));
    replies.push(Duration::from_millis(300));
    assert!(longest(replies).0 > Duration::from_millis(250));
}
