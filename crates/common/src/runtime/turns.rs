//! Cooperative scheduling of long computations among themselves.
//!
//! If more threads than cores compute for milliseconds each, the kernel interleaves them without
//! regard to calls: some wait for a tenth of a second while later ones are served. So an executor
//! lets a bounded number of such threads compute at a time, in order of arrival: each has a *turn*
//! ([`Turns`]; the executor of `rpc` does so for scans, and for writes that wait). The work marks
//! where it can give up its turn:
//!
//! * [`pass`] where it holds no lock, except one that others wait for in a lent turn;
//! * [`lend`] around a wait for a disk or for another thread;
//! * [`lend_and_line_up`] around a wait that may end for many threads at the same time.
//!
//! On a thread without a turn these functions only run the work.

use std::cell::RefCell;
use std::rc::Rc;

/// The scheduler of this thread's turns.
pub trait Turns {
    /// Yields to waiting threads if the turn was long enough, and returns in a new turn. The caller
    /// holds no lock, except those that others wait for in lent turns.
    fn pass(&self);
    /// The work begins to wait: another thread may have its turn.
    fn lend(&self);
    /// The wait has ended, and the work continues immediately, beyond the bound if necessary: it
    /// may hold a lock that the other threads wait for.
    fn take_back(&self);
    /// The wait has ended, and the work continues in a new turn, or without one after a bounded
    /// wait.
    fn line_up(&self);
}

thread_local! {
    static TURNS: RefCell<Option<Rc<dyn Turns>>> = const { RefCell::new(None) };
}

/// Sets the scheduler of this thread's turns.
pub fn give(turns: Rc<dyn Turns>) {
    TURNS.set(Some(turns));
}

/// Yields to threads that wait for a turn, if this turn was long. This may take long, so the caller
/// holds no lock, except one that others wait for in a lent turn, such as a row lock. Cheap if no
/// thread waits.
#[inline]
pub fn pass() {
    TURNS.with_borrow(|turns| {
        if let Some(turns) = turns {
            turns.pass();
        }
    });
}

/// Runs `wait`, which waits for a disk or for another thread; meanwhile another thread may have
/// this thread's turn.
pub fn lend<T>(wait: impl FnOnce() -> T) -> T {
    lend_until(wait, |turns| turns.take_back())
}

/// As [`lend`], for a wait that ends for many threads at once, such as one for a row lock: they
/// continue one at a time, as turns become free. Locks that the work holds are held for longer, by
/// a bounded time.
pub fn lend_and_line_up<T>(wait: impl FnOnce() -> T) -> T {
    lend_until(wait, |turns| turns.line_up())
}

/// Within `wait` the thread has no turn: a wait inside another one lends nothing.
fn lend_until<T>(wait: impl FnOnce() -> T, take_back: fn(&dyn Turns)) -> T {
    /// Takes the turn back even if the wait panics.
    struct Lent(Option<Rc<dyn Turns>>, fn(&dyn Turns));
    impl Drop for Lent {
        fn drop(&mut self) {
            if let Some(turns) = self.0.take() {
                self.1(&*turns);
                TURNS.set(Some(turns));
            }
        }
    }
    let Some(turns) = TURNS.take() else { return wait() };
    turns.lend();
    let _lent = Lent(Some(turns), take_back);
    wait()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Noted(RefCell<Vec<&'static str>>);

    impl Turns for Noted {
        fn pass(&self) {
            self.0.borrow_mut().push("pass");
        }
        fn lend(&self) {
            self.0.borrow_mut().push("lend");
        }
        fn take_back(&self) {
            self.0.borrow_mut().push("take back");
        }
        fn line_up(&self) {
            self.0.borrow_mut().push("line up");
        }
    }

    #[test]
    fn turns_are_told_and_a_turn_comes_back_from_a_wait_that_panics() {
        pass();
        assert_eq!(lend(|| 1), 1);
        let noted = Rc::new(Noted::default());
        give(noted.clone());
        pass();
        assert_eq!(lend(|| 2), 2);
        assert_eq!(lend_and_line_up(|| 3), 3);
        let unwound = std::panic::catch_unwind(|| lend(|| std::panic::resume_unwind(Box::new(()))));
        assert!(unwound.is_err());
        let said = noted.0.take();
        assert_eq!(said, ["pass", "lend", "take back", "lend", "line up", "lend", "take back"]);
    }

    #[test]
    fn a_wait_inside_another_lends_nothing() {
        let noted = Rc::new(Noted::default());
        give(noted.clone());
        let outcome = lend(|| {
            pass();
            lend(|| 1) + lend_and_line_up(|| 2)
        });
        assert_eq!((outcome, noted.0.take()), (3, vec!["lend", "take back"]));
        pass();
        assert_eq!(noted.0.take(), ["pass"], "the turn is there again");
    }
}
