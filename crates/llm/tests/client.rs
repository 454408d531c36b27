//! A real client and a local provider: what is repeated, what is passed on, who hears of it.

mod common;

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::Semaphore;
use tower::util::BoxCloneService;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_triage_circuit_breaker::{BreakerPolicy, CircuitBreakerLayer, State};
use tower_triage_core::{
    AnyError, Backoff, ClassSet, Classifier, ErrorClass, Incident, LayerKind, Observer, Refusal,
    Resolution, StepKind, incident,
};
use tower_triage_fallback::FallbackLayer;
use tower_triage_http::HttpReplay;
use tower_triage_llm::{LlmRules, PeekBody, PeekLayer, llm};
use tower_triage_retry::{Budget, RetryLayer, RetryPolicy};

use self::common::{Answer, OVERLOADED, Pool, Provider, ROLE, ask, chat_token, pool};

type Answered = Response<PeekBody<hyper::body::Incoming>>;

fn retry(classifier: &Classifier<LlmRules>) -> RetryLayer<LlmRules, HttpReplay> {
    let plan = RetryPolicy::default().backoff(&Backoff::immediate()).build().unwrap();
    RetryLayer::new(classifier.clone()).policy(plan).replay(HttpReplay::new())
}

/// Retry over the provider, as every test wants it.
fn stack() -> impl Service<
    http::Request<http_body_util::Full<Bytes>>,
    Response = Answered,
    Error = AnyError,
    Future: Send,
> + Clone {
    ServiceBuilder::new()
        .layer(retry(&Classifier::new(llm())))
        .layer(PeekLayer::new())
        .service(pool())
}

async fn text(response: Answered) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

/// Sends to `/v1/messages`; gives the answer's status and text, the calls, and the incident.
async fn story(
    answers: impl IntoIterator<Item = Answer>,
) -> (StatusCode, String, usize, Option<Incident>) {
    let mut provider = Provider::start(answers).await;
    let call = stack().oneshot(ask(provider.address, "/v1/messages", "large"));
    // Spawned, as users do it.
    let (response, incident) = tokio::spawn(incident::scope(call)).await.unwrap();
    let response = response.unwrap();
    (response.status(), text(response).await, provider.count(), incident)
}

fn refusal(incident: &Incident) -> Option<&Refusal> {
    incident.steps.iter().find_map(|step| match &step.kind {
        StepKind::NotRetried { why } => Some(why),
        _ => None,
    })
}

const HELLO: &str = r#"{"content":[{"type":"text","text":"Hello"}],"stop_reason":"end_turn"}"#;

#[tokio::test]
async fn overload_is_repeated_and_a_spent_quota_is_not() {
    let (status, body, calls, _) =
        story([Answer::json(529, OVERLOADED), Answer::json(200, HELLO)]).await;
    assert_eq!((status.as_u16(), &body[..], calls), (200, HELLO, 2));

    // By status alone the two are the same.
    let limited = r#"{"type":"error","error":{"type":"rate_limit_error"}}"#;
    let (status, _, calls, _) = story([Answer::json(429, limited), Answer::json(200, HELLO)]).await;
    assert_eq!((status.as_u16(), calls), (200, 2));
    let spent = r#"{"type":"error","error":{"type":"rate_limit_error","details":{"error_code":"enforced_spend_limit_reached"}}}"#;
    let (status, body, calls, incident) = story([Answer::json(429, spent)]).await;
    assert_eq!((status.as_u16(), &body[..], calls), (429, spent, 1));
    let incident = incident.unwrap();
    assert_eq!(incident.failure.unwrap().class, ErrorClass::Quota);
    assert_eq!(incident.failure.unwrap().reason, "llm_quota");
}

