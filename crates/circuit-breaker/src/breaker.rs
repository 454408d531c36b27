//! One circuit, shared by threads.
//!
//! While it is closed and healthy a call reads one word at its begin and adds one to it at its end:
//! no lock. Whatever is more than that (a failure, a slow call, a success that ends a row of
//! failures, a probe, the end of a slice of a time window) takes a short lock around the pure
//! [`Circuit`], which is told first how many plain successes came since. So all results are in one
//! order, and each belongs to exactly one era.

use std::sync::PoisonError;
use std::time::Duration;

use tower_triage_core::{Label, RetryAfter, Verdict, Vote};

use crate::circuit::{Chance, Change, Circuit, Outcome};
use crate::settings::Settings;
use crate::state::{Counts, Sample, State, Transition};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use crate::word::Word;

/// What an admitted call takes with it and brings back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permit {
    era: u32,
    /// When it began; only where slowness matters.
    started: Option<Duration>,
}

#[derive(Debug)]
pub(crate) struct Breaker {
    name: Label,
    word: AtomicU64,
    /// [`Circuit::quiet_until`], in nanoseconds.
    quiet_until: AtomicU64,
    circuit: Mutex<Circuit>,
    rejected: AtomicU64,
}

impl Breaker {
    pub(crate) fn new(name: Label, settings: &Settings) -> Self {
        let circuit = Circuit::new(&settings.policy);
        Self {
            name,
            word: AtomicU64::new(Word::new(State::Closed, 0, false).0),
            quiet_until: AtomicU64::new(nanos(circuit.quiet_until())),
            circuit: Mutex::new(circuit),
            rejected: AtomicU64::new(0),
        }
    }

    pub(crate) const fn name(&self) -> Label {
        self.name
    }

    fn word(&self) -> Word {
        Word(self.word.load(Ordering::Acquire))
    }

    fn lock(&self) -> MutexGuard<'_, Circuit> {
        self.circuit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state(&self) -> State {
        self.word().state()
    }

    /// When the next call may pass. Only looks.
    pub(crate) fn chance(&self, settings: &Settings) -> Chance {
        match self.word().state() {
            State::Closed | State::ForcedClosed | State::Disabled => Chance::Now,
            State::ForcedOpen => Chance::Unknown,
            State::Open | State::HalfOpen => {
                self.lock().chance(&settings.policy, settings.clock.now())
            }
        }
    }

    /// What is left of the open time; zero if that is not what it waits for.
    pub(crate) fn time_left(&self, settings: &Settings) -> Duration {
        match (self.chance(settings), self.state()) {
            (Chance::After(left), State::Open) => left,
            _ => Duration::ZERO,
        }
    }

    /// Lets a call in, or says what is left of the open time.
    pub(crate) fn admit(&self, settings: &Settings) -> Result<Permit, Duration> {
        let word = self.word();
        match word.state() {
            State::Closed | State::ForcedClosed | State::Disabled => {
                let started = settings.policy.slow_call.map(|_| settings.clock.now());
                Ok(Permit { era: word.era(), started })
            }
            State::ForcedOpen => Err(Duration::ZERO),
            State::Open | State::HalfOpen => self.admit_cold(settings),
        }
    }

    #[cold]
    fn admit_cold(&self, settings: &Settings) -> Result<Permit, Duration> {
        let now = settings.clock.now();
        let (admitted, _) =
            self.apply(settings, now, |circuit| circuit.admit(&settings.policy, now));
        let started = settings.policy.slow_call.map(|_| now);
        admitted.map(|era| Permit { era, started })
    }

