//! The rules for LLM APIs: a half for responses on top of HTTP's, and HTTP's half for errors.

use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;
use tower_triage_core::{
    ClassifyResponse, Describe, Halves, Key, Label, Note, Operation, Stamp, Target, TraceParent,
    Verdict, wall_clock,
};
use tower_triage_http::{HttpErrors, HttpStatus, RequestHead, ResponseHead};

use crate::body::BodyFacts;
use crate::decision::LlmFacts;
use crate::inference::is_inference;

/// The rules for LLM APIs: [`LlmResponses`] for responses and requests, and a half for errors.
pub type LlmRules<Q = HttpErrors> = Halves<LlmResponses, Q>;

/// The rules for LLM APIs with their defaults, for all providers at once.
///
/// Without a [`PeekLayer`](crate::PeekLayer) at the bottom they judge by status and headers alone.
///
/// ```
/// use tower_triage_core::{Classifier, ErrorClass};
/// use tower_triage_http::HttpRulesExt;
/// use tower_triage_llm::{LlmRulesExt, llm};
///
/// let rules = llm()
///     .http(|http| http.status(418, ErrorClass::Declined)) // a gateway's word for "another model"
///     .inference_by(|request| request.uri.path().starts_with("/ask"));
/// let classifier = Classifier::new(rules);
/// # let _ = classifier;
/// ```
#[must_use]
pub fn llm() -> LlmRules {
    LlmRules::default()
}

/// Is this a request that asks a model?
type AsksModel = dyn Fn(RequestHead<'_>) -> bool + Send + Sync;

/// Judges responses of LLM APIs by status, headers and what a [`PeekLayer`](crate::PeekLayer) found
/// in the body ([`BodyFacts`]), and reads the facts of requests: POSTs that ask a model are
/// repeatable and complete units of work, as all providers' own clients take them.
#[derive(Clone, Default)]
pub struct LlmResponses {
    http: HttpStatus,
    asks_model: Option<Arc<AsksModel>>,
}

/// Adjusts the rules before they are shared.
pub trait LlmRulesExt: Sized {
    /// Changes the half for responses.
    #[must_use]
    fn adjust_llm(self, change: impl FnOnce(LlmResponses) -> LlmResponses) -> Self;

    /// Adjusts the HTTP rules below: overrides by status, names of operations, keys of breakers.
    /// What they decide comes first.
    #[must_use]
    fn http(self, change: impl FnOnce(Halves<HttpStatus, ()>) -> Halves<HttpStatus, ()>) -> Self {
        self.adjust_llm(|half| LlmResponses {
            http: change(Halves { response: half.http, error: () }).response,
            ..half
        })
    }

    /// Which requests ask a model, and may therefore be repeated although they are POSTs. Default:
    /// POSTs to the inference endpoints of OpenAI, Anthropic, Gemini, Azure and Bedrock. For one
    /// request the marks of the HTTP crate say it too (`Repeatable`, `UnitOfWork`).
    #[must_use]
    fn inference_by(self, f: impl Fn(RequestHead<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.adjust_llm(|half| LlmResponses { asks_model: Some(Arc::new(f)), ..half })
    }
}

impl<Q> LlmRulesExt for Halves<LlmResponses, Q> {
    fn adjust_llm(mut self, change: impl FnOnce(LlmResponses) -> LlmResponses) -> Self {
        self.response = change(self.response);
        self
    }
}

impl LlmResponses {
    fn asks_model<B>(&self, request: &http::Request<B>) -> bool {
        let head = RequestHead::from(request);
        self.asks_model.as_ref().map_or_else(|| is_inference(head), |f| f(head))
    }
}

impl<B> ClassifyResponse<http::Response<B>> for LlmResponses {
    fn response(&self, response: &http::Response<B>) -> Verdict {
        let head = ResponseHead::from(response);
        if let Some(verdict) = self.http.adjusted(head) {
            return verdict;
        }
        let status = head.status.as_u16();
        let body = head.extensions.get::<BodyFacts>().copied().unwrap_or_default();
        if (100..400).contains(&status) && body.is_silent() {
            // The happy path reads no clock.
            return Verdict::Success;
        }
        LlmFacts { status, headers: head.headers, body, now: wall_clock() }.verdict()
    }

    fn annotate(&self, response: &mut http::Response<B>, note: &Note) -> bool {
        self.http.annotate(response, note)
    }

    fn explain(&self, response: &http::Response<B>, out: &mut dyn fmt::Write) {
        self.http.explain(response, out);
        // The reason comes from a fixed set; nothing of the body is told.
        if let (true, Some(failure)) =
            (response.extensions().get::<BodyFacts>().is_some(), self.response(response).failure())
        {
            let _ = write!(out, ", {}", failure.reason);
        }
    }
}

impl<B> Stamp<http::Response<B>> for LlmResponses {}

impl<B> Describe<http::Request<B>> for LlmResponses {
    fn operation(&self, request: &http::Request<B>) -> Operation {
        self.http.operation(request)
    }

    fn repeatable(&self, request: &http::Request<B>) -> bool {
        self.http.repeatable(request) || self.asks_model(request)
    }

    fn unit_of_work(&self, request: &http::Request<B>) -> bool {
        self.http.unit_of_work(request) || self.asks_model(request)
    }

    fn key(&self, request: &http::Request<B>) -> Key {
        self.http.key(request)
    }

    fn deadline(&self, request: &http::Request<B>) -> Option<Instant> {
        self.http.deadline(request)
    }

    fn request_id(&self, request: &http::Request<B>) -> Option<Label> {
        self.http.request_id(request)
    }

    fn trace(&self, request: &http::Request<B>) -> Option<TraceParent> {
        self.http.trace(request)
    }

    fn target(&self, request: &http::Request<B>) -> Target {
        self.http.target(request)
    }
}

impl fmt::Debug for LlmResponses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LlmResponses").field("http", &self.http).finish_non_exhaustive()
    }
}
