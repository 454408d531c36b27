//! When to send a request again, how often and for how long: plain data.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::time::Duration;

use tower_triage_core::{Backoff, ConfigError, ErrorClass, HintMode, Jitter};

/// How failures of one class are repeated.
///
/// The default waits a jittered exponential time: base 100 ms, factor 2, cap 30 s, full jitter.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct ClassRule {
    attempts: Option<u32>,
    backoff: Backoff,
    if_changed: bool,
}

impl ClassRule {
    /// Waits by `backoff`, and is limited by the policy's total of attempts alone.
    #[must_use]
    pub const fn new(backoff: Backoff) -> Self {
        Self { attempts: None, backoff, if_changed: false }
    }

    /// At most this many attempts of one request end in this class, the first call included.
    /// Default: as many as the policy allows in total.
    #[must_use]
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = Some(attempts);
        self
    }

    /// Repeats a request only if the [nudge](crate::RetryLayer::nudge) changes it: for failures that
    /// an identical repeat does not heal, such as a prompt that is too long. Without a nudge that is
    /// never.
    #[must_use]
    pub const fn if_changed(mut self) -> Self {
        self.if_changed = true;
        self
    }

    /// The limit of this class alone; `None` if only the policy's total limits it.
    #[must_use]
    pub const fn max_attempts(&self) -> Option<u32> {
        self.attempts
    }

    /// The waits.
    #[must_use]
    pub const fn backoff(&self) -> &Backoff {
        &self.backoff
    }

    /// Is a request repeated only if the nudge changes it?
    #[must_use]
    pub const fn needs_change(&self) -> bool {
        self.if_changed
    }

    fn exponential(base: Duration) -> Self {
        let cap = Duration::from_secs(30);
        Self::new(Backoff::exponential(base, 2.0).cap(cap).jitter(Jitter::Full))
    }
}

impl Default for ClassRule {
    fn default() -> Self {
        Self::exponential(Duration::from_millis(100))
    }
}

/// When a failed attempt is repeated. Plain data: change it with its setters, then
/// [`build`](Self::build) it into the [`RetryPlan`] that a layer runs by. In a configuration file
/// what is left out is the default; `rules`, if it is there, names every class that is repeated.
///
/// | setting | default |
/// |---|---|
/// | attempts in total, the first call included | 3 |
/// | `Transient` (a refused connection is one) | exponential: base 100 ms, factor 2, cap 30 s, full jitter |
/// | `Throttled` | the same with a base of 1 s |
/// | `Timeout` | as `Transient`, 2 attempts |
/// | `Contention` | as `Transient`, 2 attempts, only if the request is the whole unit of work |
/// | `Auth` | once, after a refresh, if the layer has one |
/// | every other class | never |
/// | overall deadline | none but the request's own |
/// | longest hint of a server that is waited for | 60 s |
///
/// ```
/// use std::time::Duration;
/// use tower_triage_core::{Backoff, ErrorClass};
/// use tower_triage_retry::{ClassRule, RetryPolicy};
///
/// let plan = RetryPolicy::default()
///     .attempts(5)
///     .deadline(Duration::from_secs(10))
///     .retry(ErrorClass::Unknown, ClassRule::new(Backoff::fixed(Duration::from_secs(1))).attempts(2))
///     .never(ErrorClass::Timeout)
///     .build()?;
/// assert!(plan.rule(ErrorClass::Timeout).is_none());
/// assert_eq!(RetryPolicy::default().attempts(0).build().unwrap_err().field(), "attempts");
/// # Ok::<(), tower_triage_core::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
pub struct RetryPolicy {
    attempts: Option<u32>,
    rules: BTreeMap<ErrorClass, ClassRule>,
    #[cfg_attr(feature = "serde", serde(with = "optional_duration"))]
    deadline: Option<Duration>,
    hint_mode: HintMode,
    #[cfg_attr(feature = "serde", serde(with = "tower_triage_core::duration_text"))]
    hint_cap: Duration,
    retry_at_hint_cap: bool,
    honour_exhausted: bool,
    keep_unrepeatable: bool,
    count_all_waits: bool,
    wait_when_denied: bool,
    resend_unseen: bool,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        let usual = ClassRule::default();
        Self {
            attempts: Some(3),
            rules: BTreeMap::from([
                (ErrorClass::Transient, usual.clone()),
                (ErrorClass::Timeout, usual.clone().attempts(2)),
                (ErrorClass::Throttled, ClassRule::exponential(Duration::from_secs(1))),
                (ErrorClass::Contention, usual.attempts(2)),
            ]),
            deadline: None,
            hint_mode: HintMode::default(),
            hint_cap: Duration::from_secs(60),
            retry_at_hint_cap: false,
            honour_exhausted: true,
            keep_unrepeatable: true,
            count_all_waits: false,
            wait_when_denied: false,
            resend_unseen: false,
        }
    }
}

