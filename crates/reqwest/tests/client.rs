//! Our layers around a reqwest client, over real sockets.

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{answer, answering, at_once, incident, read_head, refusal, scripted, statuses, write};
use reqwest::{Body, Client, Method, Request, Url};
use tower::{ServiceBuilder, ServiceExt};
use tower_triage_circuit_breaker::{BreakerPolicy, CircuitBreakerLayer, KeyedSettings};
use tower_triage_core::{
    AnyError, CircuitOpen, ClassSet, Classifier, Describe, Disposition, Elapsed, ErrorClass, Notes,
    Refusal, Resolution, StepKind,
};
use tower_triage_escalate::{ChannelSink, Desk, EscalateLayer, Receiver, Route, Routes};
use tower_triage_fallback::FallbackLayer;
use tower_triage_http::{Deadline, HttpRulesExt, Repeatable, RouteTemplate};
use tower_triage_reqwest::{Marked, ReqwestReplay, WatchBodyLayer, reqwest};
use tower_triage_retry::{Attempt, Replay, RetryLayer};
use tower_triage_test_support::{Seen, closed_port};
use tower_triage_timeout::TimeoutLayer;

fn request(method: Method, address: std::net::SocketAddr) -> Request {
    Request::new(method, format!("http://{address}/things/17?token=secret").parse().unwrap())
}

/// One request through a retry, spawned as users do it.
async fn send(client: Client, request: Request) -> Result<reqwest::Response, AnyError> {
    let task = tokio::spawn(async move {
        let retry = RetryLayer::new(Classifier::new(reqwest())).policy(at_once());
        let stack = ServiceBuilder::new()
            .layer(retry.replay(ReqwestReplay::new()))
            .map_err(AnyError::from)
            .service(client);
        stack.oneshot(request).await
    });
    task.await.unwrap()
}

#[tokio::test]
async fn kf09_a_response_can_be_the_failure() {
    let (address, requests) = statuses(&[503, 503, 200]).await;
    let response = send(Client::new(), request(Method::GET, address)).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(requests.lock().unwrap().len(), 3);
    assert_eq!(incident(&response).unwrap().resolution, Resolution::RecoveredByRetry);
    assert_eq!(response.url().path(), "/things/17", "the response is the client's own");
}

#[tokio::test]
async fn kf13_kf15_the_retried_request_is_the_same() {
    let (address, requests) = statuses(&[503, 503, 200]).await;
    let mut put = request(Method::PUT, address);
    *put.body_mut() = Some(vec![b'x'; 10 * 1024].into());
    put.headers_mut().append("x-tag", "one".parse().unwrap());
    put.headers_mut().append("x-tag", "two".parse().unwrap());
    assert_eq!(send(Client::new(), put).await.unwrap().status(), 200);
    let requests = requests.lock().unwrap();
    assert_eq!(requests.len(), 3);
    for seen in &*requests {
        assert_eq!((&seen.method, seen.body.len()), (&Method::PUT, 10 * 1024));
        assert_eq!(seen.headers["content-length"], "10240");
        assert!(seen.headers.get_all("x-tag").iter().eq(["one", "two"]));
        assert_eq!(seen.headers, requests[0].headers);
    }
}

