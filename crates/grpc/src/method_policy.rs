//! A retry policy by status codes (gRPC A6).

use std::time::Duration;

use tonic::Code;
use tower_triage_core::{
    Backoff, ConfigError, Disposition, Elapsed, ErrorClass, Failure, Jitter, ServerWord,
};
use tower_triage_retry::{ClassRule, RequestPolicy, RetryPlan, RetryPolicy};

use crate::code::{NO_HINT, code_of};

/// A set of status codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CodeSet(u32);

impl CodeSet {
    pub(crate) const fn contains(self, code: Code) -> bool {
        self.0 & (1 << code as u32) != 0
    }
}

impl FromIterator<Code> for CodeSet {
    fn from_iter<I: IntoIterator<Item = Code>>(codes: I) -> Self {
        Self(codes.into_iter().fold(0, |set, code| set | 1 << code as u32))
    }
}

/// How a method is repeated: gRPC's `retryPolicy`, as plain data.
///
/// | setting | default |
/// |---|---|
/// | `max_attempts`, the first call included | 5; a client's limit comes on top |
/// | `initial_backoff`, `max_backoff`, `backoff_multiplier` | 100 ms, 1 s, 2 |
/// | `retryable_codes` | UNAVAILABLE |
/// | jitter | a factor from 0.8 to 1.2 |
#[derive(Clone, Debug, PartialEq)]
pub struct A6Policy {
    /// Attempts, the first call included; at least 2.
    pub max_attempts: u32,
    /// The wait before the first retry, more than zero.
    pub initial_backoff: Duration,
    /// The longest wait, more than zero. Jitter may go over it.
    pub max_backoff: Duration,
    /// Each wait is this many times the one before; more than zero.
    pub backoff_multiplier: f64,
    /// What is repeated, and nothing else; not empty. By naming a code you promise that a call may be
    /// repeated after it.
    pub retryable_codes: Vec<Code>,
}

impl Default for A6Policy {
    fn default() -> Self {
        Self {
            max_attempts: 5,
            initial_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(1),
            backoff_multiplier: 2.0,
            retryable_codes: vec![Code::Unavailable],
        }
    }
}

impl A6Policy {
    /// Checks every value, and limits the attempts to `limit`.
    ///
    /// # Errors
    /// Names the field, as a service config calls it.
    pub fn build(&self, limit: AttemptLimit) -> Result<MethodPolicy, ConfigError> {
        const LONGER: &str = "must be longer than zero";
        if self.max_attempts < 2 {
            return Err(ConfigError::new(
                "retryPolicy.maxAttempts",
                self.max_attempts,
                "the first call counts, so it must be at least 2",
            ));
        }
        if self.initial_backoff.is_zero() {
            return Err(ConfigError::new("retryPolicy.initialBackoff", "0s", LONGER));
        }
        if self.max_backoff.is_zero() {
            return Err(ConfigError::new("retryPolicy.maxBackoff", "0s", LONGER));
        }
        if !(self.backoff_multiplier > 0.0 && self.backoff_multiplier.is_finite()) {
            return Err(ConfigError::new(
                "retryPolicy.backoffMultiplier",
                self.backoff_multiplier,
                "must be more than zero",
            ));
        }
        if self.retryable_codes.is_empty() {
            return Err(ConfigError::new(
                "retryPolicy.retryableStatusCodes",
                "empty",
                "name at least one code",
            ));
        }
        let attempts = self.max_attempts.min(limit.0);
        let waits = (1..attempts).map(|retry| self.wait(retry)).collect::<Vec<_>>();
        let backoff = Backoff::list(waits).jitter(Jitter::Ratio(0.2));
        let codes = self.retryable_codes.iter().copied().collect();
        MethodPolicy::new(attempts, Some(ClassRule::new(backoff)), codes)
    }

    /// The wait before the n-th retry, without jitter.
    fn wait(&self, retry: u32) -> Duration {
        let factor = self.backoff_multiplier.powf(f64::from(retry - 1));
        let wait = self.initial_backoff.as_secs_f64() * factor;
        Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX).min(self.max_backoff)
    }
}

