//! [`Pacer`]: the arrival times of an open loop.
//!
//! Arrivals are scheduled at even or random gaps, independently of responses. The next free client
//! takes the next arrival; an arrival in the past is taken immediately, and its latency counts from
//! its due time. tokio's timer rounds to milliseconds, so waits use a `timerfd`, which is precise
//! to some tens of microseconds. Each load thread has one pacer.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use evenkeel_common::clock;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::net::unix::pipe;
use tokio::sync::{Notify, oneshot};

/// The arrivals of one load thread.
pub struct Pacer {
    next: Cell<Instant>,
    gap: Duration,
    poisson: bool,
    rng: RefCell<SmallRng>,
    waiting: RefCell<VecDeque<(Instant, oneshot::Sender<()>)>>,
    rescheduled: Notify,
    /// A timerfd as a `File`, which can be read without unsafe code.
    timer: pipe::Receiver,
}

impl Pacer {
    /// `rate` arrivals a second from `start`. Must be created, and [`Pacer::run`], on the thread's
    /// runtime.
    ///
    /// # Errors
    /// If the timer cannot be created.
    pub fn new(rate: f64, poisson: bool, start: Instant) -> io::Result<Rc<Self>> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Rc::new(Self {
            next: Cell::new(start),
            gap: Duration::from_secs_f64(1.0 / rate),
            poisson,
            rng: RefCell::new(SmallRng::from_os_rng()),
            waiting: RefCell::default(),
            rescheduled: Notify::new(),
            timer: pipe::Receiver::from_owned_fd_unchecked(timer)?,
        }))
    }

    /// Takes the next arrival and waits until it is due. Returns `None`, and takes no arrival, if
    /// it is due at `end` or later.
    pub async fn arrival(&self, end: Option<Instant>) -> Option<Instant> {
        let due = self.next.get();
        if end.is_some_and(|end| due >= end) {
            return None;
        }
        self.next.set(due + self.gap());
        if due > clock::monotonic() {
            let (wake, woken) = oneshot::channel();
            self.waiting.borrow_mut().push_back((due, wake));
            self.rescheduled.notify_one();
            let _ = woken.await;
        }
        Some(due)
    }

    /// Takes the remaining arrivals before a time; returns their due times.
    pub fn missed(&self, end: Instant) -> Vec<Instant> {
        let mut missed = Vec::new();
        while self.next.get() < end {
            let due = self.next.get();
            missed.push(due);
            self.next.set(due + self.gap());
        }
        missed
    }

    fn gap(&self) -> Duration {
        match self.poisson {
            false => self.gap,
            true => {
                let draw: f64 = self.rng.borrow_mut().random();
                self.gap.mul_f64(-(1.0 - draw).ln())
            }
        }
    }

    /// Wakes clients whose arrival is due, until the pacer is dropped.
    ///
    /// # Errors
    /// If the timer fails.
    pub async fn run(self: Rc<Self>) -> io::Result<()> {
        loop {
            let first = self.waiting.borrow().front().map(|(due, _)| *due);
            match first {
                None => self.rescheduled.notified().await,
                Some(due) => {
                    self.sleep_until(due).await?;
                    self.wake_due();
                }
            }
        }
    }

    async fn sleep_until(&self, due: Instant) -> io::Result<()> {
        let left = due.saturating_duration_since(clock::monotonic());
        if left.is_zero() {
            return Ok(());
        }
        let it_value = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let spec = Itimerspec { it_interval: zero, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec)?;
        loop {
            self.timer.readable().await?;
            match self.timer.try_read(&mut [0; 8]) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                read => return read.map(drop),
            }
        }
    }

    fn wake_due(&self) {
        let now = clock::monotonic();
        let mut waiting = self.waiting.borrow_mut();
        while waiting.front().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, wake)) = waiting.pop_front() {
                let _ = wake.send(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, future)
    }

    #[test]
    fn arrivals_keep_their_times_whatever_is_late() {
        block_on(async {
            let start = Instant::now();
            let pacer = Pacer::new(1000.0, false, start).expect("a timer");
            let timer = tokio::task::spawn_local(pacer.clone().run());
            for i in 0..50u32 {
                let due = pacer.arrival(None).await.expect("no end");
                assert_eq!(due, start + Duration::from_millis(1) * i);
                assert!(Instant::now() >= due);
                if i == 10 {
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            assert!(start.elapsed() < Duration::from_millis(500), "late arrivals are taken at once");
            let end = start + Duration::from_millis(100);
            let missed = pacer.missed(end);
            assert_eq!(missed.len(), 50);
            assert_eq!(pacer.arrival(Some(end)).await, None);
            timer.abort();
        });
    }

    #[test]
    fn random_arrivals_have_the_rate() {
        block_on(async {
            let start = Instant::now();
            let pacer = Pacer::new(1000.0, true, start).expect("a timer");
            let missed = pacer.missed(start + Duration::from_secs(100)).len();
            assert!((98_000..102_000).contains(&missed), "{missed}");
        });
    }
}
