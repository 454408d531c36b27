//! Known faults of HTTP clients, over real sockets: raw listeners that close, reset, answer by halves
//! or never, and hyper's server for HTTP/2.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_triage_core::{
    AnyError, Backoff, Classifier, Disposition, Elapsed, ErrorClass, Incident, Notes, Refusal,
    StepKind,
};
use tower_triage_escalate::{ChannelSink, Desk, EscalateLayer, Receiver, Route, Routes};
use tower_triage_http::{DeadlineLayer, HttpReplay, HttpRules, http};
use tower_triage_retry::{RetryLayer, RetryPlan, RetryPolicy};
use tower_triage_timeout::{SoftLimit, TimeoutLayer, TimeoutPolicy};

type Body = Full<Bytes>;
type HyperClient = Client<HttpConnector, Body>;

fn client(http2: bool) -> HyperClient {
    Client::builder(TokioExecutor::new()).http2_only(http2).build_http()
}

fn at_once() -> RetryPlan {
    RetryPolicy::default().backoff(&Backoff::immediate()).build().unwrap()
}

fn retry() -> RetryLayer<HttpRules, HttpReplay> {
    RetryLayer::new(Classifier::new(http())).policy(at_once()).replay(HttpReplay::new())
}

fn request(method: Method, address: SocketAddr) -> Request<Body> {
    Request::builder()
        .method(method)
        .uri(format!("http://{address}/"))
        .body(Body::default())
        .unwrap()
}

/// Lets `script` handle each connection, with its number from 1.
async fn scripted<F, Fut>(script: F) -> SocketAddr
where
    F: Fn(TcpStream, usize) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        for number in 1.. {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(script(stream, number));
        }
    });
    address
}

async fn read_head(stream: &mut TcpStream) -> std::io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8(head).unwrap())
}

const DONE: &[u8] = b"HTTP/1.1 204 Done\r\n\r\n";

type Heads = Arc<Mutex<Vec<String>>>;

fn header(head: &str, name: &str) -> Vec<String> {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    lines.filter(|(found, _)| *found == name).map(|(_, value)| value.to_owned()).collect()
}

fn refusal(incident: &Incident) -> Option<Refusal> {
    incident.steps.iter().find_map(|step| match step.kind {
        StepKind::NotRetried { why } => Some(why),
        _ => None,
    })
}

fn story<B>(response: &Response<B>) -> Arc<Incident> {
    response.extensions().get::<Notes>().unwrap().incident.clone().unwrap()
}

async fn send(client: HyperClient, request: Request<Body>) -> Result<Response<Incoming>, AnyError> {
    let stack = ServiceBuilder::new().layer(retry()).map_err(AnyError::from).service(client);
    tokio::spawn(async move { stack.oneshot(request).await }).await.unwrap()
}

/// Closed exactly when the client uses it again: GET is repeated at once, POST is not.
#[tokio::test]
async fn kf19_an_idle_connection_closed_under_us() {
    for (method, made) in [(Method::GET, 3), (Method::PUT, 3), (Method::POST, 2)] {
        for reset in [false, true] {
            let heads = Heads::default();
            let seen = Arc::clone(&heads);
            let address = scripted(move |mut stream, number| {
                let seen = Arc::clone(&seen);
                async move {
                    while let Ok(head) = read_head(&mut stream).await {
                        let made = {
                            let mut heads = seen.lock().unwrap();
                            heads.push(head);
                            heads.len()
                        };
                        if (number, made) == (1, 2) {
                            if reset {
                                stream.set_zero_linger().unwrap();
                            }
                            return;
                        }
                        stream
                            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
                            .await
                            .unwrap();
                    }
                }
            })
            .await;
            let client = client(false);
            let first = send(client.clone(), request(Method::GET, address)).await.unwrap();
            // Read to its end, so that the connection is idle again.
            first.into_body().collect().await.unwrap();
            let second = send(client, request(method.clone(), address)).await;
            assert_eq!(heads.lock().unwrap().len(), made, "{method}");
            match second {
                Ok(response) => {
                    let failures: Vec<_> = story(&response)
                        .steps
                        .iter()
                        .filter_map(|step| match &step.kind {
                            StepKind::Failed { failure, .. } => Some(failure.disposition),
                            _ => None,
                        })
                        .collect();
                    assert_eq!(failures, [Disposition::MaybeProcessed]);
                }
                Err(error) => {
                    assert_eq!(method, Method::POST);
                    let story = error.incident().unwrap();
                    assert_eq!(
                        refusal(story),
                        Some(Refusal::NotIdempotent),
                        "the outcome is unknown"
                    );
                }
            }
        }
    }
}

