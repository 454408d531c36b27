//! Rows of `backoff.json`: schedules, and the delays they must give.

use std::time::Duration;

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tower_triage_core::{Backoff, CapWhen, Delays, HintMode, Jitter, Random, RetryAfter};

use super::Outcome;

/// Milliseconds are compared to this.
const EXACT: f64 = 0.001;

/// Runs one row.
pub(super) fn run(row: &Value) -> Outcome {
    let schedule = match Schedule::deserialize(&row["backoff"]) {
        Ok(schedule) => schedule,
        Err(error) => return Outcome::fail("a known backoff", error),
    };
    if let Some(system) = schedule.kind.foreign() {
        return Outcome::skip(format!("a formula of {system} that we do not offer"));
    }
    let cases = match Vec::<Case>::deserialize(&row["cases"]) {
        Ok(cases) if !cases.is_empty() => cases,
        Ok(_) => return Outcome::fail("at least one case", "none"),
        Err(error) => return Outcome::fail("known cases", error),
    };
    let subject = match Subject::new(&schedule) {
        Ok(subject) => subject,
        Err(problem) => return Outcome::fail("a backoff that can be built", problem),
    };
    let mut differences = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        if let Err(difference) = subject.check(case) {
            differences.push(format!("case {}: {difference}", at + 1));
        }
    }
    Outcome::from_differences(differences)
}

// === The format ===

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Schedule {
    kind: Kind,
    base_ms: Option<f64>,
    step_ms: Option<f64>,
    factor: Option<f64>,
    rounding: Option<Rounding>,
    min_ms: Option<f64>,
    max_ms: Option<f64>,
    cap_ms: Option<f64>,
    #[serde(default)]
    cap_when: CapSpec,
    jitter: Option<JitterSpec>,
    hint: Option<HintSpec>,
    max_elapsed_ms: Option<f64>,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Fixed,
    Linear,
    Exponential,
    Range,
    Decorrelated,
    FinagleDecorrelated,
    FinagleEqual,
    #[serde(rename = "polly_decorrelated_v2")]
    PollyDecorrelatedV2,
}

impl Kind {
    const fn foreign(self) -> Option<&'static str> {
        match self {
            Self::FinagleDecorrelated | Self::FinagleEqual => Some("Finagle"),
            Self::PollyDecorrelatedV2 => Some("Polly"),
            Self::Fixed | Self::Linear | Self::Exponential | Self::Range | Self::Decorrelated => {
                None
            }
        }
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Rounding {
    TruncateEachStepMs,
}

/// The format's default is not ours.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CapSpec {
    #[default]
    BeforeJitter,
    AfterJitter,
    Both,
}

