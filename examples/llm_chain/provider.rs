//! A local provider with two models, which fails in the ways of OpenAI, Anthropic and Gemini.

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// What happens to a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Fate {
    Answered,
    RateLimited,
    Overloaded,
    FailsInside200,
    FailsBeforeToken,
    CutOff,
    FailsAfterToken,
    NoQuota,
    TooLong,
    Refused,
    RefusedByBoth,
    Malformed,
}

/// What is expected of one prompt: calls of the large and of the small model, and the end.
pub(crate) struct Expected {
    pub(crate) large: usize,
    pub(crate) small: usize,
    pub(crate) end: End,
}

/// How a prompt ends for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    Answer,
    /// The answer of the small model.
    AnswerOfSmall,
    /// An answer that fails behind its first token.
    BrokenAnswer,
    Failure,
}

impl Fate {
    pub(crate) const ALL: [Self; 12] = [
        Self::Answered,
        Self::RateLimited,
        Self::Overloaded,
        Self::FailsInside200,
        Self::FailsBeforeToken,
        Self::CutOff,
        Self::FailsAfterToken,
        Self::NoQuota,
        Self::TooLong,
        Self::Refused,
        Self::RefusedByBoth,
        Self::Malformed,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Answered => "answered at once",
            Self::RateLimited => "429, retry-after-ms: 40",
            Self::Overloaded => "529 overloaded, twice",
            Self::FailsInside200 => "200 with a server_error in it",
            Self::FailsBeforeToken => "stream: error before a token",
            Self::CutOff => "stream: ends before a token",
            Self::FailsAfterToken => "stream: error after a token",
            Self::NoQuota => "429, but the quota is spent",
            Self::TooLong => "400, context too long",
            Self::Refused => "200, but content refused",
            Self::RefusedByBoth => "refused by both models",
            Self::Malformed => "400, malformed",
        }
    }

    pub(crate) const fn expected(self) -> Expected {
        let (large, small, end) = match self {
            Self::Answered => (1, 0, End::Answer),
            Self::Overloaded => (3, 0, End::Answer),
            Self::RateLimited | Self::FailsInside200 | Self::FailsBeforeToken | Self::CutOff => {
                (2, 0, End::Answer)
            }
            Self::FailsAfterToken => (1, 0, End::BrokenAnswer),
            Self::NoQuota | Self::TooLong | Self::Refused => (1, 1, End::AnswerOfSmall),
            Self::RefusedByBoth => (1, 1, End::Failure),
            Self::Malformed => (1, 0, End::Failure),
        };
        Expected { large, small, end }
    }
}

/// The provider's own book: how often each model was called for each fate.
pub(crate) type Book = BTreeMap<(Fate, &'static str), usize>;

/// What the provider knows.
#[derive(Default)]
struct Known {
    book: Book,
    /// Calls of the large model per prompt.
    calls: HashMap<u64, usize>,
}

pub(crate) struct Provider {
    pub(crate) address: SocketAddr,
    known: Arc<Mutex<Known>>,
}

impl Provider {
    pub(crate) async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let known = Arc::new(Mutex::new(Known::default()));
        let shared = Arc::clone(&known);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let known = Arc::clone(&shared);
                let handler = service_fn(move |request| answer(request, Arc::clone(&known)));
                let io = TokioIo::new(stream);
                tokio::spawn(http1::Builder::new().serve_connection(io, handler));
            }
        });
        Ok(Self { address, known })
    }

    pub(crate) fn book(&self) -> Book {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).book.clone()
    }
}

/// The prompt's JSON is `{"model": .., "prompt": number}`; the number names its fate.
async fn answer(
    request: Request<Incoming>,
    known: Arc<Mutex<Known>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let prompt: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    let number = prompt["prompt"].as_u64().unwrap_or_default();
    let fate = Fate::ALL[usize::try_from(number).unwrap_or(0) % Fate::ALL.len()];
    let small = prompt["model"] == "small";

    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    *known.book.entry((fate, if small { "small" } else { "large" })).or_default() += 1;
    if small {
        return Ok(match fate {
            Fate::RefusedByBoth => json(200, GEMINI_BLOCKED),
            _ => stream(&[ROLE, "{\"choices\":[{\"delta\":{\"content\":\"small\"}}]}", "[DONE]"]),
        });
    }
    let call = known.calls.entry(number).or_default();
    *call += 1;
    Ok(large(fate, *call))
}

/// The `call`-th answer of the large model.
fn large(fate: Fate, call: usize) -> Response<Full<Bytes>> {
    match (fate, call) {
        (Fate::RateLimited, 1) => {
            let mut response = json(429, r#"{"error":{"code":"rate_limit_exceeded"}}"#);
            response.headers_mut().insert("retry-after-ms", http::HeaderValue::from_static("40"));
            response
        }
        (Fate::Overloaded, 1 | 2) => json(529, OVERLOADED),
        (Fate::FailsInside200, 1) => {
            json(200, r#"{"status":"failed","error":{"code":"server_error"}}"#)
        }
        (Fate::FailsBeforeToken, 1) => stream(&[GREETING, OVERLOADED]),
        (Fate::CutOff, 1) => stream(&[GREETING]),
        (Fate::FailsAfterToken, _) => stream(&[GREETING, TOKEN, OVERLOADED]),
        (Fate::NoQuota, _) => json(429, r#"{"error":{"code":"insufficient_quota"}}"#),
        (Fate::TooLong, _) => json(400, r#"{"error":{"code":"context_length_exceeded"}}"#),
        (Fate::Refused | Fate::RefusedByBoth, _) => {
            json(200, r#"{"choices":[{"message":{},"finish_reason":"content_filter"}]}"#)
        }
        (Fate::Malformed, _) => json(400, r#"{"error":{"type":"invalid_request_error"}}"#),
        _ => stream(&[GREETING, TOKEN, "[DONE]"]),
    }
}

const GREETING: &str = r#"{"type":"message_start","message":{"role":"assistant"}}"#;
const TOKEN: &str = r#"{"type":"content_block_delta","delta":{"text":"large"}}"#;
const OVERLOADED: &str = r#"{"type":"error","error":{"type":"overloaded_error"}}"#;
const ROLE: &str = r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#;
const GEMINI_BLOCKED: &str = r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#;

fn json(status: u16, body: &'static str) -> Response<Full<Bytes>> {
    respond(status, "application/json", body.into())
}

fn stream(events: &[&str]) -> Response<Full<Bytes>> {
    let events: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    respond(200, "text/event-stream", events.into())
}

fn respond(status: u16, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    Response::builder()
        .status(status)
        .header(http::header::CONTENT_TYPE, kind)
        .body(Full::new(body))
        .expect("a valid response")
}
