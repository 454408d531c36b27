//! The fallback as a part of a fused stack.

use tower_triage_core::fuse::{Fusible, OutcomeOf, Part};
use tower_triage_core::incident::Scope;
use tower_triage_core::{Classifier, Classify, Describe, Operation, Sharing};
use tracing::span;

use crate::chain::{Call, Steps};
use crate::future::ResponseFuture;
use crate::keep::{Keep, Keeping};
use crate::layer::Core;
use crate::service::Fallback;

impl<S, R, T, K, M> Part<R> for Fallback<S, R, T, K, M>
where
    S: Part<R>,
    K: Keeping,
    M: Sharing<Core<R, T, K>>,
{
    type Cores = (M::Handle, S::Cores);
    const TELLS: bool = S::TELLS;

    fn cores(&self) -> Self::Cores {
        (self.core.clone(), self.inner.cores())
    }

    fn is_fusible(&self, classifier: &Classifier<R>) -> bool {
        self.core.classifier.is(classifier) && self.inner.is_fusible(classifier) && !S::TELLS
    }
}

impl<S, R, T, K, M, Req> Fusible<R, Req> for Fallback<S, R, T, K, M>
where
    S: Fusible<R, Req>,
    R: Classify<S::Response, S::Error> + Describe<Req>,
    T: Steps<S, Req, K>,
    K: Keep<S, Req>,
    M: Sharing<Core<R, T, K>>,
{
    type Innermost = S::Innermost;
    type Kept = (K::Kept, S::Kept);
    const NAMES_SUCCESSES: bool = T::LEARNS || S::NAMES_SUCCESSES;

    #[inline]
    fn is_ready(&self) -> bool {
        self.held.is_none() && self.inner.is_ready()
    }

    #[inline]
    fn begin(
        &mut self,
        (core, cores): &Self::Cores,
        request: &mut Req,
        (kept, inside): &mut Self::Kept,
    ) {
        *kept = core.keep.copy(&self.inner, request);
        self.inner.begin(cores, request, inside);
    }

    #[inline]
    fn request<'a>((_, cores): &'a Self::Cores, (_, inside): &'a Self::Kept) -> Option<&'a Req> {
        S::request(cores, inside)
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
    fn span((_, inside): &Self::Kept) -> Option<span::Entered<'_>> {
        S::span(inside)
    }

    #[inline]
    fn succeeded(
        (core, cores): &Self::Cores,
        (kept, inside): &mut Self::Kept,
        operation: Option<&Operation>,
        outcome: &OutcomeOf<Self, Req>,
    ) -> bool {
        if !S::succeeded(cores, inside, operation, outcome) {
            return false;
        }
        if let Some(operation) = operation.filter(|_| T::LEARNS) {
            core.succeeded(&Call { operation, keep: &core.keep, kept }, outcome);
        }
        true
    }

    fn go_on(
        (core, cores): &Self::Cores,
        (kept, inside): Self::Kept,
        operation: &Operation,
        scope: Scope,
        outcome: Option<OutcomeOf<Self, Req>>,
    ) -> Self::Future {
        let inner = S::go_on(cores, inside, operation, Scope::member(), outcome);
        ResponseFuture::sent(M::hold(&mut core.clone()), scope, *operation, kept, inner)
    }

    fn dropped(
        (_, cores): &Self::Cores,
        (_, inside): &mut Self::Kept,
        operation: Option<&Operation>,
        scope: &mut Scope,
        end: impl FnOnce(),
    ) {
        S::dropped(cores, inside, operation, scope, end);
    }
}
