//! The share of the processors that a thread gets beside others, and how soon others get theirs.
//!
//! Two things decide how long a request waits for a core on which something runs in the background. The *nice value* is the
//! share: where both want the core all the time, a thread of 15 gets a thirtieth of what one of 0 gets. The *slice* is how
//! long a thread goes on once it runs: since 6.12 Linux takes a thread's own wish for it (`sched_setattr(2)`,
//! `sched_runtime`), and lets a thread that wakes go before a running one whose slice is longer, if it has had less than
//! its share. Without such a wish all slices are of 1 to 3 milliseconds and, since 6.6, mostly run to their end, so that three
//! threads of whatever share hold up a request by several of them. So background threads ask for longer slices than requests have:
//! they lose nothing by it, being interrupted more often and otherwise less.

#![allow(unsafe_code)]

use std::io;
use std::time::Duration;

/// By how much the nice value of threads for whose work somebody may wait is above the process's: a third of what a thread of
/// requests gets, where both want a processor.
pub const REDUCED_NICE: i32 = 5;

/// The same of threads for which nobody waits: three of them get a tenth of what a thread of requests gets, where all want a
/// processor, and all there is where nobody else does. Their priority at the disk follows (Linux: best effort, 7 where
/// others have 4), for schedulers that know priorities.
pub const BACKGROUND_NICE: i32 = 15;

/// The slice of background threads: above what Linux gives others (0.7 ms, times 2 for two processors, 4 for eight and more).
/// It is no longer than that, since a thread whose share is small waits for its turn in proportion.
const LONG_SLICE: Duration = Duration::from_millis(5);

/// The highest nice value that there is.
const NICE_MAX: i32 = 19;

/// The nice value that is so many above the process's own, which is that of its main thread: a server that was started with
/// `nice` keeps the shares among its threads, as far as there are values left.
pub fn nice_above_process(steps: i32) -> i32 {
    #[cfg(target_os = "linux")]
    // SAFETY: takes numbers alone; the main thread is there as long as the process.
    let own = unsafe { libc::getpriority(libc::PRIO_PROCESS, libc::getpid().unsigned_abs()) };
    #[cfg(not(target_os = "linux"))]
    let own = 0;
    (own + steps).min(NICE_MAX)
}

/// Lowers the priority of the calling thread to a nice value so many above the process's, unless it is as low, and has others
/// interrupt it when they wake. It cannot be raised again without a privilege. Where threads have no priority of their own,
/// nothing changes.
///
/// # Errors
/// What the system says when it takes no priority. That it knows no slices is none.
pub fn lower(steps: i32) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        let nice = nice_above_process(steps).max(own_nice());
        if set(nice).is_ok() && own_nice() == nice {
            return Ok(());
        }
        // Before slices were known; or of an idle thread, which has a nice value nonetheless.
        // SAFETY: takes numbers alone. Linux takes no process at all for the calling thread.
        let outcome = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
        if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
    // Elsewhere it would be that of the process.
    #[cfg(not(target_os = "linux"))]
    return Ok(drop(steps));
}

/// Keeps the share of the calling thread, and has others interrupt it when they wake. Where the system knows no slices
/// of threads, nothing changes.
pub fn allow_preemption() {
    #[cfg(target_os = "linux")]
    let _ = set(own_nice());
}

#[cfg(target_os = "linux")]
fn own_nice() -> i32 {
    // SAFETY: takes numbers alone; of the calling thread it always knows a nice value.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

#[cfg(target_os = "linux")]
fn set(nice: i32) -> io::Result<()> {
    /// `struct sched_attr` of `linux/sched/types.h`, as it was at first.
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime_ns: u64,
        deadline_ns: u64,
        period_ns: u64,
    }
    /// `SCHED_FLAG_KEEP_POLICY`: a server that was started as idle, or as a batch, stays so.
    const KEEP_POLICY: u64 = 8;
    let attributes = Attributes {
        size: crate::length::must_u32(size_of::<Attributes>()),
        policy: 0,
        flags: KEEP_POLICY,
        nice,
        priority: 0,
        runtime_ns: u64::from(LONG_SLICE.subsec_nanos()),
        deadline_ns: 0,
        period_ns: 0,
    };
    const THIS_THREAD: libc::c_long = 0;
    const NO_FLAGS: libc::c_long = 0;
    // SAFETY: the kernel reads `size` bytes of the structure, which has them, and keeps no pointer.
    let outcome =
        unsafe { libc::syscall(libc::SYS_sched_setattr, THIS_THREAD, &raw const attributes, NO_FLAGS) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// The nice value of this thread, and its slice where the system knows one. (An idle one has none of its own.)
    fn own() -> (i32, u64) {
        let mut attributes = [0_u64; 6];
        let (size, thread, flags) = (size_of_val(&attributes), 0_usize, 0_usize);
        // SAFETY: the kernel writes at most `size` bytes, which are there.
        let outcome =
            unsafe { libc::syscall(libc::SYS_sched_getattr, thread, attributes.as_mut_ptr(), size, flags) };
        assert_eq!(outcome, 0);
        let is_idle = attributes[0] >> 32 == libc::SCHED_IDLE as u64;
        (own_nice(), if is_idle { 0 } else { attributes[3] })
    }

    /// What one thread has before, with others let in, and when it yields.
    fn course() -> [(i32, u64); 3] {
        let course = || {
            let before = own();
            allow_preemption();
            let in_between = own();
            lower(1).expect("lower than before");
            assert_eq!(own_nice(), nice_above_process(1));
            lower(0).expect("nothing to do");
            [before, in_between, own()]
        };
        std::thread::spawn(course).join().expect("no panic")
    }

    #[test]
    fn a_thread_that_yields_has_a_smaller_share_and_the_others_keep_theirs() {
        let [before, let_in, yielding] = course();
        assert_eq!((let_in.0, yielding.0), (before.0, nice_above_process(1)));
        assert_eq!(before.0, nice_above_process(0), "threads have the process's");
        assert_eq!(own(), before, "of another thread");
    }

    #[test]
    fn slices_are_long_where_the_system_knows_them() {
        let [before, let_in, yielding] = course();
        // Before 6.12 Linux tells of none.
        let expected = if before.1 == 0 { 0 } else { LONG_SLICE.as_nanos() as u64 };
        assert_eq!([let_in.1, yielding.1], [expected; 2]);
    }
}
