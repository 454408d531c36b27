//! A retry layer over a peer that plays a row's attempts, in paused time.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, Version};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use tonic::Code;
use tower::{Service, ServiceBuilder, ServiceExt};
use tower_triage_core::{AnyError, Classifier, Classify, Failure, Note, Verdict};
use tower_triage_grpc::{
    Attempt, Deadline, GrpcReplay, GrpcRules, Peek, PeekBody, PeekLayer, ReplayBodyLayer,
    ServiceConfig, code_of, grpc,
};
use tower_triage_http::{Http2Fact, Http2Frame, TransportFact};
use tower_triage_retry::{NoNudge, NoRefresh, Retry, RetryLayer};

/// What the peer does with one attempt.
#[derive(Clone)]
enum Answer {
    Headers(HeaderMap),
    Trailers(HeaderMap),
    DataAndTrailers(HeaderMap),
    /// No answer: nothing has seen the request.
    Unseen(Failure),
}

/// The answers to the attempts of one call.
pub(super) struct Call {
    answers: VecDeque<Answer>,
    /// After the others.
    always: Option<Answer>,
    lasting: Duration,
    deadline: Option<Duration>,
}

impl Call {
    pub(super) fn of(attempts: &Value) -> Result<Self, String> {
        let attempts = attempts.as_array().ok_or("no attempts")?;
        let answers = attempts.iter().map(answer).collect::<Result<_, _>>()?;
        Ok(Self { answers, always: None, lasting: Duration::ZERO, deadline: None })
    }

    pub(super) fn always(code: &Value) -> Result<Self, String> {
        let answer = answer(&serde_json::json!({"code": code}))?;
        let answers = VecDeque::new();
        Ok(Self { answers, always: Some(answer), lasting: Duration::ZERO, deadline: None })
    }

    pub(super) const fn lasting(mut self, time: Duration) -> Self {
        self.lasting = time;
        self
    }

    pub(super) const fn within(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }
}

fn answer(attempt: &Value) -> Result<Answer, String> {
    match attempt["unprocessed"].as_str() {
        None => {}
        Some("refused") => {
            let frame = Http2Frame::RstStream;
            let reason = h2::Reason::REFUSED_STREAM;
            let refused = TransportFact::Http2(Http2Fact { frame, reason, remote: true });
            return Ok(Answer::Unseen(refused.failure()));
        }
        Some("never_left_client") => return Ok(Answer::Unseen(TransportFact::Canceled.failure())),
        Some(other) => return Err(format!("unknown disposition {other}")),
    }
    let mut status = HeaderMap::new();
    status.insert("grpc-status", HeaderValue::from(code_named(&attempt["code"])? as i32));
    for pushback in attempt["pushback"]
        .as_array()
        .map_or(std::slice::from_ref(&attempt["pushback"]), Vec::as_slice)
    {
        if let Some(text) = pushback.as_str() {
            let value = HeaderValue::from_str(text).map_err(|error| error.to_string())?;
            status.append("grpc-retry-pushback-ms", value);
        }
    }
    match attempt["shape"].as_str() {
        Some("trailers_only") | None => Ok(Answer::Headers(status)),
        Some("headers_then_trailers") => Ok(Answer::Trailers(status)),
        Some("headers_data_trailers") => Ok(Answer::DataAndTrailers(status)),
        Some(other) => Err(format!("unknown shape {other}")),
    }
}

pub(super) fn code_named(name: &Value) -> Result<Code, String> {
    let named = |code: &Code| name.as_str() == Some(super::name_of(*code));
    (0..=16).map(Code::from_i32).find(named).ok_or_else(|| format!("unknown code {name}"))
}

/// The failure of an answer with `code`.
pub(super) fn failure_with(code: Code) -> Result<Failure, String> {
    let response = Response::builder().header("grpc-status", code as i32).body(());
    let response = response.map_err(|error| error.to_string())?;
    let outcome: Result<_, &Infallible> = Ok(&response);
    grpc().classify(outcome).failure().ok_or_else(|| "OK is no failure".to_owned())
}

/// What came of a call.
pub(super) struct Made {
    pub(super) code: &'static str,
    /// `grpc-previous-rpc-attempts` of each attempt.
    pub(super) headers: Vec<Value>,
    /// Attempts that count.
    pub(super) counted: usize,
    /// The waits before those that count.
    pub(super) delays_ms: Vec<f64>,
}

type Stacked = Retry<Peek<Peer>, GrpcRules, GrpcReplay, NoNudge, NoRefresh>;

pub(super) struct Stack {
    peer: Peer,
    layered: Stacked,
    runtime: tokio::runtime::Runtime,
}

