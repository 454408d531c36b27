//! A classifier that is asked, once per attempt outcome: remote, learned or body-peeking.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use crate::classifier::Classifier;
use crate::config::ConfigError;
use crate::describe::Describe;
use crate::incident::detached;
use crate::label::Operation;
use crate::note::{Note, StampOutcome};
use crate::observation::Observation;
use crate::verdict::Verdict;

/// Asks a classifying service about each failed outcome, once, and stamps its verdict on the
/// outcome, so that every layer above believes it. Put it at the bottom of the stack, below the
/// breaker. Only needed where classifying is not a cheap, pure function.
///
/// The service gets an [`Observation`], never the outcome itself: it may fail or be late (the
/// default limit is 250 ms), and then the local verdict stands. Both sides of the outcome must be
/// able to carry a verdict ([`StampOutcome`]), else the layer does not compile.
///
/// # Cancel safety
/// A call that is dropped drops the question with it.
#[derive(Debug)]
pub struct ClassifyLayer<R, J> {
    classifier: Classifier<R>,
    judge: J,
    limit: Duration,
}

impl<R, J> ClassifyLayer<R, J> {
    /// Default for how long the classifying service may take.
    pub const DEFAULT_LIMIT: Duration = Duration::from_millis(250);

    /// Asks `judge`, a `Service<Observation, Response = Verdict>`, about each failure.
    #[must_use]
    pub const fn new(classifier: Classifier<R>, judge: J) -> Self {
        Self { classifier, judge, limit: Self::DEFAULT_LIMIT }
    }

    /// How long the service may take, readiness included, before the local verdict stands.
    ///
    /// # Errors
    /// A limit of zero, which would never let it answer.
    pub fn limit(mut self, limit: Duration) -> Result<Self, ConfigError> {
        if limit.is_zero() {
            return Err(ConfigError::new(
                "limit",
                "0",
                "must be longer than zero; without a judge leave the layer out",
            ));
        }
        self.limit = limit;
        Ok(self)
    }
}

impl<R, J: Clone> Clone for ClassifyLayer<R, J> {
    fn clone(&self) -> Self {
        Self { classifier: self.classifier.clone(), judge: self.judge.clone(), limit: self.limit }
    }
}

impl<S, R, J: Clone> Layer<S> for ClassifyLayer<R, J> {
    type Service = ClassifyService<S, R, J>;

    fn layer(&self, inner: S) -> Self::Service {
        ClassifyService { inner, layer: self.clone() }
    }
}

/// The service that [`ClassifyLayer`] makes.
#[derive(Debug)]
pub struct ClassifyService<S, R, J> {
    inner: S,
    layer: ClassifyLayer<R, J>,
}

impl<S: Clone, R, J: Clone> Clone for ClassifyService<S, R, J> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<S, R, J, Req> Service<Req> for ClassifyService<S, R, J>
where
    S: Service<Req>,
    R: StampOutcome<S::Response, S::Error> + Describe<Req>,
    J: Service<Observation, Response = Verdict> + Clone + Send + 'static,
    J::Future: Send,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ClassifyFuture<S::Future, S::Response, S::Error, R, J>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let operation = self.layer.classifier.rules().operation(&request);
        // The flag of the call stays up as it is: this layer records nothing of its own.
        let future = self.inner.call(request);
        ClassifyFuture { operation, layer: self.layer.clone(), state: State::Calling { future } }
    }
}

type Asking = Pin<Box<dyn Future<Output = Option<Verdict>> + Send>>;

pin_project! {
    /// The future of [`ClassifyService`].
    pub struct ClassifyFuture<F, Res, E, R, J> {
        operation: Operation,
        layer: ClassifyLayer<R, J>,
        #[pin]
        state: State<F, Res, E>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, Res, E> {
        Calling { #[pin] future: F },
        Asking { question: Asking, outcome: Option<Result<Res, E>> },
    }
}

impl<F, Res, E, R, J> Future for ClassifyFuture<F, Res, E, R, J>
where
    F: Future<Output = Result<Res, E>>,
    R: StampOutcome<Res, E>,
    J: Service<Observation, Response = Verdict> + Clone + Send + 'static,
    J::Future: Send,
{
    type Output = Result<Res, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                StateProj::Calling { future } => {
                    let outcome = ready!(future.poll(cx));
                    let classifier = &this.layer.classifier;
                    let Verdict::Failure(local) =
                        classifier.judge(this.operation, outcome.as_ref())
                    else {
                        return Poll::Ready(outcome);
                    };
                    let text = classifier.explain(outcome.as_ref());
                    let observation = Observation::new(*this.operation, local, text.into());
                    let question = ask(this.layer.judge.clone(), this.layer.limit, observation);
                    this.state.set(State::Asking { question, outcome: Some(outcome) });
                }
                StateProj::Asking { question, outcome } => {
                    let verdict = ready!(question.as_mut().poll(cx));
                    let mut outcome = outcome.take().expect("polled after it was ready");
                    if let Some(verdict) = verdict {
                        this.layer
                            .classifier
                            .annotate(&mut outcome, &Note::Verdict(verdict.stamped()));
                    }
                    return Poll::Ready(outcome);
                }
            }
        }
    }
}

/// The judge's verdict, or `None` if it failed or took too long. Runs outside the call's scope.
fn ask<J>(mut judge: J, limit: Duration, observation: Observation) -> Asking
where
    J: Service<Observation, Response = Verdict> + Send + 'static,
    J::Future: Send,
{
    let question = async move {
        std::future::poll_fn(|cx| judge.poll_ready(cx)).await.ok()?;
        judge.call(observation).await.ok()
    };
    Box::pin(detached(async move {
        match tokio::time::timeout(limit, question).await {
            Ok(Some(verdict)) => Some(verdict),
            Ok(None) => {
                tracing::warn!("the classifying service failed; the local verdict stands");
                None
            }
            Err(_) => {
                tracing::warn!(
                    ?limit,
                    "the classifying service was late; the local verdict stands"
                );
                None
            }
        }
    }))
}

impl<F, Res, E, R, J> fmt::Debug for ClassifyFuture<F, Res, E, R, J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClassifyFuture").finish_non_exhaustive()
    }
}
