//! The server's log, which never fails and never blocks the thread that logs.
//!
//! Standard error may be a file on a full disk, a closed pipe, or a pipe without a reader. A write
//! to the first two fails, and `eprintln!` then panics; a write to the last blocks forever. A
//! server thread must survive both. So lines go into a queue in memory, and a dedicated thread
//! writes the queue:
//!
//! ```text
//! any thread --(one short lock, one copy)--> queue of QUEUE_BYTES_MAX --> thread `log` --> stderr
//! ```
//!
//! **Lost lines.** A line is counted and dropped if the queue is full or its write fails. When a
//! write succeeds again, the log reports the number of missing lines, and the reason. While lines
//! are missing, the log retries every [`RETRY`].
//!
//! **The start screen comes first.** [`Log::hold`] keeps lines in the queue until [`Log::release`],
//! or until a limit has passed: a start that takes longer shows its progress.
//!
//! **The end of the process.** [`Log::drain`] waits until the queue is written, up to a limit.
//!
//! Panics use the same queue ([`Log::install_panic_hook`]): the standard library's hook would write
//! to standard error on the panicking thread, and could block it.
//!
//! | module | contents |
//! |---|---|
//! | [`format`] | the subscriber, and the form of lines |
//! | [`rolling_file`] | the log in a file |
//! | [`settings`] | the log's destination, format and levels |

pub mod format;
pub mod rolling_file;
pub mod settings;

use std::backtrace::BacktraceStatus;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_common::clock;
use evenkeel_common::thread;
use parking_lot::{Condvar, Mutex};

use self::rolling_file::RollingFile;
use self::settings::{Format, LogSettings};

/// The capacity of the queue in bytes.
const QUEUE_BYTES_MAX: usize = 1 << 20;
/// The interval of attempts to report missing lines.
const RETRY: Duration = Duration::from_secs(1);
/// The pause after a write that returned `WouldBlock`, as on a socket or terminal.
const BLOCKED_PAUSE: Duration = Duration::from_millis(20);

/// The log. Clones share the queue.
#[derive(Clone, Default)]
pub struct Log(Arc<Shared>);

#[derive(Default)]
struct Shared {
    format: Format,
    is_file: bool,
    state: Mutex<State>,
    /// Notified when there are lines to write.
    arrived: Condvar,
    /// Notified when all lines are written.
    written: Condvar,
}

#[derive(Default)]
struct State {
    lines: Vec<u8>,
    lost: LostLines,
    /// The thread is writing lines.
    is_writing: bool,
    /// Lines are held until then.
    held_until: Option<Instant>,
}

impl State {
    /// Returns the time until which lines are held, if they are.
    fn held(&mut self) -> Option<Instant> {
        let is_held = |until: &Instant| *until > clock::monotonic();
        let room = self.lines.len() <= QUEUE_BYTES_MAX / 2;
        self.held_until = self.held_until.filter(is_held).filter(|_| room);
        self.held_until
    }
}

/// The lines missing in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LostLines {
    lines: usize,
    /// The reason for the last of them.
    reason: String,
}

impl LostLines {
    fn add(&mut self, lines: usize, reason: impl FnOnce() -> String) {
        self.lines += lines;
        self.reason = reason();
    }

    /// The line that reports them; empty if there are none.
    fn line(&self, format: Format) -> String {
        match self.lines {
            0 => String::new(),
            lines => {
                let message = format!("{lines} lines of the log are missing here: {}", self.reason);
                format::warning(format, &message)
            }
        }
    }
}

impl Log {
    /// Starts the log according to the settings.
    ///
    /// # Errors
    /// If the file cannot be opened, or the thread cannot be started.
    pub fn open(settings: &LogSettings) -> io::Result<Self> {
        match settings.file.clone() {
            Some(file) => Self::start(RollingFile::open(file)?, settings.format, true),
            None => Self::start(io::stderr(), settings.format, false),
        }
    }

    /// Starts the thread that writes to `out`.
    fn start(out: impl Write + Send + 'static, format: Format, is_file: bool) -> io::Result<Self> {
        let log = Self(Arc::new(Shared { format, is_file, ..Shared::default() }));
        let (of_thread, out) = (log.clone(), Mutex::new(out));
        thread::spawn_restarted("log", move || of_thread.write_lines(&mut *out.lock()))?;
        Ok(log)
    }