/// Presets.
impl RetryPolicy {
    /// Nothing is repeated: failures are classified and recorded, and no request is kept.
    #[must_use]
    pub fn single_attempt() -> Self {
        Self::default().attempts(1)
    }

    /// Somebody waits for the answer: three quick attempts (base 50 ms, cap 1 s) within 5 s, and no
    /// hint of a server longer than 2 s is waited for.
    #[must_use]
    pub fn interactive() -> Self {
        let quick = Backoff::exponential(Duration::from_millis(50), 2.0)
            .cap(Duration::from_secs(1))
            .jitter(Jitter::Full);
        Self::default()
            .backoff(&quick)
            .deadline(Duration::from_secs(5))
            .hint_cap(Duration::from_secs(2))
    }

    /// Nobody waits for the answer: up to 8 attempts of every retried class (base 1 s, cap 60 s),
    /// hints of up to 5 minutes are waited for, and everything ends after 15 minutes.
    #[must_use]
    pub fn background() -> Self {
        let patient = Backoff::exponential(Duration::from_secs(1), 2.0)
            .cap(Duration::from_secs(60))
            .jitter(Jitter::Full);
        let mut policy = Self::default()
            .attempts(8)
            .deadline(Duration::from_secs(15 * 60))
            .hint_cap(Duration::from_secs(5 * 60));
        for rule in policy.rules.values_mut() {
            *rule = ClassRule::new(patient.clone());
        }
        policy
    }
}

/// Settings.
impl RetryPolicy {
    /// At most this many attempts over all classes, the first call included. Default: 3.
    #[must_use]
    pub const fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = Some(attempts);
        self
    }

    /// No limit on the attempts in total: only a class's own limit, deadline and budget end a call.
    #[must_use]
    pub const fn unlimited_attempts(mut self) -> Self {
        self.attempts = None;
        self
    }

    /// Failures of `class` are repeated by `rule`. For a class that is not repeated by default this
    /// is the explicit word that it needs. Whether the request may be repeated at all is still
    /// asked.
    #[must_use]
    pub fn retry(mut self, class: ErrorClass, rule: ClassRule) -> Self {
        self.rules.insert(class, rule);
        self
    }

    /// Failures of `class` are not repeated.
    #[must_use]
    pub fn never(mut self, class: ErrorClass) -> Self {
        self.rules.remove(&class);
        self
    }

    /// Every class that is repeated now waits by `backoff`; limits stay.
    #[must_use]
    pub fn backoff(mut self, backoff: &Backoff) -> Self {
        for rule in self.rules.values_mut() {
            rule.backoff = backoff.clone();
        }
        self
    }

    /// The whole call, waits included, gets this much time from its begin: no wait that would end
    /// later is begun. A request's own deadline counts too; the earlier one wins. An attempt that
    /// is under way is not cut off: that is a timeout layer's work. Default: none.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// What becomes of our own wait where the server asks for another. Default: the longer of the
    /// two, and a little on top; a pushback exactly ([`HintMode::AtLeast`]).
    #[must_use]
    pub const fn hint_mode(mut self, mode: HintMode) -> Self {
        self.hint_mode = mode;
        self
    }

    /// A server that wants to see us later than this is not waited for: the failure is returned at
    /// once. Default: 60 s. Modes that cut a long hint down by themselves ([`HintMode::Cap`],
    /// [`HintMode::ClampToOwnPlus`]) do not refuse it.
    #[must_use]
    pub const fn hint_cap(mut self, cap: Duration) -> Self {
        self.hint_cap = cap;
        self
    }

    /// Tries again after the cap where a server's hint is longer, instead of returning. Default: no.
    #[must_use]
    pub const fn retry_at_hint_cap(mut self, retry: bool) -> Self {
        self.retry_at_hint_cap = retry;
        self
    }

    /// Gives up where a retry layer below gave up on this very call, so that nested retries do not
    /// multiply. Default: yes.
    #[must_use]
    pub const fn honour_exhausted(mut self, honour: bool) -> Self {
        self.honour_exhausted = honour;
        self
    }

    /// Keeps also requests that are not repeatable: they can be sent again where the peer vouches
    /// that it did nothing (a refused connection, a 429). Off, they are never cloned, and sent once.
    /// Default: yes.
    #[must_use]
    pub const fn keep_unrepeatable(mut self, keep: bool) -> Self {
        self.keep_unrepeatable = keep;
        self
    }

    /// The n-th retry of a call takes the n-th wait of its class's schedule, whatever the classes of
    /// the failures before it. Default: no; each class counts its own, so the first failure of a
    /// class gets the first wait of its schedule.
    #[must_use]
    pub const fn count_all_waits(mut self, count: bool) -> Self {
        self.count_all_waits = count;
        self
    }

    /// A failure whose retry only the budget denies is returned after the wait that the retry would
    /// have had, not at once: a caller that calls again and again (long polling) is then no faster
    /// than one that is granted its retries. A shutdown ends the wait. Default: no.
    #[must_use]
    pub const fn wait_when_denied(mut self, wait: bool) -> Self {
        self.wait_when_denied = wait;
        self
    }

    /// Sends a request again that nothing has seen: it never left us, or the peer refused it before
    /// anybody looked at it. That costs neither an attempt nor budget (gRPC A6, transparent retries;
    /// there also under a policy that repeats nothing else); see [`resend`](Self::resend) for how
    /// often. Default: no, it is repeated like other failures of its class.
    #[must_use]
    pub const fn resend_unseen(mut self, resend: bool) -> Self {
        self.resend_unseen = resend;
        self
    }

    /// Checks every value.
    ///
    /// # Errors
    /// An attempt limit or deadline of zero, or a backoff that cannot work; the error names the
    /// field.
    pub fn build(self) -> Result<RetryPlan, ConfigError> {
        const FIRST: &str = "the first call counts, so it must be at least 1";
        if self.attempts == Some(0) {
            return Err(ConfigError::new("attempts", 0, FIRST));
        }
        if self.deadline.is_some_and(|deadline| deadline.is_zero()) {
            return Err(ConfigError::new("deadline", "0s", "must be longer than zero"));
        }
        for (class, rule) in &self.rules {
            if rule.attempts == Some(0) {
                return Err(ConfigError::new(
                    "retry.attempts",
                    format_args!("0 for {class}"),
                    FIRST,
                ));
            }
            rule.backoff.check("retry.backoff")?;
        }
        Ok(RetryPlan(self))
    }
}

