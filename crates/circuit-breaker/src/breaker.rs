//! One circuit, shared by threads.
//!
//! While it is closed and healthy a call reads one word at its begin and its end, and adds one to a
//! counter of its own thread: no lock, and no line that two threads write to. Whatever is more than
//! that (a failure, a slow call, a success that ends a row of failures, a probe, the end of a slice
//! of a time window) takes a short lock around the pure [`Circuit`], which is told first how many
//! plain successes came since. Each result belongs to exactly one era; a success that ends while
//! somebody holds the lock takes its place before or after, as calls in flight do.

use std::sync::PoisonError;
use std::time::Duration;

use tower_triage_core::{Label, RetryAfter, Verdict, Vote};

use crate::circuit::{Chance, Change, Circuit, Outcome};
use crate::settings::Settings;
use crate::state::{Counts, Sample, State, Transition};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use crate::tally::{Tally, Told};
use crate::word::{Stamp, Word};

/// What an admitted call takes with it and brings back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permit {
    stamp: Stamp,
    /// When it began, in nanoseconds; zero where slowness does not matter.
    started: u64,
}

#[derive(Debug)]
pub(crate) struct Breaker {
    name: Label,
    word: AtomicU64,
    /// [`Circuit::quiet_until`], in nanoseconds.
    quiet_until: AtomicU64,
    /// [`Circuit::refuses_until`], in nanoseconds.
    refuses_until: AtomicU64,
    /// Where threads count their plain successes; without it, in the word. It takes a kilobyte, so
    /// a breaker of which there are many has none.
    tally: Option<Tally>,
    locked: Mutex<Locked>,
    rejected: AtomicU64,
}

#[derive(Debug)]
struct Locked {
    circuit: Circuit,
    told: Told,
}

impl Breaker {
    /// The only one of its layer.
    pub(crate) fn single(name: Label, settings: &Settings) -> Self {
        Self { tally: Some(Tally::default()), ..Self::one_of_many(name, settings) }
    }

    /// A small one.
    pub(crate) fn one_of_many(name: Label, settings: &Settings) -> Self {
        let circuit = Circuit::new(&settings.policy);
        Self {
            name,
            word: AtomicU64::new(Word::new(State::Closed, 0, false).0),
            quiet_until: AtomicU64::new(nanos(circuit.quiet_until())),
            refuses_until: AtomicU64::new(0),
            tally: None,
            locked: Mutex::new(Locked { circuit, told: Told::default() }),
            rejected: AtomicU64::new(0),
        }
    }

    pub(crate) const fn name(&self) -> Label {
        self.name
    }

    #[inline]
    pub(crate) fn is_named(&self, name: &Label) -> bool {
        self.name == *name
    }

    #[inline]
    fn word(&self) -> Word {
        Word(self.word.load(Ordering::Acquire))
    }