/// HTTP/2: the server performs the request and breaks the stream off; one that it refused unseen is
/// another matter.
#[tokio::test]
async fn kf18_unsafe_methods_over_http_2() {
    for (reason, method, made) in [
        (h2::Reason::INTERNAL_ERROR, Method::POST, 1),
        (h2::Reason::CANCEL, Method::POST, 1),
        (h2::Reason::INTERNAL_ERROR, Method::GET, 3),
        (h2::Reason::REFUSED_STREAM, Method::POST, 3),
        (h2::Reason::PROTOCOL_ERROR, Method::GET, 1),
    ] {
        let performed = Arc::new(Mutex::new(0));
        let seen = Arc::clone(&performed);
        let address = scripted(move |stream, _| {
            let seen = Arc::clone(&seen);
            async move {
                let mut connection = h2::server::handshake(stream).await.unwrap();
                while let Some(Ok((_, mut respond))) = connection.accept().await {
                    *seen.lock().unwrap() += 1;
                    respond.send_reset(reason);
                }
            }
        })
        .await;
        let error = send(client(true), request(method.clone(), address)).await.unwrap_err();
        assert_eq!(*performed.lock().unwrap(), made, "{method} {reason}");
        assert!(error.incident().is_some());
    }
}

/// A token and a date that a layer below the retry adds are those of the attempt, and no other's.
#[tokio::test]
async fn kf26_each_attempt_passes_the_inner_layers_afresh() {
    let heads = Heads::default();
    let seen = Arc::clone(&heads);
    let address = scripted(move |mut stream, _| {
        let seen = Arc::clone(&seen);
        async move {
            while let Ok(head) = read_head(&mut stream).await {
                let answer: &[u8] = match seen.lock().unwrap().len() {
                    0 => b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n",
                    // The connection is lost.
                    1 => b"",
                    _ => DONE,
                };
                seen.lock().unwrap().push(head);
                if answer.is_empty() {
                    return;
                }
                stream.write_all(answer).await.unwrap();
            }
        }
    })
    .await;
    #[derive(Clone)]
    struct Signed;
    let mut token = 0;
    let sign = move |mut request: Request<Body>| {
        token += 1;
        assert!(request.extensions().get::<Signed>().is_none(), "nothing of an attempt before");
        request.extensions_mut().insert(Signed);
        request.headers_mut().append("x-token", HeaderValue::from(token));
        request.headers_mut().append("x-caller", HeaderValue::from_static("signed"));
        request
    };
    let stack = ServiceBuilder::new()
        .layer(retry())
        // Of all clones: the retry's further attempts are calls of clones.
        .layer(SharedMap(Arc::new(Mutex::new(sign))))
        .map_err(AnyError::from)
        .service(client(false));
    let mut get = request(Method::GET, address);
    get.headers_mut().append("x-caller", HeaderValue::from_static("own"));
    assert_eq!(stack.oneshot(get).await.unwrap().status(), 204);
    let heads = heads.lock().unwrap();
    let tokens: Vec<_> = heads.iter().map(|head| header(head, "x-token")).collect();
    assert_eq!(tokens, [["1"], ["2"], ["3"]]);
    for head in &*heads {
        assert_eq!(header(head, "x-caller"), ["own", "signed"]);
    }
}

/// Changes requests by a function with a state that all clones share.
#[derive(Clone)]
struct SharedMap<F>(Arc<Mutex<F>>);

