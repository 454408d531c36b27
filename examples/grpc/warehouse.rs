//! The server, its moods, and its book.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::HeaderMap;
use http_body_util::{BodyExt, Full};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::transport::Server;
use tonic::{Request, Response, Status};
use tower::util::MapResponseLayer;

use crate::shop::{Order, Orders, OrdersServer};

/// What the server is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mood {
    Healthy,
    /// Every second call: UNAVAILABLE, in the headers.
    Shaky,
    /// The same, with the status behind the headers, in the trailers.
    Trailing,
    /// The same, and it says when to come back.
    PushingBack,
    /// UNAVAILABLE, each call.
    Down,
}

impl Mood {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Shaky => "every 2nd call unavailable",
            Self::Trailing => "the same, in the trailers",
            Self::PushingBack => "the same, pushing back",
            Self::Down => "down",
        }
    }
}

/// What the server has seen.
#[derive(Default)]
pub(crate) struct Book {
    /// Calls.
    pub(crate) calls: usize,
    /// Calls that said that others were made before them.
    pub(crate) repeated: usize,
    /// How often each order was placed.
    pub(crate) placed: BTreeMap<u32, usize>,
}

pub(crate) struct Warehouse {
    mood: Mutex<Mood>,
    book: Mutex<Book>,
}

impl Warehouse {
    pub(crate) async fn open() -> std::io::Result<(Arc<Self>, SocketAddr)> {
        let warehouse = Arc::new(Self { mood: Mutex::new(Mood::Healthy), book: Mutex::default() });
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let orders = OrdersServer::new(Arc::clone(&warehouse));
        let moody = Arc::clone(&warehouse);
        let server = Server::builder()
            .layer(MapResponseLayer::new(move |response| match moody.mood() {
                Mood::Trailing => behind_the_headers(response),
                _ => response,
            }))
            .add_service(orders)
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(server);
        Ok((warehouse, address))
    }

    pub(crate) fn enter(&self, mood: Mood) {
        *self.mood.lock().unwrap_or_else(PoisonError::into_inner) = mood;
    }

    fn mood(&self) -> Mood {
        *self.mood.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls, and how many of them were not the first of theirs.
    pub(crate) fn totals(&self) -> (usize, usize) {
        let book = self.book();
        (book.calls, book.repeated)
    }

    /// Writes the call down, and says what becomes of it.
    fn admit(&self, request: &Request<Order>) -> Result<(), Status> {
        let mut book = self.book();
        book.calls += 1;
        book.repeated += usize::from(request.metadata().contains_key("grpc-previous-rpc-attempts"));
        let every_second = book.calls.is_multiple_of(2);
        match self.mood() {
            Mood::Down => Err(Status::unavailable("closed")),
            Mood::Shaky | Mood::Trailing if every_second => Err(Status::unavailable("busy")),
            Mood::PushingBack if every_second => {
                let mut status = Status::unavailable("busy");
                status.metadata_mut().insert("grpc-retry-pushback-ms", 3.into());
                Err(status)
            }
            _ => Ok(()),
        }
    }
}

#[tonic::async_trait]
impl Orders for Warehouse {
    async fn get(&self, request: Request<Order>) -> Result<Response<Order>, Status> {
        self.admit(&request)?;
        Ok(Response::new(request.into_inner()))
    }

    async fn place(&self, request: Request<Order>) -> Result<Response<Order>, Status> {
        self.admit(&request)?;
        let order = request.into_inner();
        *self.book().placed.entry(order.number).or_default() += 1;
        Ok(Response::new(order))
    }
}

/// An answer as servers give it that send their headers early.
fn behind_the_headers(mut response: http::Response<Body>) -> http::Response<Body> {
    let mut trailers = HeaderMap::new();
    for name in ["grpc-status", "grpc-message"] {
        if let Some(value) = response.headers_mut().remove(name) {
            trailers.insert(name, value);
        }
    }
    match trailers.is_empty() {
        true => response,
        false => {
            let body = Full::new(Bytes::new()).with_trailers(async { Some(Ok(trailers)) });
            response.map(|_| Body::new(body))
        }
    }
}
