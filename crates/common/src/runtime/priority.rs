//! Thread priorities: the share of the processors that a thread gets, and how soon it is preempted.
//!
//! Two parameters decide how long a request waits for a core on which background work runs. The
//! *nice value* sets the share: if both threads always want the core, one of nice 15 gets a
//! thirtieth of the time of one of nice 0. The *slice* sets how long a thread runs before it is
//! rescheduled. Since 6.12, Linux lets a thread choose its slice (`sched_setattr(2)`,
//! `sched_runtime`), and a waking thread preempts a running one whose slice is longer, if the
//! waking one has had less than its share. By default all slices are 1 to 3 milliseconds and, since
//! 6.6, mostly run to their end, so that three threads of any share delay a request by several
//! slices. Background threads therefore choose longer slices than those of requests. They lose
//! nothing by it: they are preempted when a request wakes, and less often otherwise.
//!
//! A thread of low priority must not hold a lock that requests need for longer than microseconds.
//! If it is preempted meanwhile, it keeps the lock until its share gives it the processor again,
//! which takes seconds on a machine with many busy threads. This includes the locks of the
//! allocator: trimming the heap is no work for such a thread.

#![allow(unsafe_code)]

use std::io;
use std::time::Duration;

/// Nice steps above the process, for background threads whose result a request may wait for. Such a
/// thread gets a third of the share of a request thread.
pub const REDUCED_NICE: i32 = 5;

/// Nice steps above the process, for background threads whose result no request waits for. Three of
/// them together get a tenth of the share of a request thread, and all idle processor time. Their
/// I/O priority follows (Linux: best effort, 7 instead of 4), for I/O schedulers that have
/// priorities.
pub const BACKGROUND_NICE: i32 = 15;

/// The slice of background threads: longer than Linux's default (0.7 ms, times 2 for two
/// processors, 4 for eight and more). It is not longer than needed, because a thread of a small
/// share waits in proportion to its slice.
const LONG_SLICE: Duration = Duration::from_millis(5);

/// The highest nice value of the system.
const NICE_MAX: i32 = 19;

/// The nice value `steps` above that of the process, which is that of its main thread. A server
/// started with `nice` keeps the shares among its threads, as far as the range of nice values
/// allows.
pub fn nice_above_process(steps: i32) -> i32 {
    #[cfg(target_os = "linux")]
    // SAFETY: the calls take only numbers; the main thread exists as long as the process.
    let own = unsafe { libc::getpriority(libc::PRIO_PROCESS, libc::getpid().unsigned_abs()) };
    #[cfg(not(target_os = "linux"))]
    let own = 0;
    (own + steps).min(NICE_MAX)
}

/// Lowers the priority of the calling thread to `steps` above the process's nice value, unless it
/// is as low already, and lets waking threads preempt it. Raising it again needs a privilege. Does
/// nothing on systems other than Linux.
///
/// # Errors
/// The error of `setpriority(2)`. A kernel that does not support slices is not an error.
pub fn lower(steps: i32) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        let nice = nice_above_process(steps).max(own_nice());
        if set(nice).is_ok() && own_nice() == nice {
            return Ok(());
        }
        // Kernels without slices, and threads of the idle policy, which have a nice value
        // nonetheless. SAFETY: the call takes only numbers. Linux takes process 0 for the calling
        // thread.
        let outcome = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
        if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
    // On other systems the call would change the whole process.
    #[cfg(not(target_os = "linux"))]
    return Ok(drop(steps));
}

/// Lets waking threads preempt the calling thread, which keeps its share. Does nothing where the
/// system does not support slices.
pub fn allow_preemption() {
    #[cfg(target_os = "linux")]
    let _ = set(own_nice());
}

#[cfg(target_os = "linux")]
fn own_nice() -> i32 {
    // SAFETY: the call takes only numbers; it cannot fail for the calling thread.
    unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
}

#[cfg(target_os = "linux")]
fn set(nice: i32) -> io::Result<()> {
    /// `struct sched_attr` of `linux/sched/types.h`, in its first version.
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
    /// `SCHED_FLAG_KEEP_POLICY`: a server started with the idle or batch policy keeps it.
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
    // SAFETY: the kernel reads `size` bytes, the size of the structure, and keeps no pointer.
    let outcome =
        unsafe { libc::syscall(libc::SYS_sched_setattr, THIS_THREAD, &raw const attributes, NO_FLAGS) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// The nice value of this thread, and its slice where the system has one. (A thread of the idle
    /// policy has none.)
    fn own() -> (i32, u64) {
        let mut attributes = [0_u64; 6];
        let (size, thread, flags) = (size_of_val(&attributes), 0_usize, 0_usize);
        // SAFETY: the kernel writes at most `size` bytes, the size of the array.
        let outcome =
            unsafe { libc::syscall(libc::SYS_sched_getattr, thread, attributes.as_mut_ptr(), size, flags) };
        assert_eq!(outcome, 0);
        let is_idle = attributes[0] >> 32 == libc::SCHED_IDLE as u64;
        (own_nice(), if is_idle { 0 } else { attributes[3] })
    }

    /// Nice value and slice of one thread: at first, with preemption allowed, and with a lower
    /// priority.
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
    fn yielding_lowers_the_priority_of_one_thread_only() {
        let [before, let_in, yielding] = course();
        assert_eq!((let_in.0, yielding.0), (before.0, nice_above_process(1)));
        assert_eq!(before.0, nice_above_process(0), "threads have the process's");
        assert_eq!(own(), before, "of another thread");
    }

    #[test]
    fn yielding_threads_get_long_slices_where_supported() {
        let [before, let_in, yielding] = course();
        // Linux reports no slice before 6.12.
        let expected = if before.1 == 0 { 0 } else { LONG_SLICE.as_nanos() as u64 };
        assert_eq!([let_in.1, yielding.1], [expected; 2]);
    }
}
