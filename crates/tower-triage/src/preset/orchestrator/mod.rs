//! Self-recovery first, then somebody who can act, each in their time: the numbers of
//! [`orchestrator()`], each to be taken alone and changed.
//!
//! | what | how |
//! |---|---|
//! | time of an attempt | told after 30 s ([`soft_limit`](tower_triage_timeout::soft_limit())), dropped after 33 s |
//! | attempts, the first included | 5; for an `Unknown` failure 3 |
//! | waits | 2, 4, 8, 16 s; as long as the server says, but a wait of more than 16 s is not begun |
//! | repeated only if a [nudge](tower_triage_retry::RetryLayer::nudge) changes the request | `Timeout` 5 attempts, `Declined` 3 |
//! | retry budget | 100 at the start and at most, and one for each call |
//! | breaker | one per kind of operation, outside the retry: 3 calls in a row; after 60 s at most 2 probes at a time, 2 successes close |
//! | somebody is told | of every failure that leaves the stack, `Permanent` too, not `Cancelled`; of each breaker that opens |
//!
//! A time-out and what is not for this worker as it is (a task beyond its context) are not healed by
//! an identical repeat: they go straight to the fallback, with a smaller scope, unless a nudge makes
//! that of the next attempt.
//!
//! # Who acts, and in which time
//!
//! | level | who | has | is |
//! |---|---|---|---|
//! | 0 | the stack itself | 5 s | a [`Recovery`] in the fallback slot |
//! | 1 | the orchestrator | 30 s | [`hierarchy`] |
//! | 2 | the user | as long as you say | [`hierarchy`] |
//! | 3 | nobody: the call ends with its failure | | [`hierarchy`] |
//!
//! A [letter](tower_triage_escalate::store::Letter) counts whom it has asked from 0: the orchestrator, then
//! the user. Each is asked when the one before had no answer in its time, counted from when it was asked; the
//! attempts come before all of them.
//!
//! # What else there is room for
//!
//! | for | put |
//! |---|---|
//! | another endpoint, a smaller scope for a further attempt | a nudge into the retry slot |
//! | the third failure of one kind in one task, if a nudge makes the attempts before it | [`decompose`](tower_triage_fallback::decompose()) into the fallback slot, [after 3 failures](tower_triage_fallback::FallbackLayer::after_failures) |
//! | what helped before, first next time | a [`Learner`](tower_triage_learn::Learner) to the classifier ([`attach`](tower_triage_learn::Learner::attach)) |
//! | tables, charts and summaries | handles and observers of [`tower_triage_report`] |
//!
//! A task is one call: its failures are those of its attempts, also of those that somebody asked for
//! ([`RetryWith`](tower_triage_escalate::Decision::RetryWith)).

mod recovery;
mod slots;

use std::sync::Arc;
use std::time::Duration;

use tower_layer::Identity;
use tower_triage_circuit_breaker::{BreakerPolicy, CircuitBreakerLayer, KeyedSettings};
use tower_triage_core::{AnyError, Backoff, Classifier, ErrorClass, Jitter};
use tower_triage_escalate::store::Store;
use tower_triage_escalate::{Asking, Desk, EscalateLayer, KeepFailure};
use tower_triage_retry::budget::{BucketSettings, Budget};
use tower_triage_retry::{ClassRule, RetryLayer, RetryPolicy};
use tower_triage_timeout::{TimeoutLayer, TimeoutPolicy};

use super::escalation::escalate_policy;

#[doc(no_inline)]
pub use tower_triage_learn::Mode;

pub use self::recovery::{Recover, Recovery};
pub use self::slots::Slots;

/// What [`orchestrator()`] makes.
pub type Orchestrator<R, E = AnyError> = Slots<
    EscalateLayer<R, KeepFailure, E>,
    Identity,
    CircuitBreakerLayer<R>,
    RetryLayer<R>,
    TimeoutLayer<R>,
>;

/// For whoever gives tasks to workers and goes on whatever becomes of them.
/// [The module](mod@crate::preset::orchestrator) has its numbers.
///
/// Errors must hold an open circuit and a time limit that passed (`E: From<CircuitOpen> +
/// From<Elapsed>`; [`AnyError`] can).
///
/// # Panics
/// Never: the numbers are fixed, and a test builds them.
pub fn orchestrator<R, E>(classifier: Classifier<R>, desk: Desk) -> Orchestrator<R, E> {
    const FIXED: &str = "fixed numbers";
    let limit = timeout_policy();
    let timeout = TimeoutLayer::new(classifier.clone(), limit.soft())
        .expect(FIXED)
        .policy(limit.build().expect(FIXED));
    let retry = RetryLayer::new(classifier.clone())
        .policy(retry_policy().build().expect(FIXED))
        .budget(Budget::bucket(budget_settings()).expect(FIXED));
    let breaker = CircuitBreakerLayer::new(classifier.clone())
        .policy(breaker_policy().build().expect(FIXED))
        .name("orchestrator")
        .keyed(KeyedSettings::default());
    let escalate = EscalateLayer::new(classifier, desk).policy(escalate_policy());
    Slots { escalate, fallback: Identity::new(), breaker, retry, timeout }
}