/// The attempt is among the extensions of a further request, and of nothing else changed.
#[test]
fn kf15_the_attempt_is_an_extension() {
    let replay = ReqwestReplay::new();
    let url: Url = "http://example.com/a?b=c#here".parse().unwrap();
    let mut request = Request::new(Method::PUT, url.clone());
    *request.timeout_mut() = Some(Duration::from_secs(7));
    *request.version_mut() = http::Version::HTTP_2;
    *request.body_mut() = Some("text".into());
    let kept = replay.keep(&mut request);
    assert_eq!(request.url(), &url);
    let again = replay.again(&mut kept.unwrap(), &Attempt::FIRST).unwrap();
    assert_eq!((again.url(), again.timeout()), (&url, Some(&Duration::from_secs(7))));
    assert_eq!(again.version(), http::Version::HTTP_2);
    assert_eq!(again.body().unwrap().as_bytes(), Some(&b"text"[..]));
    let again = http::Request::try_from(again).unwrap();
    assert_eq!(again.extensions().get::<Attempt>(), Some(&Attempt::FIRST));

    let mut marked = Marked::from(Request::new(Method::GET, url)).with(7_u8);
    let kept = replay.keep(&mut marked);
    let again = replay.again(&mut kept.unwrap(), &Attempt::FIRST).unwrap();
    assert_eq!(again.extensions.get::<Attempt>(), Some(&Attempt::FIRST));
    assert_eq!(again.extensions.get::<u8>(), Some(&7));
    assert!(again.request.body().is_none());
}

/// A server that performs each request and closes without an answer, but for the second.
async fn silent_once() -> (std::net::SocketAddr, Arc<Mutex<Vec<String>>>) {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    let address = scripted(move |mut stream, number| {
        let seen = Arc::clone(&seen);
        async move {
            let head = read_head(&mut stream).await.unwrap();
            seen.lock().unwrap().push(head);
            if number == 2 {
                write(&mut stream, "HTTP/1.1 204 Done\r\n\r\n").await;
            }
        }
    })
    .await;
    (address, heads)
}

#[tokio::test]
async fn kf18_unsafe_methods_are_not_repeated_by_default() {
    let (address, heads) = silent_once().await;
    let error = send(Client::new(), request(Method::POST, address)).await.unwrap_err();
    assert_eq!(heads.lock().unwrap().len(), 1, "the server sees it once");
    assert!(error.downcast_ref::<reqwest::Error>().is_some(), "the error passes unchanged");
    let story = error.incident().unwrap();
    assert_eq!(refusal(story), Some(Refusal::NotIdempotent));
    assert!(story.steps.iter().any(|step| matches!(
        &step.kind,
        StepKind::Failed { failure, .. } if failure.disposition == Disposition::MaybeProcessed
    )));

    for method in [Method::GET, Method::PUT, Method::DELETE] {
        let (address, heads) = silent_once().await;
        let response = send(Client::new(), request(method, address)).await.unwrap();
        assert_eq!((response.status().as_u16(), heads.lock().unwrap().len()), (204, 2));
    }

    let (address, heads) = silent_once().await;
    let mut keyed = request(Method::POST, address);
    keyed.headers_mut().insert("idempotency-key", "k-1".parse().unwrap());
    assert_eq!(send(Client::new(), keyed).await.unwrap().status(), 204);
    assert_eq!(heads.lock().unwrap().len(), 2);
}

/// A mark that a plain request cannot show; a connection that was never made may be tried again.
#[tokio::test]
async fn marks_are_read_from_marked_requests() {
    let (address, heads) = silent_once().await;
    let retry = RetryLayer::new(Classifier::new(reqwest())).policy(at_once());
    let stack = ServiceBuilder::new()
        .layer(retry.replay(ReqwestReplay::new()))
        .map_request(Marked::into_request)
        .map_err(AnyError::from)
        .service(Client::new());
    let post = Marked::from(request(Method::POST, address)).with(Repeatable);
    let response = tokio::spawn(stack.oneshot(post)).await.unwrap().unwrap();
    assert_eq!((response.status().as_u16(), heads.lock().unwrap().len()), (204, 2));
}