/// How many attempts a client allows whatever a policy says, the first call included: 5, unless it
/// is changed (gRPC A6, limits on retries).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptLimit(u32);

impl AttemptLimit {
    /// At most `attempts`, and never more than 1000. Less than 2 is no limit to be had, and means
    /// the default.
    #[must_use]
    pub const fn of(attempts: u32) -> Self {
        match attempts {
            0 | 1 => Self(5),
            2..=1000 => Self(attempts),
            _ => Self(1000),
        }
    }
}

impl Default for AttemptLimit {
    fn default() -> Self {
        Self(5)
    }
}

/// A checked policy of one method: made by [`A6Policy::build`], or by [`MethodPolicy::none`].
///
/// Besides its codes it repeats what no server has seen, without counting it (transparent retries):
/// what never left us, at once and then ever more slowly, up to a hundred times; and once what the
/// server refused ([`RetryPolicy::resend`]).
#[derive(Clone, Debug, PartialEq)]
pub struct MethodPolicy {
    plan: RetryPlan,
    codes: CodeSet,
    timeout: Option<Duration>,
}

impl MethodPolicy {
    fn new(attempts: u32, rule: Option<ClassRule>, codes: CodeSet) -> Result<Self, ConfigError> {
        let mut policy = RetryPolicy::default().attempts(attempts).resend_unseen(true);
        for class in ErrorClass::ALL {
            policy = policy.never(class);
        }
        if let Some(rule) = rule {
            policy = policy.retry(REPEATED, rule);
        }
        Ok(Self { plan: policy.build()?, codes, timeout: None })
    }

    /// Nothing is repeated but what no server has seen.
    #[must_use]
    pub fn none() -> Self {
        Self::new(1, None, CodeSet::default()).expect("one attempt without waits is a policy")
    }

    /// The whole call, waits included, gets this much time, unless the caller gives it less.
    ///
    /// # Errors
    /// If it is zero.
    pub fn timeout(mut self, timeout: Duration) -> Result<Self, ConfigError> {
        self.plan = self.plan.into_policy().deadline(timeout).build()?;
        self.timeout = Some(timeout);
        Ok(self)
    }

    /// The time that a whole call gets.
    #[must_use]
    pub const fn max_elapsed(&self) -> Option<Duration> {
        self.timeout
    }

    /// Attempts, the first call included; 1 if nothing is repeated.
    #[must_use]
    pub fn max_attempts(&self) -> u32 {
        self.plan.max_attempts().unwrap_or(u32::MAX)
    }

    /// Is a call repeated that ended with `code`?
    #[must_use]
    pub const fn repeats(&self, code: Code) -> bool {
        self.codes.contains(code)
    }

    /// The waits between attempts; `None` if nothing is repeated.
    #[must_use]
    pub fn backoff(&self) -> Option<&Backoff> {
        self.plan.rule(REPEATED).map(ClassRule::backoff)
    }
}

/// All codes of a policy are one class to the retry layer: they share attempts and waits.
const REPEATED: ErrorClass = ErrorClass::Transient;
/// All others are repeated by nothing.
const LEFT: ErrorClass = ErrorClass::Permanent;

impl RequestPolicy for MethodPolicy {
    fn plan(&self) -> &RetryPlan {
        &self.plan
    }

    fn regard(&self, failure: Failure) -> Failure {
        // Our own layers have codes for the caller alone.
        let ours = failure.class == ErrorClass::Rejected;
        let listed = !ours && self.repeats(code_of(&failure));
        let forbidden = failure.server == ServerWord::Forbidden
            && match failure.reason {
                // The server did not say so.
                NO_HINT => false,
                Elapsed::DEADLINE_REASON => listed,
                _ => true,
            };
        let server = if forbidden { ServerWord::Forbidden } else { ServerWord::Silent };
        if listed {
            // Whoever named the code vouches that the call may be repeated.
            return failure
                .reclassified(REPEATED)
                .disposition(Disposition::NotProcessed)
                .server(server);
        }
        failure.reclassified(LEFT).server(server)
    }
}