    /// Returns true if the log goes to a file, so a terminal does not show it.
    pub fn is_file(&self) -> bool {
        self.0.is_file
    }

    /// Holds lines in the queue until [`Log::release`], up to `limit`, while they fill at most half
    /// of the queue.
    pub fn hold(&self, limit: Duration) {
        self.0.state.lock().held_until = Some(clock::monotonic() + limit);
    }

    /// Ends [`Log::hold`].
    pub fn release(&self) {
        self.0.state.lock().held_until = None;
        self.0.arrived.notify_one();
    }

    /// Appends complete lines. Never waits for the disk or a reader.
    pub fn append(&self, lines: &[u8]) {
        let mut state = self.0.state.lock();
        if state.lines.len() + lines.len() > QUEUE_BYTES_MAX {
            let reason = || "they came faster than standard error took them".to_owned();
            return state.lost.add(lines_in(lines), reason);
        }
        let was_empty = state.lines.is_empty();
        state.lines.extend_from_slice(lines);
        if was_empty || state.held_until.is_some() {
            self.0.arrived.notify_one();
        }
    }

    /// Waits until all lines so far are written or lost, up to `limit`. Returns true if they are.
    pub fn drain(&self, limit: Duration) -> bool {
        self.release();
        let deadline = clock::monotonic() + limit;
        let mut state = self.0.state.lock();
        while state.is_writing || !state.lines.is_empty() {
            if self.0.written.wait_until(&mut state, deadline).timed_out() {
                return false;
            }
        }
        true
    }

    /// Installs a panic hook that logs panics, with thread and location.
    pub fn install_panic_hook(&self) {
        std::panic::set_hook(Box::new(|panic| {
            let (own, place) = (std::thread::current(), panic.location().map(ToString::to_string));
            let name = own.name().unwrap_or("?");
            let reason = thread::message_of(panic.payload());
            // Empty unless `RUST_BACKTRACE` is set.
            let backtrace = std::backtrace::Backtrace::capture();
            match backtrace.status() {
                BacktraceStatus::Captured => {
                    tracing::error!(thread = name, place, reason, "panicked\n{backtrace}")
                }
                _ => tracing::error!(thread = name, place, reason, "panicked"),
            }
        }));
    }

    /// The loop of the thread.
    fn write_lines(&self, out: &mut dyn Write) {
        loop {
            let (lines, lost) = self.next();
            let mut text = lost.line(self.0.format).into_bytes();
            let lines_before = usize::from(!text.is_empty());
            text.extend_from_slice(&lines);
            let written = write_all(out, &text);
            let mut state = self.0.state.lock();
            state.is_writing = false;
            if let Err((written, error)) = written {
                let missing = lines_in(text.get(written..).unwrap_or_default()).min(lines_in(&lines));
                let was_reported = lines_before == 1 && written >= text.len() - lines.len();
                state.lost.add(missing + if was_reported { 0 } else { lost.lines }, || error.to_string());
            }
            if state.lines.is_empty() {
                self.0.written.notify_all();
            }
        }
    }

    /// Waits for lines, or for the time to report missing ones.
    fn next(&self) -> (Vec<u8>, LostLines) {
        let mut state = self.0.state.lock();
        loop {
            if let Some(until) = state.held() {
                self.0.arrived.wait_until(&mut state, until);
            } else if !state.lines.is_empty() {
                break;
            } else if state.lost.lines == 0 {
                self.0.arrived.wait(&mut state);
            } else if self.0.arrived.wait_for(&mut state, RETRY).timed_out() {
                break;
            }
        }
        state.is_writing = true;
        (std::mem::take(&mut state.lines), std::mem::take(&mut state.lost))
    }
}

/// The subscriber's writer of one event.
impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.append(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn lines_in(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte == b'\n').count()
}

