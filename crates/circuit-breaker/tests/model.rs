//! Random sequences of events against a model that remembers everything and counts by hand.

mod common;

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use common::{Answer, Dependency, checked, down, failed, layer, ok, pending, poll_once, rejection};
use proptest::prelude::*;
use tokio::sync::oneshot;
use tower::{Layer, Service, ServiceExt};
use tower_triage_circuit_breaker::{BreakerPolicy, Counts, KeyedSettings, State};
use tower_triage_core::{Backoff, ErrorClass, Key};

#[derive(Clone, Debug)]
struct Plan {
    row: Option<u32>,
    window: Option<Window>,
    minimum: u32,
    failure_rate: Option<f64>,
    failures: Option<u32>,
    /// Are slow calls told apart at all?
    slow: bool,
    slow_rate: Option<f64>,
    open_ms: Vec<u64>,
    probes: u32,
    /// Successes to close, failures to open; `None`: by rate.
    count: Option<(u32, u32)>,
}

#[derive(Clone, Copy, Debug)]
enum Window {
    Calls(u32),
    Millis(u64),
}

const SLOW_MS: u64 = 40;

#[derive(Clone, Copy, Debug)]
enum End {
    Success,
    Failure,
    Ignored,
    Dropped,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Wait(u64),
    /// A whole call that takes no time.
    Call(End),
    Start,
    /// Ends the call in flight at this position (modulo how many there are).
    Finish(usize, End),
    /// Reads counts and window, which may let old calls leave it.
    Look,
    ForceOpen,
    ForceClosed,
    Disable,
    Reset,
}

// === The model ===

#[derive(Clone, Copy)]
struct Record {
    failure: bool,
    slow: bool,
}

struct Model {
    plan: Plan,
    now: u64,
    state: State,
    era: u32,
    row: u32,
    calls: Vec<Record>,
    /// Start of a slice, what it holds.
    slices: Vec<(u64, Vec<Record>)>,
    trips: usize,
    open_until: u64,
    in_flight: u32,
    probes: Vec<Record>,
    counts: Counts,
}

struct Ticket {
    era: u32,
    started: u64,
}

impl Model {
    fn enter(&mut self, state: State) {
        self.state = state;
        self.era += 1;
        self.row = 0;
        self.calls.clear();
        self.slices.clear();
        self.in_flight = 0;
        self.probes.clear();
        if !matches!(state, State::Open | State::HalfOpen) {
            self.trips = 0;
        }
    }

    fn start(&mut self) -> Result<Ticket, u64> {
        let admitted = self.admit();
        self.counts.rejected += u64::from(admitted.is_err());
        admitted
    }

    fn admit(&mut self) -> Result<Ticket, u64> {
        match self.state {
            State::Closed | State::ForcedClosed | State::Disabled => {}
            State::ForcedOpen => return Err(0),
            State::Open if self.now < self.open_until => return Err(self.open_until - self.now),
            State::Open => {
                self.enter(State::HalfOpen);
                self.in_flight = 1;
            }
            State::HalfOpen if self.in_flight == self.plan.probes => return Err(0),
            State::HalfOpen => self.in_flight += 1,
        }
        Ok(Ticket { era: self.era, started: self.now })
    }

    fn trip(&mut self) {
        let open_ms = self.plan.open_ms[self.trips.min(self.plan.open_ms.len() - 1)];
        self.trips += 1;
        self.open_until = self.now + open_ms;
        self.enter(State::Open);
    }

    fn exceeded(&self, records: &[Record]) -> bool {
        let count = |is: fn(&Record) -> bool| records.iter().filter(|r| is(r)).count() as f64;
        let (all, failures) = (records.len() as f64, count(|r| r.failure));
        // Probes that are judged by rate are judged by the number of failures only without rates.
        let by_rate = self.plan.failure_rate.is_some() || self.plan.slow_rate.is_some();
        let by_number = self.state != State::HalfOpen || !by_rate;
        self.plan.failure_rate.is_some_and(|rate| failures / all >= rate)
            || self.plan.slow_rate.is_some_and(|rate| count(|r| r.slow) / all >= rate)
            || by_number && self.plan.failures.is_some_and(|limit| failures >= f64::from(limit))
    }

    fn count(&mut self, ticket: &Ticket, end: End) {
        let slow = self.is_slow(ticket);
        let counts = &mut self.counts;
        match end {
            _ if ticket.era == self.era && self.state == State::ForcedClosed => return,
            End::Dropped => counts.abandoned += 1,
            End::Ignored => counts.ignored += 1,
            End::Success | End::Failure if ticket.era != self.era => counts.late += 1,
            End::Success => counts.successes += 1,
            End::Failure => counts.failures += 1,
        }
        let judged = matches!(end, End::Success | End::Failure) && ticket.era == self.era;
        counts.slow += u64::from(judged && slow);
    }

    fn is_slow(&self, ticket: &Ticket) -> bool {
        self.plan.slow && self.now - ticket.started > SLOW_MS
    }

