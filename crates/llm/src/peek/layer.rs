//! The layer and its service.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;
use tower_triage_core::{AnyError, ConfigError};

use super::body::PeekBody;
use super::future::PeekFuture;
use crate::body::DEFAULT_LIMIT;
use crate::late::{AlreadyFailed, LateFailure, OnLate, Request, through};

/// Looks at the beginning of each answer and leaves what it says ([`BodyFacts`](crate::BodyFacts))
/// as a response extension, for the [rules](crate::llm) of every layer above. Belongs at the bottom
/// of the stack.
///
/// Each `Response<B>` becomes a `Response<PeekBody<B>>`, which gives back every frame that was looked
/// at, as it was, and then the rest of the body.
///
/// | answer | is held back until |
/// |---|---|
/// | server-sent events, or JSON values one after the other | the first one that is no preamble (a greeting, a ping, a role), whether it brings tokens or an error |
/// | a JSON document | its end |
/// | a failure (status 400 and above) | the same; what is no JSON is passed on at once |
/// | success of another type than JSON or events, to another method than POST, or encoded (`content-encoding`) | not at all |
///
/// Each of them at most for the limit in bytes and in time; then it goes on, judged by what was read
/// so far. A body that ends or breaks before it has said anything for the caller is a failure
/// (`Transient`): nothing has reached the caller, so the request may be repeated.
///
/// Behind the first tokens the stream is still read as it passes, without holding anything back: an
/// error event, a refusal or a broken body is a `tracing` warning, and goes to whom
/// [`report_through`](Self::report_through) and [`on_late_failure`](Self::on_late_failure) name.
/// The call is over then, and nothing is repeated.
///
/// # Cancel safety
/// A call that is dropped drops what was read.
#[derive(Clone)]
pub struct PeekLayer {
    pub(super) settings: Settings,
}

#[derive(Clone)]
pub(super) struct Settings {
    pub(super) limit: usize,
    pub(super) time: Duration,
    pub(super) on_late: Option<Arc<OnLate>>,
}

impl PeekLayer {
    /// Holds back at most 64 KiB, for at most 10 s.
    #[must_use]
    pub const fn new() -> Self {
        let time = Duration::from_secs(10);
        Self { settings: Settings { limit: DEFAULT_LIMIT, time, on_late: None } }
    }

    /// How many bytes of an answer are looked at before it goes on. Of a longer JSON answer the end,
    /// where most providers say why the model stopped, is seen too late for another attempt.
    ///
    /// # Errors
    /// A limit of zero.
    pub fn limit(mut self, bytes: usize) -> Result<Self, ConfigError> {
        if bytes == 0 {
            return Err(ConfigError::new("limit", 0, "at least 1; else leave the layer out"));
        }
        self.settings.limit = bytes;
        Ok(self)
    }

    /// How long an answer may take to say something before it goes on, from its head on. A model
    /// that thinks longer is still heard when it fails, but not asked again.
    ///
    /// # Errors
    /// A time of zero.
    pub fn time(mut self, time: Duration) -> Result<Self, ConfigError> {
        if time.is_zero() {
            return Err(ConfigError::new(
                "time",
                "0s",
                "longer than zero; else leave the layer out",
            ));
        }
        self.settings.time = time;
        Ok(self)
    }

    /// Calls `f` when an answer fails whose beginning was passed on already. It runs where the body
    /// is read, so it must not block.
    #[must_use]
    pub fn on_late_failure(self, f: impl Fn(&LateFailure) + Send + Sync + 'static) -> Self {
        self.and_then(Arc::new(move |late| {
            f(late);
            None
        }))
    }

    /// Plays each late failure as a failed call through `layers`, one or several: those of the
    /// stack that should hear of it. A circuit breaker counts it, a desk hears of it, and observers
    /// get its incident. What waits is driven on by whoever reads the body.
    ///
    /// The call is of the method and target of the request that was answered, with an empty body;
    /// do not put a retry among the layers.
    ///
    /// ```
    /// use tower_triage_circuit_breaker::CircuitBreakerLayer;
    /// use tower_triage_core::Classifier;
    /// use tower_triage_llm::{PeekLayer, llm};
    ///
    /// let breaker = CircuitBreakerLayer::new(Classifier::new(llm())).name("model");
    /// let peek = PeekLayer::new().report_through(breaker.clone()); // shares the breaker's state
    /// # let _ = peek;
    /// ```
    #[must_use]
    pub fn report_through<L>(self, layers: L) -> Self
    where
        L: Layer<AlreadyFailed> + Send + Sync + 'static,
        L::Service:
            Service<Request, Response = http::Response<()>, Error = AnyError> + Send + 'static,
        <L::Service as Service<Request>>::Future: Send + 'static,
    {
        self.and_then(Arc::new(move |late| through(&layers, late)))
    }

    fn and_then(mut self, next: Arc<OnLate>) -> Self {
        self.settings.on_late = Some(match self.settings.on_late.take() {
            None => next,
            Some(first) => Arc::new(move |late| match (first(late), next(late)) {
                (Some(first), Some(next)) => Some(Box::pin(async move {
                    first.await;
                    next.await;
                })),
                (first, next) => first.or(next),
            }),
        });
        self
    }
}

impl Default for PeekLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl<S> Layer<S> for PeekLayer {
    type Service = Peek<S>;

    fn layer(&self, inner: S) -> Peek<S> {
        Peek { inner, settings: self.settings.clone() }
    }
}

impl fmt::Debug for PeekLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.settings, f)
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeekLayer")
            .field("limit", &self.limit)
            .field("time", &self.time)
            .finish_non_exhaustive()
    }
}

/// The service that [`PeekLayer`] makes.
#[derive(Clone, Debug)]
pub struct Peek<S> {
    inner: S,
    settings: Settings,
}

impl<S, ReqBody, B> Service<http::Request<ReqBody>> for Peek<S>
where
    S: Service<http::Request<ReqBody>, Response = http::Response<B>>,
    B: Body<Data = Bytes> + Unpin,
{
    type Response = http::Response<PeekBody<B>>;
    type Error = S::Error;
    type Future = PeekFuture<S::Future, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<ReqBody>) -> Self::Future {
        let asked = Asked {
            method: request.method().clone(),
            // Only whoever hears of late failures wants to know the target.
            uri: self.settings.on_late.is_some().then(|| request.uri().clone()),
        };
        PeekFuture::new(self.inner.call(request), asked, self.settings.clone())
    }
}

/// What is kept of the request.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) uri: Option<http::Uri>,
}
