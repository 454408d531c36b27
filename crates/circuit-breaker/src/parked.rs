//! Callers who wait for readiness, to be woken when the circuit's answer may have changed.

use std::sync::{Arc, PoisonError, Weak};
use std::task::Waker;

use crate::sync::{Mutex, MutexGuard};

/// The seats of all services that ever waited. Touched only when somebody waits or a state changes.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    seats: Mutex<Vec<Weak<Seat>>>,
}

/// The place of one service: the waker of its current caller. Dropped with the service.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    waker: Mutex<Option<Waker>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Parked {
    /// A seat for a service that waits for the first time.
    pub(crate) fn seat(&self) -> Arc<Seat> {
        let seat = Arc::default();
        let mut seats = lock(&self.seats);
        if seats.len() == seats.capacity() {
            // About to grow: the seats of dropped services go first.
            seats.retain(|seat| seat.strong_count() > 0);
        }
        seats.push(Arc::downgrade(&seat));
        seat
    }

    /// Wakes everybody who waits.
    pub(crate) fn wake(&self) {
        let waiting: Vec<Waker> = lock(&self.seats)
            .iter()
            .filter_map(Weak::upgrade)
            .filter_map(|seat| lock(&seat.waker).take())
            .collect();
        // Wakers are foreign code: outside the lock.
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Seat {
    /// Waits with `waker`. Look at the circuit once more after this: a change before it wakes nobody.
    pub(crate) fn sit(&self, waker: &Waker) {
        let seated = waker.clone();
        // Outside the lock: whose waker it was may hold a call that wakes everybody as it is dropped.
        let before = lock(&self.waker).replace(seated);
        drop(before);
    }

    /// No longer waits.
    pub(crate) fn leave(&self) {
        let left = lock(&self.waker).take();
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Services come and go as connections do; the seats of those that went make room.
    #[test]
    fn those_who_left_take_no_room_and_those_who_wait_keep_theirs() {
        let (parked, woken) = (Parked::default(), Arc::new(Woken::default()));
        let waiting: Vec<_> = (0..10).map(|_| parked.seat()).collect();
        waiting.iter().for_each(|seat| seat.sit(&Waker::from(Arc::clone(&woken))));
        for _ in 0..10_000 {
            drop(parked.seat());
        }
        assert!(lock(&parked.seats).capacity() < 100, "{}", lock(&parked.seats).capacity());
        waiting[0].leave();
        parked.wake();
        parked.wake();
        assert_eq!(woken.0.load(Ordering::SeqCst), 9, "each once, but for the one who left");
    }
}
