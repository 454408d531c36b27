//! Rows of `aws_standard_retry.json`: the AWS SDKs' standard retry mode.

use std::collections::HashMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tower_triage_core::{ErrorClass, Failure, Refusal, RetryAfter, Verdict};
use tower_triage_retry::budget::{Budget, Spending, TokenCostSettings, TokenCosts, TokenRefunds};
use tower_triage_retry::{AwsStandard, Cubic, Decision, Facts, Progress, RetryPlan, SendRate};

use super::Outcome;

/// The types of the adaptive mode.
pub(super) const ADAPTIVE: [&str; 3] = ["adaptive_cubic", "adaptive_rates", "adaptive_total"];

/// Runs one row, if it is one of this file.
pub(super) fn run(kind: &str, row: &Value) -> Option<Outcome> {
    let differences = match kind {
        "scenario" => read(row, scenario),
        "backoff" => read(row, backoff),
        "exhaustion" => read(row, exhaustion),
        "regeneration" => read(row, regeneration),
        "total_sleep" => read(row, total_sleep),
        "success_reward" => read(row, success_reward),
        "time_refill" => read(row, time_refill),
        "adaptive_cubic" => read(row, adaptive_cubic),
        "adaptive_rates" => read(row, adaptive_rates),
        "adaptive_total" => read(row, adaptive_total),
        // gRPC's file has rows of this type too.
        "config_validation" if row["cases"][0].get("refill_rate").is_some() => {
            read(row, config_validation)
        }
        _ => return None,
    };
    Some(match differences {
        Ok(differences) => Outcome::from_differences(differences),
        Err(problem) => Outcome::fail("a row that can be run", problem),
    })
}

/// What differs, or why the row cannot be run.
type Differences = Result<Vec<String>, String>;

fn read<'a, R: Deserialize<'a>>(row: &'a Value, run: fn(R) -> Differences) -> Differences {
    run(R::deserialize(row).map_err(|error| error.to_string())?)
}

fn compare<T: PartialEq + std::fmt::Debug>(what: &str, expected: T, actual: T) -> Vec<String> {
    match expected == actual {
        true => Vec::new(),
        false => vec![format!("{what}: expected {expected:?}, got {actual:?}")],
    }
}

/// Nothing here needs the time but a refill.
const NOW: Duration = Duration::ZERO;

// === The format ===

#[derive(Clone, Copy, Deserialize)]
enum Profile {
    #[serde(rename = "2.0")]
    V20,
    #[serde(rename = "2.1")]
    V21,
}

