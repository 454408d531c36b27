//! The breaker as a part of a fused stack.

use std::time::Duration;

use tower_triage_core::fuse::{Fusible, OutcomeOf, Part};
use tower_triage_core::incident::Scope;
use tower_triage_core::{Classifier, Classify, Describe, Operation, Sharing};
use tracing::span;

use crate::breakers::Admission;
use crate::future::ResponseFuture;
use crate::reject::Reject;
use crate::service::CircuitBreaker;
use crate::ticket::{Core, Ticket};

/// What is kept of a call: its admission, and what is kept inside.
#[derive(Debug, Default)]
pub struct Kept<K> {
    admission: Admission,
    /// So much is left of the open time, if the call is refused; then nothing began inside.
    refused: Option<Duration>,
    inside: K,
}

impl<S, R, J, M> Part<R> for CircuitBreaker<S, R, J, M>
where
    S: Part<R>,
    M: Sharing<Core<R, J>>,
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

impl<S, R, J, M, Req> Fusible<R, Req> for CircuitBreaker<S, R, J, M>
where
    S: Fusible<R, Req>,
    R: Classify<S::Response, S::Error> + Describe<Req>,
    J: Reject<S::Response, S::Error>,
    M: Sharing<Core<R, J>>,
{
    type Innermost = S::Innermost;
    type Kept = Kept<S::Kept>;
    const NAMES_SUCCESSES: bool = S::NAMES_SUCCESSES;

    #[inline]
    fn is_ready(&self) -> bool {
        self.is_readied() && self.inner.is_ready()
    }

    #[inline]
    fn begin(&mut self, (core, cores): &Self::Cores, request: &mut Req, kept: &mut Self::Kept) {
        let key = || core.classifier.rules().key(&*request);
        (kept.admission, kept.refused) = core.breakers.admit(key, &mut self.latest);
        if kept.refused.is_none() {
            self.inner.begin(cores, request, &mut kept.inside);
        }
    }

    #[inline]
    fn request<'a>((_, cores): &'a Self::Cores, kept: &'a Self::Kept) -> Option<&'a Req> {
        S::request(cores, &kept.inside)
    }

    #[inline]
    fn is_admitted(kept: &Self::Kept) -> bool {
        kept.refused.is_none() && S::is_admitted(&kept.inside)
    }

    #[inline]
    fn innermost(&mut self) -> &mut S::Innermost {
        self.use_up_readiness();
        self.inner.innermost()
    }

    #[inline]
    fn span(kept: &Self::Kept) -> Option<span::Entered<'_>> {
        S::span(&kept.inside)
    }

    /// Its own circuit first: what it has counted it does not count again.
    #[inline]
    fn succeeded(
        (core, cores): &Self::Cores,
        kept: &mut Self::Kept,
        operation: Option<&Operation>,
        outcome: &OutcomeOf<Self, Req>,
    ) -> bool {
        core.breakers.count_plain(&mut kept.admission)
            && S::succeeded(cores, &mut kept.inside, operation, outcome)
    }

    fn go_on(
        (core, cores): &Self::Cores,
        Kept { admission, refused, inside }: Self::Kept,
        operation: &Operation,
        scope: Scope,
        outcome: Option<OutcomeOf<Self, Req>>,
    ) -> Self::Future {
        let ticket = Ticket::new(M::hold(&mut core.clone()), admission);
        match refused {
            None => {
                let inner = S::go_on(cores, inside, operation, Scope::member(), outcome);
                ResponseFuture::calling(inner, ticket, scope, *operation)
            }
            Some(left) => ResponseFuture::rejected(left, ticket, scope, *operation),
        }
    }

    fn dropped(
        (core, cores): &Self::Cores,
        kept: &mut Self::Kept,
        operation: Option<&Operation>,
        scope: &mut Scope,
        end: impl FnOnce(),
    ) {
        S::dropped(cores, &mut kept.inside, operation, scope, end);
        core.breakers.abandon(&mut kept.admission);
    }
}
