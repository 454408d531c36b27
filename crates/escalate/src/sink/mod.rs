//! Where escalations end up: any tower service that takes one.

mod channel;
mod given_up;
mod json_lines;
mod log;
mod replay;

pub use self::{
    channel::{ChannelClosed, ChannelSink},
    given_up::GivenUp,
    json_lines::{JsonLinesError, JsonLinesSink},
    log::LogSink,
    replay::{ReplayError, Replayed},
};

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tower_service::Service;
use tower_triage_core::BoxError;

use crate::Escalation;

type Sending = Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

/// A sink, its type erased.
///
/// It may be wrapped in our own layers (a retry, a breaker): what they do is not part of the
/// incident that is being told of.
#[derive(Clone)]
pub struct Sink {
    name: &'static str,
    service: Arc<dyn Erased>,
}

/// What can be a sink: a `Service<Escalation, Response = ()>` that is `Clone + Send + Sync +
/// 'static`, with a `Send` future and an error that can be boxed. Implemented for all of them.
///
/// Answering `Ok` promises that the escalation is where it should be; the same one may come again
/// with the same id after an error, unless that is a [`GivenUp`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a sink for escalations",
    note = "a sink is a `Service<Escalation, Response = ()>` that is `Clone + Send + Sync + 'static`; its future must be `Send`, its error `Into<BoxError>`"
)]
pub trait IntoSink {
    /// The same, its type erased.
    fn into_sink(self) -> Sink;
}

#[diagnostic::do_not_recommend]
impl<S> IntoSink for S
where
    S: Service<Escalation, Response = (), Future: Send, Error: Into<BoxError>>,
    S: Clone + Send + Sync + 'static,
{
    fn into_sink(self) -> Sink {
        Sink { name: std::any::type_name::<S>(), service: Arc::new(self) }
    }
}

trait Erased: Send + Sync {
    fn send(&self, escalation: Escalation) -> Sending;
}

impl<S> Erased for S
where
    S: Service<Escalation, Response = (), Future: Send, Error: Into<BoxError>>,
    S: Clone + Send + Sync + 'static,
{
    fn send(&self, escalation: Escalation) -> Sending {
        let mut service = self.clone();
        Box::pin(async move {
            poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
            service.call(escalation).await.map_err(Into::into)
        })
    }
}

impl Sink {
    pub(crate) const fn name(&self) -> &'static str {
        self.name
    }

    /// Sends within `limit`. A sink that panics has failed; it is user code, and other receivers
    /// must not suffer from it.
    pub(crate) async fn send(
        &self,
        escalation: &Escalation,
        limit: Duration,
    ) -> Result<(), BoxError> {
        let caught = |send: &mut dyn FnMut() -> Poll<Result<(), BoxError>>| {
            catch_unwind(AssertUnwindSafe(send))
                .unwrap_or_else(|_| Poll::Ready(Err("the sink panicked".into())))
        };
        let mut sending = None;
        let sending = poll_fn(|cx| {
            caught(&mut || {
                sending
                    .get_or_insert_with(|| self.service.send(escalation.clone()))
                    .as_mut()
                    .poll(cx)
            })
        });
        tokio::time::timeout(limit, sending).await?
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sink({})", self.name)
    }
}
