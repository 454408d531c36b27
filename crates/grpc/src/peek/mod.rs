//! Looks at the first frame of an answer, so that a status in the trailers is known in time.

mod body;
mod future;

pub use self::{body::PeekBody, future::PeekFuture};

use std::task::{Context, Poll};
use std::time::Duration;

use http::HeaderMap;
use http_body::Body;
use tower_layer::Layer;
use tower_service::Service;
use tower_triage_core::{ClassifyError, Failure, Operation};

use crate::errors::GrpcErrors;
use crate::request::Method;
use crate::rules::deadline_of;

/// Response extension: how an answer went on that did not begin with data. Left by a [`PeekLayer`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Peeked {
    /// With trailers: it is over.
    Trailers(HeaderMap),
    /// With nothing: it is over, without a status.
    End,
    /// It broke off.
    Failed(Failure),
}

/// Response extension: the answer came when the time of its call was up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeadlinePassed;

/// Looks at the first frame of each answer whose status is not in the headers, and belongs at the
/// bottom of a client's stack. The layers above then see a status in the trailers as they see one in
/// the headers, while nothing was handed to the caller: it can still be repeated.
///
/// - An answer that starts with data is passed on at once, and untouched. One that starts with
///   neither is passed on after [`wait`](Self::wait): a stream may begin late, and a stream in both
///   directions may wait for our first message.
/// - A frame of data without a byte says nothing, and is left out.
/// - CANCELLED after the call's deadline is marked as what it means: DEADLINE_EXCEEDED.
/// - HTTP/2 only; elsewhere nothing is looked at.
/// - Details that are no base64 are taken away, because tonic's client panics on them.
/// - What goes wrong later, after the first message, belongs to the caller, who gets it unchanged. It
///   is logged as a warning.
///
/// ```
/// use tonic::transport::Endpoint;
/// use tower::ServiceBuilder;
/// use tower_triage_grpc::PeekLayer;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// let channel = Endpoint::from_static("http://[::1]:50051").connect_lazy();
/// let stack = ServiceBuilder::new().layer(PeekLayer::new()).service(channel);
/// # let _ = stack;
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct PeekLayer {
    wait: Duration,
}

impl PeekLayer {
    /// Waits for at most 100 ms.
    #[must_use]
    pub const fn new() -> Self {
        Self { wait: Duration::from_millis(100) }
    }

    /// How long headers are held back until the first frame comes. Frames that a server sends
    /// together come together, so this is for slow networks. Zero: only what is there already is
    /// looked at.
    #[must_use]
    pub const fn wait(mut self, wait: Duration) -> Self {
        self.wait = wait;
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
        Peek { inner, wait: self.wait }
    }
}

/// The service that [`PeekLayer`] makes.
#[derive(Clone, Copy, Debug)]
pub struct Peek<S> {
    inner: S,
    wait: Duration,
}

impl<S, ReqBody, B> Service<http::Request<ReqBody>> for Peek<S>
where
    S: Service<http::Request<ReqBody>, Response = http::Response<B>>,
    B: Body + Unpin,
    GrpcErrors: ClassifyError<B::Error>,
{
    type Response = http::Response<PeekBody<B>>;
    type Error = S::Error;
    type Future = PeekFuture<S::Future, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<ReqBody>) -> Self::Future {
        let operation = Method::of(&request).map_or(Operation::EMPTY, Method::operation);
        let deadline = deadline_of(&request);
        PeekFuture::new(self.inner.call(request), operation, self.wait, deadline)
    }
}
