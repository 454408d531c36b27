//! reqwest-middleware, both ways, over real sockets.

mod common;

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use common::{at_once, incident, read_head, refusal, scripted, statuses, write};
use http::Extensions;
use reqwest::{Client, Request, Response};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Error, Middleware, Next};
use tokio::sync::Notify;
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_triage_circuit_breaker::{BreakerPolicy, CircuitBreakerLayer};
use tower_triage_core::{
    AnyError, Backoff, CircuitOpen, Classifier, Elapsed, ErrorClass, Notes, Refusal, Resolution,
};
use tower_triage_fallback::FallbackLayer;
use tower_triage_http::{Deadline, Repeatable};
use tower_triage_reqwest::{
    Gone, Marked, MiddlewareLayer, NextService, ReqwestReplay, StackMiddleware, reqwest,
};
use tower_triage_retry::{Attempt, RetryLayer, RetryPolicy};
use tower_triage_test_support::{Seen, Strict, closed_port};
use tower_triage_timeout::{TimeoutLayer, TimeoutPolicy};

fn retry() -> RetryLayer<tower_triage_reqwest::ReqwestRules, ReqwestReplay> {
    RetryLayer::new(Classifier::new(reqwest())).policy(at_once()).replay(ReqwestReplay::new())
}

/// A client whose whole chain is `middleware`.
fn client(middleware: impl Middleware) -> ClientWithMiddleware {
    ClientBuilder::new(Client::new()).with(middleware).build()
}

/// Adds a token that is another one each time, and notes the extensions it finds.
#[derive(Default)]
struct Token {
    next: AtomicU32,
    found: Mutex<Vec<(Option<u32>, Option<u32>)>>,
}

#[derive(Clone)]
struct Added(u32);

#[async_trait]
impl Middleware for Token {
    async fn handle(
        &self,
        mut request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let token = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let attempt = extensions.get::<Attempt>().map(|attempt| attempt.number);
        let left_over = extensions.get::<Added>().map(|added| added.0);
        self.found.lock().unwrap().push((attempt, left_over));
        assert!(!request.headers().contains_key("authorization"), "nothing of an attempt before");
        request.headers_mut().append("authorization", token.into());
        extensions.insert(Added(token));
        next.run(request, extensions).await
    }
}

/// Our retry above, their middleware below: each attempt passes it afresh.
#[tokio::test]
async fn kf26_each_attempt_passes_the_rest_of_the_chain_afresh() {
    let (address, requests) = statuses(&[503, 503, 200]).await;
    let token = Arc::new(Token::default());
    let client = ClientBuilder::new(Client::new())
        .with(StackMiddleware::new(retry()))
        .with_arc(Arc::clone(&token) as Arc<dyn Middleware>)
        .build();
    let request = client.put(format!("http://{address}/")).body("text").build().unwrap();
    let mut extensions = Extensions::new();
    let response = tokio::spawn(async move {
        let response = client.execute_with_extensions(request, &mut extensions).await.unwrap();
        assert_eq!(extensions.get::<Added>().unwrap().0, 3, "what the last attempt's chain left");
        response
    });
    let response = response.await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(incident(&response).unwrap().resolution, Resolution::RecoveredByRetry);
    let found = token.found.lock().unwrap();
    assert_eq!(*found, [(None, None), (Some(2), None), (Some(3), None)]);
    let requests = requests.lock().unwrap();
    let tokens: Vec<_> = requests.iter().map(|seen| &seen.headers["authorization"]).collect();
    assert_eq!(tokens, ["1", "2", "3"]);
    assert!(requests.iter().all(|seen| seen.body == "text"));
}

