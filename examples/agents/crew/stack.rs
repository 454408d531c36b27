//! What sees each task through: the preset `orchestrator`, its times shortened and its slots filled.
//!
//! | what goes wrong | what is done |
//! |---|---|
//! | 429, 503, a broken connection | retry, from the last page on |
//! | prose instead of JSON, an unheard-of error | twice more with a nudge, then the small model; what helped against the unheard-of is remembered |
//! | no answer in time | once more with a nudge, then the small model |
//! | a prompt that is too long | twice more with a nudge, then in parts |
//! | a refusal, an open circuit | the small model |
//! | going in circles | another plan |
//! | a fee | the orchestrator is asked, then a human |
//! | a corrupt page, and whatever else is left | what there is |

use std::sync::Arc;
use std::time::Duration;

use tower::util::BoxCloneSyncService;
use tower::{Layer, ServiceBuilder};
use tower_triage::circuit_breaker::BreakerPlan;
use tower_triage::escalate::Asking;
use tower_triage::escalate::store::Store;
use tower_triage::fallback::decompose;
use tower_triage::learn::Learner;
use tower_triage::preset::orchestrator::{
    Mode, ORCHESTRATOR, Orchestrator, Recovery, backoff, breaker_policy, orchestrator,
    retry_policy, timeout_policy,
};
use tower_triage::timeout::TimeoutPolicy;
use tower_triage::{
    AnyError, Backoff, BreakerHandle, CircuitBreakerLayer, ClassSet, Classifier, ClassifyLayer,
    ConfigError, Desk, ErrorClass, FallbackLayer,
};

use crate::crew::rules::Rules;
use crate::crew::task::{Report, Task};
use crate::crew::ways::{by_heart, merge, nudge, pay, reduced, ways_out, what_there_is};
use crate::crew::worker::Crew;

/// The preset's times are divided by this: nobody wants to watch an attempt hang for 33 s.
pub(crate) const PACE: u32 = 10;

/// How long the preset's breaker stays open, and how long a human may think here.
const MINUTE: Duration = Duration::from_secs(60);

/// The places of the steps in the chain of ways around.
pub(crate) mod step {
    pub(crate) const BY_HEART: u32 = 1;
    pub(crate) const IN_PARTS: u32 = 2;
    pub(crate) const OTHER_MODEL: u32 = 3;
}

/// Carries out tasks.
pub(crate) type Service = BoxCloneSyncService<Task, Report, AnyError>;

/// The crew in the care of the orchestrator.
pub(crate) struct Stack {
    pub(crate) service: Service,
    /// A circuit for each worker, and one for the small model.
    pub(crate) breakers: [BreakerHandle; 2],
}

impl Stack {
    /// `crew` asks the large model, `spare` the small one.
    pub(crate) fn new(
        classifier: &Classifier<Rules>,
        learner: Learner,
        desk: Desk,
        store: Arc<dyn Store>,
        (crew, spare): (Crew, Crew),
    ) -> Result<Self, ConfigError> {
        let layers = at_pace(orchestrator(classifier.clone(), desk))?.retry(|r| r.nudge(nudge));
        let of_small = CircuitBreakerLayer::new(classifier.clone()).policy(breaker()?);
        let of_small = of_small.name("small model");
        let breakers = [layers.breaker.handle(), of_small.handle()];

        // What no rule knows is treated as experience has it.
        let crew = ServiceBuilder::new()
            .layer(ClassifyLayer::new(classifier.clone(), learner))
            .service(crew);
        let spare = ServiceBuilder::new().layer((of_small, layers.timeout.clone())).service(spare);

        // Another model can do what this one cannot or will not, but not mend or pay for a page.
        let other_model =
            ClassSet::bypassable().without(ErrorClass::Internal).without(ErrorClass::Quota);
        let chain = || FallbackLayer::new(classifier.clone()).max_steps::<3>();
        // A part goes through the same layers by itself.
        let part = layers
            .clone()
            .fallback(|_| chain().or_service_with(other_model, spare.clone(), reduced))
            .layer(crew.clone());
        let chain = chain()
            .or_replan(ErrorClass::Permanent, by_heart)
            .or_service(ErrorClass::Declined, decompose(part, Task::parts, merge))
            .after_failures(3)
            .or_service_with(other_model, spare, reduced);

        // As the preset's `hierarchy`, at our pace.
        let asking = Asking::new(store)
            .classes(ErrorClass::Quota)
            .level(["orchestrator"], ORCHESTRATOR / PACE)
            .level(["human"], MINUTE / PACE)
            .deadline((ORCHESTRATOR + MINUTE) / PACE);
        let recovery = Recovery::new(Mode::Balanced, ways_out);
        let escalate = layers.escalate.clone().from("crew");
        let escalate = escalate
            .enrich(move |escalation| recovery.explain(escalation))
            .retry_with(pay)
            .ask(asking)?
            .finish_with(what_there_is);
        let layers = layers.fallback(|_| chain).escalate(|_| escalate);
        Ok(Self { service: Service::new(layers.layer(crew)), breakers })
    }
}

/// The preset with its own numbers, each time [`PACE`] times shorter.
fn at_pace(layers: Orchestrator<Rules>) -> Result<Orchestrator<Rules>, ConfigError> {
    let waits: Vec<_> = backoff().iter(|| 0.0).take(4).map(|wait| wait / PACE).collect();
    let longest = waits.iter().copied().max().unwrap_or_default();
    let again = retry_policy().backoff(&Backoff::list(waits)).hint_cap(longest).build()?;
    let limit = TimeoutPolicy::new(timeout_policy().soft() / PACE).build()?;
    let breaker = breaker()?;
    Ok(layers
        .retry(|layer| layer.policy(again))
        .timeout(|layer| layer.policy(limit))
        .breaker(|layer| layer.policy(breaker)))
}

/// When a worker or a model is not asked any more, and for how long.
fn breaker() -> Result<BreakerPlan, ConfigError> {
    breaker_policy().open_for(Backoff::fixed(MINUTE / PACE)).build()
}
