//! Servers on loopback, and what they saw.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, Version};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tower_triage_core::{Backoff, Incident, Notes, Refusal, StepKind};
use tower_triage_retry::{RetryPlan, RetryPolicy};

pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, io::Error>>;

/// Serves HTTP/1.1 and HTTP/2.
pub(crate) async fn serve<F, Fut>(handler: F) -> SocketAddr
where
    F: Fn(Request<Incoming>) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = Answer> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let handler = handler.clone();
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let answer = handler(request);
                    async move { Ok::<_, Infallible>(answer.await) }
                });
                let server = auto::Builder::new(TokioExecutor::new());
                let _ = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    address
}

/// One request, as the server saw it.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) version: Version,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

pub(crate) type Requests = Arc<Mutex<Vec<Seen>>>;

pub(crate) fn answer(status: u16) -> Answer {
    let body = Full::new(Bytes::new()).map_err(|never| match never {}).boxed_unsync();
    Response::builder().status(status).body(body).unwrap()
}

/// Reads each request to its end and answers with `answers` in turn; with the last one from then on.
pub(crate) async fn answering<F>(answers: F) -> (SocketAddr, Requests)
where
    F: Fn(usize) -> Answer + Clone + Send + 'static,
{
    let requests = Requests::default();
    let seen = Arc::clone(&requests);
    let address = serve(move |request| {
        let (seen, answers) = (Arc::clone(&seen), answers.clone());
        async move {
            let (parts, body) = request.into_parts();
            let Ok(body) = body.collect().await else { return answer(400) };
            let mut seen = seen.lock().unwrap();
            seen.push(Seen {
                method: parts.method,
                path: parts.uri.path().to_owned(),
                version: parts.version,
                headers: parts.headers,
                body: body.to_bytes(),
            });
            answers(seen.len())
        }
    })
    .await;
    (address, requests)
}

/// Answers with these statuses, one after the other.
pub(crate) async fn statuses(statuses: &'static [u16]) -> (SocketAddr, Requests) {
    answering(|nth| answer(statuses[nth.min(statuses.len()) - 1])).await
}

/// Lets `script` handle each connection, with its number from 1.
pub(crate) async fn scripted<F, Fut>(script: F) -> SocketAddr
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

/// Reads a head of HTTP/1.1; an error if the connection ends before.
pub(crate) async fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8(head).unwrap())
}

pub(crate) async fn write(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
}

/// Three attempts, one at once after the other.
pub(crate) fn at_once() -> RetryPlan {
    RetryPolicy::default().backoff(&Backoff::immediate()).build().unwrap()
}

/// The story of a call, from its response.
pub(crate) fn incident(response: &reqwest::Response) -> Option<Arc<Incident>> {
    response.extensions().get::<Notes>()?.incident.clone()
}

/// Why it was not repeated.
pub(crate) fn refusal(incident: &Incident) -> Option<Refusal> {
    incident.steps.iter().find_map(|step| match step.kind {
        StepKind::NotRetried { why } => Some(why),
        _ => None,
    })
}