impl Stack {
    pub(super) fn new(config: ServiceConfig) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without I/O");
        let peer = Peer::default();
        let layered = ServiceBuilder::new()
            .layer(
                RetryLayer::new(Classifier::new(grpc()))
                    .budget(config.budget())
                    .replay(GrpcReplay::new().service_config(config)),
            )
            .layer(PeekLayer::new())
            .service(peer.clone());
        Self { peer, layered, runtime }
    }

    pub(super) fn call(&mut self, call: Call) -> Made {
        let service = self.layered.clone();
        self.run(call, service, Full::new(Bytes::new()))
    }

    /// Through a buffer of `limit` bytes, with a body that streams.
    pub(super) fn call_with_body(self, call: Call, size: usize, limit: u64) -> Made {
        let service = ServiceBuilder::new()
            .layer(ReplayBodyLayer::new().limit(limit))
            .service(self.layered.clone());
        let body = Once(Some(Bytes::from(vec![7; size])));
        self.run(call, service, body)
    }

    fn run<S, B>(&self, call: Call, service: S, body: B) -> Made
    where
        S: Service<Request<B>, Response = Response<PeekBody<Played>>, Error = AnyError>,
    {
        let mut request = Request::new(body);
        *request.uri_mut() = http::Uri::from_static("/shop.Orders/Get");
        let deadline = call.deadline;
        self.peer.0.lock().expect("no attempt panicked").play(call);
        let outcome = self.runtime.block_on(async {
            if let Some(deadline) = deadline {
                let deadline = Deadline(tokio::time::Instant::now() + deadline);
                request.extensions_mut().insert(deadline);
            }
            match service.oneshot(request).await {
                Err(error) => Err(error),
                Ok(response) => {
                    let headers = response.headers().clone();
                    let collected = response.into_body().collect().await;
                    let collected = collected.unwrap_or_else(|error| match error {});
                    Ok(collected.trailers().cloned().unwrap_or(headers))
                }
            }
        });
        let code = match outcome {
            Ok(status) => Code::from_bytes(status["grpc-status"].as_bytes()),
            Err(error) => code_of(&tower_triage_grpc::grpc_failure(error.as_error())),
        };
        self.peer.0.lock().expect("no attempt panicked").made(super::name_of(code))
    }
}

/// Plays the answers, and notes what it was asked.
#[derive(Clone, Default)]
struct Peer(Arc<Mutex<Script>>);

#[derive(Default)]
struct Script {
    answers: VecDeque<Answer>,
    always: Option<Answer>,
    lasting: Duration,
    /// Of each attempt: how many it says were before it, and the wait.
    asked: Vec<(Option<String>, Duration)>,
}

impl Script {
    fn play(&mut self, call: Call) {
        let Call { answers, always, lasting, .. } = call;
        *self = Self { answers, always, lasting, asked: Vec::new() };
    }

    fn made(&self, code: &'static str) -> Made {
        let counts = |index: &usize| *index > 0 && self.asked[*index].0 != self.asked[*index - 1].0;
        let counted: Vec<usize> = (0..self.asked.len()).filter(counts).collect();
        let delay = |index: &usize| self.asked[*index].1.as_secs_f64() * 1e3;
        Made {
            code,
            headers: self.asked.iter().map(|(header, _)| header.clone().into()).collect(),
            counted: counted.len() + 1,
            delays_ms: counted.iter().map(delay).collect(),
        }
    }
}

impl<B: Body + Unpin + Send + 'static> Service<Request<B>> for Peer {
    type Response = Response<Played>;
    type Error = AnyError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, AnyError>>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), AnyError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let mut script = self.0.lock().expect("no attempt panicked");
        let header = request.headers().get("grpc-previous-rpc-attempts");
        let header = header.and_then(|value| value.to_str().ok()).map(str::to_owned);
        let wait = request.extensions().get::<Attempt>().map_or(Duration::ZERO, |a| a.wait);
        script.asked.push((header, wait));
        let answer = script.answers.pop_front().or_else(|| script.always.clone());
        let lasting = script.lasting;
        Box::pin(async move {
            // A server reads what it is sent before it answers.
            let _ = request.into_body().collect().await;
            tokio::time::sleep(lasting).await;
            match answer {
                Some(Answer::Headers(status)) => Ok(respond(status, VecDeque::new())),
                Some(Answer::Trailers(status)) => {
                    Ok(respond(HeaderMap::new(), VecDeque::from([Frame::trailers(status)])))
                }
                Some(Answer::DataAndTrailers(status)) => {
                    let data = Frame::data(Bytes::from_static(b"\0\0\0\0\0"));
                    let frames = VecDeque::from([data, Frame::trailers(status)]);
                    Ok(respond(HeaderMap::new(), frames))
                }
                Some(Answer::Unseen(failure)) => {
                    let mut error = AnyError::msg("no server has seen it");
                    error.annotate(&Note::Verdict(Verdict::Failure(failure)));
                    Err(error)
                }
                None => Err(AnyError::msg("one attempt more than the row has")),
            }
        })
    }
}

fn respond(headers: HeaderMap, frames: VecDeque<Frame<Bytes>>) -> Response<Played> {
    let mut response = Response::new(Played(frames));
    *response.version_mut() = Version::HTTP_2;
    *response.headers_mut() = headers;
    response
}

pub(super) struct Played(VecDeque<Frame<Bytes>>);

impl Body for Played {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }
}

/// A body that can be read once, of unknown length.
struct Once(Option<Bytes>);

impl Body for Once {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(Frame::data).map(Ok))
    }
}
