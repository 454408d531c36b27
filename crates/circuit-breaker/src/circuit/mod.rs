//! The state machine of one circuit: pure, with time and chance as arguments.
//!
//! Every change of state begins a new era. A call belongs to the era it was admitted in, and its
//! result counts in that era only: what comes later is dropped.

mod row;
mod window;

use std::time::Duration;

use tower_triage_core::Delays;

use self::row::Row;
use self::window::{Blot, Window};
use crate::policy::{BreakerPlan, ProbeRule};
use crate::state::{Counts, Sample, State};

/// How one call ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Outcome {
    Success { slow: bool },
    Failure { slow: bool, retry_after: Option<Duration> },
    Ignored,
    Abandoned,
}

/// A change of state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Change {
    pub(crate) from: State,
    pub(crate) to: State,
    pub(crate) open_for: Option<Duration>,
}

/// When the next call may pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Chance {
    Now,
    After(Duration),
    /// Not by time alone: slots are taken, or somebody forced it open.
    Unknown,
}

#[derive(Debug)]
pub(crate) struct Circuit {
    phase: Phase,
    era: u32,
    row: Row,
    window: Window,
    delays: Delays,
    /// The latest moment that a failure of this era asked us to wait for.
    hinted: Duration,
    counts: Counts,
}

#[derive(Debug)]
enum Phase {
    Closed,
    Open { until: Duration, open_for: Duration },
    HalfOpen(Probing),
    ForcedOpen,
    ForcedClosed,
    Disabled,
}

#[derive(Debug)]
struct Probing {
    in_flight: u32,
    sample: Sample,
    /// Failures and slow successes.
    bad: u64,
    open_for: Duration,
    reprobe_at: Duration,
}

impl Circuit {
    /// Eras are kept in so many bits; a result that is exactly so many eras late would count.
    pub(crate) const ERA_BITS: u32 = 28;

    pub(crate) fn new(policy: &BreakerPlan) -> Self {
        Self {
            phase: Phase::Closed,
            era: 0,
            row: Row::default(),
            window: Window::new(policy.window),
            delays: Delays::default(),
            hinted: Duration::ZERO,
            counts: Counts::default(),
        }
    }

    pub(crate) const fn era(&self) -> u32 {
        self.era
    }

    pub(crate) const fn counts(&self) -> Counts {
        self.counts
    }

    pub(crate) fn sample(&mut self, now: Duration) -> Sample {
        self.window.sample(now)
    }

    pub(crate) const fn state(&self) -> State {
        match self.phase {
            Phase::Closed => State::Closed,
            Phase::Open { .. } => State::Open,
            Phase::HalfOpen(_) => State::HalfOpen,
            Phase::ForcedOpen => State::ForcedOpen,
            Phase::ForcedClosed => State::ForcedClosed,
            Phase::Disabled => State::Disabled,
        }
    }

    /// How many probe slots are held.
    pub(crate) const fn probes_in_flight(&self) -> u32 {
        match &self.phase {
            Phase::HalfOpen(probing) => probing.in_flight,
            _ => 0,
        }
    }

    /// Until when a plain success that is not watched changes nothing but counts.
    pub(crate) fn quiet_until(&self) -> Duration {
        match self.phase {
            Phase::Closed => self.window.good_until(),
            _ => Duration::MAX,
        }
    }

    /// Until when every call is refused by time; zero if time is not what decides.
    pub(crate) const fn refuses_until(&self) -> Duration {
        match self.phase {
            Phase::Open { until, .. } => until,
            _ => Duration::ZERO,
        }
    }

    /// Closed: could a plain success change more than counts, whatever the time?
    pub(crate) fn watches_successes(&mut self, policy: &BreakerPlan, now: Duration) -> bool {
        matches!(self.phase, Phase::Closed)
            && (!self.row.is_empty() || policy.may_trip_on_success(self.window.sample(now)))
    }

    /// When the next call may pass.
    pub(crate) fn chance(&self, policy: &BreakerPlan, now: Duration) -> Chance {
        let due = match &self.phase {
            Phase::Closed | Phase::ForcedClosed | Phase::Disabled => return Chance::Now,
            Phase::ForcedOpen => return Chance::Unknown,
            Phase::Open { until, .. } => *until,
            Phase::HalfOpen(probing) if probing.in_flight < policy.probes => return Chance::Now,
            Phase::HalfOpen(probing) if policy.reprobe => probing.reprobe_at,
            Phase::HalfOpen(_) => return Chance::Unknown,
        };
        match due.saturating_sub(now) {
            Duration::ZERO => Chance::Now,
            left => Chance::After(left),
        }
    }