/// The keep-alive connection is closed at the moment of its second request.
#[tokio::test]
async fn kf19_an_idle_connection_closed_under_us() {
    for (method, repeated) in [(Method::GET, true), (Method::POST, false)] {
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        let address = scripted(move |mut stream, number| {
            let seen = Arc::clone(&seen);
            async move {
                for nth in 1.. {
                    let Ok(head) = read_head(&mut stream).await else { return };
                    seen.lock().unwrap().push(head);
                    if (number, nth) == (1, 2) {
                        return;
                    }
                    write(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
                }
            }
        })
        .await;
        let client = Client::new();
        let first = send(client.clone(), request(Method::GET, address)).await.unwrap();
        // Read to its end, so that the connection is idle again.
        first.bytes().await.unwrap();
        let second = send(client, request(method, address)).await;
        if repeated {
            assert_eq!(second.unwrap().status(), 200);
            assert_eq!(heads.lock().unwrap().len(), 3);
        } else {
            let error = second.unwrap_err();
            assert_eq!(refusal(error.incident().unwrap()), Some(Refusal::NotIdempotent));
            assert_eq!(heads.lock().unwrap().len(), 2, "the server saw it once");
        }
    }
}

/// Bodies of bytes stay what reqwest can send to the next place.
#[tokio::test]
async fn redirects_with_a_body_are_followed_in_each_attempt() {
    for status in [307, 308] {
        let (address, requests) = answering(move |nth| match nth {
            1 | 3 => {
                let mut redirect = answer(status);
                redirect.headers_mut().insert("location", "/moved".parse().unwrap());
                redirect
            }
            2 => answer(503),
            _ => answer(200),
        })
        .await;
        let mut put = request(Method::PUT, address);
        *put.body_mut() = Some("the body".into());
        let response = send(Client::new(), put).await.unwrap();
        assert_eq!((response.status().as_u16(), response.url().path()), (200, "/moved"));
        let requests = requests.lock().unwrap();
        let paths: Vec<_> = requests.iter().map(|seen| seen.path.as_str()).collect();
        assert_eq!(paths, ["/things/17", "/moved", "/things/17", "/moved"]);
        assert!(requests.iter().all(|seen| seen.body == "the body"), "{status}");
    }
}

#[tokio::test]
async fn redirects_without_an_end_are_no_failure_of_time() {
    let (address, requests) = answering(|_| {
        let mut redirect = answer(302);
        redirect.headers_mut().insert("location", "/again".parse().unwrap());
        redirect
    })
    .await;
    let error = send(Client::new(), request(Method::GET, address)).await.unwrap_err();
    assert!(error.downcast_ref::<reqwest::Error>().unwrap().is_redirect());
    assert_eq!(error.incident().unwrap().failure.unwrap().class, ErrorClass::Permanent);
    assert_eq!(requests.lock().unwrap().len(), 11, "ten redirects, and once");
}

/// The breaker is the host's, sees attempts, and rejects as an error that is found by type.
#[tokio::test]
async fn a_host_that_is_down_is_not_called_any_more() {
    let down = closed_port();
    let (up, _) = statuses(&[200]).await;
    let classifier = Classifier::new(reqwest());
    let seen = Seen::default();
    classifier.observe(seen.clone());
    let breaker = CircuitBreakerLayer::new(classifier.clone())
        .keyed(KeyedSettings::default())
        .policy(BreakerPolicy::new().consecutive_failures(2).build().unwrap());
    let handle = breaker.handle();
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier).policy(at_once()).replay(ReqwestReplay::new()))
        .layer(breaker)
        .map_err(AnyError::from)
        .service(Client::new());
    // POST too: nothing was sent.
    let error = stack.clone().oneshot(request(Method::POST, down)).await.unwrap_err();
    assert!(error.downcast_ref::<reqwest::Error>().unwrap().is_connect());
    let error = stack.clone().oneshot(request(Method::GET, down)).await.unwrap_err();
    let open = error.downcast_ref::<CircuitOpen>().unwrap();
    assert!(open.retry_after() > Duration::from_secs(1), "{open:?}");
    assert_eq!(stack.oneshot(request(Method::GET, up)).await.unwrap().status(), 200);
    let mut keys: Vec<_> = handle.keys().iter().map(|key| key.name().to_string()).collect();
    keys.sort();
    let mut expected = [down.to_string(), up.to_string()];
    expected.sort();
    assert_eq!(keys, expected);
    assert_eq!(seen.incidents()[0].attempts, 2);
}