    /// Counts a refused call.
    pub(crate) fn count_rejection(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// An admitted call ended with `verdict`.
    pub(crate) fn settle(
        &self,
        settings: &Settings,
        permit: Permit,
        verdict: &Verdict,
    ) -> Option<Transition> {
        match verdict {
            Verdict::Success => self.succeeded(settings, permit),
            Verdict::Failure(failure) => match failure.vote {
                Vote::Success => self.succeeded(settings, permit),
                Vote::Failure => {
                    self.failed(settings, permit, failure.retry_after.map(RetryAfter::duration))
                }
                Vote::Ignore => {
                    self.ended_neutral(settings, permit, Outcome::Ignored);
                    None
                }
            },
        }
    }

    /// An admitted call succeeded.
    fn succeeded(&self, settings: &Settings, permit: Permit) -> Option<Transition> {
        if !settings.reads_clock {
            return match self.count_success(permit.era) {
                true => None,
                false => self.finish(settings, permit, Outcome::Success { slow: false }),
            };
        }
        let now = settings.clock.now();
        let slow = permit.is_slow(settings, now);
        let quiet = !slow && nanos(now) < self.quiet_until.load(Ordering::Acquire);
        if quiet && self.count_success(permit.era) {
            return None;
        }
        self.finish_at(settings, permit, Outcome::Success { slow }, now)
    }

    /// An admitted call failed.
    fn failed(
        &self,
        settings: &Settings,
        permit: Permit,
        retry_after: Option<Duration>,
    ) -> Option<Transition> {
        let now = settings.clock.now();
        let slow = permit.is_slow(settings, now);
        self.finish_at(settings, permit, Outcome::Failure { slow, retry_after }, now)
    }

    /// An admitted call ended, and says nothing about the dependency.
    pub(crate) fn ended_neutral(&self, settings: &Settings, permit: Permit, outcome: Outcome) {
        self.finish(settings, permit, outcome);
    }

    /// Compares and counts in one step. `false` if the circuit itself must see this success.
    fn count_success(&self, era: u32) -> bool {
        self.word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                Word(word).with_success(era).map(|word| word.0)
            })
            .is_ok()
    }

    #[cold]
    fn finish(&self, settings: &Settings, permit: Permit, outcome: Outcome) -> Option<Transition> {
        self.finish_at(settings, permit, outcome, settings.clock.now())
    }

    #[cold]
    fn finish_at(
        &self,
        settings: &Settings,
        permit: Permit,
        outcome: Outcome,
        now: Duration,
    ) -> Option<Transition> {
        let u = settings.random.unit();
        let record = |circuit: &mut Circuit| {
            ((), circuit.record(&settings.policy, permit.era, outcome, now, u))
        };
        self.apply(settings, now, record).1
    }

    /// Somebody decides over the circuit's head.
    pub(crate) fn command(&self, settings: &Settings, order: fn(&mut Circuit) -> Change) {
        let order = |circuit: &mut Circuit| ((), Some(order(circuit)));
        self.apply(settings, settings.clock.now(), order);
    }

    pub(crate) fn counts(&self, settings: &Settings) -> Counts {
        let read = |circuit: &mut Circuit| (circuit.counts(), None);
        let counts = self.apply(settings, settings.clock.now(), read).0;
        Counts { rejected: self.rejected.load(Ordering::Relaxed), ..counts }
    }

    pub(crate) fn sample(&self, settings: &Settings) -> Sample {
        let now = settings.clock.now();
        self.apply(settings, now, |circuit| (circuit.sample(now), None)).0
    }

    /// Runs `op` on the circuit under the lock, with all plain successes told to it, and publishes
    /// what came of it. Subscribers and parked callers hear of it after the lock is released.
    fn apply<T>(
        &self,
        settings: &Settings,
        now: Duration,
        op: impl FnOnce(&mut Circuit) -> (T, Option<Change>),
    ) -> (T, Option<Transition>) {
        let mut circuit = self.lock();
        // From here on successes queue at the lock, and the word is ours.
        let word = Word(self.word.fetch_or(Word::WATCH, Ordering::AcqRel));
        circuit.earlier_successes(word.fresh(), now);
        let in_flight = circuit.probes_in_flight();
        let (answer, change) = op(&mut circuit);
        let watch = circuit.watches_successes(&settings.policy, now);
        self.quiet_until.store(nanos(circuit.quiet_until()), Ordering::Release);
        let word = Word::new(circuit.state(), circuit.era(), watch);
        self.word.store(word.0, Ordering::Release);
        let slots_changed = circuit.probes_in_flight() != in_flight;
        drop(circuit);

        let transition = change.filter(|change| change.from != change.to).map(|change| {
            let Change { from, to, open_for } = change;
            Transition { breaker: self.name, from, to, open_for }
        });
        if transition.is_some() || slots_changed {
            settings.parked.wake();
        }
        if let Some(transition) = &transition {
            settings.watchers.tell(transition);
        }
        (answer, transition)
    }
}

impl Permit {
    fn is_slow(&self, settings: &Settings, now: Duration) -> bool {
        self.started.is_some_and(|started| settings.policy.is_slow(now.saturating_sub(started)))
    }
}

/// `time` in nanoseconds; half a millennium is as good as for ever.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
