//! Policies by status code over the retry layer, in paused time.

mod common;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::Full;
use tokio::time::Instant;
use tower::{ServiceBuilder, ServiceExt, service_fn};
use tower_triage_core::Classifier;
use tower_triage_grpc::{GrpcReplay, ServiceConfig, grpc};
use tower_triage_retry::RetryLayer;

use crate::common::status_headers;

type Lines = &'static [(&'static str, &'static str)];

/// One call of `path`: how long it took, what came of it, and what each attempt was told.
async fn call(
    config: &ServiceConfig,
    path: &'static str,
    timeout: Option<&'static str>,
    answers: &[Lines],
) -> (Duration, HeaderMap, Vec<HeaderMap>) {
    let script: Arc<Mutex<VecDeque<Lines>>> =
        Arc::new(Mutex::new(answers.iter().copied().collect()));
    let asked: Arc<Mutex<Vec<HeaderMap>>> = Arc::default();
    let notes = Arc::clone(&asked);
    let peer = service_fn(move |request: Request<Full<Bytes>>| {
        notes.lock().unwrap().push(request.headers().clone());
        let lines = script.lock().unwrap().pop_front().unwrap_or(&[("grpc-status", "0")]);
        let mut response = Response::new(());
        *response.headers_mut() = status_headers(lines);
        async move { Ok::<_, Infallible>(response) }
    });
    let retry = RetryLayer::new(Classifier::new(grpc()))
        .budget(config.budget())
        .replay(GrpcReplay::new().service_config(config.clone()));
    let stack = ServiceBuilder::new().layer(retry).service(peer);
    let mut request = Request::post(path).body(Full::default()).unwrap();
    if let Some(timeout) = timeout {
        request.headers_mut().insert("grpc-timeout", timeout.parse().unwrap());
    }
    let begun = Instant::now();
    let response = stack.oneshot(request).await.unwrap();
    let asked = asked.lock().unwrap().clone();
    (begun.elapsed(), response.headers().clone(), asked)
}

fn config() -> ServiceConfig {
    ServiceConfig::parse(
        r#"{
            "methodConfig": [
                {"name": [{"service": "shop.Orders", "method": "Get"}], "retryPolicy": {
                    "maxAttempts": 3, "initialBackoff": "1s", "maxBackoff": "1s",
                    "backoffMultiplier": 1,
                    "retryableStatusCodes": ["UNAVAILABLE", "ALREADY_EXISTS", "RESOURCE_EXHAUSTED"]
                }},
                {"name": [{"service": "shop.Orders", "method": "Put"}], "timeout": "2s", "retryPolicy": {
                    "maxAttempts": 5, "initialBackoff": "0.5s", "maxBackoff": "0.5s",
                    "backoffMultiplier": 1, "retryableStatusCodes": ["ABORTED"]
                }},
                {"name": [{"service": "shop.Orders"}]}
            ],
            "retryThrottling": {"maxTokens": 10, "tokenRatio": 0.5}
        }"#,
    )
    .unwrap()
}

const BUSY: Lines = &[("grpc-status", "14")];
const EXISTS: Lines = &[("grpc-status", "6")];

#[tokio::test(start_paused = true)]
async fn each_method_has_its_policy() {
    let config = config();
    let (took, _, asked) = call(&config, "/shop.Orders/Get", None, &[BUSY, EXISTS]).await;
    assert_eq!(asked.len(), 3);
    assert!(took >= Duration::from_millis(1600) && took <= Duration::from_millis(2402), "{took:?}");
    let (took, _, asked) = call(&config, "/shop.Orders/Put", None, &[BUSY]).await;
    assert_eq!((took, asked.len()), (Duration::ZERO, 1));
    // Named, without a policy: called once, though its failure says that it could be repeated.
    let exhausted: Lines = &[("grpc-status", "8"), ("grpc-retry-pushback-ms", "1")];
    assert_eq!(call(&config, "/shop.Orders/List", None, &[exhausted]).await.2.len(), 1);
    // Not named: by the layer's policy.
    assert_eq!(call(&config, "/shop.Carts/List", None, &[exhausted]).await.2.len(), 2);
}

/// Also on a code whose class has no hints by itself.
#[tokio::test(start_paused = true)]
async fn a_pushback_on_any_of_its_codes_is_followed() {
    let exists: Lines = &[("grpc-status", "6"), ("grpc-retry-pushback-ms", "7000")];
    let (took, _, asked) = call(&config(), "/shop.Orders/Get", None, &[exists]).await;
    assert_eq!((took, asked.len()), (Duration::from_secs(7), 2));
    let never: Lines = &[("grpc-status", "6"), ("grpc-retry-pushback-ms", "never")];
    assert_eq!(call(&config(), "/shop.Orders/Get", None, &[never]).await.2.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_resource_without_a_hint_is_repeated_if_listed() {
    let exhausted: Lines = &[("grpc-status", "8")];
    let (_, status, asked) = call(&config(), "/shop.Orders/Get", None, &[exhausted; 3]).await;
    assert_eq!((asked.len(), &status["grpc-status"]), (3, &"8".parse().unwrap()));
}

/// The method's time limit and the caller's: the shorter one is told, and covers all attempts.
#[tokio::test(start_paused = true)]
async fn the_time_limit_of_a_method_covers_all_attempts() {
    let aborted: Lines = &[("grpc-status", "10")];
    for (timeout, first, most) in
        [(None, "2000000u", 2000), (Some("1S"), "1S", 1000), (Some("9S"), "2000000u", 2000)]
    {
        let (took, status, asked) =
            call(&config(), "/shop.Orders/Put", timeout, &[aborted; 5]).await;
        assert_eq!(asked[0]["grpc-timeout"], first);
        assert_eq!(status["grpc-status"], "10");
        assert!(took < Duration::from_millis(most), "{took:?}: nothing is begun that cannot end");
        let told: Vec<Duration> =
            asked.iter().map(|headers| tower_triage_grpc::timeout_of(headers).unwrap()).collect();
        assert!(
            told.windows(2).all(|pair| pair[1] < pair[0] - Duration::from_millis(399)),
            "{told:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_throttle_is_one_for_all_methods() {
    let config = config();
    let level = || config.budget().level(Duration::ZERO);
    for _ in 0..5 {
        call(&config, "/shop.Orders/Get", None, &[EXISTS; 3]).await;
    }
    assert!(level() <= 5.0, "{}", level());
    let aborted: Lines = &[("grpc-status", "10")];
    assert_eq!(call(&config, "/shop.Orders/Put", None, &[aborted]).await.2.len(), 1, "throttled");
    let before = level();
    // Neither a code that is not listed nor one of a method without a policy counts.
    call(&config, "/shop.Orders/Put", None, &[BUSY]).await;
    call(&config, "/shop.Orders/List", None, &[BUSY]).await;
    assert!((level() - before).abs() < 1e-9);
    call(&config, "/shop.Orders/List", None, &[]).await;
    assert!((level() - before - 0.5).abs() < 1e-9);
}
