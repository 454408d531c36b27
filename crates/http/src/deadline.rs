//! One deadline for a whole call, carried in its request.

use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;
use tower_layer::Layer;
use tower_service::Service;
use tower_triage_core::ConfigError;

use crate::marks::Deadline;

/// Gives each request a [`Deadline`], so long after its call began; of two deadlines the earlier one
/// counts. Belongs above every layer that looks at deadlines: retry (no wait and no attempt that could
/// not end before it), time limit (the smaller of its limit and the time left), and whatever reads the
/// extension.
///
/// ```
/// use std::time::Duration;
/// use tower_triage_http::DeadlineLayer;
///
/// let layer = DeadlineLayer::new(Duration::from_secs(10))?;
/// assert_eq!(DeadlineLayer::new(Duration::ZERO).unwrap_err().field(), "deadline");
/// # let _ = layer;
/// # Ok::<_, tower_triage_core::ConfigError>(())
/// ```
///
/// It ends nothing by itself. A retry's own `deadline` is the same for the retry alone: layers below
/// hear of it with the second attempt.
#[derive(Clone, Copy, Debug)]
pub struct DeadlineLayer {
    after: Duration,
}

impl DeadlineLayer {
    /// Whoever called waits so long.
    ///
    /// # Errors
    /// If it is zero: nothing could be answered in time.
    pub fn new(after: Duration) -> Result<Self, ConfigError> {
        if after.is_zero() {
            return Err(ConfigError::new("deadline", "0s", "must be longer than zero"));
        }
        Ok(Self { after })
    }
}

impl<S> Layer<S> for DeadlineLayer {
    type Service = Deadlines<S>;

    fn layer(&self, inner: S) -> Deadlines<S> {
        Deadlines { inner, after: self.after }
    }
}

/// The service that [`DeadlineLayer`] makes. Its future is the inner service's.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines<S> {
    inner: S,
    after: Duration,
}

impl<S, B> Service<http::Request<B>> for Deadlines<S>
where
    S: Service<http::Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: http::Request<B>) -> S::Future {
        // What no clock can tell never passes.
        if let Some(deadline) = Instant::now().checked_add(self.after) {
            Deadline(deadline).put_into(request.extensions_mut());
        }
        self.inner.call(request)
    }
}
