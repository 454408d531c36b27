//! What becomes of a response's body once the response was returned.

mod future;
mod layer;

pub use self::{
    future::WatchFuture,
    layer::{WatchBodies, WatchBodyLayer},
};

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tower_triage_core::incident::{LayerKind, Scope, StepKind};
use tower_triage_core::share::Held;
use tower_triage_core::{
    Classifier, Classify, Disposition, ErrorClass, Failure, Operation, Refusal, Verdict,
};

const LAYER: LayerKind = LayerKind::ResponseBody;

pin_project! {
    /// The body of a response that was returned. It passes every frame and every error as it is; if it
    /// breaks off, it tells: an incident of its own goes to the observers of the classifier, with the
    /// refusal to repeat ([`Refusal::Committed`]), for the caller has the response already.
    ///
    /// A body that ends before its declared length without an error is told of too (hyper takes an
    /// RST_STREAM with NO_ERROR or CANCEL for an end); the caller sees the end, as before.
    ///
    /// Made by [`WatchBodyLayer`], or by [`WatchedBody::new`] where a client has bodies of its own.
    ///
    /// # Cancel safety
    /// Dropped midway nothing is told: the caller has had enough.
    pub struct WatchedBody<B, R> {
        #[pin]
        body: B,
        watch: Option<Watch<R>>,
    }
}

/// What is needed once, if the body breaks off.
struct Watch<R> {
    classifier: Held<Classifier<R>>,
    operation: Operation,
    status: StatusCode,
    /// Of the declared length, if there is one.
    bytes_left: Option<u64>,
}

impl<B: Body, R> WatchedBody<B, R> {
    /// Watches over `body`, which came with `status` as the answer to `operation`.
    pub fn new(
        body: B,
        status: StatusCode,
        operation: Operation,
        classifier: Held<Classifier<R>>,
    ) -> Self {
        let bytes_left = body.size_hint().exact();
        // Nothing can be wrong with what is not there.
        let there = !body.is_end_stream();
        let watch = there.then_some(Watch { classifier, operation, status, bytes_left });
        Self { body, watch }
    }
}

impl<B, R> Body for WatchedBody<B, R>
where
    B: Body,
    R: Classify<http::Response<()>, B::Error>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let frame = ready!(this.body.poll_frame(cx));
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                let length = frame.data_ref().map_or(0, Buf::remaining);
                if let Some(left) = this.watch.as_mut().and_then(|watch| watch.bytes_left.as_mut())
                {
                    *left = left.saturating_sub(u64::try_from(length).unwrap_or(u64::MAX));
                }
                Some(Ok(frame))
            }
            Some(Err(error)) => Some(Err(match this.watch.take() {
                Some(watch) => watch.broke_off(error),
                None => error,
            })),
            None => {
                if let Some(watch) = this.watch.take().filter(Watch::is_short) {
                    watch.ended_early();
                }
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<R> Watch<R> {
    fn is_short(&self) -> bool {
        self.bytes_left.is_some_and(|left| left > 0)
    }

    /// An incident of one failed attempt that is not repeated.
    #[cold]
    fn tell<E>(
        &self,
        failure: Failure,
        mut outcome: Result<http::Response<()>, E>,
    ) -> Result<http::Response<()>, E>
    where
        R: Classify<http::Response<()>, E>,
    {
        let Self { classifier, operation, .. } = self;
        let mut scope = Scope::join();
        let entered = scope.enter();
        classifier.note_failure(operation, LAYER, failure, outcome.as_ref());
        classifier.step(operation, LAYER, StepKind::NotRetried { why: Refusal::Committed });
        classifier.finish(entered, false, &mut outcome);
        outcome
    }

    /// Gives the error back, with the incident if it has a place for one.
    #[cold]
    fn broke_off<E>(self, error: E) -> E
    where
        R: Classify<http::Response<()>, E>,
    {
        let verdict = self.classifier.judge(&self.operation, Err(&error));
        let failure = match verdict {
            Verdict::Failure(failure) => failure,
            // It is an error, whatever the rules say.
            Verdict::Success => ErrorClass::Unknown.into(),
        };
        match self.tell(failure, Err(error)) {
            Err(error) => error,
            Ok(_) => unreachable!("an error stays one"),
        }
    }

    #[cold]
    fn ended_early<E>(self)
    where
        R: Classify<http::Response<()>, E>,
    {
        let failure = Failure::new(ErrorClass::Transient)
            .disposition(Disposition::MaybeProcessed)
            .reason("body_ended_early");
        let mut head = http::Response::new(());
        *head.status_mut() = self.status;
        // Nobody but the observers hears of it.
        let _ = self.tell(failure, Ok(head));
    }
}

impl<B: fmt::Debug, R> fmt::Debug for WatchedBody<B, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedBody").field("body", &self.body).finish_non_exhaustive()
    }
}