    /// What the window holds now.
    fn held(&mut self) -> Vec<Record> {
        let now = self.now;
        match self.plan.window {
            None => Vec::new(),
            Some(Window::Calls(length)) => {
                let from = self.calls.len().saturating_sub(length as usize);
                self.calls[from..].to_vec()
            }
            Some(Window::Millis(length)) => {
                self.slices.retain(|(start, _)| now - start < length);
                self.slices.iter().flat_map(|(_, r)| r).copied().collect()
            }
        }
    }

    fn finish(&mut self, ticket: Ticket, end: End) {
        self.count(&ticket, end);
        if ticket.era != self.era {
            return;
        }
        let failure = match end {
            End::Success => false,
            End::Failure => true,
            End::Ignored | End::Dropped => {
                self.in_flight = self.in_flight.saturating_sub(1);
                return;
            }
        };
        let record = Record { failure, slow: self.is_slow(&ticket) };
        match self.state {
            State::Closed => self.record(record),
            State::HalfOpen => {
                self.in_flight -= 1;
                self.probes.push(record);
                self.judge_probes();
            }
            _ => {}
        }
    }

    fn judge_probes(&mut self) {
        let bad = self.probes.iter().filter(|r| r.failure || r.slow).count();
        let good = self.probes.len() - bad;
        match self.plan.count {
            Some((_, open)) if bad >= open as usize => self.trip(),
            Some((close, _)) if good >= close as usize => self.enter(State::Closed),
            None if self.probes.len() >= self.plan.probes as usize => {
                match self.exceeded(&self.probes.clone()) {
                    true => self.trip(),
                    false => self.enter(State::Closed),
                }
            }
            _ => {}
        }
    }

    fn record(&mut self, record: Record) {
        self.row = if record.failure { self.row + 1 } else { 0 };
        let minimum = match self.plan.window {
            None => u32::MAX,
            Some(Window::Calls(length)) => {
                self.calls.push(record);
                self.plan.minimum.min(length)
            }
            Some(Window::Millis(length)) => {
                let now = self.now;
                self.slices.retain(|(start, _)| now - start < length);
                match self.slices.last_mut() {
                    Some((start, records)) if (now - *start) * 10 < length => records.push(record),
                    _ => self.slices.push((now, vec![record])),
                }
                self.plan.minimum
            }
        };
        let held = self.held();
        let row_trips = record.failure && self.plan.row.is_some_and(|limit| self.row >= limit);
        if row_trips || (held.len() >= minimum as usize && self.exceeded(&held)) {
            self.trip();
        }
    }
}

// === What is generated ===

fn plans() -> impl Strategy<Value = Plan> {
    let window = prop_oneof![
        (1..12_u32).prop_map(Window::Calls),
        (1..=10_u64).prop_map(|tens| Window::Millis(tens * 10)),
    ];
    let rate = || prop::option::of((1..=10_u32).prop_map(|tenths| f64::from(tenths) / 10.0));
    let rules = (prop::option::of(1..4_u32), prop::option::of(window), 1..8_u32, any::<bool>());
    let limits = (rate(), prop::option::of(1..4_u32), rate());
    let half_open = (1..4_u32, prop::option::of((1..4_u32, 1..4_u32)));
    (rules, limits, prop::collection::vec(0..60_u64, 1..4), half_open)
        .prop_map(|(rules, limits, open_ms, (probes, count))| Plan {
            row: rules.0,
            window: rules.1,
            minimum: rules.2,
            failure_rate: limits.0,
            failures: limits.1,
            slow: rules.3,
            slow_rate: limits.2.filter(|_| rules.3),
            open_ms,
            probes,
            count,
        })
        .prop_filter("a policy that builds", |plan| policy(plan).build().is_ok())
}

fn policy(plan: &Plan) -> BreakerPolicy {
    let mut policy = BreakerPolicy::new().minimum_calls(plan.minimum).probes(plan.probes).open_for(
        Backoff::list(plan.open_ms.iter().map(|ms| Duration::from_millis(*ms)).collect::<Vec<_>>()),
    );
    if plan.slow {
        policy = policy.slow_call(Duration::from_millis(SLOW_MS));
    }
    if let Some(row) = plan.row {
        policy = policy.consecutive_failures(row);
    }
    policy = match plan.window {
        None => policy,
        Some(Window::Calls(calls)) => policy.count_window(calls),
        Some(Window::Millis(ms)) => policy.time_window(Duration::from_millis(ms)),
    };
    if let Some(rate) = plan.failure_rate {
        policy = policy.failure_rate(rate);
    }
    if let Some(failures) = plan.failures {
        policy = policy.failures(failures);
    }
    if let Some(rate) = plan.slow_rate {
        policy = policy.slow_rate(rate);
    }
    match plan.count {
        Some((close, open)) => policy.decide_by_count(close, open),
        None => policy.decide_by_rate(),
    }
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let end = || {
        prop_oneof![
            6 => Just(End::Success),
            6 => Just(End::Failure),
            1 => Just(End::Ignored),
            1 => Just(End::Dropped),
        ]
    };
    let event = prop_oneof![
        8 => (0..25_u64).prop_map(Event::Wait),
        16 => end().prop_map(Event::Call),
        4 => Just(Event::Start),
        5 => (any::<usize>(), end()).prop_map(|(n, end)| Event::Finish(n, end)),
        2 => Just(Event::Look),
        1 => prop_oneof![
            Just(Event::ForceOpen),
            Just(Event::ForceClosed),
            Just(Event::Disable),
            Just(Event::Reset),
            Just(Event::Reset),
            Just(Event::Reset),
        ],
    ];
    prop::collection::vec(event, 1..120)
}

