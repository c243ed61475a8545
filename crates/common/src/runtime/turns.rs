//! Turns: long work that computes makes room for other long work of its kind.
//!
//! Threads that compute for milliseconds each, more of them than cores, are interleaved by the kernel, which knows
//! nothing of calls: some wait for a tenth of a second while others that came later are served. Whoever runs such work
//! therefore lets only so many compute at once, in the order in which they came ([`Turns`]; the executor of `rpc` does
//! so with scans, and with writes that wait), and the work says here where it may give way: [`pass`] where it holds no lock but
//! one that others wait for in a lent turn, [`lend`] around what waits for a disk or for another thread, and
//! [`lend_and_line_up`] around a wait that many may have at the same time and that ends for all of them at once.
//!
//! On a thread that has no turn, both do nothing.

use std::cell::RefCell;
use std::rc::Rc;

/// Who gives this thread its turns.
pub trait Turns {
    /// The work holds no lock but those that others wait for in lent turns: when others wait and its turn was long enough, they go first. Comes back in a turn.
    fn pass(&self);
    /// The work is about to wait: another may have its turn.
    fn lend(&self);
    /// The work waited, and goes on at once, whoever else runs: it may hold what they wait for.
    fn take_back(&self);
    /// The work waited, and goes on in a turn of its own, or without one after a bounded wait.
    fn line_up(&self);
}

thread_local! {
    static TURNS: RefCell<Option<Rc<dyn Turns>>> = const { RefCell::new(None) };
}

/// From here on this thread has its turns from `turns`.
pub fn give(turns: Rc<dyn Turns>) {
    TURNS.set(Some(turns));
}

/// Lets others go first who wait for a turn, when this one was long. May take long, so no lock may be held but one that
/// others wait for in a lent turn, as a row's. Cheap when nobody waits.
#[inline]
pub fn pass() {
    TURNS.with_borrow(|turns| {
        if let Some(turns) = turns {
            turns.pass();
        }
    });
}

/// Runs what waits for a disk, or for another thread; meanwhile another may have this thread's turn.
pub fn lend<T>(wait: impl FnOnce() -> T) -> T {
    lend_until(wait, |turns| turns.take_back())
}

/// As [`lend`], for a wait that ends for many threads at once, as one for a row's lock: they go on one after the other, as
/// turns become free. What the work holds by then, it holds for longer, by a bounded time.
pub fn lend_and_line_up<T>(wait: impl FnOnce() -> T) -> T {
    lend_until(wait, |turns| turns.line_up())
}

fn lend_until<T>(wait: impl FnOnce() -> T, take_back: fn(&dyn Turns)) -> T {
    /// Takes the turn back also when the wait panics.
    struct Lent(Rc<dyn Turns>, fn(&dyn Turns));
    impl Drop for Lent {
        fn drop(&mut self) {
            self.1(&*self.0);
        }
    }
    let Some(turns) = TURNS.with_borrow(Option::clone) else { return wait() };
    turns.lend();
    let _lent = Lent(turns, take_back);
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
}