impl<S, F> Layer<S> for SharedMap<F> {
    type Service = Mapped<S, F>;
    fn layer(&self, inner: S) -> Mapped<S, F> {
        Mapped { inner, map: Arc::clone(&self.0) }
    }
}

struct Mapped<S, F> {
    inner: S,
    map: Arc<Mutex<F>>,
}

impl<S: Clone, F> Clone for Mapped<S, F> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), map: Arc::clone(&self.map) }
    }
}

impl<S, F> Service<Request<Body>> for Mapped<S, F>
where
    S: Service<Request<Body>>,
    F: FnMut(Request<Body>) -> Request<Body>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;
    fn poll_ready(
        &mut self,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }
    fn call(&mut self, request: Request<Body>) -> S::Future {
        let request = (self.map.lock().unwrap())(request);
        self.inner.call(request)
    }
}

/// A listener that never answers, and lets the time of each attempt pass. Each attempt is told in a header what it has: its own limit, or what
/// is left of the deadline that the request carries. The attempt's limit may be reached again and
/// again, the deadline once.
#[tokio::test]
async fn kf30_per_attempt_time_and_the_remaining_time() {
    let (limit, deadline) = (Duration::from_secs(120), Duration::from_secs(300));
    let heads = Heads::default();
    let seen = Arc::clone(&heads);
    let address = scripted(move |mut stream, _| {
        let seen = Arc::clone(&seen);
        async move {
            while let Ok(head) = read_head(&mut stream).await {
                seen.lock().unwrap().push(head);
                tokio::time::pause();
                tokio::time::advance(limit).await;
                tokio::time::resume();
            }
        }
    })
    .await;
    let classifier = Classifier::new(http());
    let plan = TimeoutPolicy::new(limit).grace(Duration::ZERO).build().unwrap();
    let tell = |request: &mut Request<Body>, limit: &SoftLimit| {
        let left = limit.time_until_dropped().as_millis() as u64;
        request.headers_mut().insert("x-timeout-ms", left.into());
    };
    let policy = RetryPolicy::default().attempts(10).backoff(&Backoff::immediate());
    // Timeouts are repeated once by default; here as often as there is time.
    let policy = policy.retry(
        ErrorClass::Timeout,
        tower_triage_retry::ClassRule::new(Backoff::immediate()).attempts(10),
    );
    let stack = ServiceBuilder::new()
        .layer(DeadlineLayer::new(deadline).unwrap())
        .layer(
            RetryLayer::new(classifier.clone())
                .policy(policy.build().unwrap())
                .replay(HttpReplay::new()),
        )
        .layer(TimeoutLayer::new(classifier, limit).unwrap().policy(plan).tell(tell))
        .map_err(AnyError::from)
        .service(client(false));
    let begun = Instant::now();
    let error =
        tokio::spawn(stack.oneshot(request(Method::GET, address))).await.unwrap().unwrap_err();
    let took = begun.elapsed();
    assert!(error.downcast_ref::<Elapsed>().unwrap().is_deadline());
    assert!(took >= deadline, "{took:?}");
    let told: Vec<u64> = {
        let heads = heads.lock().unwrap();
        heads.iter().map(|head| header(head, "x-timeout-ms")[0].parse().unwrap()).collect()
    };
    // Two attempts with the limit of their own, and one with what the two have left. Upper bounds,
    // which hold however late a busy machine is.
    assert_eq!(told.len(), 3, "{told:?}");
    for (told, most) in told.iter().zip([120_000, 120_000, 60_000]) {
        assert!(*told <= most && *told > most / 2, "{told} of at most {most}");
    }
    assert_eq!(error.incident().unwrap().attempts as usize, told.len());
}

