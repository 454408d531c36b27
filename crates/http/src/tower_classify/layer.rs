//! A classifier of tower-http's that looks at requests, for our layers above.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_http::classify::MakeClassifier;
use tower_layer::Layer;
use tower_service::Service;
use tower_triage_core::{AnyError, Failure, Note, Notes};

use super::theirs::{own_failure, verdict_of};

/// Asks a classifier of tower-http's, made for each request, and stamps its verdict on the outcome: the
/// layers above, with any HTTP rules, believe it. Belongs below them all, right above the client or the
/// handler.
///
/// For a classifier that does not look at requests the rules of
/// [`by_make_classifier`](crate::by_make_classifier) do without a layer.
///
/// ```
/// use tower_http::classify::{MakeClassifier, NeverClassifyEos, StatusInRangeAsFailures};
/// use tower_triage_core::{ErrorClass, Failure};
/// use tower_triage_http::MakeClassifierLayer;
///
/// /// On a search path a 404 is a failure.
/// #[derive(Clone)]
/// struct ByPath;
///
/// impl MakeClassifier for ByPath {
///     type Classifier = StatusInRangeAsFailures;
///     type FailureClass = <StatusInRangeAsFailures as tower_http::classify::ClassifyResponse>::FailureClass;
///     type ClassifyEos = NeverClassifyEos<Self::FailureClass>;
///
///     fn make_classifier<B>(&self, request: &http::Request<B>) -> StatusInRangeAsFailures {
///         let from = if request.uri().path() == "/search" { 404 } else { 500 };
///         StatusInRangeAsFailures::new(from..=599)
///     }
/// }
///
/// let layer = MakeClassifierLayer::new(ByPath, |_| Failure::from(ErrorClass::Transient));
/// # let _ = layer;
/// ```
///
/// The error type of the service must be able to carry a stamp: [`AnyError`], or `Infallible`.
#[derive(Clone, Copy)]
pub struct MakeClassifierLayer<M, F> {
    make: M,
    to_failure: F,
}

impl<M, F> MakeClassifierLayer<M, F>
where
    M: MakeClassifier,
    F: Fn(M::FailureClass) -> Failure,
{
    /// What `make` calls a failure has the class that `to_failure` makes of its own.
    pub const fn new(make: M, to_failure: F) -> Self {
        Self { make, to_failure }
    }
}

impl<S, M: Clone, F: Clone> Layer<S> for MakeClassifierLayer<M, F> {
    type Service = MakeClassifierService<S, M, F>;

    fn layer(&self, inner: S) -> Self::Service {
        MakeClassifierService {
            inner,
            make: self.make.clone(),
            to_failure: self.to_failure.clone(),
        }
    }
}

/// The service that [`MakeClassifierLayer`] makes.
#[derive(Clone, Copy)]
pub struct MakeClassifierService<S, M, F> {
    inner: S,
    make: M,
    to_failure: F,
}

impl<S, M, F, ReqB, B> Service<http::Request<ReqB>> for MakeClassifierService<S, M, F>
where
    S: Service<http::Request<ReqB>, Response = http::Response<B>>,
    S::Error: Stamped,
    M: MakeClassifier,
    F: Fn(M::FailureClass) -> Failure + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = StampFuture<S::Future, M::Classifier, F>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<ReqB>) -> Self::Future {
        let by = Some((self.make.make_classifier(&request), self.to_failure.clone()));
        StampFuture { inner: self.inner.call(request), by }
    }
}

/// Errors that can carry a verdict, or cannot be.
#[diagnostic::on_unimplemented(
    message = "an error of type `{Self}` cannot carry a verdict",
    note = "map the error below the layer: `.map_err(AnyError::from)`"
)]
pub trait Stamped {
    /// Puts the verdict that `judge` gives on it.
    fn stamp(&mut self, judge: impl FnOnce(&AnyError) -> Failure);
}

impl Stamped for AnyError {
    fn stamp(&mut self, judge: impl FnOnce(&Self) -> Failure) {
        let failure = own_failure(self).unwrap_or_else(|| judge(self));
        self.annotate(&Note::Verdict(failure.into()));
    }
}

impl Stamped for std::convert::Infallible {
    fn stamp(&mut self, _judge: impl FnOnce(&AnyError) -> Failure) {
        match *self {}
    }
}

pin_project! {
    /// The future of [`MakeClassifierService`].
    pub struct StampFuture<Fut, C, F> {
        #[pin]
        inner: Fut,
        by: Option<(C, F)>,
    }
}

impl<Fut, C, F, B, E> Future for StampFuture<Fut, C, F>
where
    Fut: Future<Output = Result<http::Response<B>, E>>,
    C: tower_http::classify::ClassifyResponse,
    F: Fn(C::FailureClass) -> Failure,
    E: Stamped,
{
    type Output = Fut::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut outcome = ready!(this.inner.poll(cx));
        let (classifier, to_failure) = this.by.take().expect("polled after it was ready");
        match &mut outcome {
            Ok(response) => {
                let verdict = verdict_of(classifier, to_failure, response);
                let notes = response.extensions_mut().get_or_insert_default::<Notes>();
                notes.add(&Note::Verdict(verdict));
            }
            Err(error) => error.stamp(|error| to_failure(classifier.classify_error(error))),
        }
        Poll::Ready(outcome)
    }
}

impl<M, F> fmt::Debug for MakeClassifierLayer<M, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MakeClassifierLayer({})", std::any::type_name::<M>())
    }
}

impl<S: fmt::Debug, M, F> fmt::Debug for MakeClassifierService<S, M, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MakeClassifierService").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<Fut: fmt::Debug, C, F> fmt::Debug for StampFuture<Fut, C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StampFuture").field("inner", &self.inner).finish_non_exhaustive()
    }
}