    /// Lets a call in, taking a probe slot where it needs one; or says what is left of the open
    /// time (zero if that is not what it waits for).
    pub(crate) fn admit(
        &mut self,
        policy: &BreakerPlan,
        now: Duration,
    ) -> (Result<u32, Duration>, Option<Change>) {
        match (self.chance(policy, now), &self.phase) {
            (Chance::Now, _) => {}
            (Chance::After(left), Phase::Open { .. }) => return (Err(left), None),
            (Chance::After(_) | Chance::Unknown, _) => return (Err(Duration::ZERO), None),
        }
        let change = match self.phase {
            Phase::Open { open_for, .. } => Some(self.enter(Phase::HalfOpen(Probing {
                in_flight: 0,
                sample: Sample::default(),
                bad: 0,
                open_for,
                reprobe_at: now,
            }))),
            _ => None,
        };
        if let Phase::HalfOpen(probing) = &mut self.phase {
            probing.in_flight += 1;
            probing.reprobe_at = now.saturating_add(probing.open_for);
        }
        (Ok(self.era), change)
    }

    /// `n` plain successes of this era ended since the last look.
    pub(crate) fn earlier_successes(&mut self, n: u64, now: Duration) {
        if matches!(self.phase, Phase::ForcedClosed) {
            return;
        }
        self.counts.successes = self.counts.successes.saturating_add(n);
        if matches!(self.phase, Phase::Closed) {
            self.window.earlier_successes(n, now);
        }
    }

    /// A call of `era` ended now. `u` is uniform in [0, 1).
    pub(crate) fn record(
        &mut self,
        policy: &BreakerPlan,
        era: u32,
        outcome: Outcome,
        now: Duration,
        u: f64,
    ) -> Option<Change> {
        if matches!(self.phase, Phase::ForcedClosed) && era == self.era {
            return None;
        }
        match outcome {
            Outcome::Abandoned => self.counts.abandoned += 1,
            Outcome::Ignored => self.counts.ignored += 1,
            Outcome::Success { .. } | Outcome::Failure { .. } if era != self.era => {
                self.counts.late += 1;
            }
            Outcome::Success { slow } => {
                self.counts.successes += 1;
                self.counts.slow += u64::from(slow);
            }
            Outcome::Failure { slow, retry_after } => {
                self.counts.failures += 1;
                self.counts.slow += u64::from(slow);
                if let Some(wait) = retry_after {
                    let wait = wait.min(policy.retry_after_cap);
                    self.hinted = self.hinted.max(now.saturating_add(wait));
                }
            }
        }
        if era != self.era {
            return None;
        }
        match self.phase {
            Phase::Closed => self.record_closed(policy, outcome, now, u),
            Phase::HalfOpen(_) => self.record_probe(policy, outcome, now, u),
            // Nothing of the era of an open circuit was let in; a disabled one only counts.
            Phase::Open { .. } | Phase::ForcedOpen | Phase::ForcedClosed | Phase::Disabled => None,
        }
    }

    fn record_closed(
        &mut self,
        policy: &BreakerPlan,
        outcome: Outcome,
        now: Duration,
        u: f64,
    ) -> Option<Change> {
        let mut row_trips = false;
        match outcome {
            Outcome::Ignored | Outcome::Abandoned => return None,
            Outcome::Success { slow } => {
                self.row.success();
                self.window.record(slow.then_some(Blot { failure: false, slow }), now);
            }
            Outcome::Failure { slow, .. } => {
                row_trips = self.row.failure(policy, now);
                self.window.record(Some(Blot { failure: true, slow }), now);
            }
        }
        let trips = row_trips || policy.trips(self.window.sample(now));
        trips.then(|| self.open(policy, now, u))
    }

    fn record_probe(
        &mut self,
        policy: &BreakerPlan,
        outcome: Outcome,
        now: Duration,
        u: f64,
    ) -> Option<Change> {
        let Phase::HalfOpen(probing) = &mut self.phase else { return None };
        probing.in_flight = probing.in_flight.saturating_sub(1);
        let (failure, slow) = match outcome {
            Outcome::Ignored | Outcome::Abandoned => return None,
            Outcome::Success { slow } => (false, slow),
            Outcome::Failure { slow, .. } => (true, slow),
        };
        probing.sample.recorded += 1;
        probing.sample.failures += u64::from(failure);
        probing.sample.slow += u64::from(slow);
        probing.bad += u64::from(failure || slow);
        let good = match policy.half_open {
            ProbeRule::Count { failures_to_open, .. }
                if probing.bad >= u64::from(failures_to_open) =>
            {
                false
            }
            ProbeRule::Count { successes_to_close, .. }
                if probing.sample.recorded - probing.bad >= u64::from(successes_to_close) =>
            {
                true
            }
            ProbeRule::Rate if probing.sample.recorded >= u64::from(policy.probes) => {
                !policy.probes_exceed(probing.sample)
            }
            ProbeRule::Count { .. } | ProbeRule::Rate => return None,
        };
        Some(if good { self.start_over(Phase::Closed) } else { self.open(policy, now, u) })
    }

