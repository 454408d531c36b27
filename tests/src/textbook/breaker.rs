//! A breaker by the textbook: every call of the era is kept, and everything is counted anew.

use tower_triage_circuit_breaker::State;

/// When it trips and how it comes back; times in milliseconds.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) row: Option<u32>,
    pub(super) within: Option<u64>,
    pub(super) span: Option<Span>,
    pub(super) minimum: u32,
    pub(super) failure_rate: Option<f64>,
    pub(super) failures: Option<u32>,
    pub(super) slow_over: Option<u64>,
    pub(super) slow_rate: Option<f64>,
    pub(super) open: Vec<u64>,
    pub(super) probes: u32,
    /// Successes to close, failures to open; `None`: by rate.
    pub(super) count: Option<(u32, u32)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Span {
    Calls(u32),
    Millis(u64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum End {
    Success,
    Failure,
    Ignored,
    Dropped,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    at: u64,
    /// When the slice began that it is in.
    slice: u64,
    failure: bool,
    slow: bool,
}

/// Lifetime counts, in the order of the public ones.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counts {
    pub(super) successes: u64,
    pub(super) failures: u64,
    pub(super) slow: u64,
    pub(super) ignored: u64,
    pub(super) abandoned: u64,
    pub(super) late: u64,
    pub(super) rejected: u64,
}

pub(super) struct Admitted {
    era: u64,
    at: u64,
}

pub(super) struct Breaker {
    rules: Rules,
    pub(super) now: u64,
    pub(super) state: State,
    pub(super) counts: Counts,
    era: u64,
    /// The calls of this era that ended as success or failure.
    calls: Vec<Call>,
    trips: usize,
    open_until: u64,
    /// Probes in flight.
    inside: u32,
}

impl Breaker {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            now: 0,
            state: State::Closed,
            counts: Counts::default(),
            era: 0,
            calls: Vec::new(),
            trips: 0,
            open_until: 0,
            inside: 0,
        }
    }

    pub(super) fn enter(&mut self, state: State) {
        self.state = state;
        self.era += 1;
        self.calls.clear();
        self.inside = 0;
        if !matches!(state, State::Open | State::HalfOpen) {
            self.trips = 0;
        }
    }

    pub(super) fn admit(&mut self) -> Result<Admitted, u64> {
        let left = match self.state {
            State::Closed | State::ForcedClosed | State::Disabled => None,
            State::ForcedOpen => Some(0),
            State::Open if self.now < self.open_until => Some(self.open_until - self.now),
            State::Open => {
                self.enter(State::HalfOpen);
                None
            }
            State::HalfOpen => (self.inside == self.rules.probes).then_some(0),
        };
        if let Some(left) = left {
            self.counts.rejected += 1;
            return Err(left);
        }
        if self.state == State::HalfOpen {
            self.inside += 1;
        }
        Ok(Admitted { era: self.era, at: self.now })
    }

    pub(super) fn end(&mut self, admitted: &Admitted, end: End) {
        let late = admitted.era != self.era;
        if self.state == State::ForcedClosed && !late {
            return;
        }
        let slow = self.rules.slow_over.is_some_and(|limit| self.now - admitted.at > limit);
        match end {
            End::Dropped => self.counts.abandoned += 1,
            End::Ignored => self.counts.ignored += 1,
            End::Success | End::Failure if late => self.counts.late += 1,
            End::Success => self.counts.successes += 1,
            End::Failure => self.counts.failures += 1,
        }
        if late {
            return;
        }
        if self.state == State::HalfOpen {
            self.inside -= 1;
        }
        if matches!(end, End::Ignored | End::Dropped) {
            return;
        }
        self.counts.slow += u64::from(slow);
        let failure = end == End::Failure;
        match self.state {
            State::Closed => {
                self.calls.push(Call { at: self.now, slice: self.slice(), failure, slow });
                self.judge(failure);
            }
            State::HalfOpen => {
                self.calls.push(Call { at: self.now, slice: self.now, failure, slow });
                self.judge_probes();
            }
            _ => {}
        }
    }

    /// A slice begins with its first call, and takes what comes within a tenth of the window.
    fn slice(&self) -> u64 {
        match (self.rules.span, self.calls.last()) {
            (Some(Span::Millis(length)), Some(last)) if (self.now - last.slice) * 10 < length => {
                last.slice
            }
            _ => self.now,
        }
    }

    /// The calls that the window holds.
    fn held(&self) -> &[Call] {
        let from = match self.rules.span {
            None => self.calls.len(),
            Some(Span::Calls(length)) => self.calls.len().saturating_sub(length as usize),
            Some(Span::Millis(length)) => {
                self.calls.partition_point(|call| self.now - call.slice >= length)
            }
        };
        &self.calls[from..]
    }

    /// Recorded, failed, slow.
    pub(super) fn sample(&self) -> (u64, u64, u64) {
        let held = if self.state == State::Closed { self.held() } else { &[] };
        let count = |is: fn(&Call) -> bool| held.iter().filter(|call| is(call)).count() as u64;
        (held.len() as u64, count(|call| call.failure), count(|call| call.slow))
    }

    fn judge(&mut self, failed: bool) {
        let row = self.calls.iter().rev().take_while(|call| call.failure);
        let within = self.rules.within.unwrap_or(u64::MAX);
        let row = row.filter(|call| self.now - call.at <= within).count();
        let row_trips = failed && self.rules.row.is_some_and(|limit| row >= limit as usize);
        let minimum = match self.rules.span {
            Some(Span::Calls(length)) => self.rules.minimum.min(length),
            _ => self.rules.minimum,
        };
        let (recorded, failures, slow) = self.sample();
        let window_trips = recorded >= u64::from(minimum)
            && (self.rate_exceeded(recorded, failures, slow) || self.number_exceeded(failures));
        if row_trips || window_trips {
            self.trip();
        }
    }

    fn rate_exceeded(&self, recorded: u64, failures: u64, slow: u64) -> bool {
        let exceeds = |limit: Option<f64>, part: u64| {
            limit.is_some_and(|limit| part as f64 / recorded as f64 >= limit)
        };
        exceeds(self.rules.failure_rate, failures) || exceeds(self.rules.slow_rate, slow)
    }

    fn number_exceeded(&self, failures: u64) -> bool {
        self.rules.failures.is_some_and(|limit| failures >= u64::from(limit))
    }

    fn judge_probes(&mut self) {
        let probes = &self.calls;
        let all = probes.len() as u64;
        let failures = probes.iter().filter(|call| call.failure).count() as u64;
        let slow = probes.iter().filter(|call| call.slow).count() as u64;
        let bad = probes.iter().filter(|call| call.failure || call.slow).count() as u64;
        let rates = self.rules.failure_rate.is_some() || self.rules.slow_rate.is_some();
        match self.rules.count {
            Some((_, open)) if bad >= u64::from(open) => self.trip(),
            Some((close, _)) if all - bad >= u64::from(close) => self.enter(State::Closed),
            None if all >= u64::from(self.rules.probes) => {
                let down = match rates {
                    true => self.rate_exceeded(all, failures, slow),
                    false => self.number_exceeded(failures),
                };
                if down { self.trip() } else { self.enter(State::Closed) }
            }
            _ => {}
        }
    }

    fn trip(&mut self) {
        let open = self.rules.open[self.trips.min(self.rules.open.len() - 1)];
        let trips = self.trips + 1;
        self.open_until = self.now + open;
        self.enter(State::Open);
        self.trips = trips;
    }
}
