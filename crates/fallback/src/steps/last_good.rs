//! The last good answer of the primary, if it is young enough.

use std::collections::HashMap;
use std::fmt;
use std::future::{Ready, ready};
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tower_service::Service;
use tower_triage_core::{Clock, ConfigError, Operation};

use crate::chain::{Call, Step};
use crate::failed::Failed;
use crate::keep::{Keep, KeepsRequest};

/// How good answers are kept: how often one is replaced, how old one may be, and how many.
///
/// | setting | default |
/// |---|---|
/// | replaced at most every | 1 s |
/// | maximum age | 5 min |
/// | answers kept | 1024 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastGood {
    refresh: Duration,
    max_age: Duration,
    capacity: usize,
}

impl LastGood {
    /// A kept answer is replaced by a newer one at most every `refresh`, and answers while it is
    /// no older than `max_age`. Refreshing less often costs fewer clones of answers.
    ///
    /// # Errors
    /// A `max_age` of zero, which would never answer; a `refresh` longer than `max_age`, which
    /// would leave times without an answer although the service works.
    pub fn new(refresh: Duration, max_age: Duration) -> Result<Self, ConfigError> {
        if max_age.is_zero() {
            return Err(ConfigError::new("max_age", "0", "must be longer than zero"));
        }
        if refresh > max_age {
            return Err(ConfigError::new(
                "refresh",
                format_args!("{refresh:?}"),
                "must not be longer than `max_age`",
            ));
        }
        Ok(Self { refresh, max_age, ..Self::default() })
    }

    /// How many answers are kept at most; beyond, the older half leaves.
    ///
    /// # Errors
    /// Zero.
    pub fn capacity(mut self, answers: usize) -> Result<Self, ConfigError> {
        if answers == 0 {
            return Err(ConfigError::new("capacity", answers, "must be at least 1"));
        }
        self.capacity = answers;
        Ok(self)
    }
}

impl Default for LastGood {
    fn default() -> Self {
        Self {
            refresh: Duration::from_secs(1),
            max_age: Duration::from_secs(5 * 60),
            capacity: 1024,
        }
    }
}

/// Keeps good answers of type `Res` under keys of type `Key`, which `B` finds; from `or_last_good`.
pub struct LastGoodStep<Key, Res, B> {
    answers: Mutex<Answers<Key, Res>>,
    clock: Clock,
    by: B,
}

/// One answer per operation.
#[derive(Clone, Copy, Debug)]
pub struct ByOperation;

/// One answer per key that a function finds in the request.
pub struct ByRequest<F>(pub(crate) F);

/// A [`LastGoodStep`] with a key from the request; from `or_last_good_by`.
pub type LastGoodByStep<Key, Res, F> = LastGoodStep<Key, Res, ByRequest<F>>;

/// The kept answers, with time as an argument.
struct Answers<Key, Res> {
    policy: LastGood,
    kept: HashMap<Key, Kept<Res>>,
}

struct Kept<Res> {
    answer: Res,
    since: Duration,
}

const NONE_YOUNG_ENOUGH: &str = "no kept answer is young enough";

// === impl Answers ===

impl<Key: Hash + Eq, Res> Answers<Key, Res> {
    fn is_due(&self, key: &Key, now: Duration) -> bool {
        let refresh = self.policy.refresh;
        self.kept.get(key).is_none_or(|kept| now.saturating_sub(kept.since) >= refresh)
    }

    fn get(&self, key: &Key, now: Duration) -> Option<&Res> {
        let kept = self.kept.get(key)?;
        (now.saturating_sub(kept.since) <= self.policy.max_age).then_some(&kept.answer)
    }

    fn put(&mut self, key: Key, answer: Res, now: Duration) {
        if self.kept.len() >= self.policy.capacity && !self.kept.contains_key(&key) {
            self.make_room();
        }
        self.kept.insert(key, Kept { answer, since: now });
    }

    /// The older half leaves at once, so that a full store costs little per new key.
    fn make_room(&mut self) {
        let mut times: Vec<Duration> = self.kept.values().map(|kept| kept.since).collect();
        let middle = times.len() / 2;
        let (_, &mut median, _) = times.select_nth_unstable(middle);
        let mut leaving = middle + 1;
        self.kept.retain(|_, kept| {
            let leaves = kept.since <= median && leaving > 0;
            leaving -= usize::from(leaves);
            !leaves
        });
    }
}

// === impl LastGoodStep ===

impl<Key: Hash + Eq, Res, B> LastGoodStep<Key, Res, B> {
    pub(crate) fn new(policy: LastGood, by: B) -> Self {
        let answers = Mutex::new(Answers { policy, kept: HashMap::new() });
        Self { answers, clock: Clock::new(), by }
    }

