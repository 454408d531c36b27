//! What is called, and how it behaves.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use rand::RngExt;
use rand::rngs::StdRng;
use tower::Service;
use tower_triage::{AnyError, Chain, ClassifyError, ErrorClass, Failure, Note};

/// A request; its copies share what happened to it.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// Decides how each attempt goes.
    dice: u64,
    met: Arc<Met>,
}

#[derive(Debug, Default)]
struct Met {
    attempts: AtomicU32,
    failures: AtomicU32,
}

impl Call {
    pub(super) fn random(rng: &mut StdRng) -> Self {
        Self { dice: rng.random(), met: Arc::default() }
    }

    /// Did any layer see a failure of it?
    pub(super) fn met_failure(&self) -> bool {
        self.met.failures.load(Ordering::SeqCst) > 0
    }

    /// A number for the next attempt.
    fn roll(&self) -> u64 {
        let attempt = u64::from(self.met.attempts.fetch_add(1, Ordering::Relaxed));
        (self.dice ^ attempt).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32
    }
}

/// Who answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Dependency,
    Fallback,
}

/// A failure that says its class.
#[derive(Debug)]
struct Fault(ErrorClass);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failed: {}", self.0)
    }
}

impl std::error::Error for Fault {}

/// Faults by what they say, everything else by its chain.
#[derive(Debug)]
pub(super) struct ByFault;

impl ClassifyError<AnyError> for ByFault {
    fn error(&self, error: &AnyError) -> Failure {
        match error.downcast_ref::<Fault>() {
            Some(Fault(class)) => (*class).into(),
            None => Chain.error(error),
        }
    }

    fn annotate(&self, error: &mut AnyError, note: &Note) -> bool {
        Chain.annotate(error, note)
    }

    fn explain(&self, error: &AnyError, out: &mut dyn fmt::Write) {
        Chain.explain(error, out);
    }
}

/// Mostly well; sometimes slow, failing, or hanging for ever.
#[derive(Clone, Debug)]
pub(super) struct Dependency;

impl Service<Call> for Dependency {
    type Response = Answer;
    type Error = AnyError;
    type Future = BoxFuture<'static, Result<Answer, AnyError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), AnyError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: Call) -> Self::Future {
        let roll = call.roll();
        async move {
            match roll / 1000 % 10 {
                0..6 => {}
                6..9 => tokio::time::sleep(Duration::from_micros(roll / 10_000 % 2000)).await,
                _ => tokio::task::yield_now().await,
            }
            let class = match roll % 1000 {
                0..5 => return std::future::pending().await,
                5..120 => ErrorClass::Transient,
                120..150 => ErrorClass::Throttled,
                150..180 => ErrorClass::Contention,
                180..190 => ErrorClass::Internal,
                190..200 => ErrorClass::Permanent,
                200..205 => ErrorClass::Quota,
                _ => return Ok(Answer::Dependency),
            };
            Err(AnyError::from(Fault(class)))
        }
        .boxed()
    }
}

/// Stands between two layers: counts the calls that pass down, and tells the call of each failure
/// that passes up.
#[derive(Clone, Debug)]
pub(super) struct Witness<S> {
    pub(super) inner: S,
    pub(super) calls: Arc<AtomicU64>,
}

impl<S> Service<Call> for Witness<S>
where
    S: Service<Call, Response = Answer, Error = AnyError>,
    S::Future: Send + 'static,
{
    type Response = Answer;
    type Error = AnyError;
    type Future = BoxFuture<'static, Result<Answer, AnyError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AnyError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, call: Call) -> Self::Future {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let met = Arc::clone(&call.met);
        let outcome = self.inner.call(call);
        outcome
            .inspect(move |outcome| {
                if outcome.is_err() {
                    met.failures.fetch_add(1, Ordering::SeqCst);
                }
            })
            .boxed()
    }
}
