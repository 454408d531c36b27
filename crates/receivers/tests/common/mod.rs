//! An escalation, and receivers that answer as they are told.
#![allow(dead_code, reason = "each test file uses its part of it")]

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use tokio::time::Instant;
use tower_service::Service;
use tower_triage_core::BoxError;
use tower_triage_escalate::Escalation;

pub(crate) fn escalation() -> Escalation {
    let value = json!({
        "schema": 1,
        "id": "01234567-89ab-cdef-0123-456789abcdef",
        "task_type": "human_required",
        "priority": "high",
        "from": "worker 7",
        "to": ["on-call"],
        "operation": "orders.create",
        "outcome": "failed",
        "class": "Quota",
        "reason": "balance",
        "fingerprint": "00000000deadbeef",
        "summary": "orders.create failed",
        "detail": "balance used up",
        "attempts": [],
        "impact": "the caller got the failure",
        "suggestion": "top up the balance",
        "context": { "request_id": "r-1" },
        "first_time": "2026-01-02T03:04:05.000Z",
        "last_time": "2026-01-02T03:04:06.500Z",
        "count": 1,
    });
    serde_json::from_value(value).unwrap()
}

pub(crate) fn resolve() -> Escalation {
    let mut escalation = escalation();
    escalation.count = 0;
    escalation.resolved = Some("2026-01-02T03:09:06.500Z".parse().unwrap());
    escalation
}

/// One answer of a receiver.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    Status(u16),
    After(u16, &'static str),
    Slow(u16, Duration),
    Never,
    Broken(&'static str),
}

/// What came in.
#[derive(Clone, Debug)]
pub(crate) struct Post {
    pub at: Instant,
    pub uri: String,
    pub headers: HeaderMap,
    pub body: Value,
}

/// An HTTP client without a network: the last answer repeats.
#[derive(Clone)]
pub(crate) struct Network {
    answers: Arc<Mutex<VecDeque<Answer>>>,
    posts: Arc<Mutex<Vec<Post>>>,
}

impl Network {
    pub(crate) fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        let answers = Arc::new(Mutex::new(answers.into_iter().collect()));
        Self { answers, posts: Arc::default() }
    }

    pub(crate) fn posts(&self) -> Vec<Post> {
        self.posts.lock().unwrap().clone()
    }
}

impl Service<Request<Full<Bytes>>> for Network {
    type Response = Response<Full<Bytes>>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Full<Bytes>>) -> Self::Future {
        let (answers, posts) = (self.answers.clone(), self.posts.clone());
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            posts.lock().unwrap().push(Post {
                at: Instant::now(),
                uri: head.uri.to_string(),
                headers: head.headers,
                body: serde_json::from_slice(&body)?,
            });
            let answer = {
                let mut answers = answers.lock().unwrap();
                if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() }
            };
            let response = Response::builder();
            match answer.unwrap() {
                Answer::Status(status) => Ok(response.status(status).body(Full::default())?),
                Answer::After(status, after) => {
                    let response = response.status(status).header("retry-after", after);
                    Ok(response.body(Full::default())?)
                }
                Answer::Slow(status, time) => {
                    tokio::time::sleep(time).await;
                    Ok(response.status(status).body(Full::default())?)
                }
                Answer::Never => std::future::pending().await,
                Answer::Broken(text) => {
                    let reset = std::io::ErrorKind::ConnectionReset;
                    Err(std::io::Error::new(reset, text).into())
                }
            }
        })
    }
}

/// The gaps between what came in.
pub(crate) fn gaps(posts: &[Post]) -> Vec<Duration> {
    posts.windows(2).map(|pair| pair[1].at - pair[0].at).collect()
}
