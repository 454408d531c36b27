//! How far the work came, for the next attempt.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How far a piece of work came: saved by the work after each step, read by whoever goes on from
/// there. Put it into the request, whose copies share it: then a [nudge](crate::Nudge) resumes the
/// next attempt, a fallback finishes with what there is.
///
/// ```
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_triage_core::{AnyError, AnyOk, Chain, Classifier, Halves};
/// use tower_triage_retry::{Checkpoint, RetryLayer};
///
/// #[derive(Clone, Default)]
/// struct Job { from: u32, done: Checkpoint<u32> }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
/// let resume = |job: &mut Job, _: &_, _: Result<&u32, &AnyError>| {
///     job.done.last().map(|step| job.from = step).is_some()
/// };
/// let stack = ServiceBuilder::new()
///     .layer(RetryLayer::new(classifier).nudge(resume))
///     .service(service_fn(async |job: Job| match job.from {
///         0 => {
///             job.done.save(7); // seven steps, then the connection breaks
///             Err(AnyError::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset)))
///         }
///         from => Ok(from),
///     }));
/// assert_eq!(stack.oneshot(Job::default()).await.unwrap(), 7);
/// # }
/// ```
///
/// The last 16 are kept. They live as long as a copy of the handle does, in memory.
pub struct Checkpoint<T> {
    saved: Arc<Mutex<VecDeque<T>>>,
}

impl<T> Checkpoint<T> {
    const MOST: usize = 16;

    /// Nothing is saved yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// So far it came.
    pub fn save(&self, progress: T) {
        let mut saved = self.lock();
        if saved.len() == Self::MOST {
            saved.pop_front();
        }
        saved.push_back(progress);
    }

    /// The last one; `None` if nothing was saved.
    #[must_use]
    pub fn last(&self) -> Option<T>
    where
        T: Clone,
    {
        self.lock().back().cloned()
    }

    /// The last one that `is_valid`; those after it are forgotten. The closure must not use this
    /// handle.
    #[must_use]
    pub fn last_valid(&self, is_valid: impl Fn(&T) -> bool) -> Option<T>
    where
        T: Clone,
    {
        let mut saved = self.lock();
        while saved.back().is_some_and(|last| !is_valid(last)) {
            saved.pop_back();
        }
        saved.back().cloned()
    }

    /// The list is whole between any two of its methods, so a panic elsewhere does no harm.
    fn lock(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.saved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Default for Checkpoint<T> {
    fn default() -> Self {
        Self { saved: Arc::default() }
    }
}

/// The copies share what is saved.
impl<T> Clone for Checkpoint<T> {
    fn clone(&self) -> Self {
        Self { saved: Arc::clone(&self.saved) }
    }
}

/// How many there are: they may hold what must not be printed.
impl<T> fmt::Debug for Checkpoint<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checkpoint").field("saved", &self.lock().len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_share_the_last_sixteen() {
        let checkpoint = Checkpoint::new();
        assert_eq!(checkpoint.last(), None);
        let copy = checkpoint.clone();
        for step in 0..20 {
            copy.save(step);
        }
        assert_eq!(checkpoint.last(), Some(19));
        assert_eq!(format!("{checkpoint:?}"), "Checkpoint { saved: 16 }");
    }

    #[test]
    fn what_is_not_valid_is_forgotten() {
        let checkpoint = Checkpoint::new();
        for step in [1, 2, 30, 40] {
            checkpoint.save(step);
        }
        assert_eq!(checkpoint.last_valid(|step| *step < 10), Some(2));
        assert_eq!(checkpoint.last(), Some(2));
        assert_eq!(checkpoint.last_valid(|_| false), None);
        assert_eq!(checkpoint.last(), None);
    }
}
