//! What was tried on which kind of failure, and what came of it.

use std::collections::HashMap;
use std::time::Duration;

use tower_triage_core::{ErrorClass, Fingerprint};

use crate::policy::{LearnPlan, is_treatment};
use crate::remedy::Remedy;
use crate::tally::Tally;

/// Experience: for each kind of failure ([`Fingerprint`]) the remedies that were tried on it, and
/// how often they worked. A pure value: `now` is the time since 1970, because it outlives a process.
///
/// Most users want a [`Learner`](crate::Learner), which shares one among layers and keeps it in a
/// file.
///
/// ```
/// use std::time::Duration;
/// use tower_triage_core::{ErrorClass, Failure, Fingerprint, Operation};
/// use tower_triage_learn::{LearnPlan, Memory, Remedy};
///
/// let mut memory = Memory::new(LearnPlan::default()); // balanced: from 0.7 on
/// let now = Duration::from_secs(1_800_000_000);
/// let failure = Failure::new(ErrorClass::Unknown);
/// let kind = Fingerprint::of(&Operation::new("plan"), &failure, "shard 7 is moving");
/// let retry = Remedy::new("retry", ErrorClass::Transient);
///
/// for _ in 0..6 {
///     memory.record(kind, retry, true, now);
/// }
/// assert_eq!(memory.advise(kind, now), None); // not yet
/// memory.record(kind, retry, true, now);
/// assert_eq!(memory.advise(kind, now).unwrap().remedy, retry);
/// ```
#[derive(Clone, Debug)]
pub struct Memory {
    plan: LearnPlan,
    kinds: HashMap<Fingerprint, Kind>,
}

/// The remedies that were tried on one kind of failure.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kind {
    pub(crate) tried: Vec<(Remedy, Tally)>,
}

/// What is known of one remedy for one kind of failure.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Known {
    /// The remedy.
    pub remedy: Remedy,
    /// The share of calls that it solves, as far as one may rely on it, from 0 to 1: the lower
    /// bound of Wilson's interval (one-sided, 95 %) over the faded record.
    pub confidence: f64,
    /// How many calls it solved, faded.
    pub worked: f64,
    /// How many it did not, faded.
    pub failed: f64,
}

/// How an unknown failure should be treated.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Advice {
    /// What to do, and as what to treat the failure.
    pub remedy: Remedy,
    /// See [`Known::confidence`].
    pub confidence: f64,
    /// Too little is known; this is to find out ([`LearnPolicy::explore`](crate::LearnPolicy::explore)).
    pub trial: bool,
}

impl Memory {
    /// An empty one.
    #[must_use]
    pub fn new(plan: LearnPlan) -> Self {
        Self { plan, kinds: HashMap::new() }
    }

    /// How it learns.
    #[must_use]
    pub const fn plan(&self) -> &LearnPlan {
        &self.plan
    }

    /// From now on this sure.
    pub fn set_mode(&mut self, mode: crate::Mode) {
        self.plan.set_mode(mode);
    }

    /// How many kinds of failure it knows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Does it know none?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// `remedy` was tried on a failure of this kind, and solved the call or did not.
    pub fn record(&mut self, kind: Fingerprint, remedy: Remedy, worked: bool, now: Duration) {
        let tally = tally_mut(&mut self.kinds, kind, remedy, now, &self.plan);
        let before = std::mem::replace(tally, tally.with(worked, now, &self.plan));
        if !worked && before.worked > before.failed {
            self.doubt(kind, remedy.class);
        }
    }

    /// What used to work failed. If things have changed, then what failed before may work now.
    fn doubt(&mut self, kind: Fingerprint, class: ErrorClass) {
        let Some(kind) = self.kinds.get_mut(&kind) else { return };
        for (_, tally) in kind.tried.iter_mut().filter(|(other, _)| other.class != class) {
            *tally = tally.weighed_down(self.plan.failure_span);
        }
    }

    /// A failure of this kind was treated as of `class`, and the call was not solved: so much for every
    /// remedy of that class, but for those `tried`, whose failures were recorded.
    pub(crate) fn record_useless(
        &mut self,
        kind: Fingerprint,
        class: ErrorClass,
        tried: &[Remedy],
        now: Duration,
    ) {
        let known = self.kinds.get(&kind).map_or(&[][..], |kind| &kind.tried).iter();
        let useless = known
            .map(|(remedy, _)| *remedy)
            .filter(|remedy| remedy.class == class && !tried.contains(remedy));
        for remedy in useless.collect::<Vec<_>>() {
            self.record(kind, remedy, false, now);
        }
    }