/// Writes everything, or returns the bytes written and the error.
fn write_all(out: &mut dyn Write, text: &[u8]) -> Result<(), (usize, io::Error)> {
    let mut written = 0;
    while let Some(rest @ [_, ..]) = text.get(written..) {
        match out.write(rest) {
            Ok(0) => return Err((written, io::ErrorKind::WriteZero.into())),
            Ok(bytes) => written += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(BLOCKED_PAUSE),
            Err(error) => return Err((written, error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Writes up to a limit, then fails.
    #[derive(Clone, Default)]
    struct Disk {
        text: Arc<Mutex<Vec<u8>>>,
        room: Arc<Mutex<usize>>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut room = self.room.lock();
            let taken = bytes.len().min(*room);
            if taken == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            *room -= taken;
            self.text.lock().extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// A pipe without a reader: each write waits for a signal.
    struct Pipe(Receiver<()>, Sender<String>);

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.recv().map_err(io::Error::other)?;
            self.1.send(String::from_utf8_lossy(bytes).into_owned()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn wait_until(holds: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !holds() {
            assert!(Instant::now() < deadline, "in time");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn lines_lost_on_a_full_disk_are_counted_and_reported() {
        let disk = Disk::default();
        *disk.room.lock() = 8;
        let log = Log::start(disk.clone(), Format::Text, false).expect("a thread");
        log.append(b"first\n");
        assert!(log.drain(Duration::from_secs(20)));
        for line in ["torn\n", "none\n", "none\n"] {
            log.append(line.as_bytes());
            assert!(log.drain(Duration::from_secs(20)), "a refused line holds up nothing");
        }
        *disk.room.lock() = usize::MAX;
        let text = || String::from_utf8_lossy(&disk.text.lock()).into_owned();
        wait_until(|| text().contains("missing"));
        log.append(b"last\n");
        assert!(log.drain(Duration::from_secs(20)));
        let text = text();
        assert!(text.starts_with("first\nto"), "{text}");
        assert_eq!(
            text.matches("3 lines of the log are missing here: no storage space").count(),
            1,
            "{text}"
        );
        assert!(text.ends_with("\nlast\n"), "{text}");
    }

    #[test]
    fn a_blocked_reader_does_not_block_logging() {
        let ((read, gate), (tell, told)) = (channel(), channel());
        let log = Log::start(Pipe(gate, tell), Format::Text, false).expect("a thread");
        let line = [b"x".repeat(1023), b"\n".to_vec()].concat();
        let started = Instant::now();
        for _ in 0..3000 {
            log.append(&line);
        }
        assert!(!log.drain(Duration::from_millis(50)), "nothing is written");
        assert!(started.elapsed() < Duration::from_secs(10));
        assert!(log.0.state.lock().lines.capacity() <= 2 * QUEUE_BYTES_MAX);
        (0..8).for_each(|_| read.send(()).expect("the thread waits"));
        assert!(log.drain(Duration::from_secs(20)));
        wait_until(|| log.0.state.lock().lost.lines == 0);
        // Until their report is written, too.
        assert!(log.drain(Duration::from_secs(20)));
        drop(read);
        let text: String = told.try_iter().collect();
        // Lines can be lost before the thread takes its first lines, and again while it is blocked.
        let reports = text.lines().filter(|line| line.contains("missing"));
        let lost = |line: &str| line.split(' ').find_map(|word| word.parse::<usize>().ok());
        let lost: usize = reports.map(|line| lost(line).expect("a number")).sum();
        assert!(lost > 0, "it says so");
        assert_eq!(lost + text.matches(&"x".repeat(1023)).count(), 3000, "each line is written or counted");
    }

    #[test]
    fn lines_are_held_for_the_screen_within_a_limit() {
        let disk = Disk::default();
        *disk.room.lock() = usize::MAX;
        let log = Log::start(disk.clone(), Format::Text, false).expect("a thread");
        let text = || String::from_utf8_lossy(&disk.text.lock()).into_owned();
        // The thread waits for lines when the hold begins.
        std::thread::sleep(Duration::from_millis(50));
        log.hold(Duration::from_secs(3600));
        log.append(b"behind the screen\n");
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(text(), "");
        log.release();
        wait_until(|| text() == "behind the screen\n");
        log.hold(Duration::from_millis(10));
        log.append(b"in a long start\n");
        wait_until(|| text().ends_with("in a long start\n"));
        log.hold(Duration::from_secs(3600));
        let line = [b"x".repeat(1023), b"\n".to_vec()].concat();
        (0..600).for_each(|_| log.append(&line));
        wait_until(|| text().len() > 600 * 1024);
        log.hold(Duration::from_secs(3600));
        log.append(b"last\n");
        assert!(log.drain(Duration::from_secs(20)) && text().ends_with("last\n"), "the end is not held");
    }
}