/// Reading.
impl RetryPolicy {
    /// The rule for `class`; `None` if it is not repeated.
    #[must_use]
    pub fn rule(&self, class: ErrorClass) -> Option<&ClassRule> {
        self.rules.get(&class)
    }

    /// The limit of attempts over all classes; `None` for no limit.
    #[must_use]
    pub const fn max_attempts(&self) -> Option<u32> {
        self.attempts
    }

    /// The time that a whole call gets.
    #[must_use]
    pub const fn max_elapsed(&self) -> Option<Duration> {
        self.deadline
    }

    /// What becomes of our own wait where the server asks for another.
    #[must_use]
    pub const fn hints(&self) -> HintMode {
        self.hint_mode
    }

    /// The longest hint that is waited for.
    #[must_use]
    pub const fn max_hint(&self) -> Duration {
        self.hint_cap
    }

    /// Is a hint that is too long cut to the cap?
    #[must_use]
    pub const fn retries_at_hint_cap(&self) -> bool {
        self.retry_at_hint_cap
    }

    /// Is the mark of a retry below honoured?
    #[must_use]
    pub const fn honours_exhausted(&self) -> bool {
        self.honour_exhausted
    }

    /// Does a call's n-th retry take the n-th wait, whatever its class?
    #[must_use]
    pub const fn counts_all_waits(&self) -> bool {
        self.count_all_waits
    }

    /// Does the caller wait where the budget denies the retry?
    #[must_use]
    pub const fn waits_when_denied(&self) -> bool {
        self.wait_when_denied
    }

    /// Could this policy ever send a request again that is `repeatable` or not? If not, it is not
    /// kept.
    #[must_use]
    pub fn keeps(&self, repeatable: bool) -> bool {
        (self.attempts != Some(1) || self.resend_unseen) && (repeatable || self.keep_unrepeatable)
    }

    /// Are requests that nothing has seen sent again, uncounted?
    #[must_use]
    pub const fn resends_unseen(&self) -> bool {
        self.resend_unseen
    }
}

/// A checked [`RetryPolicy`]: what a layer runs by. Made by [`RetryPolicy::build`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RetryPlan(RetryPolicy);

impl RetryPlan {
    /// The policy, to change and build again.
    #[must_use]
    pub fn into_policy(self) -> RetryPolicy {
        self.0
    }
}

impl Deref for RetryPlan {
    type Target = RetryPolicy;

    fn deref(&self) -> &RetryPolicy {
        &self.0
    }
}

impl TryFrom<RetryPolicy> for RetryPlan {
    type Error = ConfigError;

    fn try_from(policy: RetryPolicy) -> Result<Self, ConfigError> {
        policy.build()
    }
}

/// A time that may be absent, as text.
#[cfg(feature = "serde")]
mod optional_duration {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use tower_triage_core::duration_text::DurationText;