/// The same, with their middleware as a layer of ours.
#[tokio::test]
async fn kf26_a_middleware_as_a_layer_below_the_retry_runs_once_per_attempt() {
    let (address, requests) = statuses(&[503, 503, 200]).await;
    let token = Arc::new(Token::default());
    let client = Client::new();
    let below = MiddlewareLayer::new(&client).with_arc(Arc::clone(&token) as Arc<dyn Middleware>);
    let stack = ServiceBuilder::new()
        .layer(retry())
        .layer(below)
        .map_request(Marked::into_request)
        .map_err(AnyError::from)
        .service(client);
    let get = Client::new().get(format!("http://{address}/")).build().unwrap();
    let response = tokio::spawn(async move { stack.oneshot(Marked::from(get)).await });
    assert_eq!(response.await.unwrap().unwrap().status(), 200);
    let found = token.found.lock().unwrap();
    assert_eq!(*found, [(None, None), (Some(2), None), (Some(3), None)]);
    assert_eq!(requests.lock().unwrap()[2].headers["authorization"], "3");
}

#[tokio::test]
async fn a_middleware_as_a_layer_above_the_retry_runs_once() {
    let (address, requests) = statuses(&[503, 200]).await;
    let token = Arc::new(Token::default());
    let client = Client::new();
    let stack = ServiceBuilder::new()
        .layer(MiddlewareLayer::new(&client).with_arc(Arc::clone(&token) as Arc<dyn Middleware>))
        .layer(retry())
        .map_err(AnyError::from)
        .service(client);
    let get = Client::new().get(format!("http://{address}/")).build().unwrap();
    assert_eq!(stack.oneshot(get).await.unwrap().status(), 200);
    let requests = requests.lock().unwrap();
    let tokens: Vec<_> = requests.iter().map(|seen| &seen.headers["authorization"]).collect();
    assert_eq!(tokens, ["1", "1"]);
}

#[tokio::test]
async fn kf18_marks_are_extensions_of_the_middleware() {
    for (marked, made) in [(false, 1), (true, 3)] {
        let (address, requests) = statuses(&[503]).await;
        let mut post = client(StackMiddleware::new(retry())).post(format!("http://{address}/"));
        if marked {
            post = post.with_extension(Repeatable);
        }
        assert_eq!(post.send().await.unwrap().status(), 503);
        assert_eq!(requests.lock().unwrap().len(), made);
    }
}

/// One state for all requests and clones, and rejections that are found by type.
#[tokio::test]
async fn kf04_the_breaker_is_shared_and_its_rejection_downcasts() {
    let address = closed_port();
    let breaker = CircuitBreakerLayer::new(Classifier::new(reqwest()))
        .policy(BreakerPolicy::new().consecutive_failures(2).build().unwrap());
    let client = client(StackMiddleware::new(breaker));
    for _ in 0..2 {
        let error = client.clone().get(format!("http://{address}/")).send().await.unwrap_err();
        assert!(matches!(&error, Error::Reqwest(error) if error.is_connect()), "{error:?}");
    }
    let error = client.get(format!("http://{address}/")).send().await.unwrap_err();
    let Error::Middleware(error) = error else { panic!("{error:?}") };
    assert!(error.downcast_ref::<CircuitOpen>().is_some());
}

/// The story of an error has no place in it, so it is beside it.
#[tokio::test]
async fn the_incident_of_an_error_is_in_the_extensions() {
    let address = closed_port();
    let client = client(StackMiddleware::new(retry()));
    let get = client.get(format!("http://{address}/")).build().unwrap();
    let mut extensions = Extensions::new();
    client.execute_with_extensions(get, &mut extensions).await.unwrap_err();
    let incident = extensions.get::<Notes>().unwrap().incident.clone().unwrap();
    assert_eq!(incident.attempts, 3);

    // The next call with them is another story.
    let (address, _) = statuses(&[200]).await;
    let get = client.get(format!("http://{address}/")).build().unwrap();
    client.execute_with_extensions(get, &mut extensions).await.unwrap();
    assert!(extensions.get::<Notes>().is_none());
}

/// What would hang fails instead.
async fn within_time<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(20), future).await.expect("it hangs")
}

