//! The description: plain data.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tower_triage_core::duration_text::DurationText;
use tower_triage_core::{
    Backoff, ClassSet, ConfigError, ErrorClass, EscalateWhen, Jitter, duration_text,
};
use tower_triage_escalate::EscalatePolicy;
use tower_triage_learn::Mode;
use tower_triage_retry::{ClassRule, RetryPlan, RetryPolicy};

use crate::level::{Entry, Level};

/// Five levels of recovery as plain data: built, or read from a file. `Display` shows it as a table.
///
/// | setting | default | refused |
/// |---|---|---|
/// | [`mode`](Self::mode) | balanced: acts from a confidence of 0.7 | |
/// | [`waits`](Self::waits) | 1 s, 2 s, 4 s, without jitter | |
/// | [`within`](Self::within) | retry 30 s, nudge 60 s, replan 120 s, fallback 60 s, finish 250 ms | 0 below the finish |
/// | [`enter`](Self::enter) | see [`Entry`] | |
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ladder {
    mode: Mode,
    retry: Retry,
    nudge: Limit,
    replan: Limit,
    fallback: Limit,
    finish: Limit,
    entry: Entry,
}

/// Level 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Retry {
    waits: Vec<DurationText>,
    #[serde(with = "duration_text")]
    within: Duration,
}

/// A level that is tried once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Limit {
    #[serde(with = "duration_text")]
    within: Duration,
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl Retry {
    fn describe(&self) -> String {
        let waits: Vec<_> = self.waits.iter().map(|wait| format!("{:?}", wait.0)).collect();
        match waits.is_empty() {
            true => "nothing".to_owned(),
            false => format!("the same again after {}", waits.join(", ")),
        }
    }
}

impl Default for Retry {
    fn default() -> Self {
        let waits = [1, 2, 4].map(|n| DurationText(seconds(n))).to_vec();
        Self { waits, within: seconds(30) }
    }
}

impl Default for Ladder {
    fn default() -> Self {
        let limit = |n| Limit { within: seconds(n) };
        Self {
            mode: Mode::Balanced,
            retry: Retry::default(),
            nudge: limit(60),
            replan: limit(120),
            fallback: limit(60),
            finish: Limit { within: Duration::from_millis(250) },
            entry: Entry::default(),
        }
    }
}

impl Ladder {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How sure one has to be of a remedy to apply it without asking anybody: for whoever decides
    /// so, a learner or a report. The levels do not ask for it.
    #[must_use]
    pub const fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// The waits of level 1: the first before the first retry of a request, and as many retries as
    /// there are waits. A server's hint can make one longer. A wait that would end after the time of
    /// the level is not begun.
    #[must_use]
    pub fn waits(mut self, waits: impl IntoIterator<Item = Duration>) -> Self {
        self.retry.waits = waits.into_iter().map(DurationText).collect();
        self
    }

    /// How long a level may take, with all its attempts and waits. When that is over, what is in
    /// flight is dropped and the next level starts. The finish has its output at once; its time is
    /// how long the caller may be held up until somebody has heard of it.
    #[must_use]
    pub const fn within(mut self, level: Level, limit: Duration) -> Self {
        match level {
            Level::Retry => self.retry.within = limit,
            Level::Nudge => self.nudge.within = limit,
            Level::Replan => self.replan.within = limit,
            Level::Fallback => self.fallback.within = limit,
            Level::Finish => self.finish.within = limit,
        }
        self
    }

    /// Failures of `class` enter at `level`.
    #[must_use]
    pub fn enter(mut self, class: ErrorClass, level: Level) -> Self {
        self.entry = self.entry.at(class, level);
        self
    }

    /// How sure one has to be.
    #[must_use]
    pub const fn acts_in(&self) -> Mode {
        self.mode
    }

    /// Who enters where.
    #[must_use]
    pub const fn entry(&self) -> &Entry {
        &self.entry
    }

    /// How long a level may take.
    #[must_use]
    pub const fn limit(&self, level: Level) -> Duration {
        match level {
            Level::Retry => self.retry.within,
            Level::Nudge => self.nudge.within,
            Level::Replan => self.replan.within,
            Level::Fallback => self.fallback.within,
            Level::Finish => self.finish.within,
        }
    }

    /// The longest that a call may take from one end of the ladder to the other, once the service is
    /// ready for it.
    #[must_use]
    pub fn longest(&self) -> Duration {
        Level::ALL
            .into_iter()
            .map(|level| self.limit(level))
            .fold(Duration::ZERO, Duration::saturating_add)
    }

    /// Checks the values; [`build`](Self::build) does so too.
    ///
    /// # Errors
    /// A level below the finish without time.
    pub fn check(&self) -> Result<(), ConfigError> {
        for level in Level::ALL {
            if level != Level::Finish && self.limit(level).is_zero() {
                let problem = "must be longer than zero; a level that is not given is passed over";
                return Err(ConfigError::new("within", format_args!("0s for {level}"), problem));
            }
        }
        Ok(())
    }

    /// Level 1: the waits, for the classes that enter there.
    pub(crate) fn retries(&self) -> Result<RetryPlan, ConfigError> {
        let waits: Vec<_> = self.retry.waits.iter().map(|wait| wait.0).collect();
        let attempts = u32::try_from(waits.len()).unwrap_or(u32::MAX).saturating_add(1);
        let mut policy = RetryPolicy::default()
            .attempts(attempts)
            .deadline(self.retry.within)
            .count_all_waits(true);
        let entering = self.entry.reaching(Level::Retry);
        let backoff = Backoff::list(waits).jitter(Jitter::None);
        for class in ErrorClass::ALL {
            policy = match attempts > 1 && entering.contains(class) {
                true => policy.retry(class, ClassRule::new(backoff.clone())),
                false => policy.never(class),
            };
        }
        policy.build()
    }

    /// Level 5 takes every failure that climbed to it, whatever its class.
    pub(crate) fn escalates(&self) -> EscalatePolicy {
        let by_now = |class: &ErrorClass| class.escalate() == EscalateWhen::Now;
        let late: ClassSet = ErrorClass::ALL.into_iter().filter(|class| !by_now(class)).collect();
        EscalatePolicy::new().when(late, EscalateWhen::OnExhaustion).wait(self.finish.within)
    }
}

/// A table, for a person.
impl fmt::Display for Ladder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, [true; 5])
    }
}

impl Ladder {
    /// The table, of a ladder with only some levels given.
    pub(crate) fn write(&self, f: &mut fmt::Formatter<'_>, given: [bool; 5]) -> fmt::Result {
        writeln!(f, "ladder, {}: acts from a confidence of {}", self.mode, self.mode.threshold())?;
        writeln!(f, "{:<10} {:<7} {:<34} enters here", "level", "within", "does")?;
        for (level, given) in Level::ALL.into_iter().zip(given) {
            let within = format!("{:?}", self.limit(level));
            let does = match level {
                Level::Retry => self.retry.describe(),
                Level::Finish if !given => "not given: the failure as it is".to_owned(),
                _ if !given => "not given: passed over".to_owned(),
                Level::Nudge => "the same approach, adjusted".to_owned(),
                Level::Replan => "another approach to the same goal".to_owned(),
                Level::Fallback => "somebody else".to_owned(),
                Level::Finish => "what there is, with an explanation".to_owned(),
            };
            let enters: Vec<_> = ErrorClass::ALL
                .into_iter()
                .filter(|class| self.entry.of(*class) == level)
                .map(ErrorClass::as_str)
                .collect();
            let (number, enters) = (level.number(), enters.join(", "));
            let line = format!("{number} {level:<8} {within:<7} {does:<34} {enters}");
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}
