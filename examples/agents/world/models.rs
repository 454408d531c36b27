//! Two models behind local servers, which speak the language of OpenAI.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::world::{Book, Entry, Fate, PLAN, Said};

/// What a prompt may ask for.
pub(crate) struct Cue {
    pub(crate) complaint: &'static str,
    pub(crate) by_heart: &'static str,
    pub(crate) brief: &'static str,
}

pub(crate) const CUE: Cue = Cue {
    complaint: "That was not what I asked for.",
    by_heart: "Say what you know by heart.",
    brief: "Be brief.",
};

/// The longest prompt in words.
const CONTEXT: usize = 100;

/// Where the models are.
pub(crate) struct Servers {
    pub(crate) large: SocketAddr,
    pub(crate) small: SocketAddr,
}

impl Servers {
    pub(crate) async fn start(book: &Book) -> io::Result<Self> {
        let large = serve("large", book.clone()).await?;
        let small = serve("small", book.clone()).await?;
        Ok(Self { large, small })
    }
}

async fn serve(model: &'static str, book: Book) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let book = book.clone();
            let handler = service_fn(move |request| answer(model, request, book.clone()));
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), handler));
        }
    });
    Ok(address)
}

async fn answer(
    model: &'static str,
    request: Request<Incoming>,
    book: Book,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let entry = Entry {
        task: text(&asked["metadata"]["task"]),
        part: asked["metadata"]["part"].as_u64(),
        who: model,
        what: text(&asked["messages"][0]["content"]),
        said: Said::Yes,
    };
    let prompt = entry.what.clone();
    let is_plan = entry.task == "plan";
    let said = book.enter(entry, say);
    Ok(match said {
        Said::Hung => std::future::pending().await,
        Said::RateLimited => {
            let mut response = error(429, "rate_limit_exceeded");
            response.headers_mut().insert("retry-after-ms", HeaderValue::from_static("60"));
            response
        }
        Said::Unavailable => error(503, "server_error"),
        Said::TooLong => error(400, "context_length_exceeded"),
        Said::Mystery => error(200, "flux_capacitor_drained"),
        Said::Refused => completion("content_filter", ""),
        Said::Prose => completion("stop", "Of course! Here is what I think of it."),
        Said::LookUp => completion("stop", r#"{"look_up":"diary"}"#),
        _ if is_plan => completion("stop", &json!({ "text": plan() }).to_string()),
        _ => completion("stop", &json!({ "text": format!("{model}: {prompt}") }).to_string()),
    })
}

/// What a model says, asked so often `before`.
fn say(entry: &Entry, before: usize) -> Said {
    let Entry { who, part, what: prompt, .. } = entry;
    match Fate::of(&entry.task) {
        _ if prompt.split_whitespace().count() > CONTEXT => Said::TooLong,
        _ if *who == "small" => Said::Yes,
        Fate::RateLimited if before < 2 => Said::RateLimited,
        Fate::Busy if before < 1 => Said::Unavailable,
        Fate::TooLong if *part == Some(2) && before < 1 => Said::Unavailable,
        Fate::Down => Said::Unavailable,
        Fate::HangsOnce if before < 1 => Said::Hung,
        Fate::Hangs => Said::Hung,
        Fate::Refused => Said::Refused,
        Fate::Prose if !prompt.contains(CUE.complaint) => Said::Prose,
        Fate::Mystery => Said::Mystery,
        Fate::Circles if !prompt.contains(CUE.by_heart) => Said::LookUp,
        _ => Said::Yes,
    }
}

/// The plan: waves of names.
fn plan() -> String {
    let waves = PLAN.map(|wave| wave.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    json!(waves).to_string()
}

fn error(status: u16, code: &str) -> Response<Full<Bytes>> {
    let status = StatusCode::from_u16(status).expect("a status of the list above");
    response(status, &json!({ "error": { "code": code } }))
}

fn completion(finish: &str, content: &str) -> Response<Full<Bytes>> {
    let choice = json!({ "message": { "content": content }, "finish_reason": finish });
    response(StatusCode::OK, &json!({ "choices": [choice] }))
}

fn response(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body.to_string()));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    response
}
