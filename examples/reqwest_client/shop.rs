//! The shop, its books, and a middleware that signs requests.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post, put};
use tokio::net::TcpListener;

/// What the shop wrote down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Books {
    /// How often somebody asked.
    pub(crate) prices: usize,
    /// Ordered without a key.
    pub(crate) lamps: usize,
    /// Ordered with one.
    pub(crate) chairs: usize,
    /// What arrived in the archive.
    pub(crate) photos: Vec<String>,
    pub(crate) catalogues: Vec<String>,
    /// The tokens of all requests, in order.
    pub(crate) tokens: Vec<u64>,
}

impl fmt::Display for Books {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the shop's books: {} requests,", self.tokens.len())?;
        writeln!(
            f,
            "  prices asked {} times, lamps sold {}, chairs sold {},",
            self.prices, self.lamps, self.chairs
        )?;
        write!(f, "  photos {:?}, catalogues {:?}", self.photos, self.catalogues)
    }
}

/// A shop on loopback, which fails in a way of its own for each path.
pub(crate) struct Shop {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<Ledger>>,
}

#[derive(Default)]
struct Ledger {
    books: Books,
    keys: BTreeSet<String>,
    catalogues_seen: usize,
}

type Shared = State<Arc<Mutex<Ledger>>>;

fn open(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shop {
    pub(crate) async fn open() -> io::Result<Self> {
        let state = Arc::new(Mutex::new(Ledger::default()));
        let app = Router::new()
            .route("/prices", get(prices))
            .route("/orders", post(orders))
            .route("/photo", put(async || Redirect::temporary("/archive")))
            .route("/archive", put(archive))
            .route("/catalogue", put(catalogue))
            .layer(from_fn_with_state(Arc::clone(&state), note_token))
            .with_state(Arc::clone(&state));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(Self { address, state })
    }

    pub(crate) fn books(&self) -> Books {
        open(&self.state).books.clone()
    }
}

async fn note_token(ledger: Shared, request: Request, next: Next) -> Response {
    let token = request.headers().get(header::AUTHORIZATION).and_then(|token| token.to_str().ok());
    if let Some(token) = token.and_then(|token| token.strip_prefix("Bearer ")?.parse().ok()) {
        let books = &mut open(&ledger).books;
        // A redirect takes the token of its attempt along.
        if books.tokens.last() != Some(&token) {
            books.tokens.push(token);
        }
    }
    next.run(request).await
}

/// Busy twice.
async fn prices(ledger: Shared) -> Result<&'static str, StatusCode> {
    let books = &mut open(&ledger).books;
    books.prices += 1;
    if books.prices > 2 { Ok("17.50") } else { Err(StatusCode::SERVICE_UNAVAILABLE) }
}

/// Places the order, and then the line goes dead; a known key only gets its answer.
async fn orders(ledger: Shared, headers: HeaderMap) -> Response {
    let ledger = &mut *open(&ledger);
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    match key {
        None => ledger.books.lamps += 1,
        Some(key) if ledger.keys.insert(key.to_owned()) => ledger.books.chairs += 1,
        Some(_) => return StatusCode::CREATED.into_response(),
    }
    hang_up()
}

/// A head that promises a body which breaks before its first byte ends the connection before anything
/// was sent.
fn hang_up() -> Response {
    let broken =
        futures_util::stream::once(async { Err::<Bytes, _>(io::Error::other("line dead")) });
    Response::new(Body::from_stream(broken))
}

async fn archive(ledger: Shared, photo: String) -> StatusCode {
    open(&ledger).books.photos.push(photo);
    StatusCode::CREATED
}

/// Cannot cope with the first one.
async fn catalogue(ledger: Shared, text: String) -> StatusCode {
    let ledger = &mut *open(&ledger);
    ledger.catalogues_seen += 1;
    if ledger.catalogues_seen == 1 {
        return StatusCode::BAD_GATEWAY;
    }
    ledger.books.catalogues.push(text);
    StatusCode::CREATED
}

/// A port where nobody listens.
pub(crate) async fn closed_port() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0").await?.local_addr()
}

/// A middleware of reqwest-middleware: a token that is another one each time.
#[derive(Clone, Default)]
pub(crate) struct Token(Arc<AtomicU64>);

impl Token {
    /// How many it has given.
    pub(crate) fn signed(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl reqwest_middleware::Middleware for Token {
    async fn handle(
        &self,
        mut request: reqwest::Request,
        extensions: &mut http::Extensions,
        next: reqwest_middleware::Next<'_>,
    ) -> reqwest_middleware::Result<reqwest::Response> {
        let number = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        let value = http::HeaderValue::from_str(&format!("Bearer {number}"));
        request.headers_mut().insert(header::AUTHORIZATION, value.map_err(anyhow::Error::from)?);
        next.run(request, extensions).await
    }
}