#[tokio::test]
async fn a_failure_inside_a_200_is_one() {
    let failed = r#"{"id":"r","status":"failed","error":{"code":"server_error","message":"?"}}"#;
    let (_, body, calls, incident) =
        story([Answer::json(200, failed), Answer::json(200, HELLO)]).await;
    assert_eq!((&body[..], calls), (HELLO, 2));
    assert_eq!(incident.unwrap().resolution, Resolution::RecoveredByRetry);

    let invalid = r#"{"status":"failed","error":{"code":"invalid_prompt"}}"#;
    let (_, body, calls, incident) = story([Answer::json(200, invalid)]).await;
    assert_eq!((&body[..], calls), (invalid, 1));
    assert_eq!(incident.unwrap().failure.unwrap().class, ErrorClass::Permanent);
}

#[tokio::test]
async fn an_error_event_before_the_first_token_is_repeated() {
    let greeting = r#"{"type":"message_start","message":{"id":"m"}}"#;
    let answer = Answer::stream().events(&[greeting, ROLE, &chat_token("Hel"), &chat_token("lo")]);
    let (_, body, calls, incident) = story([
        Answer::stream().events(&[greeting]).data(": keep-alive\n\n").events(&[OVERLOADED]),
        answer,
    ])
    .await;
    assert_eq!(calls, 2);
    assert_eq!(body.matches("data: ").count(), 4, "everything is passed on: {body}");
    let failed = &incident.unwrap().steps[0];
    let StepKind::Failed { failure, detail, .. } = &failed.kind else { panic!("{failed:?}") };
    assert_eq!(failure.class, ErrorClass::Throttled);
    assert_eq!(detail.as_str(), "200 OK, llm_overloaded");
}

#[tokio::test]
async fn a_stream_that_ends_or_breaks_before_its_first_token_is_repeated() {
    for bad in [
        Answer::stream().events(&[ROLE]),
        Answer::stream().events(&[ROLE]).breaks(),
        Answer::json(200, "{\"content\":[").data("1").breaks(),
    ] {
        let (_, body, calls, incident) = story([bad, Answer::json(200, HELLO)]).await;
        assert_eq!((&body[..], calls), (HELLO, 2));
        assert_eq!(incident.unwrap().failure.unwrap().reason, "llm_cut_off");
    }
}