/// How long one attempt may take: told after 30 s, dropped a tenth later.
#[must_use]
pub const fn timeout_policy() -> TimeoutPolicy {
    TimeoutPolicy::new(Duration::from_secs(30))
}

/// Which classes are repeated, how often, and when.
#[must_use]
pub fn retry_policy() -> RetryPolicy {
    use ErrorClass::{Contention, Declined, Throttled, Timeout, Transient, Unknown};
    let rule = || ClassRule::new(backoff());
    [Transient, Throttled, Contention]
        .into_iter()
        .fold(RetryPolicy::default().attempts(5), |policy, class| policy.retry(class, rule()))
        .retry(Unknown, rule().attempts(3))
        .retry(Timeout, rule().if_changed())
        .retry(Declined, rule().attempts(3).if_changed())
        .count_all_waits(true)
        .hint_cap(LONGEST_WAIT)
}

/// 2 s, doubling up to 16 s, exactly.
#[must_use]
pub fn backoff() -> Backoff {
    Backoff::exponential(Duration::from_secs(2), 2.0).cap(LONGEST_WAIT).jitter(Jitter::None)
}

const LONGEST_WAIT: Duration = Duration::from_secs(16);

/// How much of the calls may be repeats: enough for all attempts of every call until the breaker
/// opens, and in the long run as many as there are calls.
#[must_use]
pub const fn budget_settings() -> BucketSettings {
    BucketSettings { gain: 1.0, capacity: 100, initial: 100 }
}

/// When a kind of operation is not tried any more, and for how long.
#[must_use]
pub fn breaker_policy() -> BreakerPolicy {
    BreakerPolicy::new()
        .consecutive_failures(3)
        .open_for(Backoff::fixed(Duration::from_secs(60)))
        .probes(2)
        .decide_by_count(2, 1)
}

/// How long the stack may try to recover by itself: level 0.
pub const SELF_RECOVERY: Duration = Duration::from_secs(5);

/// How long the orchestrator may think: level 1.
pub const ORCHESTRATOR: Duration = Duration::from_secs(30);

/// Levels 1 to 3, for [`ask`](EscalateLayer::ask): receiver `orchestrator` is asked first, after 30 s
/// receiver `human`, who has as long as `user` says; then the call ends with its failure. Let routes
/// lead to the orchestrator: whom they name is asked together with level 1.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_triage::escalate::store::{Change, Filter, MemoryStore, Store};
/// use tower_triage::escalate::{Decision, LogSink, Receiver, Route, Routes};
/// use tower_triage::preset::orchestrator::hierarchy;
/// use tower_triage::{AnyError, AnyOk, Chain, Classifier, Desk, Halves, preset};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let routes = Routes::new(Route::new(["orchestrator"], "task_blocked"));
/// let receivers = ["orchestrator", "human"].map(|who| Receiver::new(who).record(LogSink));
/// let desk = Desk::new(routes, receivers)?;
/// let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
/// let asking = hierarchy(Arc::clone(&store), Duration::from_secs(3600));
///
/// let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
/// let layers = preset::orchestrator(classifier, desk).escalate(|layer| {
///     // What somebody decides is put into the task.
///     let layer = layer.retry_with(|task: String, how| Some(format!("{task}, {}", how.as_str()?)));
///     layer.ask(asking).expect("both receivers are at the desk")
/// });
/// let stack = ServiceBuilder::new().layer(layers).service(service_fn(async |task: String| {
///     match task.ends_with("paid") {
///         true => Ok("done"),
///         false => Err(AnyError::from(std::io::Error::from(std::io::ErrorKind::QuotaExceeded))),
///     }
/// }));
/// let call = tokio::spawn(stack.oneshot("read the page".to_owned()));
///
/// // Whoever was asked answers through the store: this program, another one, `triage decide`.
/// tokio::time::sleep(Duration::from_secs(1)).await;
/// let letter = store.list(Filter::any(), None, 1).await?.letters.remove(0);
/// let decision = Decision::RetryWith("paid".into());
/// let answered = Change::Answered { decision, by: "human".into(), why: "it is worth it".into() };
/// store.change(letter.escalation.id, answered).await?;
/// assert_eq!(call.await??, "done");
/// # Ok(()) }
/// ```
#[must_use]
pub fn hierarchy(store: Arc<dyn Store>, user: Duration) -> Asking {
    Asking::new(store)
        .level(["orchestrator"], ORCHESTRATOR)
        .level(["human"], user)
        .deadline(ORCHESTRATOR.saturating_add(user))
}
