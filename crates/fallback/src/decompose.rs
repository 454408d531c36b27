//! One request as many: split, run the parts, merge.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::stream::{self, Buffered, Collect, StreamExt};
use pin_project_lite::pin_project;
use tower_service::Service;
use tower_triage_core::ConfigError;

use crate::steps::OneCall;

/// A service that splits each request, sends the parts to `service`, and merges what came of them:
/// for work that is too large for one call. A backup for
/// [`or_service`](crate::FallbackLayer::or_service), or a service of its own.
///
/// `split` makes the parts; `merge` gets one outcome per part, in their order, and says what it makes
/// of those that failed. Give `service` layers of its own (retry, breaker, fallback): parts that fail
/// go through them by themselves.
///
/// ```
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_triage_core::{AnyError, AnyOk, Chain, Classifier, ErrorClass, Halves, Verdict, RulesExt};
/// use tower_triage_fallback::{FallbackLayer, decompose};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), AnyError> {
/// // Takes at most two numbers.
/// let sum = service_fn(async |numbers: Vec<u32>| match numbers.len() {
///     ..=2 => Ok(numbers.iter().sum::<u32>()),
///     _ => Err(AnyError::from(std::io::Error::from(std::io::ErrorKind::ArgumentListTooLong))),
/// });
/// let rules = Halves { response: AnyOk, error: Chain }.adjust(
///     |outcome: Result<&u32, &AnyError>, verdict| match outcome {
///         Err(_) => Verdict::from(ErrorClass::Declined),
///         Ok(_) => verdict,
///     },
/// );
/// let in_pairs = decompose(
///     sum,
///     |numbers: Vec<u32>| numbers.chunks(2).map(<[u32]>::to_vec).collect::<Vec<_>>(),
///     |sums: Vec<Result<u32, AnyError>>| sums.into_iter().sum::<Result<u32, AnyError>>(),
/// );
/// let stack = ServiceBuilder::new()
///     .layer(FallbackLayer::new(Classifier::new(rules)).or_service(ErrorClass::Declined, in_pairs))
///     .service(sum);
/// assert_eq!(stack.oneshot(vec![1, 2, 3, 4, 5]).await?, 15);
/// # Ok(()) }
/// ```
///
/// | setting | default |
/// |---|---|
/// | [`at_once`](Decompose::at_once) | 4 parts under way |
///
/// Each part is a call of its own: with its own incident, whose steps appear as nested in that of
/// the call which was split. Each is made on a clone of `service` that was polled ready for it.
///
/// # Cancel safety
/// With its future all parts are dropped that are under way, and the others are never begun.
pub fn decompose<S, F, G>(service: S, split: F, merge: G) -> Decompose<S, F, G> {
    Decompose { service, split, merge, at_once: 4 }
}

/// Splits requests and merges answers; see [`decompose`].
#[derive(Clone)]
pub struct Decompose<S, F, G> {
    service: S,
    split: F,
    merge: G,
    at_once: usize,
}

impl<S, F, G> Decompose<S, F, G> {
    /// How many parts of one request are under way at most.
    ///
    /// # Errors
    /// Zero.
    pub fn at_once(mut self, parts: usize) -> Result<Self, ConfigError> {
        if parts == 0 {
            return Err(ConfigError::new("at_once", 0, "nothing would ever run"));
        }
        self.at_once = parts;
        Ok(self)
    }
}

impl<Req, S, F, G, Parts, Res, E> Service<Req> for Decompose<S, F, G>
where
    F: Fn(Req) -> Parts,
    Parts: IntoIterator,
    S: Service<Parts::Item> + Clone,
    G: Fn(Vec<Result<S::Response, S::Error>>) -> Result<Res, E> + Clone,
{
    type Response = Res;
    type Error = E;
    type Future = ResponseFuture<S, Parts::IntoIter, G>;

    /// Always ready: each part waits for the readiness of its own clone.
    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), E>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let parts = (self.split)(request).into_iter();
        let calls = PartCalls { service: self.service.clone(), parts };
        let outcomes = stream::iter(calls).buffered(self.at_once).collect();
        ResponseFuture { outcomes, merge: self.merge.clone() }
    }
}

impl<S, F, G> fmt::Debug for Decompose<S, F, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decompose").field("at_once", &self.at_once).finish_non_exhaustive()
    }
}

/// A call for each part, made when there is room for it.
struct PartCalls<S, I> {
    service: S,
    parts: I,
}

impl<S: Service<I::Item> + Clone, I: Iterator> Iterator for PartCalls<S, I> {
    type Item = OneCall<S, I::Item>;

    fn next(&mut self) -> Option<Self::Item> {
        self.parts.next().map(|part| OneCall::on_its_own(self.service.clone(), part))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.parts.size_hint()
    }
}

type Outcomes<S, P> = Vec<Result<<S as Service<P>>::Response, <S as Service<P>>::Error>>;

pin_project! {
    /// The future of a [`Decompose`].
    pub struct ResponseFuture<S, I, G>
    where
        I: Iterator,
        S: Service<I::Item>,
        S: Clone,
    {
        #[pin]
        outcomes: Collect<Buffered<stream::Iter<PartCalls<S, I>>>, Outcomes<S, I::Item>>,
        merge: G,
    }
}

impl<S, I, G, Res, E> Future for ResponseFuture<S, I, G>
where
    I: Iterator,
    S: Service<I::Item> + Clone,
    G: Fn(Outcomes<S, I::Item>) -> Result<Res, E>,
{
    type Output = Result<Res, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let outcomes = ready!(this.outcomes.poll(cx));
        Poll::Ready((this.merge)(outcomes))
    }
}

impl<S, I, G> fmt::Debug for ResponseFuture<S, I, G>
where
    I: Iterator,
    S: Service<I::Item> + Clone,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
