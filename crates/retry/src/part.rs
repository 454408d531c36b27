//! The retry as a part of a fused stack.

use tower_triage_core::fuse::{Fusible, OutcomeOf, Part};
use tower_triage_core::incident::Scope;
use tower_triage_core::{Classifier, Classify, Describe, Operation, Sharing, Verdict};
use tracing::span;

pub use crate::begin::Begun;
use crate::future::{Call, ResponseFuture};
use crate::nudge::Nudge;
use crate::refresh::Refresh;
use crate::replay::{Release, Replay};
use crate::service::{Retry, Stock};
use crate::span::AttemptSpan;

impl<S, R, P, N, F, M> Part<R> for Retry<S, R, P, N, F, M>
where
    S: Part<R>,
    M: Sharing<Stock<S, R, P, N, F>>,
{
    type Cores = (M::Handle, S::Cores);
    const TELLS: bool = S::TELLS;

    fn cores(&self) -> Self::Cores {
        (self.stock.clone(), self.inner.cores())
    }

    fn is_fusible(&self, classifier: &Classifier<R>) -> bool {
        self.stock.core.classifier.is(classifier) && self.inner.is_fusible(classifier) && !S::TELLS
    }
}

impl<S, R, P, N, F, M, Req> Fusible<R, Req> for Retry<S, R, P, N, F, M>
where
    P: Replay<Req> + Release<S::Response>,
    S: Fusible<R, Req> + Clone,
    R: Classify<S::Response, S::Error> + Describe<Req>,
    N: Nudge<Req, S::Response, S::Error>,
    F: Refresh,
    M: Sharing<Stock<S, R, P, N, F>>,
{
    type Innermost = S::Innermost;
    type Kept = (Begun<P::Kept>, S::Kept);
    const NAMES_SUCCESSES: bool = S::NAMES_SUCCESSES;

    #[inline]
    fn is_ready(&self) -> bool {
        self.inner.is_ready()
    }

    #[inline]
    fn begin(
        &mut self,
        (stock, cores): &Self::Cores,
        request: &mut Req,
        (begun, inside): &mut Self::Kept,
    ) {
        begun.about = stock.core.read(request);
        begun.spending = stock.core.deposit();
        begun.kept = stock.core.keep(&begun.about, request);
        begun.span = AttemptSpan::first();
        let _entered = begun.span.enter();
        self.inner.begin(cores, request, inside);
    }

    #[inline]
    fn request<'a>(
        (stock, cores): &'a Self::Cores,
        (begun, inside): &'a Self::Kept,
    ) -> Option<&'a Req> {
        let kept = begun.kept.as_ref().ok();
        let own = kept.and_then(|kept| stock.core.replay.request(kept));
        own.or_else(|| S::request(cores, inside))
    }

    #[inline]
    fn is_admitted((_, inside): &Self::Kept) -> bool {
        S::is_admitted(inside)
    }

    #[inline]
    fn innermost(&mut self) -> &mut S::Innermost {
        self.inner.innermost()
    }

    #[inline]
    fn span((begun, inside): &Self::Kept) -> Option<span::Entered<'_>> {
        // That of a retry inside is a child of this one.
        S::span(inside).or_else(|| begun.span.enter())
    }

    #[inline]
    fn succeeded(
        (stock, cores): &Self::Cores,
        (begun, inside): &mut Self::Kept,
        operation: Option<&Operation>,
        outcome: &OutcomeOf<Self, Req>,
    ) -> bool {
        if !S::succeeded(cores, inside, operation, outcome) {
            return false;
        }
        stock.core.budget.observe(&mut begun.spending, &Verdict::Success, false);
        begun.span = AttemptSpan::default();
        true
    }

    fn go_on(
        (stock, cores): &Self::Cores,
        (begun, inside): Self::Kept,
        operation: &Operation,
        scope: Scope,
        outcome: Option<OutcomeOf<Self, Req>>,
    ) -> Self::Future {
        let inner = S::go_on(cores, inside, operation, Scope::member(), outcome);
        let Begun { about, spending, kept, span } = begun;
        let stock = M::hold(&mut stock.clone());
        let call = Call::new(stock, *operation, about, spending, kept, span);
        ResponseFuture::new(inner, call, scope)
    }

    fn dropped(
        (_, cores): &Self::Cores,
        (begun, inside): &mut Self::Kept,
        operation: Option<&Operation>,
        scope: &mut Scope,
        end: impl FnOnce(),
    ) {
        // What a cancelled attempt says on its way out belongs to its span.
        let _entered = begun.span.enter();
        S::dropped(cores, inside, operation, scope, end);
    }
}
