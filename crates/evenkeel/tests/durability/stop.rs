//! Faults that must never leave a half-dead server: a log that cannot be written, a thread that
//! dies, a thread that hangs during a stop. The server continues, or it reports the fault and ends.

use std::fs::File;
use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use evenkeel_client::{Get, Put, Table};
use evenkeel_common::{ColumnFamilyDescriptor, TableDescriptor, TableName};

use crate::common::{Server, TIMEOUT, block_on};

/// The exit status of an interrupted stop.
const EXIT_INTERRUPTED: Option<i32> = Some(3);
/// The time limit of a stop without a hang, on a busy machine.
const SOON: Duration = Duration::from_secs(20);

async fn create(server: &Server, name: &str) -> Table {
    let connection = server.connect().await;
    let name: TableName = name.parse().expect("legal");
    let family = ColumnFamilyDescriptor::new(b"f").expect("legal");
    let table = TableDescriptor::new(name.clone()).with_family(family);
    connection.admin().create_table(&table, &[]).await.expect("created");
    connection.table(name)
}

async fn flush(server: &Server, name: &str) {
    let name = name.parse().expect("legal");
    server.connect().await.admin().flush_table(&name).await.expect("flushed");
}

/// Rows of 2 KiB.
async fn put(table: &Table, rows: std::ops::Range<usize>) {
    let value = "v".repeat(2048);
    let puts = rows.map(|row| Put::new(format!("{row:05}")).column("f", "q", value.clone()));
    table.put_all(puts).await.expect("written");
}

async fn assert_rows(table: &Table, rows: usize) {
    for row in 0..rows {
        let result = table.get(Get::new(format!("{row:05}"))).await.expect("a result");
        assert!(result.value("f", "q").is_some_and(|value| value.len() == 2048), "row {row}");
    }
}

/// Puts, flushes and DDL on a disk with a file size limit of 256 KiB: the log fails and continues
/// in new files, and reports it.
fn use_it(server: &Server) {
    block_on(async {
        for name in ["a", "b", "c"] {
            let table = create(server, name).await;
            for at in 0..6 {
                put(&table, 10 * at..10 * at + 10).await;
            }
            flush(server, name).await;
            assert_rows(&table, 60).await;
        }
        let connection = server.connect().await;
        connection.admin().disable_table(&"c".parse().expect("legal")).await.expect("disabled");
        connection.admin().delete_table(&"c".parse().expect("legal")).await.expect("deleted");
    });
}

fn works_and_ends(server: &mut Server) {
    use_it(server);
    let started = Instant::now();
    let status = server.terminate();
    assert!(status.success() && started.elapsed() < SOON, "{status} after {:?}", started.elapsed());
    server.start();
    block_on(async {
        let connection = server.connect().await;
        assert_rows(&connection.table("a".parse().expect("legal")), 60).await;
    });
}

#[test]
fn a_log_on_a_full_disk_fails_nothing() {
    let mut server = Server::new(&[]);
    let full = || File::options().write(true).open("/dev/full").expect("Linux has one");
    server.start_limited_onto(256, full(), full());
    works_and_ends(&mut server);
}

#[test]
fn a_log_that_is_a_closed_pipe_fails_nothing() {
    let mut server = Server::new(&[]);
    let ((_, out), (_, err)) = (std::io::pipe().expect("a pipe"), std::io::pipe().expect("a pipe"));
    server.start_limited_onto(256, out, err);
    works_and_ends(&mut server);
}