#[tokio::test]
async fn kf30_each_attempt_gets_the_smaller_of_its_limit_and_the_time_left() {
    let limit = Duration::from_millis(200);
    let address = scripted(|mut stream, _| async move {
        let _ = read_head(&mut stream).await;
        // Never answers; ends with the client's connection.
        let _ = read_head(&mut stream).await;
    })
    .await;
    let classifier = Classifier::new(reqwest());
    let limits = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&limits);
    let tell = move |request: &mut Marked, limit: &tower_triage_timeout::SoftLimit| {
        told.lock().unwrap().push(limit.time_until_dropped());
        *request.request.timeout_mut() = Some(limit.time_until_dropped());
    };
    let plan = tower_triage_timeout::TimeoutPolicy::new(limit).grace(Duration::ZERO).build();
    let stack = ServiceBuilder::new()
        .layer(RetryLayer::new(classifier.clone()).policy(at_once()).replay(ReqwestReplay::new()))
        .layer(TimeoutLayer::new(classifier, limit).unwrap().policy(plan.unwrap()).tell(tell))
        .map_request(Marked::into_request)
        .map_err(AnyError::from)
        .service(Client::new());
    let begun = tokio::time::Instant::now();
    let deadline = Deadline(begun + Duration::from_millis(300));
    let get = Marked::from(request(Method::GET, address)).with(deadline);
    let error = stack.oneshot(get).await.unwrap_err();
    assert!(begun.elapsed() >= Duration::from_millis(290));
    let elapsed = error.downcast_ref::<Elapsed>();
    let own = error.downcast_ref::<reqwest::Error>().is_some_and(reqwest::Error::is_timeout);
    assert!(elapsed.is_some() || own, "{error:?}");
    let limits = limits.lock().unwrap();
    // Upper bounds, which hold however late a busy machine is.
    assert!((1..=2).contains(&limits.len()), "the elapsed deadline is not tried again: {limits:?}");
    for (told, most) in limits.iter().zip([limit, Duration::from_millis(100)]) {
        assert!(*told <= most, "{told:?} of at most {most:?}");
    }
}

/// A 503 that has a body the client never reads; the next attempt uses the connection again.
#[tokio::test]
async fn kf17_discarded_responses_release_their_connection() {
    let connections = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&connections);
    let address = scripted(move |mut stream, number| {
        *seen.lock().unwrap() = number;
        async move {
            for nth in 1.. {
                if read_head(&mut stream).await.is_err() {
                    return;
                }
                let (status, length) = if nth % 3 == 0 { (200, 0) } else { (503, 20 * 1024) };
                let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n");
                write(&mut stream, &head).await;
                write(&mut stream, &"x".repeat(length)).await;
            }
        }
    })
    .await;
    let client = Client::new();
    for _ in 0..20 {
        let response = send(client.clone(), request(Method::GET, address)).await.unwrap();
        response.bytes().await.unwrap();
    }
    let connections = *connections.lock().unwrap();
    assert!(connections <= 10, "{connections} connections for 60 attempts");
}

#[tokio::test]
async fn kf12_streaming_bodies_pass_through() {
    for (code, skipped) in [(200, false), (503, true)] {
        let (address, requests) = statuses(if skipped { &[503] } else { &[200] }).await;
        let mut put = request(Method::PUT, address);
        *put.body_mut() = Some(stream(&["one", "two"]));
        let response = send(Client::new(), put).await.unwrap();
        assert_eq!(response.status().as_u16(), code);
        let why = incident(&response).as_deref().and_then(refusal);
        let stream = Refusal::NotReplayable("the request body is a stream");
        assert_eq!(why, skipped.then_some(stream));
        let requests = requests.lock().unwrap();
        assert_eq!((requests.len(), &requests[0].body[..]), (1, &b"onetwo"[..]));
        assert_eq!(requests[0].headers["transfer-encoding"], "chunked");
    }
}

