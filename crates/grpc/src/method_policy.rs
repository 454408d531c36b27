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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::{all, failure_of};
    use proptest::prelude::*;
    use tower_triage_core::RetryAfter;
    use tower_triage_retry::{Decision, Facts, Progress};

    fn policy(codes: &[Code]) -> MethodPolicy {
        let policy = A6Policy { retryable_codes: codes.to_vec(), ..A6Policy::default() };
        policy.build(AttemptLimit::default()).unwrap()
    }

    /// What becomes of the first attempt of a call that nobody marked.
    fn decide(policy: &MethodPolicy, failure: Failure) -> Decision {
        let facts = Facts { repeatable: false, unit_of_work: false, ..Facts::default() };
        let seen = policy.regard(failure);
        policy.plan().decide(&facts, &mut Progress::default(), &seen, 0.5)
    }

    #[test]
    fn its_codes_are_repeated_and_no_others() {
        for listed in all().skip(1) {
            let policy = policy(&[listed]);
            for code in all().skip(1) {
                let decision = decide(&policy, failure_of(code).unwrap());
                let again = matches!(decision, Decision::Again { .. });
                assert_eq!(again, code == listed, "{code:?} under {listed:?}: {decision:?}");
            }
        }
    }

    #[test]
    fn failures_of_the_transport_have_codes_too() {
        let policy = policy(&[Code::Unavailable]);
        let again = |failure| matches!(decide(&policy, failure), Decision::Again { .. });
        let failure = |class| Failure::new(class).reason("some reason");
        assert!(again(failure(ErrorClass::Transient)));
        assert!(!again(failure(ErrorClass::Timeout)));
        assert!(!again(failure(ErrorClass::Internal)));
        // It says UNAVAILABLE to the caller, but it is our own.
        assert!(!again(failure(ErrorClass::Rejected)));
    }

    #[test]
    fn only_the_servers_own_no_is_one() {
        let policy = policy(&[Code::Unavailable, Code::ResourceExhausted]);
        let exhausted = failure_of(Code::ResourceExhausted).unwrap();
        let no_hint = exhausted.server(ServerWord::Forbidden).reason(NO_HINT);
        assert!(matches!(decide(&policy, no_hint), Decision::Again { .. }));
        let pushed_back = exhausted.server(ServerWord::Forbidden);
        assert!(matches!(decide(&policy, pushed_back), Decision::Stop(_)));
        // It counts for the throttle, whatever the code.
        let other = failure_of(Code::NotFound).unwrap().server(ServerWord::Forbidden);
        assert_eq!(policy.regard(other).server, ServerWord::Forbidden);
        // What is not listed and what our own deadline ended does not.
        assert_eq!(policy.regard(failure_of(Code::NotFound).unwrap()).server, ServerWord::Silent);
        let late = Elapsed::deadline(Duration::from_secs(1)).failure();
        assert_eq!(policy.regard(late).server, ServerWord::Silent);
        assert_eq!(MethodPolicy::none().regard(no_hint).server, ServerWord::Silent);
    }

    #[test]
    fn waits_grow_to_the_longest_and_are_jittered_by_a_fifth() {
        let policy = A6Policy {
            max_attempts: 6,
            initial_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_millis(500),
            ..A6Policy::default()
        };
        let built = policy.build(AttemptLimit::of(6)).unwrap();
        let at = |u: f64| {
            let waits = built.backoff().unwrap().iter(move || u).take(5);
            waits.map(|wait| wait.as_millis()).collect::<Vec<_>>()
        };
        assert_eq!(at(0.5), [100, 200, 400, 500, 500]);
        assert_eq!(at(0.0), [80, 160, 320, 400, 400]);
        assert_eq!(at(0.999_999), [119, 239, 479, 599, 599]);
        let shrinking = A6Policy { backoff_multiplier: 0.5, ..policy };
        let built = shrinking.build(AttemptLimit::of(6)).unwrap();
        let waits: Vec<Duration> = built.backoff().unwrap().iter(|| 0.5).take(3).collect();
        assert_eq!(waits, [100, 50, 25].map(Duration::from_millis));
    }

    proptest! {
        #[test]
        fn any_policy_is_refused_or_works(
            max_attempts: u32,
            limit: u32,
            initial in 0..u64::MAX,
            max in 0..u64::MAX,
            multiplier: f64,
            u in 0.0..1.0_f64,
        ) {
            let policy = A6Policy {
                max_attempts,
                initial_backoff: Duration::from_nanos(initial),
                max_backoff: Duration::from_nanos(max),
                backoff_multiplier: multiplier,
                retryable_codes: vec![Code::Unavailable],
            };
            let Ok(built) = policy.build(AttemptLimit::of(limit)) else { return Ok(()) };
            prop_assert!(built.max_attempts() <= 1000 && built.max_attempts() <= max_attempts);
            let longest = Duration::from_nanos(max).mul_f64(1.2) + Duration::from_nanos(1000);
            prop_assert!(built.backoff().unwrap().iter(|| u).take(20).all(|wait| wait <= longest));
            let hinted = failure_of(Code::Unavailable).unwrap().retry_after(RetryAfter::Never);
            let _ = decide(&built, hinted);
        }
    }
}