/// Lets so much time pass.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// A limit in the stack ends an attempt that hangs below it, and drops it: the server answers the
/// second one only after it has seen the end of the first. It lets the time pass itself.
#[tokio::test]
async fn kf30_a_time_limit_in_the_stack_works_and_drops_the_attempt() {
    const LIMIT: Duration = Duration::from_secs(10);
    let ended = Arc::new(Notify::new());
    let address = scripted(move |mut stream, number| {
        let ended = Arc::clone(&ended);
        async move {
            let _ = read_head(&mut stream).await;
            if number == 1 {
                pass(LIMIT).await;
                let _ = read_head(&mut stream).await;
                ended.notify_one();
            } else {
                ended.notified().await;
                write(&mut stream, "HTTP/1.1 204 Done\r\n\r\n").await;
            }
        }
    })
    .await;
    let plan = TimeoutPolicy::new(LIMIT).grace(Duration::ZERO).build().unwrap();
    let classifier = Classifier::new(reqwest());
    let stack = ServiceBuilder::new()
        .layer(retry())
        .layer(TimeoutLayer::new(classifier.clone(), LIMIT).unwrap().policy(plan))
        .into_inner();
    let client = client(StackMiddleware::new(stack));
    let call = client.get(format!("http://{address}/")).send();
    let response = within_time(call).await.unwrap();
    assert_eq!(response.status(), 204);

    // The time left of a deadline is the smaller one; then nothing is repeated.
    let seen = Seen::default();
    classifier.observe(seen.clone());
    let layer = TimeoutLayer::new(classifier, 3 * LIMIT).unwrap();
    let client = self::client(StackMiddleware::new(layer));
    let address = scripted(|mut stream, _| async move {
        while read_head(&mut stream).await.is_ok() {
            pass(LIMIT).await;
        }
    })
    .await;
    let deadline = Deadline(tokio::time::Instant::now() + LIMIT);
    let get = client.get(format!("http://{address}/")).with_extension(deadline);
    let outcome = within_time(get.send()).await;
    let Error::Middleware(error) = outcome.unwrap_err() else { panic!("not ours") };
    assert!(error.downcast_ref::<Elapsed>().unwrap().is_deadline());
    assert_eq!(seen.last().failure.unwrap().class, ErrorClass::Timeout);
}

/// Dropping the call drops what runs below.
#[tokio::test]
async fn kf35_a_dropped_call_leaves_nothing_behind() {
    let arrived = Arc::new(Notify::new());
    let ended = Arc::new(Notify::new());
    let (arrives, ends) = (Arc::clone(&arrived), Arc::clone(&ended));
    let address = scripted(move |mut stream, _| {
        let (arrives, ends) = (Arc::clone(&arrives), Arc::clone(&ends));
        async move {
            read_head(&mut stream).await.unwrap();
            arrives.notify_one();
            let _ = read_head(&mut stream).await;
            ends.notify_one();
        }
    })
    .await;
    let client = client(StackMiddleware::new(retry()));
    let call = tokio::spawn(client.get(format!("http://{address}/")).send());
    within_time(arrived.notified()).await;
    call.abort();
    within_time(ended.notified()).await;
}

/// Several attempts at once, as a fallback that races would make: each has an answer of its own.
#[tokio::test]
async fn a_stack_may_send_several_at_once() {
    struct Both;
    impl Layer<NextService> for Both {
        type Service = Pair;
        fn layer(&self, next: NextService) -> Pair {
            Pair(next)
        }
    }
    #[derive(Clone)]
    struct Pair(NextService);
    impl tower::Service<Marked> for Pair {
        type Response = Response;
        type Error = AnyError;
        type Future = std::pin::Pin<Box<dyn Future<Output = Result<Response, AnyError>> + Send>>;
        fn poll_ready(
            &mut self,
            _cx: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Result<(), AnyError>> {
            std::task::Poll::Ready(Ok(()))
        }
        fn call(&mut self, request: Marked) -> Self::Future {
            let second = request.try_clone().unwrap();
            let (one, two) = (self.0.call(request), self.0.call(second));
            Box::pin(async move {
                let (one, two) = tokio::join!(one, two);
                one?;
                two
            })
        }
    }
    // Answers the first request only once the second has arrived too.
    let both = Arc::new(tokio::sync::Barrier::new(2));
    let address = scripted(move |mut stream, _| {
        let both = Arc::clone(&both);
        async move {
            read_head(&mut stream).await.unwrap();
            both.wait().await;
            write(&mut stream, "HTTP/1.1 204 Done\r\n\r\n").await;
        }
    })
    .await;
    let client = client(StackMiddleware::new(Both));
    let call = client.get(format!("http://{address}/")).send();
    assert_eq!(within_time(call).await.unwrap().status(), 204);
}

/// A fallback's answer comes without anything below.
#[tokio::test]
async fn a_fallback_in_the_middle_of_a_chain() {
    let address = closed_port();
    let cached = |_: tower_triage_fallback::Failed<'_, Response, AnyError>| {
        http::Response::new("cached").into()
    };
    let layer =
        FallbackLayer::new(Classifier::new(reqwest())).or_value(ErrorClass::Transient, cached);
    let client = client(StackMiddleware::new(layer));
    let response = client.get(format!("http://{address}/")).send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "cached");
}