fn stream(chunks: &[&'static str]) -> Body {
    let chunks: Vec<_> = chunks.iter().map(|chunk| Ok::<_, std::io::Error>(*chunk)).collect();
    Body::wrap_stream(futures_util::stream::iter(chunks))
}

#[tokio::test]
async fn a_stream_is_sent_again_by_choice_and_within_the_limit() {
    for (limit, expected, made) in [(1024, 200, 2), (5, 503, 1)] {
        let (address, requests) = statuses(&[503, 200]).await;
        let classifier = Classifier::new(reqwest());
        let retry = RetryLayer::new(classifier).policy(at_once());
        let stack = ServiceBuilder::new()
            .layer(retry.replay(ReqwestReplay::new().streams(limit)))
            .map_err(AnyError::from)
            .service(Client::new());
        let mut put = request(Method::PUT, address);
        *put.body_mut() = Some(stream(&["one", "two"]));
        let response = tokio::spawn(stack.oneshot(put)).await.unwrap().unwrap();
        assert_eq!(response.status().as_u16(), expected);
        let requests = requests.lock().unwrap();
        assert_eq!(requests.len(), made);
        assert!(requests.iter().all(|seen| seen.body == "onetwo"));
    }
}

/// A declared length over the limit: the body is not even wrapped.
#[test]
fn a_stream_that_is_too_long_is_left_alone() {
    let sized = Body::wrap("sized".to_owned());
    let mut request = Request::new(Method::PUT, "http://example.com/".parse().unwrap());
    *request.body_mut() = Some(sized);
    let kept = ReqwestReplay::new().streams(3).keep(&mut request);
    assert!(kept.unwrap_err().contains("over the replay limit"));
    assert_eq!(http_body::Body::size_hint(request.body().unwrap()).exact(), Some(5));
}

/// The whole stack: backup by a value, escalation, request id.
#[tokio::test]
async fn kf55_a_request_with_an_id_has_one_record_and_a_fallback_answers() {
    let (address, _) = statuses(&[503]).await;
    let (sink, mut letters) = ChannelSink::new(16).unwrap();
    let routes = Routes::new(Route::new(["ops"], "look_at_it"));
    let desk = Desk::new(routes, [Receiver::new("ops").record(sink)]).unwrap();
    let classifier = Classifier::new(reqwest().fallback_header("x-fallback".parse().unwrap()));
    let cached = |_: tower_triage_fallback::Failed<'_, reqwest::Response, AnyError>| {
        http::Response::new("cached").into()
    };
    let inner = ServiceBuilder::new()
        .layer(EscalateLayer::new(classifier.clone(), desk))
        .layer(RetryLayer::new(classifier.clone()).policy(at_once()).replay(ReqwestReplay::new()))
        .map_err(AnyError::from)
        .service(Client::new());
    let mut ids = Vec::new();
    for _ in 0..2 {
        let mut get = request(Method::GET, address);
        get.headers_mut().insert("x-request-id", "r-17".parse().unwrap());
        inner.clone().oneshot(get).await.unwrap();
        let letter = letters.recv().await.unwrap();
        assert_eq!(letter.context.request_id.unwrap(), "r-17");
        ids.push(letter.id);
    }
    assert_eq!(ids[0], ids[1], "the same request has the same record");

    let guarded = ServiceBuilder::new()
        .layer(FallbackLayer::new(classifier).or_value(ClassSet::bypassable(), cached))
        .service(inner);
    let response = guarded.oneshot(request(Method::GET, address)).await.unwrap();
    assert_eq!(response.headers()["x-fallback"], "Transient");
    let notes = response.extensions().get::<Notes>().unwrap();
    assert_eq!(notes.fallback, Some(ErrorClass::Transient));
    assert_eq!(response.text().await.unwrap(), "cached");
}

