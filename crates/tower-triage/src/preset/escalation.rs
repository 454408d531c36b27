//! Retry, then a way around, then somebody who can act: the numbers of [`escalation()`], and its
//! matrix, each to be taken alone and changed.
//!
//! | what | how |
//! |---|---|
//! | attempts, the first included | 3; for a timeout or a lost race (a database lock) 2 |
//! | waits | 2 s, 8 s (times 4), ±25 %; longer if the server says so |
//! | never repeated | everything else; `Auth` once, if the retry gets a [refresh](tower_triage_retry::RetryLayer::refresh) |
//! | somebody is told | of every failure that leaves the stack, `Permanent` too, not `Cancelled`; of each breaker that opens |
//! | breaker | one per kind of operation: 5 failures in a row within 10 min; after 5 min one trial |
//! | a question to a person | critical |

use std::time::Duration;

use tower_layer::Identity;
use tower_triage_circuit_breaker::{BreakerPolicy, CircuitBreakerLayer, KeyedSettings};
use tower_triage_core::{Backoff, Classifier, ErrorClass, EscalateWhen, Jitter};
use tower_triage_escalate::{
    Desk, EscalateLayer, EscalatePolicy, Escalation, Priority, Route, Routes, When,
};
use tower_triage_retry::{ClassRule, RetryLayer, RetryPolicy};

use super::Service;
use crate::triage::Triage;

/// Three levels and a breaker: retry, then the fallback that you put into its slot, then somebody is
/// told. [The module](mod@crate::preset::escalation) has its numbers.
///
/// Errors must hold an open circuit, as for [`service`](super::service()). [`routes`] is the matrix
/// for a team of agents; the desk may have any other.
///
/// # Panics
/// Never: the numbers are fixed, and a test builds them.
pub fn escalation<R, E>(classifier: Classifier<R>, desk: Desk) -> Service<R, E> {
    let retry = retry_policy().build().expect("fixed numbers");
    let breaker = breaker_policy().build().expect("fixed numbers");
    Triage {
        escalate: EscalateLayer::new(classifier.clone(), desk)
            .policy(escalate_policy())
            .enrich(questions_are_critical),
        fallback: Identity::new(),
        retry: RetryLayer::new(classifier.clone()).policy(retry),
        breaker: CircuitBreakerLayer::new(classifier)
            .policy(breaker)
            .name("escalation")
            .keyed(KeyedSettings::default()),
    }
}

/// Which causes are repeated, how often, and when.
#[must_use]
pub fn retry_policy() -> RetryPolicy {
    let backoff = Backoff::exponential(Duration::from_secs(2), 4.0).jitter(Jitter::Ratio(0.25));
    let rule = || ClassRule::new(backoff.clone());
    RetryPolicy::default()
        .attempts(3)
        .count_all_waits(true)
        .retry(ErrorClass::Transient, rule())
        .retry(ErrorClass::Throttled, rule())
        .retry(ErrorClass::Timeout, rule().attempts(2))
        .retry(ErrorClass::Contention, rule().attempts(2))
}

/// When a kind of operation is not tried any more, and for how long.
#[must_use]
pub fn breaker_policy() -> BreakerPolicy {
    BreakerPolicy::new()
        .consecutive_failures(5)
        .consecutive_within(Duration::from_secs(10 * 60))
        .open_for(Backoff::fixed(Duration::from_secs(5 * 60)))
}

/// Every failure that leaves the stack reaches somebody, and none that was got round.
#[must_use]
pub fn escalate_policy() -> EscalatePolicy {
    use ErrorClass::{Auth, Internal, Permanent, Quota};
    EscalatePolicy::new().when([Auth, Quota, Internal, Permanent], EscalateWhen::OnExhaustion)
}

/// Who hears of whom in a team of agents: receivers `orchestrator`, `auditor` and `human`.
///
/// | who failed | receivers | task type |
/// |---|---|---|
/// | `client*` | orchestrator | `client_issue` |
/// | `worker-*` | orchestrator | `task_blocked` |
/// | `validator` | auditor | `security_finding` |
/// | `auditor` | orchestrator, human | `critical_vulnerability` |
/// | `infrastructure` | orchestrator, human | `infra_failure` |
/// | `orchestrator`, anybody else | human | `human_required` |
#[must_use]
pub fn routes() -> Routes {
    let both = ["orchestrator", "human"];
    Routes::new(Route::new(["human"], "human_required"))
        .rule(When::from("client*"), Route::new(["orchestrator"], "client_issue"))
        .rule(When::from("worker-*"), Route::new(["orchestrator"], "task_blocked"))
        .rule(When::from("validator"), Route::new(["auditor"], "security_finding"))
        .rule(When::from("auditor"), Route::new(both, "critical_vulnerability"))
        .rule(When::from("infrastructure"), Route::new(both, "infra_failure"))
}

/// A call that waits for an answer is critical. Call it in an
/// [`enrich`](EscalateLayer::enrich) of your own, which takes its place.
pub fn questions_are_critical(escalation: &mut Escalation) {
    if escalation.question.is_some() {
        escalation.priority = Priority::Critical;
    }
}