    /// What is known for this kind of failure, the surest first.
    #[must_use]
    pub fn known(&self, kind: Fingerprint, now: Duration) -> Vec<Known> {
        let tried = self.kinds.get(&kind).map_or(&[][..], |kind| &kind.tried);
        let known = |(remedy, tally): &(Remedy, Tally)| {
            let left = tally.faded(now, &self.plan);
            let Tally { worked, failed, .. } = left;
            Known { remedy: *remedy, confidence: left.confidence(), worked, failed }
        };
        let mut known: Vec<_> = tried.iter().map(known).collect();
        known.sort_by(|a, b| b.confidence.total_cmp(&a.confidence));
        known
    }

    /// How to treat an unknown failure of this kind: by the remedy that is known well enough for the
    /// mode; else by one that may be tried; else there is no advice.
    #[must_use]
    pub fn advise(&self, kind: Fingerprint, now: Duration) -> Option<Advice> {
        let tried = self.kinds.get(&kind).map_or(&[][..], |kind| &kind.tried);
        let sure = tried
            .iter()
            .map(|(remedy, tally)| (*remedy, tally.faded(now, &self.plan).confidence()))
            .filter(|(_, confidence)| *confidence >= self.plan.mode.threshold())
            .max_by(|(_, a), (_, b)| a.total_cmp(b));
        if let Some((remedy, confidence)) = sure {
            // Known to be solved by what the stack does with it anyway?
            let treated = remedy.class != ErrorClass::Unknown;
            return treated.then_some(Advice { remedy, confidence, trial: false });
        }
        if !self.plan.explore {
            return None;
        }
        let tally = |remedy: &Remedy| match tried.iter().find(|(tried, _)| tried == remedy) {
            Some((_, tally)) => tally.faded(now, &self.plan),
            None => Tally::NOTHING,
        };
        let mut best: Option<(Remedy, Tally)> = None;
        for remedy in &self.plan.remedies {
            let tally = tally(remedy);
            let beats = best.is_none_or(|(_, best)| tally.chance() > best.chance());
            if beats && tally.chance() >= HOPELESS {
                best = Some((*remedy, tally));
            }
        }
        best.map(|(remedy, tally)| {
            let confidence = tally.confidence();
            Advice { remedy, confidence, trial: true }
        })
    }

    /// Forgets what is known for this kind of failure.
    pub fn forget(&mut self, kind: Fingerprint) {
        self.kinds.remove(&kind);
    }

    /// Adds the experience of another instance to this one's. To be done once: what is added twice
    /// counts twice.
    pub fn merge(&mut self, other: &Self, now: Duration) {
        for (kind, theirs) in &other.kinds {
            for (remedy, tally) in &theirs.tried {
                self.add(*kind, *remedy, *tally, now);
            }
        }
    }

    /// Adds a tally, unless no failure may be treated so.
    pub(crate) fn add(
        &mut self,
        kind: Fingerprint,
        remedy: Remedy,
        theirs: Tally,
        now: Duration,
    ) -> bool {
        if !(theirs.is_sound() && is_treatment(remedy.class)) {
            return false;
        }
        // A clock that is ahead must not keep a record from fading.
        let theirs = Tally { at: theirs.at.min(now), ..theirs };
        let tally = tally_mut(&mut self.kinds, kind, remedy, now, &self.plan);
        *tally = tally.merged(theirs, &self.plan);
        true
    }

    /// All of it, in the order of the fingerprints.
    pub(crate) fn kinds(&self) -> Vec<(Fingerprint, &Kind)> {
        let mut kinds: Vec<_> = self.kinds.iter().map(|(print, kind)| (*print, kind)).collect();
        kinds.sort_by_key(|(print, _)| *print);
        kinds
    }
}

/// The tally of `remedy` for `kind`. Where there is none, the least useful one makes room for it.
fn tally_mut<'a>(
    kinds: &'a mut HashMap<Fingerprint, Kind>,
    kind: Fingerprint,
    remedy: Remedy,
    now: Duration,
    plan: &LearnPlan,
) -> &'a mut Tally {
    let weight = |(_, tally): &(Remedy, Tally)| tally.faded(now, plan).trials();
    if !kinds.contains_key(&kind) && kinds.len() >= plan.max_failures {
        let weight = |kind: &Kind| kind.tried.iter().map(weight).sum::<f64>();
        let weights = kinds.iter().map(|(print, kind)| (*print, weight(kind)));
        if let Some((least, _)) = weights.min_by(|(_, a), (_, b)| a.total_cmp(b)) {
            kinds.remove(&least);
        }
    }
    let tried = &mut kinds.entry(kind).or_default().tried;
    let at = tried.iter().position(|(tried, _)| *tried == remedy).unwrap_or_else(|| {
        if tried.len() >= plan.max_remedies {
            let weights = tried.iter().map(weight).enumerate();
            if let Some((least, _)) = weights.min_by(|(_, a), (_, b)| a.total_cmp(b)) {
                tried.swap_remove(least);
            }
        }
        tried.push((remedy, Tally::NOTHING));
        tried.len() - 1
    });
    &mut tried[at].1
}

