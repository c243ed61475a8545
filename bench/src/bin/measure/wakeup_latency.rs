//! `wakeup_latency [WORK_US]`: the time that a woken thread waits for its core, beside three
//! threads that never sleep. Shows the effect of `evenkeel_common::priority` on this machine's
//! kernel.
//!
//! The thread sleeps a millisecond, then works for WORK_US (700 by default), 3,000 times. All
//! threads share the first core that this process may use.

use crate::{Outcome, number};

#[cfg(target_os = "linux")]
pub fn run(args: &[String]) -> Outcome {
    linux::measure(std::time::Duration::from_micros(number(args, 0, 700)?))
}

#[cfg(not(target_os = "linux"))]
pub fn run(args: &[String]) -> Outcome {
    number(args, 0, 700)?;
    Err("threads have priorities of their own on Linux only".into())
}

#[cfg(target_os = "linux")]
mod linux {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use evenkeel_common::priority::{self, BACKGROUND_NICE, REDUCED_NICE};
    use rustix::process::setpriority_process;
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    use crate::Outcome;

    const TIMES: usize = 3000;
    const SLEEP: Duration = Duration::from_millis(1);

    /// The priority of the three threads: its name, and how it is set.
    const OTHERS: [(&str, fn()); 5] = [
        ("as the thread", || {}),
        ("nice 5, the system's slices", || nice(REDUCED_NICE)),
        ("nice 15, the system's slices", || nice(BACKGROUND_NICE)),
        ("nice 5, long slices", || yielding(REDUCED_NICE)),
        ("nice 15, long slices", || yielding(BACKGROUND_NICE)),
    ];

    pub fn measure(work: Duration) -> Outcome {
        stay_on_one_core()?;
        println!("| three others | P50 µs | P90 | P99 | P99.9 | longest |\n|---|---|---|---|---|---|");
        for (name, become_so) in OTHERS {
            let waits = beside(become_so, || wakes(work));
            let at = |part: f64| waits[((waits.len() - 1) as f64 * part) as usize].as_micros();
            let [p50, p90, p99, p999, longest] = [0.5, 0.9, 0.99, 0.999, 1.0].map(at);
            println!("| {name} | {p50} | {p90} | {p99} | {p999} | {longest} |");
        }
        Ok(())
    }

    /// Runs `measured` beside three busy threads.
    fn beside<T>(become_so: fn(), measured: impl FnOnce() -> T) -> T {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    become_so();
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let outcome = measured();
            stop.store(true, Ordering::Relaxed);
            outcome
        })
    }

    /// The delays of this thread's wake-ups, sorted.
    fn wakes(work: Duration) -> Vec<Duration> {
        let mut waits: Vec<_> = (0..TIMES)
            .map(|_| {
                let due = Instant::now() + SLEEP;
                std::thread::sleep(SLEEP);
                let woke = Instant::now();
                while woke.elapsed() < work {}
                woke.saturating_duration_since(due)
            })
            .collect();
        waits.sort_unstable();
        waits
    }

    fn yielding(nice: i32) {
        priority::lower(nice).expect("any thread may");
    }

    /// The nice value alone, with the slices of the system.
    fn nice(nice: i32) {
        setpriority_process(None, nice).expect("any thread may raise its nice value");
    }

    fn stay_on_one_core() -> Outcome {
        let allowed = sched_getaffinity(None)?;
        let mut one = CpuSet::new();
        let first = (0..CpuSet::MAX_CPU).find(|core| allowed.is_set(*core));
        one.set(first.ok_or("this process may use no core")?);
        Ok(sched_setaffinity(None, &one)?)
    }
}
