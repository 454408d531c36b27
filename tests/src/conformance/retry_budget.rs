//! Rows of `retry_budget.json`: budgets, and what they must allow.

use std::collections::HashMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tower_triage_core::{ErrorClass, Failure, ServerWord, Verdict};
use tower_triage_retry::budget::{
    Budget, Denied, InFlightSettings, RetriedRefund, Spending, ThrottleSettings, TokenCostSettings,
    TokenCosts, TokenRefunds, WindowSettings,
};

use super::Outcome;

/// Runs one row.
pub(super) fn run(row: &Value) -> Outcome {
    let spec = match Spec::deserialize(&row["budget"]) {
        Ok(spec) => spec,
        Err(error) => return Outcome::fail("a known budget", error),
    };
    let events = match Vec::<Event>::deserialize(&row["events"]) {
        Ok(events) if !events.is_empty() => events,
        Ok(_) => return Outcome::fail("at least one event", "none"),
        Err(error) => return Outcome::fail("known events", error),
    };
    let mut bench = match Bench::new(spec) {
        Ok(bench) => bench,
        Err(problem) => return Outcome::fail("a budget that can be built", problem),
    };
    let mut differences = Vec::new();
    for (at, event) in events.iter().enumerate() {
        for difference in bench.run(event) {
            differences.push(format!("event {} ({:?}): {difference}", at + 1, event.action));
        }
    }
    Outcome::from_differences(differences)
}

