//! A client of one model: what it answers, or what went wrong by the rules for LLM APIs.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use serde::Deserialize;
use serde_json::{Value, json};
use tower::util::BoxCloneSyncService;
use tower::{ServiceBuilder, ServiceExt};
use tower_triage::llm::{LlmRules, PeekBody, PeekLayer, llm};
use tower_triage::{AnyError, Classify, ErrorClass, Failure, Verdict};

use crate::crew::rules::Trouble;
use crate::crew::task::Task;

/// What a model may answer.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Text(String),
    LookUp(String),
}

type Http = BoxCloneSyncService<Request<Full<Bytes>>, Response<PeekBody<Incoming>>, AnyError>;

/// Clones are one.
#[derive(Clone)]
pub(crate) struct Model {
    address: SocketAddr,
    http: Http,
    rules: LlmRules,
    asked: Arc<AtomicU64>,
}

impl Model {
    pub(crate) fn new(address: SocketAddr) -> Self {
        let http = ServiceBuilder::new()
            .layer(PeekLayer::new())
            .map_err(AnyError::from)
            .service(Client::builder(TokioExecutor::new()).build_http());
        let http = BoxCloneSyncService::new(http);
        Self { address, http, rules: llm(), asked: Arc::default() }
    }

    /// How often it was asked.
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    pub(crate) async fn ask(&self, task: &Task, prompt: &str) -> Result<Answer, AnyError> {
        let request = json!({
            "messages": [{ "role": "user", "content": prompt }],
            "metadata": { "task": task.name, "part": task.part },
        });
        let request = Request::post(format!("http://{}/v1/chat/completions", self.address))
            .body(Full::from(request.to_string()))?;
        self.asked.fetch_add(1, Ordering::Relaxed);
        let outcome = self.http.clone().oneshot(request).await;
        if let Verdict::Failure(failure) = self.rules.classify(outcome.as_ref()) {
            let mut text = String::new();
            self.rules.explain(outcome.as_ref(), &mut text);
            return Err(Trouble::new(failure, text).into());
        }
        let body = outcome?.into_body().collect().await.map_err(AnyError::from)?.to_bytes();
        let completion: Value = serde_json::from_slice(&body)?;
        let content = completion["choices"][0]["message"]["content"].as_str().unwrap_or_default();
        serde_json::from_str(content).map_err(|error| {
            let failure = Failure::new(ErrorClass::Unknown).reason("schema");
            Trouble::new(failure, format!("not the JSON that was asked for: {error}")).into()
        })
    }
}

/// Where it is.
impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}