    fn lock(&self) -> MutexGuard<'_, Locked> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn state(&self) -> State {
        self.word().state()
    }

    /// When the next call may pass. Only looks.
    #[inline]
    pub(crate) fn chance(&self, settings: &Settings) -> Chance {
        if self.word().pass().is_some() { Chance::Now } else { self.chance_cold(settings) }
    }

    #[cold]
    fn chance_cold(&self, settings: &Settings) -> Chance {
        match self.refused_for(settings) {
            Some(left) => Chance::After(left),
            None => self.lock().circuit.chance(&settings.policy, settings.clock.now()),
        }
    }

    /// For how long every call is refused by time, without asking the circuit; `None` if it has to be
    /// asked.
    fn refused_for(&self, settings: &Settings) -> Option<Duration> {
        // Whichever open era it is of: calls are refused until then. A state in which they are not
        // has zero here, and a time that is too large to tell is the circuit's to tell.
        let until = self.refuses_until.load(Ordering::Acquire);
        if until == u64::MAX {
            return None;
        }
        // A clock that is behind must not keep a probe waiting: so close to the end the circuit
        // looks at the exact one.
        let left = Duration::from_nanos(until).checked_sub(settings.clock.recent())?;
        (left > settings.clock.lag()).then_some(left)
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
        self.pass(settings).map_or_else(|| self.ask(settings), Ok)
    }

    /// Lets a call in without asking the circuit; `None` if it must be [asked](Self::ask).
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    pub(crate) fn pass(&self, settings: &Settings) -> Option<Permit> {
        let stamp = self.word().pass()?;
        Some(Permit { stamp, started: settings.started() })
    }

    /// Asks the circuit, if time alone does not refuse the call.
    #[cold]
    pub(crate) fn ask(&self, settings: &Settings) -> Result<Permit, Duration> {
        if self.state() == State::ForcedOpen {
            return Err(Duration::ZERO);
        }
        if let Some(left) = self.refused_for(settings) {
            return Err(left);
        }
        let now = settings.clock.now();
        let admit = |circuit: &mut Circuit| {
            let (admitted, change) = circuit.admit(&settings.policy, now);
            (admitted.map(|era| Stamp::new(circuit.state(), era)), change)
        };
        let stamp = self.apply(settings, now, admit).0?;
        Ok(Permit { stamp, started: nanos(now) })
    }

    /// Counts a refused call.
    pub(crate) fn count_rejection(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// An admitted call succeeded [now](Settings::time_of_success): counts it, if that is all that
    /// there is to it. `false` if it has to be [settled](Self::settle).
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    pub(crate) fn count_plain(
        &self,
        settings: &Settings,
        permit: &Permit,
        now: Option<Duration>,
    ) -> bool {
        now.is_none_or(|now| self.is_plain(settings, permit, now))
            && self.count_success(permit.stamp)
    }

    /// Is a success that comes now neither slow nor one that changes what the window holds?
    #[inline]
    fn is_plain(&self, settings: &Settings, permit: &Permit, now: Duration) -> bool {
        !permit.is_slow(settings, now) && nanos(now) < self.quiet_until.load(Ordering::Acquire)
    }

    /// An admitted call ended with `verdict`.
    #[cold]
    pub(crate) fn settle(
        &self,
        settings: &Settings,
        permit: Permit,
        verdict: &Verdict,
    ) -> Option<Transition> {
        let vote = verdict.failure().map_or(Vote::Success, |failure| failure.vote);
        let now = settings.clock.now();
        if vote == Vote::Success && self.count_plain(settings, &permit, Some(now)) {
            return None;
        }
        let slow = permit.is_slow(settings, now);
        let retry_after = verdict.failure().and_then(|failure| failure.retry_after);
        let outcome = match vote {
            Vote::Success => Outcome::Success { slow },
            Vote::Failure => {
                Outcome::Failure { slow, retry_after: retry_after.map(RetryAfter::duration) }
            }
            Vote::Ignore => Outcome::Ignored,
        };
        self.finish(settings, permit, outcome, now)
    }

    /// An admitted call was dropped.
    #[cold]
    pub(crate) fn abandon(&self, settings: &Settings, permit: Permit) {
        self.finish(settings, permit, Outcome::Abandoned, settings.clock.now());
    }

    /// `false` if the circuit itself must see this success.
    #[inline]
    fn count_success(&self, stamp: Stamp) -> bool {
        if !self.word().counts(stamp) {
            return false;
        }
        match &self.tally {
            // Should the era end between the look and this: it is told by its era, and is late.
            Some(tally) if tally.add(stamp.era()) => true,
            _ => self.count_in_word(stamp),
        }
    }

    /// Compares and counts in one step.
    fn count_in_word(&self, stamp: Stamp) -> bool {
        self.word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                Word(word).with_success(stamp).map(|word| word.0)
            })
            .is_ok()
    }

    fn finish(
        &self,
        settings: &Settings,
        permit: Permit,
        outcome: Outcome,
        now: Duration,
    ) -> Option<Transition> {
        let u = settings.random.unit();
        let record = |circuit: &mut Circuit| {
            ((), circuit.record(&settings.policy, permit.stamp.era(), outcome, now, u))
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
        let late = self.tally.as_ref().map_or(0, |tally| {
            let locked = self.lock();
            locked.told.late(tally, locked.circuit.era())
        });
        let late = counts.late + late;
        Counts { rejected: self.rejected.load(Ordering::Relaxed), late, ..counts }
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
        let mut locked = self.lock();
        let Locked { circuit, told } = &mut *locked;
        // From here on successes queue at the lock, and the word is ours.
        let word = Word(self.word.fetch_or(Word::WATCH, Ordering::AcqRel));
        let era = circuit.era();
        let told_by_threads = self.tally.as_ref().map_or(0, |tally| told.fresh(tally, era));
        circuit.earlier_successes(word.fresh() + told_by_threads, now);
        let in_flight = circuit.probes_in_flight();
        let (answer, change) = op(circuit);
        if circuit.era() != era {
            told.begin_era();
        }
        let watch = circuit.watches_successes(&settings.policy, now);
        self.quiet_until.store(nanos(circuit.quiet_until()), Ordering::Release);
        self.refuses_until.store(nanos(circuit.refuses_until()), Ordering::Release);
        let word = Word::new(circuit.state(), circuit.era(), watch);
        self.word.store(word.0, Ordering::Release);
        let slots_changed = circuit.probes_in_flight() != in_flight;
        drop(locked);

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
        let started = Duration::from_nanos(self.started);
        settings.policy.is_slow(now.saturating_sub(started))
    }
}

/// `time` in nanoseconds; half a millennium is as good as for ever.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use tower_triage_core::{Clock, Random};

    use super::*;
    use crate::policy::BreakerPlan;
    use crate::settings::Config;

    /// A thread that looked at the word, and counts when the era is over.
    #[test]
    fn a_success_that_missed_the_end_of_its_era_is_late() {
        let config = Config {
            policy: BreakerPlan::default(),
            name: Label::EMPTY,
            random: std::sync::Arc::new(Random::default()),
            clock: Clock::new(),
            keyed: None,
            below_balancer: false,
        };
        let settings = Settings::new(&config);
        let breaker = Breaker::single(config.name, &settings);
        let permit = breaker.admit(&settings).unwrap();
        breaker.command(&settings, Circuit::reset);
        assert!(breaker.tally.as_ref().unwrap().add(permit.stamp.era()));
        let counts = breaker.counts(&settings);
        assert_eq!((counts.successes, counts.late), (0, 1));
        // And one that finds out in time.
        assert_eq!(breaker.settle(&settings, permit, &Verdict::Success), None);
        let counts = breaker.counts(&settings);
        assert_eq!((counts.successes, counts.late), (0, 2));
    }
}