// === The format ===

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum Spec {
    RatioWindow {
        ttl_ms: f64,
        min_retries_per_sec: u32,
        percent_can_retry: f64,
        per_request_fraction: Option<f64>,
    },
    TokenCost {
        capacity: u32,
        retry_cost: u32,
        timeout_cost: Option<u32>,
        throttling_cost: Option<u32>,
        first_try_refund: Option<u32>,
        retry_success_refund: Option<Refund>,
    },
    FailureThrottle {
        max_tokens: u32,
        token_ratio: f64,
    },
    Concurrency {
        max_rate: f64,
        min_concurrency: u32,
    },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Refund {
    Named(NamedRefund),
    Tokens(u32),
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum NamedRefund {
    LastCost,
}

impl From<Refund> for RetriedRefund {
    fn from(refund: Refund) -> Self {
        match refund {
            Refund::Named(NamedRefund::LastCost) => Self::LastCost,
            Refund::Tokens(tokens) => Self::Tokens(tokens),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Event {
    at_ms: Option<f64>,
    #[serde(rename = "do")]
    action: Action,
    #[serde(default = "once")]
    times: u64,
    call: Option<String>,
    #[serde(default)]
    fresh_calls: bool,
    error: Option<ErrorKind>,
    failures: Option<Failures>,
    // What is expected.
    allowed: Option<u64>,
    allowed_min: Option<u64>,
    allowed_max: Option<u64>,
    expect: Option<Answer>,
    retry: Option<Answer>,
    retries: Option<u64>,
    stopped_by: Option<Stop>,
    balance: Option<u64>,
    tokens_after: Option<f64>,
}

const fn once() -> u64 {
    1
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    Deposit,
    Withdraw,
    DepositThenWithdraw,
    Balance,
    Request,
    Retry,
    Success,
    GiveUp,
    Failure,
    FatalFailure,
    PushbackDoNotRetry,
    Check,
    CallStart,
    CallEnd,
    RetryStart,
    RetryEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Allowed,
    Denied,
}

impl Answer {
    const fn of(allowed: bool) -> Self {
        if allowed { Self::Allowed } else { Self::Denied }
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ErrorKind {
    Other,
    Timeout,
    Throttling,
}

impl ErrorKind {
    const fn failure(self) -> Failure {
        Failure::new(match self {
            Self::Other => ErrorClass::Transient,
            Self::Timeout => ErrorClass::Timeout,
            Self::Throttling => ErrorClass::Throttled,
        })
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Failures {
    First(u64),
    Named(NamedFailures),
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum NamedFailures {
    Always,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stop {
    Success,
    RequestLimit,
    Budget,
}

// === The bench ===

const TRANSIENT: Failure = Failure::new(ErrorClass::Transient);

/// A budget and the requests that draw on it.
struct Bench {
    kind: BenchKind,
    budget: Budget,
    now: Duration,
    /// Requests by name.
    calls: HashMap<String, Spending>,
    /// First attempts and retries that run.
    running: Vec<Spending>,
    retrying: Vec<Spending>,
}

/// Which events belong to the budget.
#[derive(Clone, Copy, PartialEq)]
enum BenchKind {
    RatioWindow,
    TokenCost,
    FailureThrottle,
    Concurrency,
}

/// What came of an event's repeats.
#[derive(Default)]
struct Seen {
    /// Whether each retry that was asked for was allowed.
    answers: Vec<bool>,
    /// Retries of the last `request`, and what ended it.
    request: Option<(u64, Stop)>,
    /// Whether a retry is allowed after the event.
    retry: Option<bool>,
}

impl Bench {
    fn new(spec: Spec) -> Result<Self, String> {
        let (kind, budget) = match spec {
            Spec::RatioWindow {
                ttl_ms,
                min_retries_per_sec,
                percent_can_retry: ratio,
                per_request_fraction,
            } => {
                let ttl = millis(ttl_ms)?;
                let budget = Budget::window(WindowSettings { ttl, min_retries_per_sec, ratio });
                let budget = match per_request_fraction {
                    None => budget,
                    Some(fraction) => budget.and_then(|b| b.per_request_fraction(fraction)),
                };
                (BenchKind::RatioWindow, budget)
            }
            Spec::TokenCost {
                capacity,
                retry_cost,
                timeout_cost,
                throttling_cost,
                first_try_refund,
                retry_success_refund,
            } => {
                let usual = TokenRefunds::default();
                let settings = TokenCostSettings {
                    capacity,
                    costs: TokenCosts {
                        transient: retry_cost,
                        timeout: timeout_cost.unwrap_or(retry_cost),
                        throttled: throttling_cost.unwrap_or(retry_cost),
                        other: retry_cost,
                    },
                    refunds: TokenRefunds {
                        first_try: first_try_refund.unwrap_or(usual.first_try),
                        retried: retry_success_refund.map_or(usual.retried, RetriedRefund::from),
                        ..usual
                    },
                    ..TokenCostSettings::default()
                };
                (BenchKind::TokenCost, Budget::token_cost(settings))
            }
            Spec::FailureThrottle { max_tokens, token_ratio } => {
                let settings = ThrottleSettings { max_tokens, token_ratio };
                (BenchKind::FailureThrottle, Budget::failure_throttle(settings))
            }
            Spec::Concurrency { max_rate: max_ratio, min_concurrency: min } => {
                let settings = InFlightSettings { max_ratio, min };
                (BenchKind::Concurrency, Budget::in_flight(settings))
            }
        };
        Ok(Self {
            kind,
            budget: budget.map_err(|error| error.to_string())?,
            now: Duration::ZERO,
            calls: HashMap::new(),
            running: Vec::new(),
            retrying: Vec::new(),
        })
    }

    fn run(&mut self, event: &Event) -> Vec<String> {
        let mut seen = Seen::default();
        let done = self.advance(event).and_then(|()| {
            (0..event.times).try_for_each(|repeat| self.act(event, repeat, &mut seen))
        });
        match done {
            Ok(()) => self.compare(event, &seen),
            Err(problem) => vec![problem],
        }
    }

    fn advance(&mut self, event: &Event) -> Result<(), String> {
        let Some(at) = event.at_ms else { return Ok(()) };
        let at = millis(at)?;
        if at < self.now {
            return Err(format!("expected time to go on from {:?}, got {at:?}", self.now));
        }
        self.now = at;
        Ok(())
    }

    fn act(&mut self, event: &Event, repeat: u64, seen: &mut Seen) -> Result<(), String> {
        use Action as A;
        use BenchKind as K;

        match (self.kind, event.action) {
            (K::RatioWindow, A::Deposit) => drop(self.budget.begin(self.now)),
            (K::RatioWindow, A::Withdraw) => seen.answers.push(self.withdraw()),
            (K::RatioWindow, A::DepositThenWithdraw) => {
                drop(self.budget.begin(self.now));
                seen.answers.push(self.withdraw());
            }
            (K::RatioWindow, A::Balance) => {}
            (K::RatioWindow, A::Request) => seen.request = Some(self.request(event)?),
            (K::TokenCost, A::Retry) => {
                let failure = event.error.ok_or("expected an `error`")?.failure();
                let mut call = self.take_call(event, repeat);
                self.budget.observe(&mut call, &Verdict::Failure(failure), true);
                seen.answers.push(self.budget.ask(&mut call, &failure, self.now).is_ok());
                self.calls.insert(call_name(event, repeat), call);
            }
            (K::TokenCost, A::Success) => {
                let mut call = self.take_call(event, repeat);
                self.budget.observe(&mut call, &Verdict::Success, false);
            }
            (K::TokenCost, A::GiveUp) => drop(self.take_call(event, repeat)),
            (K::FailureThrottle, A::Failure) => seen.retry = Some(self.fail(TRANSIENT, true)),
            (K::FailureThrottle, A::FatalFailure) => {
                seen.retry = Some(self.fail(Failure::new(ErrorClass::Permanent), false));
            }
            (K::FailureThrottle, A::PushbackDoNotRetry) => {
                self.fail(TRANSIENT.server(ServerWord::Forbidden), false);
                // Whatever the tokens say.
                seen.retry = Some(false);
            }
            (K::FailureThrottle, A::Success) => {
                let mut call = self.budget.begin(self.now);
                self.budget.observe(&mut call, &Verdict::Success, false);
                seen.retry = Some(self.withdraw());
            }
            (K::FailureThrottle, A::Check) => seen.retry = Some(self.withdraw()),
            (K::Concurrency, A::CallStart) => self.running.push(self.budget.begin(self.now)),
            (K::Concurrency, A::CallEnd) => {
                drop(self.running.pop().ok_or("expected a call that runs")?);
            }
            (K::Concurrency, A::RetryStart) => {
                // A request whose first attempt came and went.
                let mut retry = self.budget.begin(self.now);
                self.budget.observe(&mut retry, &Verdict::Failure(TRANSIENT), true);
                let allowed = self.budget.ask(&mut retry, &TRANSIENT, self.now).is_ok();
                seen.answers.push(allowed);
                if allowed {
                    self.retrying.push(retry);
                }
            }
            (K::Concurrency, A::RetryEnd) => {
                drop(self.retrying.pop().ok_or("expected a retry that runs")?);
            }
            (_, action) => return Err(format!("expected an event of this budget, got {action:?}")),
        }
        Ok(())
    }

    /// A retry that is asked for apart from any request that was deposited.
    fn withdraw(&self) -> bool {
        let mut spending = Budget::unlimited().begin(self.now);
        self.budget.ask(&mut spending, &TRANSIENT, self.now).is_ok()
    }

    /// An attempt fails; do the tokens allow a retry after it?
    fn fail(&self, failure: Failure, retryable: bool) -> bool {
        let mut call = self.budget.begin(self.now);
        self.budget.observe(&mut call, &Verdict::Failure(failure), retryable);
        self.budget.ask(&mut call, &failure, self.now).is_ok()
    }

    fn request(&self, event: &Event) -> Result<(u64, Stop), String> {
        let failures = match event.failures.ok_or("expected `failures`")? {
            Failures::First(n) => n,
            Failures::Named(NamedFailures::Always) => u64::MAX,
        };
        let mut spending = self.budget.begin(self.now);
        for retries in 0..failures {
            self.budget.observe(&mut spending, &Verdict::Failure(TRANSIENT), true);
            match self.budget.ask(&mut spending, &TRANSIENT, self.now) {
                Ok(()) => {}
                Err(Denied::RequestLimit) => return Ok((retries, Stop::RequestLimit)),
                Err(Denied::UsedUp) => return Ok((retries, Stop::Budget)),
            }
        }
        self.budget.observe(&mut spending, &Verdict::Success, false);
        Ok((failures, Stop::Success))
    }

    fn take_call(&mut self, event: &Event, repeat: u64) -> Spending {
        self.calls.remove(&call_name(event, repeat)).unwrap_or_else(|| self.budget.begin(self.now))
    }

    fn compare(&self, event: &Event, seen: &Seen) -> Vec<String> {
        let mut differences = Vec::new();
        let mut compare = |what: &str, right: bool, expected: String, actual: String| {
            if !right {
                differences.push(format!("expected {what} {expected}, got {actual}"));
            }
        };
        let granted = seen.answers.iter().filter(|allowed| **allowed).count() as u64;
        if let Some(allowed) = event.allowed {
            let right = granted == allowed && seen.answers.is_sorted_by(|a, b| a >= b);
            compare("allowed", right, allowed.to_string(), format!("{granted}"));
        }
        if let Some(min) = event.allowed_min {
            compare("at least", granted >= min, min.to_string(), granted.to_string());
        }
        if let Some(max) = event.allowed_max {
            compare("at most", granted <= max, max.to_string(), granted.to_string());
        }
        if let Some(expect) = event.expect {
            let right = !seen.answers.is_empty()
                && seen.answers.iter().all(|allowed| Answer::of(*allowed) == expect);
            compare("every retry", right, format!("{expect:?}"), format!("{granted} allowed"));
        }
        if let Some(retry) = event.retry {
            let actual = seen.retry.map(Answer::of);
            compare("a retry", actual == Some(retry), format!("{retry:?}"), format!("{actual:?}"));
        }
        if let Some(retries) = event.retries {
            let actual = seen.request.map(|(retries, _)| retries);
            let right = actual == Some(retries);
            compare("retries", right, retries.to_string(), format!("{actual:?}"));
        }
        if let Some(stop) = event.stopped_by {
            let actual = seen.request.map(|(_, stop)| stop);
            compare("the end by", actual == Some(stop), format!("{stop:?}"), format!("{actual:?}"));
        }
        if let Some(balance) = event.balance {
            let actual = self.budget.balance(self.now);
            compare("a balance of", actual == balance, balance.to_string(), actual.to_string());
        }
        if let Some(tokens) = event.tokens_after {
            let actual = self.budget.level(self.now);
            let right = (actual - tokens).abs() < 1e-6;
            compare("tokens", right, tokens.to_string(), actual.to_string());
        }
        differences
    }
}

/// The name of the request that a repeat belongs to.
fn call_name(event: &Event, repeat: u64) -> String {
    let name = event.call.as_deref().unwrap_or_default();
    if event.fresh_calls { format!("{name} {repeat}") } else { name.to_owned() }
}

fn millis(ms: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(ms / 1000.0).map_err(|error| format!("{ms} ms: {error}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn passes(budget: &Value, events: Value) -> bool {
        match run(&json!({ "budget": budget, "events": events })) {
            Outcome::Passed => true,
            Outcome::Failed(differences) => {
                println!("{differences:?}");
                false
            }
            Outcome::Skipped(reason) => panic!("skipped: {reason}"),
        }
    }

    #[test]
    fn forms_that_the_shared_rows_do_not_have() {
        let aws = json!({
            "kind": "token_cost", "capacity": 500, "retry_cost": 14, "throttling_cost": 5,
            "first_try_refund": 1, "retry_success_refund": "last_cost",
        });
        assert!(passes(
            &aws,
            json!([
                { "do": "retry", "call": "a", "error": "throttling", "expect": "allowed", "tokens_after": 495 },
                { "do": "retry", "call": "a", "error": "timeout", "expect": "allowed", "tokens_after": 481 },
                { "do": "success", "call": "a", "tokens_after": 495 },
                { "do": "retry", "call": "b", "error": "other", "times": 36, "allowed": 35, "tokens_after": 5 },
            ])
        ));
        assert!(passes(
            &json!({ "kind": "failure_throttle", "max_tokens": 4, "token_ratio": 0.5 }),
            json!([
                { "do": "pushback_do_not_retry", "retry": "denied", "tokens_after": 3 },
                { "do": "check", "retry": "allowed" },
                { "do": "fatal_failure", "retry": "allowed", "tokens_after": 3 },
            ])
        ));
        assert!(passes(
            &json!({ "kind": "concurrency", "max_rate": 0.5, "min_concurrency": 0 }),
            json!([
                { "do": "call_start", "times": 2 },
                { "do": "retry_start", "times": 4, "allowed": 3 },
                { "do": "call_end", "times": 2 },
                { "do": "retry_start", "expect": "denied" },
                { "do": "retry_end", "times": 3 },
            ])
        ));
        assert!(passes(
            &json!({
                "kind": "ratio_window", "ttl_ms": 1000, "min_retries_per_sec": 2,
                "percent_can_retry": 0.0, "per_request_fraction": 1.0,
            }),
            json!([
                { "do": "request", "failures": 1, "retries": 1, "stopped_by": "success" },
                { "do": "request", "failures": "always", "retries": 1, "stopped_by": "request_limit" },
            ])
        ));
    }

    #[test]
    fn what_is_not_known_or_not_so_fails() {
        let window = json!({
            "kind": "ratio_window", "ttl_ms": 1000, "min_retries_per_sec": 2, "percent_can_retry": 0.5,
        });
        assert!(passes(&window, json!([{ "do": "withdraw", "times": 3, "allowed": 2 }])));
        for event in [
            json!({ "do": "withdraw", "times": 3, "allowed": 3 }),
            json!({ "do": "withdraw", "expect": "denied" }),
            json!({ "do": "withdraw", "times": 3, "allowed_min": 3 }),
            json!({ "do": "withdraw", "times": 3, "allowed_max": 1 }),
            json!({ "do": "balance", "balance": 3 }),
            json!({ "do": "balance", "tokens_after": 1.5 }),
            json!({ "do": "deposit", "expect": "allowed" }),
            json!({ "do": "deposit", "retry": "allowed" }),
            json!({ "do": "deposit", "stopped_by": "budget" }),
            json!({ "do": "request", "failures": "always", "retries": 2, "stopped_by": "success" }),
            json!({ "do": "request", "failures": "often", "retries": 2 }),
            json!({ "do": "call_start" }),
            json!({ "do": "refill" }),
            json!({ "do": "withdraw", "typo": 1 }),
            json!({ "do": "withdraw", "expect": "perhaps" }),
            json!({ "at_ms": -1, "do": "withdraw" }),
        ] {
            assert!(!passes(&window, json!([event])), "{event}");
        }
        for budget in [
            json!({ "kind": "wallet" }),
            json!({ "kind": "concurrency", "max_rate": 2.0, "min_concurrency": 1 }),
            json!({ "kind": "concurrency", "max_rate": 0.5 }),
            json!({ "kind": "failure_throttle", "max_tokens": 10, "token_ratio": 0.1, "typo": 1 }),
            json!({ "kind": "token_cost", "capacity": 5, "retry_cost": 5, "retry_success_refund": "all" }),
        ] {
            assert!(!passes(&budget, json!([{ "do": "call_start" }])), "{budget}");
        }
        assert!(!passes(&window, json!([])));
    }
}