// === Both side by side ===

type InFlight = (Pin<Box<dyn Future<Output = Answer>>>, oneshot::Sender<Answer>, Ticket);

async fn compare(plan: Plan, keyed: bool, events: Vec<Event>) -> Result<(), TestCaseError> {
    let mut layer = layer(checked(policy(&plan)).into_inner());
    if keyed {
        layer = layer.keyed(KeyedSettings::default());
    }
    let shared = layer.handle();
    let mut service = layer.layer(Dependency::default());
    let mut model = Model {
        plan,
        now: 0,
        state: State::Closed,
        era: 0,
        row: 0,
        calls: Vec::new(),
        slices: Vec::new(),
        trips: 0,
        open_until: 0,
        in_flight: 0,
        probes: Vec::new(),
        counts: Counts::default(),
    };
    let mut flights: BTreeMap<usize, InFlight> = BTreeMap::new();
    for (number, event) in events.into_iter().enumerate() {
        let mut ends = None;
        // A key's circuit is made by its first call.
        let handle = if keyed { shared.key(&Key::EMPTY) } else { Some(shared.clone()) };
        let handle = handle.as_ref();
        match event {
            Event::Wait(ms) => {
                tokio::time::advance(Duration::from_millis(ms)).await;
                model.now += ms;
            }
            Event::Look => {
                let Some(handle) = handle else { continue };
                let (sample, held) = (handle.window(), model.held());
                let count = |is: fn(&Record) -> bool| held.iter().filter(|r| is(r)).count() as u64;
                prop_assert_eq!(
                    (sample.recorded, sample.failures, sample.slow),
                    (count(|_| true), count(|r| r.failure), count(|r| r.slow))
                );
                prop_assert_eq!(handle.counts(), model.counts);
            }
            Event::ForceOpen => {
                let Some(handle) = handle else { continue };
                handle.force_open();
                model.enter(State::ForcedOpen);
            }
            Event::ForceClosed => {
                let Some(handle) = handle else { continue };
                handle.force_closed();
                model.enter(State::ForcedClosed);
            }
            Event::Disable => {
                let Some(handle) = handle else { continue };
                handle.disable();
                model.enter(State::Disabled);
            }
            Event::Reset => {
                let Some(handle) = handle else { continue };
                handle.reset();
                model.enter(State::Closed);
            }
            Event::Start | Event::Call(_) => {
                let (answer, call) = pending();
                let mut future = Box::pin(service.ready().await.unwrap().call(call));
                match (poll_once(future.as_mut()), model.start()) {
                    (Poll::Pending, Ok(ticket)) => {
                        flights.insert(number, (future, answer, ticket));
                    }
                    (Poll::Ready(answer), Err(left)) => {
                        let open = rejection(&answer).expect("a rejection");
                        prop_assert_eq!(open.retry_after(), Duration::from_millis(left));
                    }
                    (Poll::Pending, Err(_)) => prop_assert!(false, "{number}: admitted"),
                    (Poll::Ready(_), Ok(_)) => prop_assert!(false, "{number}: rejected"),
                }
                if let Event::Call(end) = event {
                    ends = flights.remove(&number).map(|flight| (flight, end));
                }
            }
            Event::Finish(n, end) => {
                let position = n.checked_rem(flights.len());
                let key = position.and_then(|n| flights.keys().nth(n).copied());
                ends = key.and_then(|key| flights.remove(&key)).map(|flight| (flight, end));
            }
        }
        if let Some(((future, answer, ticket), end)) = ends {
            let result = match end {
                End::Success => Some(ok()),
                End::Failure => Some(down()),
                End::Ignored => Some(failed(ErrorClass::Throttled)),
                End::Dropped => None,
            };
            match result {
                Some(result) => {
                    answer.send(result).unwrap();
                    _ = future.await;
                }
                None => drop(future),
            }
            model.finish(ticket, end);
        }
        if let Some(handle) = handle {
            prop_assert_eq!(handle.state(), model.state, "after event {}: {:?}", number, event);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_breaker_does_what_the_model_does(
        plan in plans(),
        keyed: bool,
        events in events(),
    ) {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap()
            .block_on(compare(plan, keyed, events))?;
    }
}