    /// A panic of `Res::clone` leaves the answers as they were.
    fn lock(&self) -> MutexGuard<'_, Answers<Key, Res>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, key: Key, answer: &Res)
    where
        Res: Clone,
    {
        let now = self.clock.now();
        // Cloned outside the lock: the answer may be large.
        if self.lock().is_due(&key, now) {
            let answer = answer.clone();
            self.lock().put(key, answer, now);
        }
    }

    fn answer<E>(&self, key: &Key) -> Result<Ready<Result<Res, E>>, &'static str>
    where
        Res: Clone,
    {
        let now = self.clock.now();
        let answer = self.lock().get(key, now).cloned().ok_or(NONE_YOUNG_ENOUGH)?;
        Ok(ready(Ok(answer)))
    }
}

const KIND: &str = "last_good";

impl<S, Req, K> Step<S, Req, K> for LastGoodStep<Operation, S::Response, ByOperation>
where
    S: Service<Req>,
    S::Response: Clone,
    K: Keep<S, Req>,
{
    const KIND: &'static str = KIND;
    const LEARNS: bool = true;
    type Future = Ready<Result<S::Response, S::Error>>;

    fn start(
        &self,
        call: &Call<'_, S, Req, K>,
        _failed: Failed<'_, S::Response, S::Error>,
    ) -> Result<Self::Future, &'static str> {
        self.answer(call.operation)
    }

    fn learn(&self, call: &Call<'_, S, Req, K>, response: &S::Response) {
        self.keep(*call.operation, response);
    }
}

impl<S, Req, K, Key, F> Step<S, Req, K> for LastGoodStep<Key, S::Response, ByRequest<F>>
where
    S: Service<Req>,
    S::Response: Clone,
    K: KeepsRequest<S, Req>,
    Key: Hash + Eq,
    F: Fn(&Req) -> Key,
{
    const KIND: &'static str = KIND;
    const LEARNS: bool = true;
    type Future = Ready<Result<S::Response, S::Error>>;

    fn start(
        &self,
        call: &Call<'_, S, Req, K>,
        _failed: Failed<'_, S::Response, S::Error>,
    ) -> Result<Self::Future, &'static str> {
        let request = call.request().ok_or(crate::chain::NOT_COPYABLE)?;
        self.answer(&(self.by.0)(request))
    }

    fn learn(&self, call: &Call<'_, S, Req, K>, response: &S::Response) {
        if let Some(request) = call.request() {
            self.keep((self.by.0)(request), response);
        }
    }
}

impl<Key, Res, B> fmt::Debug for LastGoodStep<Key, Res, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LastGoodStep").finish_non_exhaustive()
    }
}

impl<F> fmt::Debug for ByRequest<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ByRequest({})", std::any::type_name::<F>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn answers(capacity: usize) -> Answers<u32, u32> {
        let policy = LastGood::new(SECOND, 10 * SECOND).unwrap().capacity(capacity).unwrap();
        Answers { policy, kept: HashMap::new() }
    }

    #[test]
    fn answers_up_to_the_maximum_age_and_not_after() {
        let mut answers = answers(4);
        answers.put(1, 10, SECOND);
        assert_eq!(answers.get(&1, 11 * SECOND), Some(&10));
        assert_eq!(answers.get(&1, 11 * SECOND + Duration::from_nanos(1)), None);
        assert_eq!(answers.get(&2, SECOND), None, "another key has no answer");
    }

    #[test]
    fn is_replaced_at_most_once_per_refresh() {
        let mut answers = answers(4);
        assert!(answers.is_due(&1, SECOND));
        answers.put(1, 10, SECOND);
        assert!(!answers.is_due(&1, 2 * SECOND - Duration::from_nanos(1)));
        assert!(answers.is_due(&1, 2 * SECOND));
    }

    #[test]
    fn never_holds_more_than_its_capacity_and_keeps_the_youngest() {
        for capacity in 1..20 {
            let mut answers = answers(capacity);
            for key in 0..100 {
                answers.put(key, key, SECOND * (key / 3));
                assert!(answers.kept.len() <= capacity);
                assert!(answers.kept.contains_key(&key));
            }
        }
    }

    #[test]
    fn what_could_never_answer_does_not_build() {
        assert_eq!(LastGood::new(SECOND, Duration::ZERO).unwrap_err().field(), "max_age");
        assert_eq!(LastGood::new(2 * SECOND, SECOND).unwrap_err().field(), "refresh");
        assert_eq!(LastGood::default().capacity(0).unwrap_err().field(), "capacity");
    }
}