impl CapSpec {
    const fn when(self, jitter: Jitter) -> CapWhen {
        match (self, jitter) {
            // An additive jitter never goes above the cap.
            (Self::Both, _) | (Self::BeforeJitter, Jitter::Additive(_)) => CapWhen::Both,
            (Self::BeforeJitter, _) => CapWhen::BeforeJitter,
            (Self::AfterJitter, _) => CapWhen::AfterJitter,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JitterSpec {
    kind: JitterKind,
    ratio: Option<f64>,
    span_ms: Option<f64>,
    #[serde(default)]
    u_order: Order,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum JitterKind {
    None,
    Full,
    Equal,
    Ratio,
    Span,
    Additive,
}

#[derive(Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Order {
    #[default]
    Ascending,
    Descending,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum HintSpec {
    Cap,
    #[serde(rename = "clamp_to_own_plus_5s")]
    ClampToOwnPlus5s,
    AsGiven,
    ExactThenRestart,
}

impl HintSpec {
    const fn mode(self) -> HintMode {
        match self {
            Self::Cap => HintMode::Cap,
            Self::ClampToOwnPlus5s => HintMode::ClampToOwnPlus(Duration::from_secs(5)),
            Self::AsGiven => HintMode::AsGiven,
            Self::ExactThenRestart => HintMode::ExactThenRestart,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Case {
    // What is asked.
    retry: Option<u64>,
    after_ms: Option<f64>,
    fresh_at: Option<u64>,
    session: Option<Vec<Self>>,
    stat: Option<Stat>,
    hint_ms: Option<f64>,
    elapsed_ms: Option<f64>,
    max_elapsed_ms: Option<f64>,
    u: Option<f64>,
    samples: Option<u32>,
    // What is expected.
    #[serde(deserialize_with = "present")]
    delay_ms: Option<Option<f64>>,
    min_ms: Option<f64>,
    max_ms: Option<f64>,
    exclusive_min_ms: Option<f64>,
    mean_ms: Option<f64>,
    mean_tolerance_ms: Option<f64>,
    value_ms: Option<f64>,
    tolerance_ms: Option<f64>,
    saturates: Option<bool>,
}

impl Case {
    /// What the delays are to be compared with.
    fn bounds(&self) -> Vec<f64> {
        [self.delay_ms.flatten(), self.min_ms, self.max_ms, self.exclusive_min_ms, self.mean_ms]
            .into_iter()
            .flatten()
            .collect()
    }
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Stat {
    MedianElapsed,
    MedianDelay,
    ElapsedRange,
}

/// Tells a `null` (do not retry) from a field that is not there.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<f64>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

// === The subject ===

/// The schedule under test.
struct Subject {
    backoff: Backoff,
    decorrelated: bool,
    order: Order,
    hint: Option<HintSpec>,
    max_elapsed_ms: Option<f64>,
    random: Random,
}

type Checked = Result<(), String>;

impl Subject {
    fn new(schedule: &Schedule) -> Result<Self, String> {
        let backoff = curve(schedule)?;
        let spec = schedule.jitter.as_ref();
        let jitter = spec.map_or(Ok(Jitter::None), jitter)?;
        let backoff = backoff.jitter(jitter);
        let backoff = match schedule.cap_ms {
            None => backoff,
            Some(cap) => backoff.cap_when(millis(cap)?, schedule.cap_when.when(jitter)),
        };
        backoff.check("backoff").map_err(|error| error.to_string())?;
        Ok(Self {
            backoff,
            decorrelated: schedule.kind == Kind::Decorrelated,
            order: spec.map(|spec| spec.u_order).unwrap_or_default(),
            hint: schedule.hint,
            max_elapsed_ms: schedule.max_elapsed_ms,
            random: Random::seeded(0),
        })
    }

    fn check(&self, case: &Case) -> Checked {
        if let Some(steps) = &case.session {
            return self.session(steps);
        }
        if let Some(stat) = case.stat {
            return self.stat(case, stat);
        }
        if case.saturates.is_some() {
            self.saturates(case)?;
            if case.bounds().is_empty() {
                return Ok(());
            }
        }
        if self.stops(case) {
            return stopped(case);
        }
        let draws: Vec<f64> = match case.u {
            Some(u) => vec![self.delay(case, &mut self.place(case)?, u)?],
            None => (0..case.samples.unwrap_or(1000))
                .map(|_| self.delay(case, &mut self.place(case)?, self.random.unit()))
                .collect::<Result<_, _>>()?,
        };
        expected(case, &draws)
    }

    /// Where the case enters the schedule.
    fn place(&self, case: &Case) -> Result<Delays, String> {
        match (case.retry, case.after_ms, case.fresh_at) {
            (retry, Some(after), None) => Ok(Delays::at(retry.unwrap_or(2)).after(millis(after)?)),
            (None, None, Some(retry)) => Ok(Delays::at(retry)),
            (Some(retry), None, None) if self.decorrelated => Ok(self.walk_to(retry)),
            (Some(retry), None, None) => Ok(Delays::at(retry)),
            _ => Err("expected one of `retry`, `after_ms` and `fresh_at`".to_owned()),
        }
    }

    /// Delays that depend on those before are drawn one after the other, as far as that makes a
    /// difference.
    fn walk_to(&self, retry: u64) -> Delays {
        let mut delays = Delays::new();
        let mut last = None;
        for _ in 1..retry.min(200) {
            last = Some(self.backoff.next(&mut delays, self.random.unit()));
        }
        last.map_or(Delays::at(retry), |last| Delays::at(retry).after(last))
    }

    /// The delay in milliseconds, the hint heeded, cut to the time left.
    fn delay(&self, case: &Case, delays: &mut Delays, u: f64) -> Result<f64, String> {
        let u = if self.order == Order::Descending { 1.0 - u } else { u };
        let delay = match (case.hint_ms, self.hint) {
            (None, _) => self.backoff.next(delays, u),
            (Some(_), None) => return Err("expected a hint mode, got none".to_owned()),
            (Some(hint), Some(spec)) => {
                // A hint that cannot be read as a delay says nothing.
                let hint = (hint >= 0.0)
                    .then(|| millis(hint).map_or(RetryAfter::Never, RetryAfter::AtLeast));
                self.backoff.next_hinted(delays, hint, spec.mode(), u)
            }
        };
        let delay = delay.as_secs_f64() * 1000.0;
        match (case.elapsed_ms, case.max_elapsed_ms.or(self.max_elapsed_ms)) {
            (Some(elapsed), Some(max)) => Ok(delay.min((max - elapsed).max(0.0))),
            (Some(_), None) => Err("expected `max_elapsed_ms`, got none".to_owned()),
            (None, _) => Ok(delay),
        }
    }

    /// Does the server forbid the retry? A negative pushback does.
    fn stops(&self, case: &Case) -> bool {
        self.hint == Some(HintSpec::ExactThenRestart) && case.hint_ms.is_some_and(|ms| ms < 0.0)
    }

    fn session(&self, steps: &[Case]) -> Checked {
        let mut delays = Delays::new();
        for (at, step) in steps.iter().enumerate() {
            let checked = if self.stops(step) {
                stopped(step)
            } else {
                self.delay(step, &mut delays, step.u.unwrap_or(0.5))
                    .and_then(|delay| expected(step, &[delay]))
            };
            checked.map_err(|difference| format!("step {}: {difference}", at + 1))?;
        }
        if steps.is_empty() { Err("expected steps, got none".to_owned()) } else { Ok(()) }
    }

    fn stat(&self, case: &Case, stat: Stat) -> Checked {
        let retry = case.retry.and_then(|retry| usize::try_from(retry).ok());
        let retry = retry.ok_or("expected a `retry` to count to")?;
        let sequences = (0..case.samples.unwrap_or(1000)).map(|_| {
            let delays = self.backoff.iter(|| self.random.unit()).take(retry);
            delays.map(|delay| delay.as_secs_f64() * 1000.0).collect::<Vec<f64>>()
        });
        let values: Vec<f64> = match stat {
            Stat::MedianDelay => sequences.filter_map(|delays| delays.last().copied()).collect(),
            Stat::MedianElapsed | Stat::ElapsedRange => {
                sequences.map(|delays| delays.iter().sum()).collect()
            }
        };
        if stat == Stat::ElapsedRange {
            return expected(case, &values);
        }
        let (Some(value), Some(tolerance)) = (case.value_ms, case.tolerance_ms) else {
            return Err("expected `value_ms` and `tolerance_ms`".to_owned());
        };
        let median = median(values).ok_or("expected samples")?;
        near("a median", value, tolerance, median)
    }

    /// Our own largest delay is that of `Duration`, so what is asked for may lie well below it: it
    /// must not have wrapped around on the way there, nor on the way to the last retry of all.
    fn saturates(&self, case: &Case) -> Checked {
        let retry = case.retry.or(case.fresh_at).ok_or("expected a `retry`")?;
        let longest = |retry| self.backoff.next(&mut Delays::at(retry), 1.0);
        let reached = longest(retry);
        let way = [1, 2, retry / 2, retry - retry.min(1), retry, u64::MAX];
        let grows = way.map(longest).windows(2).all(|pair| pair[0] <= pair[1]);
        let saturates = grows && !reached.is_zero();
        if case.saturates == Some(saturates) {
            Ok(())
        } else {
            Err(format!("expected saturation to be {:?}, got {reached:?}", case.saturates))
        }
    }
}

fn curve(schedule: &Schedule) -> Result<Backoff, String> {
    let field = |name: &str, value: Option<f64>| {
        value.ok_or_else(|| format!("`{name}` is missing")).and_then(millis)
    };
    let base = || field("base_ms", schedule.base_ms);
    let backoff = match schedule.kind {
        Kind::Fixed => Backoff::fixed(base()?),
        Kind::Linear => Backoff::linear(base()?, field("step_ms", schedule.step_ms)?),
        Kind::Exponential => {
            Backoff::exponential(base()?, schedule.factor.ok_or("`factor` is missing")?)
        }
        Kind::Range => {
            Backoff::range(field("min_ms", schedule.min_ms)?, field("max_ms", schedule.max_ms)?)
        }
        Kind::Decorrelated => Backoff::decorrelated(base()?),
        Kind::FinagleDecorrelated | Kind::FinagleEqual | Kind::PollyDecorrelatedV2 => {
            return Err("a formula that we do not offer".to_owned());
        }
    };
    Ok(match schedule.rounding {
        None => backoff,
        Some(Rounding::TruncateEachStepMs) => backoff.whole_millis(),
    })
}

fn jitter(spec: &JitterSpec) -> Result<Jitter, String> {
    let ratio = || spec.ratio.ok_or_else(|| "`ratio` is missing".to_owned());
    Ok(match spec.kind {
        JitterKind::None => Jitter::None,
        JitterKind::Full => Jitter::Full,
        JitterKind::Equal => Jitter::Equal,
        JitterKind::Ratio => Jitter::Ratio(ratio()?),
        JitterKind::Span => Jitter::Span(millis(spec.span_ms.ok_or("`span_ms` is missing")?)?),
        JitterKind::Additive => Jitter::Additive(ratio()?),
    })
}

fn millis(ms: f64) -> Result<Duration, String> {
    Duration::try_from_secs_f64(ms / 1000.0).map_err(|error| format!("{ms} ms: {error}"))
}

// === What is expected ===

/// The server forbade the retry: only `null` is right.
fn stopped(case: &Case) -> Checked {
    match case.delay_ms {
        Some(None) => Ok(()),
        _ => Err("expected a delay, got a server that forbids the retry".to_owned()),
    }
}

fn expected(case: &Case, draws: &[f64]) -> Checked {
    if case.delay_ms.is_none() && case.bounds().is_empty() {
        return Err("expected something to compare with".to_owned());
    }
    if draws.is_empty() {
        return Err("expected samples, got none".to_owned());
    }
    for &delay in draws {
        match case.delay_ms {
            Some(Some(value)) => near("a delay", value, EXACT, delay)?,
            Some(None) => return Err(format!("expected no retry, got a delay of {delay} ms")),
            None => {}
        }
        let inside = case.min_ms.is_none_or(|min| delay >= min - EXACT)
            && case.max_ms.is_none_or(|max| delay <= max + EXACT)
            && case.exclusive_min_ms.is_none_or(|min| delay > min);
        if !inside {
            return Err(format!(
                "expected {:?} ms to {:?} ms (above {:?}), got {delay} ms",
                case.min_ms, case.max_ms, case.exclusive_min_ms
            ));
        }
    }
    match (case.mean_ms, case.mean_tolerance_ms) {
        (None, None) => Ok(()),
        (Some(mean), Some(tolerance)) => {
            near("a mean", mean, tolerance, draws.iter().sum::<f64>() / draws.len() as f64)
        }
        _ => Err("expected `mean_ms` and `mean_tolerance_ms` together".to_owned()),
    }
}

fn near(what: &str, expected: f64, tolerance: f64, actual: f64) -> Checked {
    // Beyond the reach of a double's fraction of milliseconds, to twelve digits.
    let tolerance = tolerance.max(expected.abs() * 1e-12);
    if (actual - expected).abs() <= tolerance {
        Ok(())
    } else {
        Err(format!("expected {what} of {expected} ms (+- {tolerance}), got {actual} ms"))
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn passes(backoff: Value, cases: Value) -> bool {
        match run(&json!({ "backoff": backoff, "cases": cases })) {
            Outcome::Passed => true,
            Outcome::Failed(differences) => {
                println!("{differences:?}");
                false
            }
            Outcome::Skipped(reason) => panic!("skipped: {reason}"),
        }
    }

    #[test]
    fn every_documented_form_is_run() {
        let second = json!({ "kind": "exponential", "base_ms": 1000, "factor": 2 });
        let with = |field: &str, value: Value| {
            let mut second = second.clone();
            second[field] = value;
            second
        };
        let millis = json!({
            "kind": "exponential", "base_ms": 100, "factor": 1.5, "rounding": "truncate_each_step_ms",
        });
        let truncated = json!([{ "retry": 4, "delay_ms": 337 }, { "retry": 5, "delay_ms": 505 }]);
        assert!(passes(millis, truncated));

        let saturated = [65, 1025, u64::from(u32::MAX), u64::MAX]
            .map(|retry| json!({ "retry": retry, "saturates": true }));
        assert!(passes(second.clone(), json!(saturated)));
        let linear = json!({ "kind": "linear", "base_ms": 86400000, "step_ms": 86400000 });
        assert!(passes(linear, json!([{ "retry": u32::MAX, "saturates": true }])));

        assert!(passes(
            with("hint", json!("clamp_to_own_plus_5s")),
            json!([
                { "retry": 1, "hint_ms": 500, "delay_ms": 1000 },
                { "retry": 1, "hint_ms": 3000, "delay_ms": 3000 },
                { "retry": 2, "hint_ms": 30000, "delay_ms": 7000 },
            ])
        ));
        assert!(passes(
            with("hint", json!("as_given")),
            json!([
                { "retry": 1, "hint_ms": 0, "delay_ms": 0 },
                { "retry": 2, "hint_ms": -1, "delay_ms": 2000 },
                { "retry": 2, "hint_ms": 90000, "delay_ms": 90000 },
            ])
        ));
        assert!(passes(
            with("hint", json!("exact_then_restart")),
            json!([{ "session": [
                { "delay_ms": 1000 }, { "hint_ms": 0, "delay_ms": 0 }, { "delay_ms": 1000 },
                { "hint_ms": -1, "delay_ms": null },
            ] }])
        ));
        assert!(passes(
            with("max_elapsed_ms", json!(5000)),
            json!([
                { "retry": 3, "elapsed_ms": 0, "delay_ms": 4000 },
                { "retry": 3, "elapsed_ms": 3000, "delay_ms": 2000 },
                { "retry": 3, "elapsed_ms": 6000, "delay_ms": 0 },
            ])
        ));
        assert!(passes(
            json!({ "kind": "range", "min_ms": 10, "max_ms": 20 }),
            json!([
                { "retry": 9, "min_ms": 10, "max_ms": 20, "mean_ms": 15, "mean_tolerance_ms": 0.5 },
                { "retry": 1, "u": 0.25, "delay_ms": 12.5 },
                { "retry": 1, "stat": "median_delay", "value_ms": 15, "tolerance_ms": 1 },
                { "retry": 2, "stat": "median_elapsed", "value_ms": 30, "tolerance_ms": 1 },
                { "retry": 3, "stat": "elapsed_range", "min_ms": 30, "max_ms": 60 },
                { "fresh_at": 7, "exclusive_min_ms": 0, "max_ms": 20 },
            ])
        ));
        assert!(passes(
            json!({
                "kind": "fixed", "base_ms": 1000, "cap_ms": 800, "cap_when": "both",
                "jitter": { "kind": "ratio", "ratio": 0.5 },
            }),
            json!([{ "retry": 1, "u": 0.0, "delay_ms": 400 }, { "retry": 1, "u": 1.0, "delay_ms": 800 }])
        ));
    }

    #[test]
    fn what_is_not_known_or_not_so_fails() {
        let fixed = json!({ "kind": "fixed", "base_ms": 10 });
        let right = json!([{ "retry": 1, "delay_ms": 10 }]);
        assert!(passes(fixed.clone(), right.clone()));
        for backoff in [
            json!({ "kind": "fibonacci", "base_ms": 10 }),
            json!({ "kind": "fixed" }),
            json!({ "kind": "fixed", "base_ms": 10, "typo": 1 }),
            json!({ "kind": "fixed", "base_ms": 10, "jitter": { "kind": "some" } }),
            json!({ "kind": "fixed", "base_ms": 10, "jitter": { "kind": "ratio" } }),
            json!({ "kind": "fixed", "base_ms": 10, "jitter": { "kind": "none", "u_order": "odd" } }),
            json!({ "kind": "fixed", "base_ms": 10, "cap_when": "sometimes" }),
            json!({ "kind": "fixed", "base_ms": 10, "rounding": "up" }),
            json!({ "kind": "fixed", "base_ms": 10, "hint": "maybe" }),
        ] {
            assert!(!passes(backoff.clone(), right.clone()), "{backoff}");
        }
        for case in [
            json!({ "retry": 1, "delay_ms": 10.01 }),
            json!({ "retry": 1, "delay_ms": null }),
            json!({ "retry": 1, "min_ms": 11 }),
            json!({ "retry": 1, "max_ms": 9 }),
            json!({ "retry": 1, "exclusive_min_ms": 10 }),
            json!({ "retry": 1, "mean_ms": 12, "mean_tolerance_ms": 1 }),
            json!({ "retry": 1, "mean_ms": 10 }),
            json!({ "retry": 1, "saturates": false }),
            json!({ "retry": 1, "stat": "mode", "value_ms": 10, "tolerance_ms": 1 }),
            json!({ "retry": 2, "stat": "median_elapsed", "value_ms": 10, "tolerance_ms": 1 }),
            json!({ "retry": 1, "hint_ms": 10, "delay_ms": 10 }),
            json!({ "retry": 1 }),
            json!({ "delay_ms": 10 }),
            json!({ "session": [{ "delay_ms": 10 }, { "delay_ms": 11 }] }),
            json!({ "session": [] }),
        ] {
            assert!(!passes(fixed.clone(), json!([case])), "{case}");
        }
        assert!(!passes(fixed, json!([])));
    }
}