#[tokio::test]
async fn a_request_from_elsewhere_has_no_chain() {
    let request = Client::new().get("http://example.com/").build().unwrap();
    let error = NextService.oneshot(Marked::from(request)).await.unwrap_err();
    assert!(error.downcast_ref::<Gone>().is_some());
    let outcome: Result<&Response, _> = Err(&error);
    use tower_triage_core::Classify as _;
    assert_eq!(reqwest().classify(outcome).failure().unwrap().class, ErrorClass::Cancelled);
}

/// A middleware that tries again by itself.
struct Again;

#[async_trait]
impl Middleware for Again {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> reqwest_middleware::Result<Response> {
        let copy = request.try_clone().unwrap();
        let _ = next.clone().run(request, &mut extensions.clone()).await;
        next.run(copy, extensions).await
    }
}

/// What is called below a middleware was polled ready, the second time too.
#[tokio::test]
async fn kf01_readiness_survives_a_middleware() {
    let (address, requests) = statuses(&[200]).await;
    let client = Client::new();
    let inner = Strict::new(ServiceBuilder::new().map_err(AnyError::from).service(client.clone()));
    let mut stack = MiddlewareLayer::new(&client).with(Again).layer(inner);
    for _ in 0..5 {
        for service in [&mut stack.clone(), &mut stack] {
            let get = client.get(format!("http://{address}/")).build().unwrap();
            tower::Service::call(service.ready().await.unwrap(), get).await.unwrap();
        }
    }
    assert_eq!(requests.lock().unwrap().len(), 20);
}

/// Their errors and ours pass a middleware as what they are, with the story.
#[tokio::test]
async fn errors_pass_a_layer_unchanged() {
    struct Through;
    #[async_trait]
    impl Middleware for Through {
        async fn handle(
            &self,
            request: Request,
            extensions: &mut Extensions,
            next: Next<'_>,
        ) -> reqwest_middleware::Result<Response> {
            let outcome = next.run(request, extensions).await;
            if let Err(error) = &outcome {
                assert!(error.is_connect(), "a middleware can tell: {error:?}");
            }
            outcome
        }
    }
    let address = closed_port();
    let client = Client::new();
    let stack = ServiceBuilder::new()
        .layer(MiddlewareLayer::new(&client).with(Through))
        .layer(retry())
        .map_err(AnyError::from)
        .service(client.clone());
    let get = client.get(format!("http://{address}/")).build().unwrap();
    let error = stack.oneshot(get).await.unwrap_err();
    assert!(error.downcast_ref::<reqwest::Error>().unwrap().is_connect());
    assert_eq!(refusal(error.incident().unwrap()), Some(Refusal::AttemptsUsedUp));
}

/// The stack around a client that has middleware of its own: its errors are judged through.
#[tokio::test]
async fn a_stack_around_a_client_with_middleware() {
    let address = closed_port();
    let plan = RetryPolicy::default().attempts(2).backoff(&Backoff::immediate()).build().unwrap();
    let stack = ServiceBuilder::new()
        .layer(retry().policy(plan))
        .map_err(AnyError::from)
        .service(client(Again));
    let get = Client::new().get(format!("http://{address}/")).build().unwrap();
    let error = tokio::spawn(async move { stack.oneshot(get).await }).await.unwrap().unwrap_err();
    assert!(error.downcast_ref::<Error>().unwrap().is_connect());
    assert_eq!(error.incident().unwrap().attempts, 2);
}