#[tokio::test]
async fn the_servers_word_and_hints_are_heard() {
    let limited = || Answer::json(429, r#"{"error":{"code":"rate_limit_exceeded"}}"#);
    let (_, _, calls, incident) = story([
        limited().header("retry-after-ms", "30").header("retry-after", "9"),
        Answer::json(200, HELLO),
    ])
    .await;
    assert_eq!(calls, 2);
    let waited = incident.unwrap().steps.into_iter().find_map(|step| match step.kind {
        StepKind::Waiting { delay, hinted: true } => Some(delay.as_millis()),
        _ => None,
    });
    assert!((30..=33).contains(&waited.unwrap()), "{waited:?}");

    let (_, _, calls, incident) = story([limited().header("x-should-retry", "false")]).await;
    assert_eq!(calls, 1);
    assert_eq!(refusal(&incident.unwrap()), Some(&Refusal::ServerForbade));
    let (_, _, calls, _) =
        story([Answer::json(400, "{}").header("x-should-retry", "true"), Answer::json(200, HELLO)])
            .await;
    assert_eq!(calls, 2);
}

#[tokio::test]
async fn what_asks_no_model_is_not_repeated_blindly() {
    let mut provider = Provider::start([Answer::json(500, "{}"), Answer::json(200, "{}")]).await;
    let response = stack().oneshot(ask(provider.address, "/v1/files", "-")).await.unwrap();
    assert_eq!((response.status().as_u16(), provider.count()), (500, 1));
}

#[tokio::test]
async fn kf52_a_stream_is_passed_on_frame_by_frame() {
    let gate = Arc::new(Semaphore::new(0));
    let provider = Provider::start([Answer::stream()
        .events(&[&chat_token("Hel")])
        .gate(&gate)
        .events(&[&chat_token("lo")])])
    .await;
    // The head comes with the first token, while the server holds back the second.
    let response = stack().oneshot(ask(provider.address, "/v1/responses", "m")).await.unwrap();
    let mut body = response.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(first, format!("data: {}\n\n", chat_token("Hel")));
    gate.add_permits(1);
    let second = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(second, format!("data: {}\n\n", chat_token("lo")));
    assert!(body.frame().await.is_none());
}

/// Keeps the incidents.
#[derive(Clone, Default)]
struct Incidents(Arc<Mutex<Vec<Incident>>>);

impl Observer for Incidents {
    fn incident(&self, incident: &Incident) {
        self.0.lock().unwrap().push(incident.clone());
    }
}

#[tokio::test]
async fn kf25_after_the_first_token_nothing_is_repeated_and_somebody_hears_of_it() {
    for (bad, frames, class, counted) in [
        (Answer::stream().events(&[ROLE, &chat_token("Hel"), OVERLOADED]), 3, "Throttled", 1),
        (
            Answer::stream().events(&[&chat_token("Hel"), &chat_token("lo")]).breaks(),
            2,
            "Transient",
            1,
        ),
        (
            Answer::stream()
                .events(&[&chat_token("Hel"), r#"{"delta":{"stop_reason":"refusal"}}"#]),
            2,
            "Declined",
            0,
        ),
    ] {
        let classifier = Classifier::new(llm());
        let incidents = Incidents::default();
        classifier.observe(incidents.clone());
        let policy = BreakerPolicy::default().build().unwrap();
        let breaker = CircuitBreakerLayer::new(classifier.clone()).policy(policy).name("model");
        let handle = breaker.handle();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&heard);
        let peek = PeekLayer::new()
            .report_through(breaker.clone())
            .on_late_failure(move |late| hears.lock().unwrap().push(late.clone()));
        let mut provider = Provider::start([bad, Answer::json(200, HELLO)]).await;
        let stack = ServiceBuilder::new()
            .layer(
                FallbackLayer::new(classifier.clone())
                    .or_value(ClassSet::ALL, |_| unreachable!("the call had succeeded")),
            )
            .layer(retry(&classifier))
            .layer(breaker)
            .layer(peek)
            .service(pool());
        let response: Answered =
            stack.oneshot(ask(provider.address, "/v1/chat/completions", "m")).await.unwrap();
        assert!(incidents.0.lock().unwrap().is_empty(), "the call itself succeeded");

        let mut body = response.into_body();
        let mut passed = String::new();
        let mut broken = false;
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => {
                    passed.push_str(std::str::from_utf8(frame.data_ref().unwrap()).unwrap())
                }
                Err(_) => broken = true,
            }
        }
        assert_eq!(passed.matches("data: ").count(), frames, "{passed}");
        assert_eq!(broken, frames == 2 && class == "Transient");
        assert_eq!(provider.count(), 1, "nothing is repeated");

        let heard = heard.lock().unwrap();
        assert_eq!(heard.len(), 1);
        assert_eq!(heard[0].failure.class.as_str(), class);
        assert_eq!(heard[0].uri.path(), "/v1/chat/completions");
        let counts = handle.counts();
        assert_eq!((counts.failures, handle.state()), (counted, State::Closed));
        let incidents = incidents.0.lock().unwrap();
        assert_eq!(incidents.len(), 1, "an incident of its own");
        assert_eq!(incidents[0].resolution, Resolution::Failed);
        assert_eq!(incidents[0].steps[0].layer, LayerKind::CircuitBreaker);
        assert_eq!(classifier.count(heard[0].failure.class), 1);
    }
}

