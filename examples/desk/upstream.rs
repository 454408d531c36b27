//! A shop's server: down at first, and it keeps a book of what it did.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// By order: how often it was carried out, and under which keys it came.
type Book = BTreeMap<String, (u32, Vec<String>)>;

#[derive(Clone, Default)]
pub(crate) struct Upstream {
    up: Arc<AtomicBool>,
    book: Arc<Mutex<Book>>,
}

impl Upstream {
    /// Starts it on loopback, down.
    pub(crate) async fn start() -> io::Result<(Self, SocketAddr)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let this = Self::default();
        let upstream = this.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let upstream = upstream.clone();
                let handler = service_fn(move |request| upstream.clone().answer(request));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), handler));
            }
        });
        Ok((this, address))
    }

    /// From now on it works.
    pub(crate) fn recovers(&self) {
        self.up.store(true, Ordering::SeqCst);
    }

    pub(crate) fn book(&self) -> Book {
        self.book.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let is_refund = request.uri().path() == "/refunds";
        let key = request.headers().get("idempotency-key").cloned();
        let body = request.into_body().collect().await.map(|body| body.to_bytes());
        let order = String::from_utf8_lossy(&body.unwrap_or_default()).into_owned();
        let status = match self.up.load(Ordering::SeqCst) {
            // Above the limit, until somebody lowers it.
            _ if is_refund && order.contains("\"amount\":900") => StatusCode::PAYMENT_REQUIRED,
            _ if is_refund => self.carry_out(order, None),
            false => StatusCode::SERVICE_UNAVAILABLE,
            true => self.carry_out(order, key.and_then(|key| key.to_str().ok().map(str::to_owned))),
        };
        let mut response = Response::new(Full::new(Bytes::from_static(b"{}")));
        *response.status_mut() = status;
        Ok(response)
    }

    fn carry_out(&self, order: String, key: Option<String>) -> StatusCode {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        let (times, keys) = book.entry(order).or_default();
        *times += 1;
        keys.extend(key);
        StatusCode::CREATED
    }
}