#[test]
fn an_unread_log_pipe_does_not_block_the_server() {
    let mut server = Server::new(&[]);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    let (mut filler, written) = (writer.try_clone().expect("a pipe"), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&written);
    // Ends when the reader is gone.
    let fill = std::thread::spawn(move || {
        while filler.write_all(&[b'x'; 4096]).is_ok() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let mut before = usize::MAX;
    while before != written.load(Ordering::Relaxed) {
        before = written.load(Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(200));
    }
    let out: Stdio = writer.try_clone().expect("a pipe").into();
    server.start_limited_onto(256, out, writer);
    works_and_ends(&mut server);
    drop(reader);
    fill.join().expect("it ends");
}

/// Threads whose death ends the server: one of each kind.
#[cfg(debug_assertions)]
const ESSENTIAL: [&str; 25] = [
    "wal",
    "wal-watch",
    "wal-archiver",
    "flush-0",
    "flush-in-memory-0",
    "compact-small-0",
    "compact-large-0",
    "write-throttle",
    "chore",
    "master-chore",
    "assignment",
    "procedure-0",
    "zookeeper",
    "rpc-accept",
    "rpc-conn-0",
    "general-0",
    "priority-0",
    "scan-0",
    "write-0",
    "long-write-0",
    "admin-0",
    "decode-0",
    "info",
    "start",
    "signals",
];

#[cfg(debug_assertions)]
#[test]
fn losing_an_essential_thread_ends_the_server() {
    let dies = |name: &str| {
        let mut server = Server::new(&[]);
        server.spawn_with("EVENKEEL_TEST_PANIC", name);
        let status = server.exit();
        let log = server.log();
        assert_eq!(status.code(), Some(1), "{name}: {status}\n{log}");
        let said = format!("thread {name} failed: it panicked: EVENKEEL_TEST_PANIC names this thread");
        let last = log.lines().last().unwrap_or_default();
        assert!(last.starts_with("evenkeel: ") && last.contains(&said), "{name}: {log}");
    };
    for names in ESSENTIAL.chunks(4) {
        std::thread::scope(|scope| names.iter().for_each(|name| drop(scope.spawn(|| dies(name)))));
    }
}

#[cfg(debug_assertions)]
#[test]
fn a_restartable_thread_restarts() {
    for name in ["log", "chunks"] {
        let mut server = Server::new(&[]);
        server.spawn_with("EVENKEEL_TEST_PANIC", name);
        block_on(async {
            let table = create(&server, "t").await;
            put(&table, 0..10).await;
            assert_rows(&table, 10).await;
        });
        // The thread restarts a second after it died, which is later than a stop waits for the log.
        let deadline = Instant::now() + TIMEOUT;
        while server.log().is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        let status = server.terminate();
        assert!(status.success(), "{name}: {status}");
        let log = server.log();
        assert!(log.contains("stop requested"), "the log goes on: {log}");
        // The log's thread dies before there is a log for the message.
        assert!(name == "log" || log.contains("it is restarted"), "{name}: {log}");
    }
}

#[cfg(debug_assertions)]
#[test]
fn a_stop_that_panics_ends() {
    let mut server = Server::new(&[]);
    server.spawn_with("EVENKEEL_TEST_PANIC", "stop");
    while !server.screen().contains("kill") {
        assert!(server.runs());
        std::thread::sleep(Duration::from_millis(10));
    }
    let status = server.terminate();
    assert_eq!(status.code(), Some(1), "{status}");
    assert!(server.log().contains("thread stop failed: it panicked"), "{}", server.log());
}

/// Stops a thread of another process permanently, like a thread in a system call that never
/// returns.
#[cfg(target_os = "linux")]
mod frozen {
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    use super::SOON;

    /// Freezes the thread of this name while it waits for work, until its process is gone. A thread
    /// that is frozen at work may hold up other threads, and the stop hangs at their step.
    pub fn freeze(pid: u32, name: &str) {
        let tid = tid_of(pid, name);
        wait_until_idle(pid, tid);
        let (tell, told) = channel();
        // The kernel resumes the thread when the one that froze it ends.
        std::thread::spawn(move || {
            let null = std::ptr::null_mut::<libc::c_void>();
            // SAFETY: the arguments are only numbers; the thread belongs to a child of this
            // process.
            let done = unsafe {
                libc::ptrace(libc::PTRACE_SEIZE, tid, null, null) == 0
                    && libc::ptrace(libc::PTRACE_INTERRUPT, tid, null, null) == 0
            };
            let mut status = 0;
            // SAFETY: `status` outlives the call.
            let mut wait = || unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL) };
            let is_stopped = done && wait() == tid;
            tell.send(is_stopped).expect("the test waits");
            // Until the process has ended: this reaps the thread.
            while wait() == tid {}
        });
        assert!(told.recv().expect("a reply"), "{name} is not frozen: {}", std::io::Error::last_os_error());
    }

    /// Waits until the thread sleeps at five looks in a row.
    fn wait_until_idle(pid: u32, tid: libc::pid_t) {
        let stat = format!("/proc/{pid}/task/{tid}/stat");
        let deadline = Instant::now() + SOON;
        let mut asleep = 0;
        while asleep < 5 {
            assert!(Instant::now() < deadline, "thread {tid} is busy");
            std::thread::sleep(Duration::from_millis(5));
            let stat = std::fs::read_to_string(&stat).expect("a thread");
            // The state follows the name, which is in parentheses.
            let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
            asleep = if state == Some('S') { asleep + 1 } else { 0 };
        }
    }

    fn tid_of(pid: u32, name: &str) -> libc::pid_t {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
        let is_named = |path: &std::path::PathBuf| {
            std::fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
        };
        let task = tasks.flatten().map(|task| task.path()).find(is_named).expect("a thread of this name");
        task.file_name().and_then(|tid| tid.to_str()?.parse().ok()).expect("a number")
    }
}