    pub(super) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        duration.map(DurationText).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let text = Option::<DurationText>::deserialize(deserializer)?;
        Ok(text.map(|text| text.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `RetryPlan::default()` is not checked when it is made.
    #[test]
    fn defaults_and_presets_build() {
        for policy in [
            RetryPolicy::default(),
            RetryPolicy::single_attempt(),
            RetryPolicy::interactive(),
            RetryPolicy::background(),
        ] {
            assert!(policy.build().is_ok());
        }
    }

    #[test]
    fn presets_are_what_they_say() {
        let (secs, exponential) = (Duration::from_secs, |base, cap| {
            ClassRule::new(Backoff::exponential(base, 2.0).cap(cap).jitter(Jitter::Full))
        });
        let policy = RetryPolicy::interactive();
        let quick = exponential(Duration::from_millis(50), secs(1));
        assert_eq!(policy.rule(ErrorClass::Transient), Some(&quick));
        assert_eq!(policy.rule(ErrorClass::Timeout), Some(&quick.attempts(2)));
        assert_eq!(policy.max_attempts(), Some(3));
        assert_eq!((policy.max_elapsed(), policy.max_hint()), (Some(secs(5)), secs(2)));

        let policy = RetryPolicy::background();
        let patient = exponential(secs(1), secs(60));
        for class in [ErrorClass::Transient, ErrorClass::Timeout, ErrorClass::Throttled] {
            assert_eq!(policy.rule(class), Some(&patient));
        }
        assert_eq!(policy.max_attempts(), Some(8));
        assert_eq!((policy.max_elapsed(), policy.max_hint()), (Some(secs(900)), secs(300)));
    }

    /// Each setting is read as it was set, whatever is set after it.
    #[test]
    fn settings_do_not_disturb_each_other() {
        let rule = ClassRule::new(Backoff::fixed(Duration::from_secs(7))).attempts(4);
        let policy = RetryPolicy::default()
            .attempts(9)
            .retry(ErrorClass::Unknown, rule.clone())
            .never(ErrorClass::Timeout)
            .deadline(Duration::from_secs(70))
            .hint_mode(HintMode::AsGiven)
            .hint_cap(Duration::from_secs(30))
            .retry_at_hint_cap(true)
            .honour_exhausted(false)
            .keep_unrepeatable(false);
        let plan = RetryPlan::try_from(policy.clone()).unwrap();
        assert_eq!((plan.max_attempts(), plan.hints()), (Some(9), HintMode::AsGiven));
        assert_eq!(plan.rule(ErrorClass::Unknown), Some(&rule));
        assert_eq!(plan.rule(ErrorClass::Timeout), None);
        assert!(plan.rule(ErrorClass::Transient).is_some());
        assert_eq!(plan.max_elapsed(), Some(Duration::from_secs(70)));
        assert_eq!(plan.max_hint(), Duration::from_secs(30));
        assert!(plan.retries_at_hint_cap() && !plan.honours_exhausted());
        assert!(plan.keeps(true) && !plan.keeps(false));
        assert_eq!(plan.into_policy(), policy);
        assert!(RetryPlan::try_from(policy.attempts(0)).is_err());
    }

    #[test]
    fn errors_name_the_field() {
        let field = |policy: RetryPolicy| policy.build().unwrap_err().field();
        let zero = ClassRule::default().attempts(0);
        assert_eq!(field(RetryPolicy::default().attempts(0)), "attempts");
        assert_eq!(field(RetryPolicy::default().deadline(Duration::ZERO)), "deadline");
        assert_eq!(field(RetryPolicy::default().retry(ErrorClass::Quota, zero)), "retry.attempts");
    }

    #[cfg(feature = "serde")]
    #[test]
    fn policies_are_plain_data() {
        let text = r#"{
            "attempts": 5,
            "deadline": "10s",
            "rules": {"Unknown": {"attempts": 2, "backoff": {"kind": "fixed", "base": "1s"}}}
        }"#;
        let policy: RetryPolicy = serde_json::from_str(text).unwrap();
        let rule = ClassRule::new(Backoff::fixed(Duration::from_secs(1))).attempts(2);
        assert_eq!(policy.rule(ErrorClass::Unknown), Some(&rule));
        assert_eq!(policy.max_elapsed(), Some(Duration::from_secs(10)));
        assert_eq!(policy.max_hint(), Duration::from_secs(60));
        let again = serde_json::to_string(&policy).unwrap();
        assert_eq!(serde_json::from_str::<RetryPolicy>(&again).unwrap(), policy);
        assert!(serde_json::from_str::<RetryPolicy>(r#"{"attemps": 5}"#).is_err());
    }
}
