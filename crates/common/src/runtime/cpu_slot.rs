//! Cooperative scheduling of long computations among themselves.
//!
//! If more threads than cores compute for milliseconds each, the kernel interleaves them without
//! regard to calls: some wait for a tenth of a second while later ones are served. So an executor
//! has a bounded number of *CPU slots* for such threads, and assigns them in order of arrival
//! ([`CpuSlot`]; the executor of `rpc` does so for scans, and for writes that wait). The work marks
//! where it can give up its slot:
//!
//! * [`yield_if_due`] where it holds no lock: even a lock that others wait for without a slot would
//!   be wrong, because they could be all threads, and none would be left to take the slot over;
//! * [`release_during`] around a wait for a disk or for another thread;
//! * [`release_and_requeue`] around a wait that may end for many threads at the same time.
//!
//! On a thread without a slot these functions only run the work.

use std::cell::RefCell;
use std::rc::Rc;

/// The CPU slot of a thread.
pub trait CpuSlot {
    /// If the time slice is over, yields to waiting threads and returns with a new slot. The caller
    /// holds no lock.
    fn yield_if_due(&self);
    /// The work begins to wait: another thread may have its slot.
    fn release(&self);
    /// The wait has ended, and the work continues immediately, beyond the bound if necessary: it
    /// may hold a lock that the other threads wait for.
    fn reacquire_now(&self);
    /// The wait has ended, and the work continues with a new slot, or without one after a bounded
    /// wait.
    fn requeue(&self);
}

thread_local! {
    static SLOT: RefCell<Option<Rc<dyn CpuSlot>>> = const { RefCell::new(None) };
}

/// Sets this thread's slot.
pub fn install(slot: Rc<dyn CpuSlot>) {
    SLOT.set(Some(slot));
}

/// Yields to threads that wait for a slot, if this thread's time slice is over. This may take long,
/// so the caller holds no lock, except one that others wait for without a slot, such as a row lock.
/// Cheap if no thread waits.
#[inline]
pub fn yield_if_due() {
    SLOT.with_borrow(|slot| {
        if let Some(slot) = slot {
            slot.yield_if_due();
        }
    });
}

/// Runs `wait`, which waits for a disk or for another thread; meanwhile another thread may have
/// this thread's slot.
pub fn release_during<T>(wait: impl FnOnce() -> T) -> T {
    release_until(wait, |slot| slot.reacquire_now())
}

/// As [`release_during`], for a wait that ends for many threads at once, such as one for a row
/// lock: they continue one at a time, as slots become free. Locks that the work holds are held for
/// longer, by a bounded time.
pub fn release_and_requeue<T>(wait: impl FnOnce() -> T) -> T {
    release_until(wait, |slot| slot.requeue())
}

/// Within `wait` the thread has no slot: a wait inside another one releases nothing.
fn release_until<T>(wait: impl FnOnce() -> T, reacquire: fn(&dyn CpuSlot)) -> T {
    /// Takes the slot again even if the wait panics.
    struct Released(Option<Rc<dyn CpuSlot>>, fn(&dyn CpuSlot));
    impl Drop for Released {
        fn drop(&mut self) {
            if let Some(slot) = self.0.take() {
                self.1(&*slot);
                SLOT.set(Some(slot));
            }
        }
    }
    let Some(slot) = SLOT.take() else { return wait() };
    slot.release();
    let _released = Released(Some(slot), reacquire);
    wait()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Noted(RefCell<Vec<&'static str>>);

    impl CpuSlot for Noted {
        fn yield_if_due(&self) {
            self.0.borrow_mut().push("yield");
        }
        fn release(&self) {
            self.0.borrow_mut().push("release");
        }
        fn reacquire_now(&self) {
            self.0.borrow_mut().push("reacquire");
        }
        fn requeue(&self) {
            self.0.borrow_mut().push("requeue");
        }
    }

    #[test]
    fn waits_release_the_slot_and_a_panic_reacquires_it() {
        yield_if_due();
        assert_eq!(release_during(|| 1), 1);
        let noted = Rc::new(Noted::default());
        install(noted.clone());
        yield_if_due();
        assert_eq!(release_during(|| 2), 2);
        assert_eq!(release_and_requeue(|| 3), 3);
        let unwound = std::panic::catch_unwind(|| release_during(|| std::panic::resume_unwind(Box::new(()))));
        assert!(unwound.is_err());
        let said = noted.0.take();
        assert_eq!(said, ["yield", "release", "reacquire", "release", "requeue", "release", "reacquire"]);
    }

    #[test]
    fn a_wait_inside_another_releases_nothing() {
        let noted = Rc::new(Noted::default());
        install(noted.clone());
        let outcome = release_during(|| {
            yield_if_due();
            release_during(|| 1) + release_and_requeue(|| 2)
        });
        assert_eq!((outcome, noted.0.take()), (3, vec!["release", "reacquire"]));
        yield_if_due();
        assert_eq!(noted.0.take(), ["yield"], "the slot is there again");
    }
}
