//! `sync` over loom, and the ways in which it can be wrong.

pub(super) use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

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

/// A cell of no bytes that loom watches.
pub(super) struct Written(loom::cell::UnsafeCell<()>);

impl Written {
    pub(super) fn now() -> Self {
        let cell = loom::cell::UnsafeCell::new(());
        cell.with_mut(|_| ());
        Self(cell)
    }

    pub(super) fn seen(&self) {
        self.0.with(|_| ());
    }
}

/// How a link is used.
pub(super) trait Links {
    const RELAXED: bool;
    const IN_TWO_STEPS: bool;
}

/// A link that is used as `L` says.
pub(super) struct Link<T, L> {
    link: loom::sync::atomic::AtomicPtr<T>,
    used: std::marker::PhantomData<fn() -> L>,
}

impl<T, L: Links> Link<T, L> {
    pub(super) fn new(at: *mut T) -> Self {
        Self { link: loom::sync::atomic::AtomicPtr::new(at), used: std::marker::PhantomData }
    }

    fn order(order: Ordering) -> Ordering {
        if L::RELAXED { Ordering::Relaxed } else { order }
    }

    pub(super) fn load(&self, order: Ordering) -> *mut T {
        self.link.load(Self::order(order))
    }

    pub(super) fn store(&self, at: *mut T, order: Ordering) {
        self.link.store(at, Self::order(order));
    }

    pub(super) fn compare_exchange(
        &self,
        from: *mut T,
        to: *mut T,
        done: Ordering,
        failed: Ordering,
    ) -> Result<*mut T, *mut T> {
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