/// Below this chance a remedy is not tried: two failures and no success, until half of the older
/// one has faded.
const HOPELESS: f64 = 0.285;

#[cfg(test)]
mod tests {
    use tower_triage_core::{ErrorClass, Failure, Operation};

    use super::*;
    use crate::{LearnPolicy, Mode};

    const NOW: Duration = Duration::from_secs(1_800_000_000);
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);

    fn kind(text: &str) -> Fingerprint {
        Fingerprint::of(&Operation::EMPTY, &Failure::new(ErrorClass::Unknown), text)
    }

    fn retry() -> Remedy {
        Remedy::new("retry", ErrorClass::Transient)
    }

    fn fallback() -> Remedy {
        Remedy::new("fallback/service", ErrorClass::Declined)
    }

    fn aggressive() -> LearnPolicy {
        LearnPolicy::default().mode(Mode::Aggressive)
    }

    fn memory(policy: LearnPolicy) -> Memory {
        Memory::new(policy.build().unwrap())
    }

    fn class(memory: &Memory, now: Duration) -> Option<ErrorClass> {
        memory.advise(kind("a"), now).map(|advice| advice.remedy.class)
    }

    #[test]
    fn the_mode_decides_how_sure_one_has_to_be() {
        let mut memory = memory(LearnPolicy::default());
        for _ in 0..7 {
            memory.record(kind("a"), retry(), true, NOW);
        }
        for (mode, expected) in [
            (Mode::Aggressive, Some(ErrorClass::Transient)),
            (Mode::Balanced, Some(ErrorClass::Transient)),
            (Mode::Cautious, None),
        ] {
            memory.set_mode(mode);
            assert_eq!(class(&memory, NOW), expected, "{mode}");
        }
        assert_eq!(memory.advise(kind("b"), NOW), None);
    }

    #[test]
    fn the_surest_remedy_is_taken_and_what_is_not_used_is_forgotten() {
        let mut memory = memory(LearnPolicy::default());
        for n in 0..20 {
            memory.record(kind("a"), retry(), n % 10 != 0, NOW);
            memory.record(kind("a"), fallback(), true, NOW);
        }
        let advice = memory.advise(kind("a"), NOW).unwrap();
        assert_eq!((advice.remedy, advice.trial), (fallback(), false));
        let known = memory.known(kind("a"), NOW);
        assert_eq!(known.iter().map(|k| k.remedy).collect::<Vec<_>>(), [fallback(), retry()]);
        assert!((known[0].worked - 15.9).abs() < 0.1 && known[0].failed == 0.0, "{known:?}");
        assert_eq!(class(&memory, NOW + 60 * DAY), None);
    }

    /// Nothing is gained by treating it as anything.
    #[test]
    fn what_is_solved_as_an_unknown_failure_stays_one() {
        let anyway = Remedy::new("fallback/value", ErrorClass::Unknown);
        let mut memory = memory(aggressive().remedies([retry()]).explore(true));
        for n in 0..20 {
            memory.record(kind("a"), anyway, true, NOW);
            memory.record(kind("a"), retry(), n % 2 == 0, NOW);
        }
        assert_eq!(memory.known(kind("a"), NOW)[0].remedy, anyway);
        assert_eq!(memory.advise(kind("a"), NOW), None);
    }

    #[test]
    fn trials_begin_with_the_most_promising_and_end_when_all_failed_twice() {
        let replan = Remedy::new("replan", ErrorClass::Quota);
        let mut memory =
            memory(LearnPolicy::default().remedies([retry(), fallback(), replan]).explore(true));
        let mut order = Vec::new();
        while let Some(advice) = memory.advise(kind("a"), NOW) {
            assert!(advice.trial);
            order.push(advice.remedy);
            memory.record(kind("a"), advice.remedy, false, NOW);
        }
        assert_eq!(order, [retry(), fallback(), replan, retry(), fallback(), replan]);
        // After some days one more.
        assert_eq!(class(&memory, NOW + 2 * DAY), None);
        assert_eq!(class(&memory, NOW + 4 * DAY), Some(ErrorClass::Transient));
        // What worked once goes first.
        memory.record(kind("a"), fallback(), true, NOW);
        assert_eq!(memory.advise(kind("a"), NOW).unwrap().remedy, fallback());
    }

    /// What failed twice, long ago, gets another chance when that which worked since fails.
    #[test]
    fn when_what_worked_fails_what_failed_before_may_be_tried_again() {
        let policy = aggressive().remedies([retry(), fallback()]).explore(true);
        let mut memory = memory(policy);
        for _ in 0..2 {
            memory.record(kind("a"), retry(), false, NOW);
        }
        for _ in 0..100 {
            memory.record(kind("a"), fallback(), true, NOW);
        }
        let mut calls = 0;
        while class(&memory, NOW) == Some(ErrorClass::Declined) {
            memory.record(kind("a"), fallback(), false, NOW);
            calls += 1;
        }
        assert_eq!(class(&memory, NOW), Some(ErrorClass::Transient));
        assert!(calls <= 25, "{calls}");
    }

    #[test]
    fn a_treatment_that_leads_nowhere_is_unlearned() {
        let mut memory = memory(aggressive());
        for _ in 0..50 {
            memory.record(kind("a"), fallback(), true, NOW);
        }
        let mut calls = 0;
        while class(&memory, NOW) == Some(ErrorClass::Declined) {
            memory.record_useless(kind("a"), ErrorClass::Declined, &[], NOW);
            calls += 1;
        }
        assert!((1..=12).contains(&calls), "{calls}");
        let known = memory.known(kind("a"), NOW);
        memory.record_useless(kind("a"), ErrorClass::Declined, &[fallback()], NOW);
        memory.record_useless(kind("a"), ErrorClass::Quota, &[], NOW);
        memory.record_useless(kind("unseen"), ErrorClass::Declined, &[], NOW);
        assert_eq!((memory.known(kind("a"), NOW), memory.len()), (known, 1));
    }

    #[test]
    fn memory_is_bounded_and_the_least_useful_goes_first() {
        let mut memory = memory(LearnPolicy::default().max_failures(3).max_remedies(2));
        let other = Remedy::new("other", ErrorClass::Quota);
        for (text, times) in [("a", 5), ("b", 1), ("c", 3)] {
            for _ in 0..times {
                memory.record(kind(text), retry(), true, NOW);
            }
        }
        memory.record(kind("d"), retry(), true, NOW);
        assert_eq!(memory.len(), 3);
        assert!(memory.known(kind("b"), NOW).is_empty());
        // However much there once was of it.
        let later = NOW + 90 * DAY;
        memory.record(kind("d"), retry(), true, later);
        memory.record(kind("e"), retry(), true, later);
        memory.record(kind("f"), retry(), true, later);
        assert!(memory.known(kind("a"), later).is_empty());

        memory.record(kind("f"), fallback(), true, later);
        memory.record(kind("f"), fallback(), true, later);
        memory.record(kind("f"), other, true, later);
        let known = memory.known(kind("f"), later);
        assert_eq!(known.iter().map(|k| k.remedy).collect::<Vec<_>>(), [fallback(), other]);
        memory.forget(kind("f"));
        assert!(memory.known(kind("f"), later).is_empty());
    }

    #[test]
    fn instances_merge_and_a_clock_ahead_does_not_keep_a_record_from_fading() {
        let (mut a, mut b) = (memory(LearnPolicy::default()), memory(LearnPolicy::default()));
        for _ in 0..4 {
            a.record(kind("a"), retry(), true, NOW);
            b.record(kind("a"), retry(), true, NOW + 1000 * DAY);
        }
        assert_eq!((class(&a, NOW), class(&b, NOW)), (None, None));
        a.merge(&b, NOW);
        assert_eq!(class(&a, NOW), Some(ErrorClass::Transient));
        assert_eq!(class(&a, NOW + 14 * DAY), None);
        // Bounded, however often it is merged.
        for _ in 0..100 {
            let copy = a.clone();
            a.merge(&copy, NOW);
        }
        assert!(a.known(kind("a"), NOW)[0].worked <= 50.0 + 1e-9);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (policy, field) in [
            (LearnPolicy::default().max_failures(0), "max_failures"),
            (LearnPolicy::default().max_remedies(0), "max_remedies"),
            (LearnPolicy::default().half_life(Duration::ZERO), "half_life"),
            (LearnPolicy::default().span(f64::NAN), "span"),
            (LearnPolicy::default().failure_span(51.0), "failure_span"),
            (LearnPolicy::default().failure_span(f64::NAN), "failure_span"),
            (
                LearnPolicy::default().remedies([Remedy::new("x", ErrorClass::Permanent)]),
                "remedies",
            ),
            (
                LearnPolicy::default().remedies([Remedy::new("x", ErrorClass::Cancelled)]),
                "remedies",
            ),
            (LearnPolicy::default().remedies([retry(); 9]), "remedies"),
        ] {
            assert_eq!(policy.build().unwrap_err().field(), field);
        }
        // Nor does a file bring it in.
        let mut memory = memory(LearnPolicy::default());
        let tally = Tally { worked: 9.0, failed: 0.0, at: NOW };
        let never_told = Remedy::new("swallow", ErrorClass::Permanent);
        assert!(!memory.add(kind("a"), never_told, tally, NOW));
        assert!(!memory.add(kind("a"), retry(), Tally { failed: f64::NAN, ..tally }, NOW));
        assert!(memory.is_empty());
    }
}
