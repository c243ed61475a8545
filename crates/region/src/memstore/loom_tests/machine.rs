//! `sync` over loom, with variants that are incorrect.

pub(super) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// As `parking_lot`'s.
pub(super) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(super) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(super) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().expect("no thread of a model dies")
    }

    pub(super) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().expect("no thread of a model dies")
    }
}

/// A cell of no bytes whose accesses loom checks.
pub(super) struct PublicationCheck(loom::cell::UnsafeCell<()>);

impl PublicationCheck {
    pub(super) fn publish() -> Self {
        let cell = loom::cell::UnsafeCell::new(());
        cell.with_mut(|_| ());
        Self(cell)
    }

    pub(super) fn observe(&self) {
        self.0.with(|_| ());
    }
}

/// How a link is used.
pub(super) trait Links {
    const RELAXED: bool;
    const IN_TWO_STEPS: bool;
}

/// A link that is used as `L` defines.
pub(super) struct Link<L> {
    link: loom::sync::atomic::AtomicU64,
    used: std::marker::PhantomData<fn() -> L>,
}

impl<L: Links> Link<L> {
    pub(super) fn new(to: u64) -> Self {
        Self { link: loom::sync::atomic::AtomicU64::new(to), used: std::marker::PhantomData }
    }

    fn order(order: Ordering) -> Ordering {
        if L::RELAXED { Ordering::Relaxed } else { order }
    }

    pub(super) fn load(&self, order: Ordering) -> u64 {
        self.link.load(Self::order(order))
    }

    pub(super) fn store(&self, to: u64, order: Ordering) {
        self.link.store(to, Self::order(order));
    }

    pub(super) fn compare_exchange(
        &self,
        from: u64,
        to: u64,
        done: Ordering,
        failed: Ordering,
    ) -> Result<u64, u64> {
        if !L::IN_TWO_STEPS {
            return self.link.compare_exchange(from, to, Self::order(done), Self::order(failed));
        }
        let found = self.load(failed);
        if found != from {
            return Err(found);
        }
        self.store(to, done);
        Ok(found)
    }
}
