//! How long a thread waits for its core when it wakes, beside three threads that never sleep: what
//! `evenkeel_common::priority` is for, measured on the kernel at hand.
//!
//! `cargo run --release -p evenkeel-common --example wakes [WORK_US]`: the thread sleeps a
//! millisecond, then works so long (700 µs), 3,000 times. All threads share the first core that
//! this process may use.

fn main() {
    let work = std::env::args().nth(1).map_or(Ok(700), |us| us.parse());
    match work {
        #[cfg(target_os = "linux")]
        Ok(us) => linux::measure(std::time::Duration::from_micros(us)),
        #[cfg(not(target_os = "linux"))]
        Ok(_) => println!("threads have priorities of their own on Linux alone"),
        Err(error) => println!("microseconds of work: {error}"),
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use evenkeel_common::priority::{self, BACKGROUND_NICE, REDUCED_NICE};

    const TIMES: usize = 3000;
    const SLEEP: Duration = Duration::from_millis(1);

    /// What the three threads are, and what makes them so.
    const OTHERS: [(&str, fn()); 5] = [
        ("as the thread", || {}),
        ("nice 5, the system's slices", || nice(REDUCED_NICE)),
        ("nice 15, the system's slices", || nice(BACKGROUND_NICE)),
        ("nice 5, long slices", || yielding(REDUCED_NICE)),
        ("nice 15, long slices", || yielding(BACKGROUND_NICE)),
    ];

    pub fn measure(work: Duration) {
        stay_on_one_core();
        println!("| three others | P50 µs | P90 | P99 | P99.9 | longest |\n|---|---|---|---|---|---|");
        for (name, become_so) in OTHERS {
            let waits = beside(become_so, || wakes(work));
            let at = |part: f64| waits[((waits.len() - 1) as f64 * part) as usize].as_micros();
            let [p50, p90, p99, p999, longest] = [0.5, 0.9, 0.99, 0.999, 1.0].map(at);
            println!("| {name} | {p50} | {p90} | {p99} | {p999} | {longest} |");
        }
    }

    /// What `measured` gives beside three busy threads.
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

    /// How much later than it should this thread ran each time, in order.
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

    /// The share alone, as before slices could be asked for.
    fn nice(nice: i32) {
        // SAFETY: takes numbers alone.
        assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) }, 0, "any thread may");
    }

    fn stay_on_one_core() {
        // SAFETY: the set is plain memory that the calls fill and read within its size.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &raw mut set), 0, "one's own set");
            let core = (0..libc::CPU_SETSIZE as usize).find(|core| libc::CPU_ISSET(*core, &set));
            libc::CPU_ZERO(&mut set);
            libc::CPU_SET(core.expect("a process has a core"), &mut set);
            assert_eq!(libc::sched_setaffinity(0, size_of_val(&set), &raw const set), 0, "a core of the set");
        }
    }
}