#[tokio::test]
async fn late_failures_open_the_breaker() {
    let classifier = Classifier::new(llm());
    let policy = BreakerPolicy::default().consecutive_failures(1).build().unwrap();
    let breaker = CircuitBreakerLayer::new(classifier).policy(policy);
    let handle = breaker.handle();
    let provider =
        Provider::start([Answer::stream().events(&[&chat_token("Hel"), OVERLOADED])]).await;
    let stack = ServiceBuilder::new()
        .layer(breaker.clone())
        .layer(PeekLayer::new().report_through(breaker))
        .service(pool());
    let response = stack.oneshot(ask(provider.address, "/v1/responses", "m")).await.unwrap();
    assert_eq!(handle.state(), State::Closed);
    let _ = text(response).await;
    assert_eq!(handle.state(), State::Open);
}

/// Replan to another model, where this one refuses or its quota is used up.
#[tokio::test]
async fn another_model_takes_what_this_one_declines() {
    let refusal = r#"{"choices":[{"message":{"content":""},"finish_reason":"content_filter"}]}"#;
    let too_long = r#"{"error":{"code":"context_length_exceeded"}}"#;
    for declined in
        [Answer::json(200, refusal), Answer::json(400, too_long), Answer::json(404, "{}")]
    {
        let mut provider = Provider::start([declined, Answer::json(200, HELLO)]).await;
        let classifier = Classifier::new(llm());
        let stack = ServiceBuilder::new()
            .layer(FallbackLayer::new(classifier.clone()).or_replan(
                [ErrorClass::Declined, ErrorClass::Quota],
                |request: http::Request<http_body_util::Full<Bytes>>, _| {
                    request.map(|_| "{\"model\":\"small\"}".into())
                },
            ))
            .layer(retry(&classifier))
            .layer(PeekLayer::new())
            .service(pool());
        let stack: BoxCloneService<_, Answered, AnyError> = BoxCloneService::new(stack);
        let response = stack.oneshot(ask(provider.address, "/v1/messages", "large")).await.unwrap();
        assert_eq!(text(response).await, HELLO);
        let models: Vec<String> =
            std::iter::from_fn(|| provider.seen.try_recv().ok()).map(|seen| seen.body).collect();
        assert_eq!(models, ["{\"model\":\"large\"}", "{\"model\":\"small\"}"]);
    }
}

/// A failed answer is drained with what was held back of it, and its connection is used again.
#[tokio::test]
async fn kf17_failed_answers_release_their_connection() {
    let long = format!("{{\"error\":{{\"code\":\"slow_down\",\"m\":\"{}\"}}}}", "x".repeat(20_000));
    let mut script = Vec::new();
    for _ in 0..100 {
        script.extend([Answer::json(429, long.clone()), Answer::json(529, OVERLOADED)]);
        script.push(Answer::json(200, HELLO));
    }
    let mut provider = Provider::start(script).await;
    let classifier = Classifier::new(llm());
    let mut stack = ServiceBuilder::new()
        .layer(retry(&classifier).budget(Budget::unlimited()))
        .layer(PeekLayer::new())
        .service(pool());
    for _ in 0..100 {
        let call = stack.ready().await.unwrap().call(ask(provider.address, "/v1/messages", "m"));
        assert_eq!(text(call.await.unwrap()).await, HELLO);
    }
    assert_eq!(provider.count(), 300);
    // Now and then the next attempt is quicker than the way of a connection back to the pool.
    let opened = provider.connections.load(std::sync::atomic::Ordering::Relaxed);
    assert!(opened < 50, "{opened} connections");
}

#[tokio::test]
async fn length_and_bytes_are_the_providers_own() {
    let long = format!("{{\"content\":\"{}\",\"stop_reason\":\"end_turn\"}}", "x".repeat(200_000));
    let provider = Provider::start([Answer::json(200, long.clone())]).await;
    let peek: Pool = pool();
    let response = PeekLayer::new()
        .layer(peek)
        .oneshot(ask(provider.address, "/v1/messages", "m"))
        .await
        .unwrap();
    assert_eq!(response.headers()["content-length"], long.len().to_string());
    assert_eq!(http_body::Body::size_hint(response.body()).exact(), Some(long.len() as u64));
    assert_eq!(text(response).await, long);
}