impl Profile {
    fn preset(self) -> AwsStandard {
        match self {
            Self::V20 => AwsStandard::v2_0(),
            Self::V21 => AwsStandard::v2_1(),
        }
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Throttling,
    Transient,
    Server,
    Client,
}

impl Kind {
    const fn failure(self) -> Failure {
        Failure::new(match self {
            Self::Throttling => ErrorClass::Throttled,
            Self::Transient => ErrorClass::Transient,
            // What a service models as retryable, and is neither of the others.
            Self::Server | Self::Client => ErrorClass::Contention,
        })
    }
}

#[derive(Deserialize)]
struct Scenario {
    profile: Profile,
    config: Config,
    bucket: Bucket,
    steps: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    max_attempts: u32,
    throttling_initial_backoff_ms: f64,
    non_throttling_initial_backoff_ms: f64,
    max_backoff_ms: f64,
    jitter_factor: f64,
    long_polling: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bucket {
    capacity: u32,
    start_tokens: Option<u32>,
    cost: Costs,
    first_attempt_success_increment: u32,
    success_reward: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Costs {
    throttling: u32,
    transient: u32,
    server: u32,
    client: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    #[serde(default = "first")]
    operation: u64,
    attempt: u32,
    outcome: StepOutcome,
    expect: Expect,
}

const fn first() -> u64 {
    1
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepOutcome {
    result: StepResult,
    kind: Option<Kind>,
    server_delay_ms: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StepResult {
    Error,
    NotRetryable,
    Success,
    SuccessButRetry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    action: Action,
    delay_ms: Option<f64>,
    caller_backoff_ms: Option<f64>,
    tokens_after: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    Retry,
    Success,
    FailMaxAttempts,
    FailQuota,
    FailNotRetryable,
}

fn millis(ms: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(ms / 1000.0).map_err(|error| format!("{ms} ms: {error}"))
}

fn millis_of(time: Duration) -> f64 {
    // To a microsecond: the row's number went through a float.
    (time.as_secs_f64() * 1e6).round() / 1e3
}

// === Operations over one bucket ===

/// One operation of a client.
struct Operation {
    progress: Progress,
    spending: Spending,
}

/// What came of an attempt.
#[derive(Debug, PartialEq)]
struct Came {
    action: Action,
    wait: Option<Duration>,
}

/// A client: plan and tokens.
struct Client {
    plan: RetryPlan,
    tokens: Budget,
    u: f64,
}

impl Client {
    fn new(aws: &AwsStandard, tokens: TokenCostSettings, u: f64) -> Result<Self, String> {
        Ok(Self {
            plan: aws.policy().build().map_err(|error| error.to_string())?,
            tokens: Budget::token_cost(tokens).map_err(|error| error.to_string())?,
            u,
        })
    }

    fn begin(&self) -> Operation {
        Operation { progress: Progress::default(), spending: self.tokens.begin(NOW) }
    }

    fn succeeds(&self, operation: &mut Operation) {
        self.tokens.observe(&mut operation.spending, &Verdict::Success, false);
    }

    fn fails(&self, operation: &mut Operation, failure: &Failure) -> Result<Came, String> {
        let Operation { progress, spending } = operation;
        let verdict = Verdict::Failure(*failure);
        self.tokens.observe(spending, &verdict, self.plan.repeats(failure));
        let came = |action, wait| Ok(Came { action, wait });
        match self.plan.decide(&Facts::default(), progress, failure, self.u) {
            Decision::Again { wait, .. } => match self.tokens.ask(spending, failure, NOW) {
                Ok(()) => came(Action::Retry, Some(wait)),
                Err(_) => came(Action::FailQuota, self.plan.waits_when_denied().then_some(wait)),
            },
            Decision::Stop(Refusal::AttemptsUsedUp) => came(Action::FailMaxAttempts, None),
            Decision::Stop(Refusal::ClassNotRetried) => came(Action::FailNotRetryable, None),
            other => Err(format!("an unexpected decision: {other:?}")),
        }
    }

    fn whole_tokens(&self, now: Duration) -> f64 {
        self.tokens.level(now).floor()
    }
}

// === Types of rows ===

fn scenario(row: Scenario) -> Differences {
    let Scenario { profile, config, bucket, steps } = row;
    let mut aws = profile
        .preset()
        .attempts(config.max_attempts)
        .base(millis(config.non_throttling_initial_backoff_ms)?)
        .throttled_base(millis(config.throttling_initial_backoff_ms)?)
        .max_backoff(millis(config.max_backoff_ms)?);
    if config.long_polling {
        aws = aws.long_polling();
    }
    let client = Client::new(&aws, tokens(&aws, &bucket)?, config.jitter_factor)?;
    let mut operations: HashMap<u64, Operation> = HashMap::new();
    let mut differences = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let place = |what| format!("step {}: {what}", at + 1);
        let failure = failure(&step.outcome)?;
        let goes_on = step.attempt > 1 && operations.contains_key(&step.operation);
        if !goes_on {
            let mut operation = client.begin();
            // A scenario may start at a later attempt; the earlier ones left nothing but their number.
            for _ in 1..step.attempt {
                let _ = client.plan.decide(
                    &Facts::default(),
                    &mut operation.progress,
                    &failure,
                    client.u,
                );
            }
            operations.insert(step.operation, operation);
        }
        let operation = operations.get_mut(&step.operation).ok_or("no such operation")?;
        if matches!(step.outcome.result, StepResult::Success | StepResult::SuccessButRetry) {
            client.succeeds(operation);
        }
        let came = match step.outcome.result {
            StepResult::Success => Came { action: Action::Success, wait: None },
            _ => client.fails(operation, &failure)?,
        };
        let expect = &step.expect;
        differences.extend(compare(&place("action"), expect.action, came.action));
        let wait = expect.delay_ms.or(expect.caller_backoff_ms);
        differences.extend(compare(&place("wait in ms"), wait, came.wait.map(millis_of)));
        if let Some(tokens) = expect.tokens_after {
            differences.extend(compare(&place("tokens"), tokens, client.whole_tokens(NOW)));
        }
    }
    Ok(differences)
}

fn failure(outcome: &StepOutcome) -> Result<Failure, String> {
    let failure = match (outcome.result, outcome.kind) {
        (StepResult::NotRetryable, _) | (StepResult::Success, None) => {
            Failure::new(ErrorClass::Permanent)
        }
        (_, Some(kind)) => kind.failure(),
        (StepResult::Error | StepResult::SuccessButRetry, None) => return Err("no kind".into()),
    };
    Ok(match outcome.server_delay_ms {
        Some(delay) => failure.retry_after(RetryAfter::AtLeast(millis(delay)?)),
        None => failure,
    })
}

fn tokens(aws: &AwsStandard, bucket: &Bucket) -> Result<TokenCostSettings, String> {
    let Costs { throttling, transient, server, client } = bucket.cost;
    if server != client {
        return Err("server and client errors have one price".into());
    }
    let costs = TokenCosts { transient, timeout: transient, throttled: throttling, other: server };
    let mut settings = TokenCostSettings { costs, ..aws.tokens() };
    settings.refunds.reward = bucket.success_reward;
    settings.refunds.first_try = bucket.first_attempt_success_increment;
    settings.initial = bucket.start_tokens;
    if bucket.capacity == 0 {
        // A bucket that holds nothing is refused when it is built. One that is empty, and that no
        // success fills, is the same: nothing is ever paid, so nothing is given back.
        settings.refunds.first_try = 0;
        settings.refunds.reward = 0.0;
        return Ok(TokenCostSettings { capacity: 1, initial: Some(0), ..settings });
    }
    Ok(TokenCostSettings { capacity: bucket.capacity, ..settings })
}

#[derive(Deserialize)]
struct BackoffRow {
    initial_backoff_ms: f64,
    max_backoff_ms: f64,
    jitter_factor: f64,
    expect_ms_by_retry: Vec<f64>,
}

fn backoff(row: BackoffRow) -> Differences {
    let initial = millis(row.initial_backoff_ms)?;
    let aws = AwsStandard::v2_0().base(initial).max_backoff(millis(row.max_backoff_ms)?);
    let policy = aws.policy();
    let rule = policy.rule(ErrorClass::Transient).ok_or("transient errors are not repeated")?;
    let waits = rule.backoff().iter(|| row.jitter_factor).take(row.expect_ms_by_retry.len());
    Ok(compare("waits in ms", row.expect_ms_by_retry, waits.map(millis_of).collect()))
}

#[derive(Deserialize)]
struct Exhaustion {
    profile: Profile,
    kind: Kind,
    max_attempts: u32,
    capacity: u32,
    cost: u32,
    expect: Exhausted,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Exhausted {
    retries: u32,
    attempts: u32,
    tokens_left: f64,
    next_operation_attempts: u32,
}

fn exhaustion(row: Exhaustion) -> Differences {
    let aws = row.profile.preset().attempts(row.max_attempts);
    let settings = TokenCostSettings { capacity: row.capacity, ..aws.tokens() };
    let price = price(&settings.costs, row.kind);
    let client = Client::new(&aws, settings, 1.0)?;
    let attempts = |client: &Client| {
        let mut operation = client.begin();
        let mut attempts = 1;
        while client.fails(&mut operation, &row.kind.failure())?.action == Action::Retry {
            attempts += 1;
        }
        Ok::<u32, String>(attempts)
    };
    let made = attempts(&client)?;
    let came = Exhausted {
        retries: made - 1,
        attempts: made,
        tokens_left: client.whole_tokens(NOW),
        next_operation_attempts: attempts(&client)?,
    };
    let mut differences = compare("price", row.cost, price);
    differences.extend(compare("exhaustion", row.expect, came));
    Ok(differences)
}

const fn price(costs: &TokenCosts, kind: Kind) -> u32 {
    match kind {
        Kind::Throttling => costs.throttled,
        Kind::Transient => costs.transient,
        Kind::Server | Kind::Client => costs.other,
    }
}

#[derive(Deserialize)]
struct Regeneration {
    capacity: u32,
    start_tokens: u32,
    increment: u32,
    successes: u32,
    expect: Tokens,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tokens {
    tokens: f64,
}

fn regeneration(row: Regeneration) -> Differences {
    let settings = TokenCostSettings {
        capacity: row.capacity,
        initial: Some(row.start_tokens),
        refunds: TokenRefunds { first_try: row.increment, ..TokenRefunds::default() },
        ..AwsStandard::v2_0().tokens()
    };
    let client = Client::new(&AwsStandard::v2_0(), settings, 1.0)?;
    for _ in 0..row.successes {
        client.succeeds(&mut client.begin());
    }
    Ok(compare("tokens", row.expect.tokens, client.whole_tokens(NOW)))
}

#[derive(Deserialize)]
struct TotalSleep {
    profile: Profile,
    base_ms: f64,
    max_attempts: u32,
    errors: u32,
    expect: Slept,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Slept {
    requests: u32,
    total_ms: f64,
}

fn total_sleep(row: TotalSleep) -> Differences {
    let aws = row.profile.preset().base(millis(row.base_ms)?).attempts(row.max_attempts);
    let client = Client::new(&aws, aws.tokens(), 1.0)?;
    let mut operation = client.begin();
    let (mut requests, mut total) = (1, Duration::ZERO);
    for _ in 0..row.errors {
        let came = client.fails(&mut operation, &Kind::Transient.failure())?;
        if came.action != Action::Retry {
            break;
        }
        requests += 1;
        total += came.wait.unwrap_or_default();
    }
    Ok(compare("requests", row.expect, Slept { requests, total_ms: millis_of(total) }))
}

#[derive(Deserialize)]
struct SuccessReward {
    capacity: u32,
    start_tokens: u32,
    success_reward: f64,
    #[serde(default)]
    first_attempt_success_increment: u32,
    expect_tokens_after_each_success: Vec<f64>,
}

fn success_reward(row: SuccessReward) -> Differences {
    let settings = TokenCostSettings {
        capacity: row.capacity,
        initial: Some(row.start_tokens),
        refunds: TokenRefunds {
            first_try: row.first_attempt_success_increment,
            reward: row.success_reward,
            ..TokenRefunds::default()
        },
        ..AwsStandard::v2_0().tokens()
    };
    let client = Client::new(&AwsStandard::v2_0(), settings, 1.0)?;
    let expected = row.expect_tokens_after_each_success;
    let after_each = expected.iter().map(|_| {
        client.succeeds(&mut client.begin());
        client.whole_tokens(NOW)
    });
    let after_each = after_each.collect();
    Ok(compare("tokens", expected, after_each))
}

#[derive(Deserialize)]
struct TimeRefill {
    capacity: u32,
    start_tokens: u32,
    cases: Vec<Refill>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refill {
    rate_per_s: f64,
    elapsed_s: f64,
    tokens: f64,
    fraction: f64,
}

fn refilling(capacity: u32, start: u32, rate: f64) -> TokenCostSettings {
    TokenCostSettings {
        capacity,
        initial: Some(start),
        refill_per_second: rate,
        ..AwsStandard::v2_0().tokens()
    }
}

fn time_refill(row: TimeRefill) -> Differences {
    let mut differences = Vec::new();
    for case in row.cases {
        let settings = refilling(row.capacity, row.start_tokens, case.rate_per_s);
        let client = Client::new(&AwsStandard::v2_0(), settings, 1.0)?;
        let level = client.tokens.level(millis(case.elapsed_s * 1000.0)?);
        let what = format!("{}/s for {} s", case.rate_per_s, case.elapsed_s);
        differences.extend(compare(&what, case.tokens, level.floor()));
        if (level.fract() - case.fraction).abs() > 1e-6 {
            differences.push(format!("{what}: expected {}, got {level}", case.fraction));
        }
    }
    Ok(differences)
}

#[derive(Deserialize)]
struct ConfigValidation {
    cases: Vec<Rate>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rate {
    refill_rate: f64,
    effective: f64,
}

fn config_validation(row: ConfigValidation) -> Differences {
    let mut differences = Vec::new();
    for Rate { refill_rate, effective } in row.cases {
        match Budget::token_cost(refilling(100, 0, refill_rate)) {
            // A builder that names the field is as good as AWS's reading.
            Err(error) => differences.extend(compare("field", "refill_per_second", error.field())),
            Ok(budget) => {
                let level = budget.level(Duration::from_secs(1));
                differences.extend(compare("tokens after a second", effective, level));
            }
        }
    }
    Ok(differences)
}

// === The adaptive mode ===

/// What differs by more than the format allows.
fn compare_rates(what: &str, expected: f64, actual: f64) -> Vec<String> {
    match (expected - actual).abs() <= 1e-6 {
        true => Vec::new(),
        false => vec![format!("{what}: expected {expected}, got {actual}")],
    }
}

#[derive(Deserialize)]
struct AdaptiveCubic {
    last_max_rate: f64,
    time_of_last_throttle: f64,
    rows: Vec<OfCurve>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfCurve {
    t: f64,
    throttled: bool,
    rate: f64,
}

fn adaptive_cubic(row: AdaptiveCubic) -> Differences {
    let mut throttled_at = millis(row.time_of_last_throttle * 1000.0)?;
    let mut max_rate = row.last_max_rate;
    let mut differences = Vec::new();
    for OfCurve { t, throttled, rate } in row.rows {
        let now = millis(t * 1000.0)?;
        let came = if throttled {
            (max_rate, throttled_at) = (rate / Cubic::BETA, now);
            max_rate * Cubic::BETA
        } else {
            Cubic { max_rate, throttled_at }.rate(now)
        };
        differences.extend(compare_rates(&format!("rate at {t}"), rate, came));
    }
    Ok(differences)
}

#[derive(Deserialize)]
struct AdaptiveRates {
    rows: Vec<OfRate>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfRate {
    t: f64,
    throttled: bool,
    measured_tx_rate: f64,
    fill_rate: f64,
}

fn adaptive_rates(row: AdaptiveRates) -> Differences {
    let mut rate = SendRate::default();
    let mut differences = Vec::new();
    for OfRate { t, throttled, measured_tx_rate, fill_rate } in row.rows {
        rate.observe(throttled, millis(t * 1000.0)?);
        let at = |what| format!("{what} at {t}");
        differences.extend(compare_rates(&at("sent"), measured_tx_rate, rate.measured()));
        differences.extend(compare_rates(&at("rate"), fill_rate, rate.fill_rate()));
    }
    Ok(differences)
}

#[derive(Deserialize)]
struct AdaptiveTotal {
    max_attempts: u32,
    operations: Vec<Errors>,
    expect_cumulative_ms: HashMap<String, Vec<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Errors {
    errors: u32,
    ends: Action,
}

/// Without throttling the adaptive mode waits as the standard mode does.
fn adaptive_total(row: AdaptiveTotal) -> Differences {
    let mut differences = Vec::new();
    for (profile, expected) in row.expect_cumulative_ms {
        let aws = match profile.as_str() {
            "2.0" => AwsStandard::v2_0(),
            "2.1 base 25 ms" => AwsStandard::v2_1().base(Duration::from_millis(25)),
            other => return Err(format!("an unknown profile: {other}")),
        };
        let aws = aws.attempts(row.max_attempts);
        let client = Client::new(&aws, aws.tokens(), 1.0)?;
        let (mut rate, mut now, mut slept) = (SendRate::default(), NOW, Vec::new());
        for Errors { errors, ends } in &row.operations {
            let mut operation = client.begin();
            let mut action = Action::Success;
            for _ in 0..*errors {
                now += rate.take(now);
                rate.observe(false, now);
                let came = client.fails(&mut operation, &Kind::Transient.failure())?;
                if came.action != Action::Retry {
                    action = came.action;
                    break;
                }
                now += came.wait.unwrap_or_default();
            }
            if action == Action::Success {
                now += rate.take(now);
                rate.observe(false, now);
                client.succeeds(&mut operation);
            }
            differences.extend(compare(&format!("{profile}: end"), *ends, action));
            slept.push(millis_of(now));
        }
        differences.extend(compare(&format!("{profile}: slept"), expected, slept));
    }
    Ok(differences)
}