/// A server with an acknowledged row, and one frozen thread.
#[cfg(target_os = "linux")]
fn with_frozen(thread: &str, shutdown_ms: &str) -> Server {
    let server = Server::started(&[("evenkeel.shutdown.timeout.ms", shutdown_ms)]);
    block_on(async { put(&create(&server, "t").await, 0..1).await });
    frozen::freeze(server.pid(), thread);
    server
}

#[cfg(target_os = "linux")]
fn assert_unfinished(mut server: Server, thread: &str, why: &str, step: &str) {
    let status = server.exit();
    let log = server.log();
    assert_eq!(status.code(), EXIT_INTERRUPTED, "{thread}: {status}\n{log}");
    let last = log.lines().last().unwrap_or_default();
    let is_told = [why, step, "the next start replays the log"].iter().all(|words| last.contains(words));
    assert!(last.starts_with("evenkeel: stopped unfinished, after ") && is_told, "{thread}: {log}");
    server.start();
    block_on(async {
        assert_rows(&server.connect().await.table("t".parse().expect("legal")), 1).await;
    });
    assert!(server.terminate().success(), "{thread}");
}

#[cfg(target_os = "linux")]
#[test]
fn sigterm_ends_a_server_with_a_thread_that_hangs() {
    const THREADS: [(&str, &str); 8] = [
        ("wal", "the write-ahead logs"),
        ("flush-0", "flushes and compactions"),
        ("compact-small-0", "flushes and compactions"),
        ("procedure-0", "the master's procedures"),
        ("rpc-conn-0", "calls on connections' threads"),
        ("general-0", "calls on handlers' threads"),
        ("master-chore", "chores"),
        ("zookeeper", "the ZooKeeper endpoint"),
    ];
    let ends = |thread: &str, step: &str| {
        let server = with_frozen(thread, "3000");
        let started = Instant::now();
        server.signal("TERM");
        assert_unfinished(server, thread, "the stop took 3000 ms", step);
        assert!(started.elapsed() < 2 * SOON, "{thread}: {:?}", started.elapsed());
    };
    for threads in THREADS.chunks(4) {
        std::thread::scope(|scope| {
            threads.iter().for_each(|(thread, step)| drop(scope.spawn(|| ends(thread, step))));
        });
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_second_signal_ends_at_once() {
    for signal in ["TERM", "INT"] {
        let mut server = with_frozen("flush-0", "3600000");
        server.signal(signal);
        std::thread::sleep(Duration::from_secs(1));
        assert!(server.runs(), "one signal waits for the flush");
        let ready = server.page("/ready").expect("a response until the end");
        assert_eq!(ready, (503, "stopping: flushes and compactions\n".to_owned()));
        let started = Instant::now();
        server.signal(signal);
        assert_unfinished(server, "flush-0", &format!("a second signal, SIG{signal}"), "flushes");
        assert!(started.elapsed() < SOON, "{:?}", started.elapsed());
    }
}

#[test]
fn a_signal_ends_a_start() {
    let mut server = Server::new(&[]);
    for ms in [5, 50, 100, 200, 400] {
        server.spawn_with("EVENKEEL_LOG", "info");
        std::thread::sleep(Duration::from_millis(ms));
        let status = server.terminate();
        let log = server.log();
        assert!(
            status.code().is_none_or(|code| code == 0 || Some(code) == EXIT_INTERRUPTED),
            "{status}\n{log}"
        );
    }
    server.start();
    block_on(async { put(&create(&server, "t").await, 0..1).await });
    assert!(server.terminate().success());
}
