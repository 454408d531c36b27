//! Numbers of threads, cells of threads, and counts of references. Threads take their numbers here
//! when they need them, and give them back at their end: the joining thread does not wait for that.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize as Drops;

use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use loom::thread;

use super::{Model, model};
use crate::share::{Cells, Held, PerThread};

pub(super) const MODELS: &[Model] = &[
    model("share: a number changes hands", a_number_changes_hands),
    model("share: the end of the numbers", the_end_of_the_numbers).preempted(3),
    model("share: a handle changes threads", a_handle_changes_threads).preempted(4),
];

type Counts = Cells<AtomicU64>;

/// As the budget counts its requests.
fn count(counts: &Counts) {
    let own = counts.own().unwrap();
    own.store(own.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

fn sum(counts: &Counts) -> u64 {
    counts.iter().map(|own| own.load(Ordering::Relaxed)).sum()
}

/// Two threads have two cells, or the second goes on where the first ended.
fn a_number_changes_hands() {
    let counts = Arc::new(Counts::new());
    let counter = || {
        let counts = Arc::clone(&counts);
        thread::spawn(move || {
            count(&counts);
            count(&counts);
        })
    };
    let threads = [counter(), counter()];
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(sum(&counts), 4);
}

/// Whoever knows of a count finds it, whether its thread still lives or not.
fn the_end_of_the_numbers() {
    let counts = Arc::new(Counts::new());
    let known = Arc::new(AtomicUsize::new(0));
    let counter = || {
        let (counts, known) = (Arc::clone(&counts), Arc::clone(&known));
        thread::spawn(move || {
            count(&counts);
            known.fetch_add(1, Ordering::Release);
        })
    };
    let threads = [counter(), counter()];
    let knew = known.load(Ordering::Acquire) as u64;
    let found = sum(&counts);
    assert!((knew..=2).contains(&found), "knew of {knew}, found {found}");
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(sum(&counts), 2);
}

/// What is shared, and how often it was dropped.
struct Value(Arc<Drops>);

impl Drop for Value {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Handles that find themselves on other threads, where they take the seat that is there or one
/// that a dead thread left: the value goes with the last holder, and goes once.
fn a_handle_changes_threads() {
    let drops = Arc::new(Drops::new(0));
    let here = PerThread::new(Value(Arc::clone(&drops)));
    let (mut one, mut other) = (here.clone(), here);
    let calls = thread::spawn(move || drop(one.hold()));
    let carries = thread::spawn(move || {
        let held = other.hold();
        drop(other.clone());
        held
    });
    calls.join().unwrap();
    let held: Held<Value> = carries.join().unwrap();
    assert_eq!(drops.load(Ordering::Relaxed), 0, "the call still holds it");
    drop(held);
    assert_eq!(drops.load(Ordering::Relaxed), 1);
}