/// Of two deadlines the earlier one counts, whoever named it.
#[tokio::test(start_paused = true)]
async fn kf30_a_callers_earlier_deadline_stays() {
    use tower_triage_http::Deadline;
    let now = Instant::now();
    let secs = Duration::from_secs;
    for (own, expected) in [(None, 10), (Some(5), 5), (Some(60), 10)] {
        let inner = tower::service_fn(|request: Request<()>| {
            let deadline = request.extensions().get::<Deadline>().copied();
            std::future::ready(Ok::<_, std::convert::Infallible>(deadline))
        });
        let mut request = Request::new(());
        if let Some(own) = own {
            request.extensions_mut().insert(Deadline(now + secs(own)));
        }
        let layer = DeadlineLayer::new(secs(10)).unwrap();
        let seen = layer.layer(inner).oneshot(request).await.unwrap();
        assert_eq!(seen, Some(Deadline(now + secs(expected))));
    }
    // What no clock can tell is no deadline.
    let inner = tower::service_fn(|request: Request<()>| {
        let deadline = request.extensions().get::<Deadline>().copied();
        std::future::ready(Ok::<_, std::convert::Infallible>(deadline))
    });
    let never = DeadlineLayer::new(Duration::MAX).unwrap().layer(inner);
    assert_eq!(never.oneshot(Request::new(())).await.unwrap(), None);
}

/// The deadline of the policy alone reaches the layers below with the second attempt.
#[tokio::test]
async fn kf30_the_policys_deadline_is_shown_to_the_layers_below() {
    use tower_triage_http::Deadline;
    let address = scripted(|mut stream, _| async move {
        while read_head(&mut stream).await.is_ok() {
            let busy = b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(busy).await.unwrap();
        }
    })
    .await;
    let deadlines = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&deadlines);
    let policy = RetryPolicy::default().backoff(&Backoff::immediate());
    let plan = policy.deadline(Duration::from_secs(60)).build().unwrap();
    let begun = Instant::now();
    for own in [None, Some(begun + Duration::from_secs(5))] {
        let seen = Arc::clone(&seen);
        let stack = ServiceBuilder::new()
            .layer(retry().policy(plan.clone()))
            .map_request(move |request: Request<Body>| {
                seen.lock().unwrap().push(request.extensions().get::<Deadline>().copied());
                request
            })
            .map_err(AnyError::from)
            .service(client(false));
        let mut get = request(Method::GET, address);
        if let Some(own) = own {
            get.extensions_mut().insert(Deadline(own));
        }
        stack.oneshot(get).await.unwrap();
    }
    let deadlines = deadlines.lock().unwrap();
    assert_eq!(deadlines.len(), 6);
    assert_eq!(deadlines[0], None, "the first attempt has what the caller gave");
    let shown = deadlines[1].unwrap().0;
    assert!(
        shown > begun + Duration::from_secs(59)
            && shown <= Instant::now() + Duration::from_secs(60)
    );
    assert_eq!(deadlines[1], deadlines[2]);
    for deadline in &deadlines[3..] {
        assert_eq!(deadline.unwrap().0, begun + Duration::from_secs(5), "the caller's is earlier");
    }
}

/// The same request id, twice, is one record; retried attempts make none of their own.
#[tokio::test]
async fn kf55_a_request_id_fixes_the_record() {
    let address = scripted(|mut stream, _| async move {
        // Half an answer, each time.
        if read_head(&mut stream).await.is_ok() {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-le").await.unwrap();
        }
    })
    .await;
    let (sink, mut letters) = ChannelSink::new(16).unwrap();
    let routes = Routes::new(Route::new(["ops"], "look_at_it"));
    let desk = Desk::new(routes, [Receiver::new("ops").record(sink)]).unwrap();
    let stack = ServiceBuilder::new()
        .layer(EscalateLayer::new(Classifier::new(http()), desk))
        .layer(retry())
        .map_err(AnyError::from)
        .service(client(false));
    let mut ids = Vec::new();
    for id in ["r-1", "r-1", "r-2"] {
        let mut get = request(Method::GET, address);
        get.headers_mut().insert("x-request-id", HeaderValue::from_static(id));
        stack.clone().oneshot(get).await.unwrap_err();
        let letter = letters.recv().await.unwrap();
        assert_eq!(
            (letter.context.request_id.unwrap().as_str(), letter.class),
            (id, ErrorClass::Transient)
        );
        ids.push(letter.id);
    }
    assert!(letters.try_recv().is_err(), "one record per request");
    assert_eq!(ids[0], ids[1]);
    assert_ne!(ids[0], ids[2]);
}