/// A stream arrives frame by frame; one that breaks off is an error to its reader and an incident to
/// those who watch, and nothing is sent again.
#[tokio::test]
async fn kf25_kf52_a_body_is_the_callers_frame_by_frame_to_its_bitter_end() {
    let (go_on, going_on) = tokio::sync::oneshot::channel::<()>();
    let going_on = Arc::new(Mutex::new(Some(going_on)));
    let calls = Arc::new(Mutex::new(0));
    let counted = Arc::clone(&calls);
    let address = scripted(move |mut stream, number| {
        *counted.lock().unwrap() = number;
        let going_on = going_on.lock().unwrap().take();
        async move {
            read_head(&mut stream).await.unwrap();
            write(&mut stream, "HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\nfirst").await;
            if let Some(going_on) = going_on {
                going_on.await.unwrap();
            }
            write(&mut stream, "half").await;
        }
    })
    .await;
    let classifier = Classifier::new(reqwest());
    let seen = Seen::default();
    classifier.observe(seen.clone());
    let stack = ServiceBuilder::new()
        .layer(WatchBodyLayer::new(classifier.clone()))
        .layer(RetryLayer::new(classifier).policy(at_once()).replay(ReqwestReplay::new()))
        .map_err(AnyError::from)
        .service(Client::new());
    let get = request(Method::GET, address);
    let mut response = tokio::spawn(stack.oneshot(get)).await.unwrap().unwrap();
    assert_eq!(response.url().path(), "/things/17");
    assert_eq!(response.content_length(), Some(15));
    assert_eq!(response.chunk().await.unwrap().unwrap(), "first", "before there is more");
    go_on.send(()).unwrap();
    assert_eq!(response.chunk().await.unwrap().unwrap(), "half");
    assert!(seen.incidents().is_empty());
    let error = response.chunk().await.unwrap_err();
    assert!(std::error::Error::source(&error).is_some());
    let incident = seen.last();
    assert_eq!(incident.failure.unwrap().class, ErrorClass::Transient);
    assert_eq!(refusal(&incident), Some(Refusal::Committed));
    assert_eq!(*calls.lock().unwrap(), 1);
}

#[test]
fn facts_of_a_request() {
    let rules = reqwest();
    let mut request = Request::new(
        Method::POST,
        "http://user:secret@EXAMPLE.com:8080/a?token=secret#part".parse().unwrap(),
    );
    assert_eq!(rules.operation(&request), "POST");
    assert_eq!(rules.key(&request), "example.com:8080");
    assert_eq!(rules.target(&request), "POST example.com:8080/a");
    assert!(!rules.repeatable(&request) && !rules.unit_of_work(&request));
    assert_eq!(rules.request_id(&request), None);
    let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    request.headers_mut().insert("traceparent", traceparent.parse().unwrap());
    request.headers_mut().insert("idempotency-key", "k".parse().unwrap());
    assert_eq!(rules.trace(&request).unwrap().to_string(), traceparent);
    assert!(rules.repeatable(&request) && rules.unit_of_work(&request));

    let marked = Marked::from(request).with(RouteTemplate::new("/orders/{id}"));
    assert_eq!(rules.operation(&marked), "POST /orders/{id}");
    assert_eq!(rules.deadline(&marked), None);
    let now = tokio::time::Instant::now();
    let marked = marked.with(Deadline(now));
    assert_eq!(rules.deadline(&marked), Some(now));
    let debug = format!("{marked:?}");
    assert!(!debug.contains("secret"), "{debug}");

    // Functions of the user's read the target.
    let rules = reqwest()
        .operation_by(|head| Some(tower_triage_core::Operation::new(head.uri.path())))
        .key_by(|head| tower_triage_core::Key::new(head.host()));
    assert_eq!(rules.operation(&marked), "/a");
    assert_eq!(rules.key(&marked), "example.com:8080");
}
