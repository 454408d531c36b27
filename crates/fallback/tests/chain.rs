//! Any chain, any outcomes: the answer is the first that a step for the primary's class gives.

mod common;

use common::{Reply, classifier, reply};
use std::future::ready;
use std::time::Duration;

use proptest::prelude::*;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_triage_core::{AnyError, ClassSet, ErrorClass, StepKind, incident};
use tower_triage_fallback::FallbackLayer;

/// What a step of the model is for, and the status it answers with (`None`: never in time).
type Planned = (ClassSet, Option<u16>);

fn planned() -> impl Strategy<Value = Planned> {
    let classes = prop::sample::subsequence(ErrorClass::ALL.to_vec(), 0..=12);
    let answer = prop::sample::select(vec![Some(200), Some(429), Some(503), None]);
    (classes.prop_map(ClassSet::from_iter), answer)
}

async fn step(answer: Option<u16>, name: &'static str) -> Result<Reply, AnyError> {
    match answer {
        Some(status) => ready(Ok(reply(status, name))).await,
        None => std::future::pending().await,
    }
}

/// The body of the answer, and how many steps the model tried without success.
fn model(class: Option<ErrorClass>, chain: &[Planned; 3]) -> (&'static str, usize) {
    let Some(class) = class else { return ("primary", 0) };
    let mut failed = 0;
    for ((classes, answer), name) in chain.iter().zip(["first", "second", "third"]) {
        match (classes.contains(class), answer) {
            (true, Some(200)) => return (name, failed),
            (true, _) => failed += 1,
            (false, _) => {}
        }
    }
    ("primary", failed)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn the_first_answer_of_a_step_for_the_primary_class_wins(
        status in prop::sample::select(vec![200_u16, 422, 429, 503]),
        chain in [planned(), planned(), planned()],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let (outcome, incident) = runtime.block_on(async {
            let [one, two, three] = chain;
            let limit = Duration::from_secs(1);
            let layer = FallbackLayer::new(classifier())
                .max_steps::<3>()
                .or_call(one.0, move |_| step(one.1, "first"))
                .within(limit)
                .or_service(two.0, service_fn(move |_: u32| step(two.1, "second")))
                .within(limit)
                .or_call_with(three.0, move |_: u32, _| step(three.1, "third"))
                .within(limit);
            let mut service = layer.layer(service_fn(move |_: u32| {
                ready(Ok::<_, AnyError>(reply(status, "primary")))
            }));
            incident::scope(service.ready().await.unwrap().call(1)).await
        });
        let class = match status {
            200 => None,
            422 => Some(ErrorClass::Permanent),
            429 => Some(ErrorClass::Throttled),
            _ => Some(ErrorClass::Transient),
        };
        let (body, failed) = model(class, &chain);
        let answer = outcome.unwrap();
        prop_assert_eq!(answer.body.as_str(), body);
        prop_assert_eq!(answer.notes.fallback, class.filter(|_| body != "primary"));
        let steps = incident.map(|incident| incident.steps).unwrap_or_default();
        let recorded =
            steps.iter().filter(|step| matches!(step.kind, StepKind::FallbackFailed { .. }));
        prop_assert_eq!(recorded.count(), failed);
    }
}
