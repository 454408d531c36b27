//! A local provider that answers by a script.
#![allow(dead_code, reason = "each test file uses its part")]

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tower::util::MapErr;
use tower_triage_core::AnyError;

/// One answer of the provider.
#[derive(Clone)]
pub(crate) struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    pieces: Vec<Piece>,
}

#[derive(Clone)]
enum Piece {
    Data(Bytes),
    /// Sent only when the test says so.
    Gate(Arc<Semaphore>),
    /// The connection breaks.
    Break,
}

impl Answer {
    /// A JSON answer.
    pub(crate) fn json(status: u16, body: impl Into<Bytes>) -> Self {
        Self { status, headers: vec![], pieces: vec![] }
            .header("content-type", "application/json; charset=utf-8")
            .data(body)
    }

    /// A stream of server-sent events.
    pub(crate) fn stream() -> Self {
        Self { status: 200, headers: vec![], pieces: vec![] }
            .header("content-type", "text/event-stream")
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    pub(crate) fn data(mut self, data: impl Into<Bytes>) -> Self {
        self.pieces.push(Piece::Data(data.into()));
        self
    }

    /// Server-sent events, one frame each.
    pub(crate) fn events(self, data: &[&str]) -> Self {
        data.iter().fold(self, |answer, data| answer.data(format!("data: {data}\n\n")))
    }

    pub(crate) fn gate(mut self, gate: &Arc<Semaphore>) -> Self {
        self.pieces.push(Piece::Gate(Arc::clone(gate)));
        self
    }

    pub(crate) fn breaks(mut self) -> Self {
        self.pieces.push(Piece::Break);
        self
    }

    fn respond(self) -> Response<UnsyncBoxBody<Bytes, io::Error>> {
        let mut response = Response::builder().status(self.status);
        for (name, value) in self.headers {
            response = response.header(name, value);
        }
        let whole = match &self.pieces[..] {
            [Piece::Data(whole)] => Some(whole.clone()),
            _ => None,
        };
        let body = match whole {
            Some(whole) => Full::new(whole).map_err(|never| match never {}).boxed_unsync(),
            None => {
                let frames = stream::iter(self.pieces).filter_map(|piece| async move {
                    match piece {
                        Piece::Data(data) => Some(Ok(Frame::data(data))),
                        Piece::Gate(gate) => {
                            gate.acquire().await.unwrap().forget();
                            None
                        }
                        Piece::Break => {
                            // hyper sends what it has before it waits.
                            tokio::task::yield_now().await;
                            Some(Err(io::Error::other("on purpose")))
                        }
                    }
                });
                BodyExt::boxed_unsync(StreamBody::new(frames))
            }
        };
        response.body(body).unwrap()
    }
}

/// A request as the provider saw it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) body: String,
}

pub(crate) struct Provider {
    pub(crate) address: SocketAddr,
    /// Each request in the order of arrival.
    pub(crate) seen: mpsc::UnboundedReceiver<Seen>,
    pub(crate) connections: Arc<AtomicUsize>,
}

impl Provider {
    /// Gives the answers one after the other; the last one is repeated.
    pub(crate) async fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let mut script: Vec<Answer> = answers.into_iter().collect();
        script.reverse();
        let script = Arc::new(Mutex::new(script));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tell, seen) = mpsc::unbounded_channel();
        let connections = Arc::new(AtomicUsize::new(0));
        let opened = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                opened.fetch_add(1, Ordering::Relaxed);
                let (script, tell) = (Arc::clone(&script), tell.clone());
                let handler = service_fn(move |request: Request<Incoming>| {
                    let (script, tell) = (Arc::clone(&script), tell.clone());
                    async move {
                        let path = request.uri().path().to_owned();
                        let body = request.into_body().collect().await.unwrap().to_bytes();
                        let body = String::from_utf8(body.to_vec()).unwrap();
                        let _ = tell.send(Seen { path, body });
                        let mut script = script.lock().unwrap();
                        let answer = match script.len() {
                            1 => script[0].clone(),
                            _ => script.pop().unwrap(),
                        };
                        Ok::<_, Infallible>(answer.respond())
                    }
                });
                let io = TokioIo::new(stream);
                tokio::spawn(http1::Builder::new().serve_connection(io, handler));
            }
        });
        Self { address, seen, connections }
    }

    /// How many requests came by now.
    pub(crate) fn count(&mut self) -> usize {
        std::iter::from_fn(|| self.seen.try_recv().ok()).count()
    }
}

pub(crate) type Pool =
    MapErr<Client<HttpConnector, Full<Bytes>>, fn(hyper_util::client::legacy::Error) -> AnyError>;

pub(crate) fn pool() -> Pool {
    let client = Client::builder(TokioExecutor::new()).build_http();
    tower::ServiceExt::<Request<Full<Bytes>>>::map_err(client, AnyError::from)
}

pub(crate) fn ask(address: SocketAddr, path: &str, model: &str) -> Request<Full<Bytes>> {
    Request::post(format!("http://{address}{path}"))
        .header("content-type", "application/json")
        .body(Full::from(format!("{{\"model\":\"{model}\"}}")))
        .unwrap()
}

/// OpenAI's chunk with a token.
pub(crate) fn chat_token(text: &str) -> String {
    format!("{{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}")
}

pub(crate) const ROLE: &str = r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#;
pub(crate) const OVERLOADED: &str =
    r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
