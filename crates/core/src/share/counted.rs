//! Reference counts that each thread keeps for itself.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock, PoisonError, Weak};

use super::Apart;
use super::numbers::Numbers;
use super::thread;
use crate::sync::Mutex;

/// A counted handle whose count is the own thread's: a reference count that two threads write to is
/// what takes from a second processor half of what it could do.
///
/// Every thread that holds the value has a seat, with a count of its own. A handle that finds itself
/// on another thread than last time takes a seat there, under a lock that only this thread takes;
/// so a service may be made in one task and called in another. Threads beyond 64 share one seat.
pub struct PerThread<T>(Arc<Seat<T>>);

/// What a call holds of a [`PerThread`]: it lives where its future goes, whichever thread ends it.
pub struct Held<T>(Arc<Seat<T>>);

/// Where one thread counts; the count is before it in the same allocation, on a line of its own.
type Seat<T> = Apart<Taken<T>>;

struct Taken<T> {
    home: Arc<Home<T>>,
    thread: usize,
}

struct Home<T> {
    value: T,
    /// By thread. Made when a second thread comes: most handles see one thread only.
    seats: OnceLock<Seats<T>>,
}

type Seats<T> = Box<[Mutex<Weak<Seat<T>>>]>;

impl<T> PerThread<T> {
    /// Starts sharing `value`, from this thread.
    pub fn new(value: T) -> Self {
        let home = Arc::new(Home { value, seats: OnceLock::new() });
        Self(Arc::new(Apart(Taken { home, thread: thread::number() })))
    }

    /// Takes hold for one call.
    #[inline]
    pub fn hold(&mut self) -> Held<T> {
        if !self.is_here() {
            self.0 = self.0.0.home.seat();
        }
        Held(Arc::clone(&self.0))
    }

    #[inline]
    fn is_here(&self) -> bool {
        self.0.0.thread == thread::number()
    }
}

impl<T> Home<T> {
    /// This thread's seat.
    #[cold]
    fn seat(self: &Arc<Self>) -> Arc<Seat<T>> {
        let seats =
            self.seats.get_or_init(|| (0..=Numbers::COUNT).map(|_| Mutex::default()).collect());
        let thread = thread::number();
        let mut seat = seats[thread].lock().unwrap_or_else(PoisonError::into_inner);
        seat.upgrade().unwrap_or_else(|| {
            let taken = Arc::new(Apart(Taken { home: Arc::clone(self), thread }));
            *seat = Arc::downgrade(&taken);
            taken
        })
    }
}

/// On another thread, a clone takes its seat there: servers clone a service for each request.
impl<T> Clone for PerThread<T> {
    #[inline]
    fn clone(&self) -> Self {
        if self.is_here() { Self(Arc::clone(&self.0)) } else { Self(self.0.0.home.seat()) }
    }
}

impl<T> Deref for PerThread<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0.0.home.value
    }
}

impl<T> Deref for Held<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0.0.home.value
    }
}

impl<T: fmt::Debug> fmt::Debug for PerThread<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: fmt::Debug> fmt::Debug for Held<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn each_thread_has_a_seat_and_they_share_one_value() {
        let mut here = PerThread::new(7);
        let mut there = here.clone();
        let both = &Barrier::new(2);
        let (seats, values): (Vec<usize>, Vec<i32>) = std::thread::scope(|scope| {
            let ask = |handle: &mut PerThread<i32>| {
                let held = handle.hold();
                both.wait();
                (Arc::as_ptr(&held.0) as usize, *held)
            };
            let other = scope.spawn(move || ask(&mut there));
            [ask(&mut here), other.join().unwrap()].into_iter().unzip()
        });
        assert_ne!(seats[0], seats[1]);
        assert_eq!(values, [7, 7]);
    }

    #[test]
    fn a_clone_made_elsewhere_counts_there() {
        let here = PerThread::new(());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let first = here.clone();
                let second = here.clone();
                assert!(first.is_here() && Arc::ptr_eq(&first.0, &second.0));
            });
        });
        assert_eq!(Arc::strong_count(&here.0), 1);
    }

    #[test]
    fn the_value_is_dropped_with_its_last_holder_wherever_that_is() {
        let value = Arc::new(());
        let mut handle = PerThread::new(Arc::clone(&value));
        let held = std::thread::spawn(move || handle.hold()).join().unwrap();
        assert_eq!(Arc::strong_count(&value), 2);
        drop(held);
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn a_seat_left_by_its_thread_is_taken_by_the_next() {
        let here = PerThread::new(());
        for _ in 0..200 {
            let mut handle = here.clone();
            std::thread::spawn(move || drop(handle.hold())).join().unwrap();
        }
        assert_eq!(Arc::strong_count(&here.0.0.home), 1, "seats that nobody holds are gone");
    }
}