    fn open(&mut self, policy: &BreakerPlan, now: Duration, u: f64) -> Change {
        let scheduled = policy.open_for.next(&mut self.delays, u);
        let open_for = scheduled.max(self.hinted.saturating_sub(now));
        let until = now.saturating_add(open_for);
        Change { open_for: Some(open_for), ..self.enter(Phase::Open { until, open_for }) }
    }

    /// Rejects everything until told otherwise.
    pub(crate) fn force_open(&mut self) -> Change {
        self.start_over(Phase::ForcedOpen)
    }

    /// Admits everything and records nothing until told otherwise.
    pub(crate) fn force_closed(&mut self) -> Change {
        self.start_over(Phase::ForcedClosed)
    }

    /// Admits and counts everything, and applies no rule, until told otherwise.
    pub(crate) fn disable(&mut self) -> Change {
        self.start_over(Phase::Disabled)
    }

    /// Back to an ordinary closed circuit that remembers nothing but its lifetime counts.
    pub(crate) fn reset(&mut self) -> Change {
        self.start_over(Phase::Closed)
    }

    /// Enters `phase` with the schedule of open times at its beginning.
    fn start_over(&mut self, phase: Phase) -> Change {
        self.delays.restart();
        self.enter(phase)
    }

    /// Begins a new era.
    fn enter(&mut self, phase: Phase) -> Change {
        let from = self.state();
        self.phase = phase;
        self.era = (self.era + 1) & ((1 << Self::ERA_BITS) - 1);
        self.row = Row::default();
        self.window.clear();
        self.hinted = Duration::ZERO;
        Change { from, to: self.state(), open_for: None }
    }
}

#[cfg(test)]
mod tests {
    use tower_triage_core::Backoff;

    use super::*;
    use crate::policy::BreakerPolicy;

    const FAILURE: Outcome = Outcome::Failure { slow: false, retry_after: None };
    const SUCCESS: Outcome = Outcome::Success { slow: false };

    fn policy(open_for: Duration) -> BreakerPlan {
        let policy = BreakerPolicy::new().consecutive_failures(1);
        policy.open_for(Backoff::fixed(open_for)).build().unwrap()
    }

    #[test]
    fn at_exactly_the_open_time_a_probe_is_admitted() {
        let policy = policy(Duration::from_secs(10));
        let mut circuit = Circuit::new(&policy);
        let now = Duration::from_secs(5);
        let change = circuit.record(&policy, 0, FAILURE, now, 0.0).unwrap();
        assert_eq!(change.open_for, Some(Duration::from_secs(10)));

        let nano = Duration::from_nanos(1);
        let due = Duration::from_secs(15);
        assert_eq!(circuit.admit(&policy, due - nano), (Err(nano), None));
        let (admitted, change) = circuit.admit(&policy, due);
        assert_eq!(change.unwrap().to, State::HalfOpen);
        assert_eq!(circuit.admit(&policy, due).0, Err(Duration::ZERO), "the slot is taken");
        let change = circuit.record(&policy, admitted.unwrap(), SUCCESS, due, 0.0).unwrap();
        assert_eq!((change.from, change.to), (State::HalfOpen, State::Closed));
    }

    #[test]
    fn an_open_time_without_end_does_not_wrap_around() {
        let policy = policy(Duration::MAX);
        let mut circuit = Circuit::new(&policy);
        circuit.record(&policy, 0, FAILURE, Duration::from_secs(1), 0.9).unwrap();
        let late = Duration::from_secs(u64::MAX / 2);
        assert!(circuit.admit(&policy, late).0.unwrap_err() > Duration::from_secs(1));
        assert_eq!(circuit.state(), State::Open);
    }

    #[test]
    fn eras_wrap_around_within_their_bits() {
        let policy = policy(Duration::ZERO);
        let mut circuit = Circuit::new(&policy);
        circuit.era = (1 << Circuit::ERA_BITS) - 1;
        circuit.reset();
        assert_eq!(circuit.era(), 0);
        assert!(circuit.record(&policy, 0, FAILURE, Duration::ZERO, 0.0).is_some());
    }
}
