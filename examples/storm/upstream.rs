//! A real HTTP server that goes through phases, and its backup.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How the upstream behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Healthy,
    /// 503 with `Retry-After: 1`.
    Unavailable,
    /// Every third request is answered with a reset connection.
    Resets,
    /// Most answers come later than an attempt waits.
    Slow,
    /// Nobody listens.
    Closed,
    /// 400 for every request.
    BadRequests,
}

impl Phase {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Unavailable => "503, retry later",
            Self::Resets => "resets",
            Self::Slow => "slow",
            Self::Closed => "closed",
            Self::BadRequests => "400s",
        }
    }
}

/// The upstream, as the story's director holds it.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    phase: Arc<watch::Sender<Phase>>,
}

impl Upstream {
    /// Starts a healthy upstream on loopback.
    pub(crate) async fn start() -> std::io::Result<Self> {
        let listener = listen("127.0.0.1:0".parse().expect("a socket address"))?;
        let address = listener.local_addr()?;
        let phase = Arc::new(watch::Sender::new(Phase::Healthy));
        tokio::spawn(serve(listener, address, Arc::clone(&phase)));
        Ok(Self { address, phase })
    }

    /// From now on it behaves so.
    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.send_replace(phase);
    }
}

/// A listener whose port can be closed and taken again at once.
fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(1024)
}

/// Accepts while the port is open; when it closes, every connection goes with it.
async fn serve(first: TcpListener, address: SocketAddr, phase: Arc<watch::Sender<Phase>>) {
    let mut changes = phase.subscribe();
    let mut listener = Some(first);
    let mut connections = JoinSet::new();
    let served = Arc::new(AtomicU32::new(0));
    loop {
        let closed = *changes.borrow_and_update() == Phase::Closed;
        if closed {
            listener = None;
            connections.shutdown().await;
        } else if listener.is_none() {
            listener = listen(address).ok();
        }
        tokio::select! {
            accepted = accept(listener.as_ref()) => {
                if let Some(stream) = accepted {
                    connections.spawn(connection(stream, phase.subscribe(), Arc::clone(&served)));
                }
            }
            _ = connections.join_next(), if !connections.is_empty() => {}
            changed = changes.changed() => {
                if changed.is_err() { return; }
            }
        }
    }
}

async fn accept(listener: Option<&TcpListener>) -> Option<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.ok().map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

/// What a handler asks of its connection.
enum Fate {
    Answer(Response<Full<Bytes>>),
    Reset,
}

async fn connection(stream: TcpStream, phase: watch::Receiver<Phase>, served: Arc<AtomicU32>) {
    // With a linger time of zero, closing sends a reset.
    let _ = stream.set_zero_linger();
    let handler = service_fn(move |_: Request<Incoming>| {
        let phase = *phase.borrow();
        let number = served.fetch_add(1, Ordering::Relaxed);
        async move {
            match handle(number, phase).await {
                Fate::Answer(response) => Ok(response),
                Fate::Reset => Err("reset on purpose"),
            }
        }
    });
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), handler).await;
}

async fn handle(number: u32, phase: Phase) -> Fate {
    let ok = || Fate::Answer(Response::new(Full::from("primary")));
    match phase {
        Phase::Healthy | Phase::Closed => ok(),
        Phase::Unavailable => Fate::Answer(answer(StatusCode::SERVICE_UNAVAILABLE, Some("1"))),
        Phase::Resets if number.is_multiple_of(3) => Fate::Reset,
        Phase::Resets => ok(),
        Phase::Slow => {
            let late = if number.is_multiple_of(4) { 5 } else { 600 };
            tokio::time::sleep(Duration::from_millis(late)).await;
            ok()
        }
        Phase::BadRequests => Fate::Answer(answer(StatusCode::BAD_REQUEST, None)),
    }
}

fn answer(status: StatusCode, retry_after: Option<&str>) -> Response<Full<Bytes>> {
    let mut response = Response::builder().status(status);
    if let Some(seconds) = retry_after {
        response = response.header(http::header::RETRY_AFTER, seconds);
    }
    response.body(Full::from(status.to_string())).expect("a valid response")
}

/// Starts the backup: it can read orders but not place them.
pub(crate) async fn start_backup() -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let handler = service_fn(|request: Request<Incoming>| async move {
                Ok::<_, Infallible>(match *request.method() {
                    Method::GET => Response::new(Full::from("backup")),
                    _ => answer(StatusCode::NOT_IMPLEMENTED, None),
                })
            });
            let io = TokioIo::new(stream);
            tokio::spawn(http1::Builder::new().serve_connection(io, handler));
        }
    });
    Ok(address)
}
