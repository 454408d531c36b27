//! How much is remembered, for how long, and how sure one has to be: plain data.

use std::ops::Deref;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tower_triage_core::{ConfigError, ErrorClass, EscalateWhen, duration_text};

use crate::mode::Mode;
use crate::remedy::Remedy;

/// How to learn. Plain data; checked by [`LearnPolicy::build`].
///
/// ```
/// use tower_triage_core::ErrorClass::{Declined, Transient};
/// use tower_triage_learn::{LearnPolicy, Mode, Remedy};
///
/// let policy = LearnPolicy::default()
///     .mode(Mode::Cautious)
///     .remedies([Remedy::new("retry", Transient), Remedy::new("fallback/service", Declined)]);
/// assert!(policy.build().is_ok());
///
/// let error = LearnPolicy::default().span(0.5).build().unwrap_err();
/// assert_eq!(error.field(), "span");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[must_use]
pub struct LearnPolicy {
    pub(crate) mode: Mode,
    pub(crate) remedies: Vec<Remedy>,
    pub(crate) explore: bool,
    #[serde(with = "duration_text")]
    pub(crate) half_life: Duration,
    pub(crate) span: f64,
    pub(crate) failure_span: f64,
    pub(crate) max_failures: usize,
    pub(crate) max_remedies: usize,
}

impl Default for LearnPolicy {
    fn default() -> Self {
        Self {
            mode: Mode::Balanced,
            remedies: Vec::new(),
            explore: false,
            half_life: Duration::from_secs(7 * 24 * 60 * 60),
            span: 50.0,
            failure_span: 10.0,
            max_failures: 1024,
            max_remedies: 8,
        }
    }
}

impl LearnPolicy {
    /// How sure one has to be. Default: balanced (0.7).
    pub const fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// What the stack has, by the names that its incidents give it (`retry`, `nudge`,
    /// `fallback/service`, `fallback/replan` ..), each with the class that leads there. The first
    /// ones are tried first, so begin with what helps most. Default: nothing; then another attempt
    /// (`retry`, `nudge`) is what the class `Transient` leads to, and what a fallback did is
    /// remembered, but treated as nothing: nobody but you knows which classes its steps are for.
    pub fn remedies(mut self, remedies: impl IntoIterator<Item = Remedy>) -> Self {
        self.remedies = remedies.into_iter().collect();
        self
    }

    /// May a failure of which too little is known be treated as one of the remedies' classes, to
    /// find out? One remedy a call, the most promising, and none that failed twice and never
    /// worked (until that fades). It meets exactly what the stack has for that class, repeatability
    /// and budgets included. Default: no; then experience comes only from what the stack does with
    /// an `Unknown` failure anyway.
    pub const fn explore(mut self, explore: bool) -> Self {
        self.explore = explore;
        self
    }

    /// In this time experience halves by itself. Default: 7 days.
    pub const fn half_life(mut self, time: Duration) -> Self {
        self.half_life = time;
        self
    }

    /// A success makes the older trials fade by one part in so many: a record spans that many
    /// successes. At least 1. Default: 50.
    pub const fn span(mut self, trials: f64) -> Self {
        self.span = trials;
        self
    }

    /// A failure makes the older trials fade by one part in so many. At least 1, at most the span.
    /// Default: 10, so that what stops working is forgotten in a dozen calls.
    pub const fn failure_span(mut self, trials: f64) -> Self {
        self.failure_span = trials;
        self
    }

    /// How many kinds of failure are remembered; the one with the least evidence left goes first.
    /// Default: 1024.
    pub const fn max_failures(mut self, kinds: usize) -> Self {
        self.max_failures = kinds;
        self
    }

    /// How many remedies are remembered for each. Default: 8.
    pub const fn max_remedies(mut self, remedies: usize) -> Self {
        self.max_remedies = remedies;
        self
    }

    /// Checks the values.
    ///
    /// # Errors
    /// A half-life or a bound of zero; a span of less than one; more remedies than are remembered; one
    /// whose class is never escalated (`Permanent`, `Cancelled`), under which an unknown failure
    /// would vanish without a word.
    pub fn build(self) -> Result<LearnPlan, ConfigError> {
        let positive = |field, value: usize| match value {
            0 => Err(ConfigError::new(field, 0, "must be at least 1")),
            _ => Ok(()),
        };
        positive("max_failures", self.max_failures)?;
        positive("max_remedies", self.max_remedies)?;
        if self.half_life.is_zero() {
            return Err(ConfigError::new("half_life", "0s", "must be longer than zero"));
        }
        if !(self.span.is_finite() && self.span >= 1.0) {
            return Err(ConfigError::new("span", self.span, "must be at least 1"));
        }
        if !(self.failure_span >= 1.0 && self.failure_span <= self.span) {
            let problem = "must be at least 1 and at most `span`";
            return Err(ConfigError::new("failure_span", self.failure_span, problem));
        }
        if self.remedies.len() > self.max_remedies {
            let problem = "must be at most `max_remedies`";
            return Err(ConfigError::new("remedies", self.remedies.len(), problem));
        }
        for remedy in &self.remedies {
            if !is_treatment(remedy.class) {
                let problem = "an unknown failure must not be treated as of this class";
                return Err(ConfigError::new("remedies", remedy, problem));
            }
        }
        Ok(LearnPlan(self))
    }
}

/// May an unknown failure be treated as one of `class`? It must reach somebody if it is not solved.
pub(crate) const fn is_treatment(class: ErrorClass) -> bool {
    !matches!(class.escalate(), EscalateWhen::Never)
}

/// A [`LearnPolicy`] that can work.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LearnPlan(LearnPolicy);

impl LearnPlan {
    /// The policy, to change and build again.
    pub fn into_policy(self) -> LearnPolicy {
        self.0
    }

    pub(crate) fn set_mode(&mut self, mode: Mode) {
        self.0.mode = mode;
    }
}

impl Deref for LearnPlan {
    type Target = LearnPolicy;

    fn deref(&self) -> &LearnPolicy {
        &self.0
    }
}
