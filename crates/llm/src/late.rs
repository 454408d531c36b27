//! Failures of answers that had begun: the call is over, but somebody should hear of it.

use std::fmt;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Method, Uri};
use tower_layer::Layer;
use tower_service::Service;
use tower_triage_core::incident::detached;
use tower_triage_core::{AnyError, Failure, Note, Verdict};

/// A failure that showed when the answer had begun to reach the caller.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LateFailure {
    /// What happened: as it would have been judged before the first token.
    pub failure: Failure,
    /// The method of the request that was being answered.
    pub method: Method,
    /// Its target.
    pub uri: Uri,
}

impl LateFailure {
    pub(crate) const fn new(failure: Failure, method: Method, uri: Uri) -> Self {
        Self { failure, method, uri }
    }
}

/// A request without a body, as which a late failure is played through layers.
pub(crate) type Request = http::Request<()>;

/// What a hook leaves to be driven on.
pub(crate) type Reporting = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Hears of late failures.
pub(crate) type OnLate = dyn Fn(&LateFailure) -> Option<Reporting> + Send + Sync;

/// Plays `late` as a failed call through `layers`; gives what is left to do.
pub(crate) fn through<L>(layers: &L, late: &LateFailure) -> Option<Reporting>
where
    L: Layer<AlreadyFailed>,
    L::Service: Service<Request, Response = http::Response<()>, Error = AnyError> + Send + 'static,
    <L::Service as Service<Request>>::Future: Send + 'static,
{
    let mut service = layers.layer(AlreadyFailed { failure: late.failure });
    let mut request = http::Request::new(());
    *request.method_mut() = late.method.clone();
    *request.uri_mut() = late.uri.clone();
    // A call of its own: its steps are none of whoever happens to read the body.
    Some(Box::pin(detached(async move {
        if std::future::poll_fn(|cx| service.poll_ready(cx)).await.is_ok() {
            // That it fails is what it is for.
            let _ = service.call(request).await;
        }
    })))
}

/// The innermost service under [`PeekLayer::report_through`](crate::PeekLayer::report_through): its
/// call has failed already.
#[derive(Clone, Copy, Debug)]
pub struct AlreadyFailed {
    failure: Failure,
}

impl Service<Request> for AlreadyFailed {
    type Response = http::Response<()>;
    type Error = AnyError;
    type Future = Ready<Result<Self::Response, AnyError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), AnyError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Request) -> Self::Future {
        let mut error = AnyError::from(AnswerFailed { reason: self.failure.reason });
        error.annotate(&Note::Verdict(Verdict::Failure(self.failure)));
        ready(Err(error))
    }
}

/// The error of a call whose answer failed after it had begun.
#[derive(Clone, Copy, Debug)]
struct AnswerFailed {
    reason: &'static str,
}

impl fmt::Display for AnswerFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the answer failed after it had begun ({})", self.reason)
    }
}

impl std::error::Error for AnswerFailed {}
