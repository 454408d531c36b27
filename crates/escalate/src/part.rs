//! Escalation as a part of a fused stack.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use tower_triage_core::fuse::{Fusible, OutcomeOf, Part};
use tower_triage_core::incident::Scope;
use tower_triage_core::{Classifier, Classify, Describe, Operation, Sharing};
use tracing::span;

use crate::ending::{Finish, Keep, Kept as _};
use crate::future::ResponseFuture;
use crate::layer::Core;
use crate::service::Escalate;
use crate::write::{About, Facts};

/// What is kept of a call.
#[derive(Debug, Default)]
pub struct Kept<D, K> {
    /// What the record would tell of the request, if a layer inside does not keep that.
    about: Option<About>,
    /// What the ending needs.
    own: D,
    inside: K,
}

impl<S, R, D, E, M> Part<R> for Escalate<S, R, D, E, M>
where
    S: Part<R>,
    M: Sharing<Core<R, D>>,
{
    type Cores = (M::Handle, S::Cores);
    const TELLS: bool = true;

    fn cores(&self) -> Self::Cores {
        (self.core.clone(), self.inner.cores())
    }

    fn is_fusible(&self, classifier: &Classifier<R>) -> bool {
        self.core.classifier.is(classifier) && self.inner.is_fusible(classifier) && !S::TELLS
    }
}

impl<R, D> Core<R, D> {
    /// What the record would tell of the request.
    fn facts<S, Req>(
        &self,
        cores: &S::Cores,
        kept: &Kept<impl Sized, S::Kept>,
        operation: &Operation,
    ) -> Facts
    where
        S: Fusible<R, Req>,
        R: Describe<Req>,
    {
        let read = |request| About::read(self.classifier.rules(), request);
        match kept.about.or_else(|| S::request(cores, &kept.inside).map(read)) {
            Some(about) => Facts { operation: *operation, about },
            None => Facts::unread(*operation),
        }
    }
}

impl<S, Req, R, D, E, M> Fusible<R, Req> for Escalate<S, R, D, E, M>
where
    M: Sharing<Core<R, D>>,
    S: Fusible<R, Req, Error = E>,
    R: Classify<S::Response, E> + Describe<Req>,
    D: Finish<S::Response, E> + Keep<S, Req>,
{
    type Innermost = S::Innermost;
    type Kept = Kept<D::Kept, S::Kept>;
    const NAMES_SUCCESSES: bool = S::NAMES_SUCCESSES;

    #[inline]
    fn is_ready(&self) -> bool {
        self.held.is_none() && self.inner.is_ready()
    }

    #[inline]
    fn begin(&mut self, (core, cores): &Self::Cores, request: &mut Req, kept: &mut Self::Kept) {
        kept.own = core.ending.keep(&self.inner, request);
        self.inner.begin(cores, request, &mut kept.inside);
        if S::request(cores, &kept.inside).is_none() {
            kept.about = Some(About::read(core.classifier.rules(), request));
        }
    }

    #[inline]
    fn request<'a>((_, cores): &'a Self::Cores, kept: &'a Self::Kept) -> Option<&'a Req> {
        S::request(cores, &kept.inside)
    }

    #[inline]
    fn is_admitted(kept: &Self::Kept) -> bool {
        S::is_admitted(&kept.inside)
    }

    #[inline]
    fn innermost(&mut self) -> &mut S::Innermost {
        self.inner.innermost()
    }

    #[inline]
    fn span(kept: &Self::Kept) -> Option<span::Entered<'_>> {
        S::span(&kept.inside)
    }

    #[inline]
    fn succeeded(
        (_, cores): &Self::Cores,
        kept: &mut Self::Kept,
        operation: Option<&Operation>,
        outcome: &OutcomeOf<Self, Req>,
    ) -> bool {
        S::succeeded(cores, &mut kept.inside, operation, outcome)
    }

    fn go_on(
        (core, cores): &Self::Cores,
        mut kept: Self::Kept,
        operation: &Operation,
        scope: Scope,
        outcome: Option<OutcomeOf<Self, Req>>,
    ) -> Self::Future {
        // What reads the request is the user's: if it panics, what is held inside is given back.
        let read = AssertUnwindSafe(|| core.facts::<S, Req>(cores, &kept, operation));
        let facts = catch_unwind(read).unwrap_or_else(|panic| {
            S::dropped(cores, &mut kept.inside, None, &mut Scope::member(), || ());
            resume_unwind(panic)
        });
        let Kept { own, inside, .. } = kept;
        let inner = S::go_on(cores, inside, operation, Scope::member(), outcome);
        ResponseFuture::calling(inner, scope, M::hold(&mut core.clone()), facts, own)
    }

    fn dropped(
        (core, cores): &Self::Cores,
        kept: &mut Self::Kept,
        operation: Option<&Operation>,
        scope: &mut Scope,
        end: impl FnOnce(),
    ) {
        if let Some(operation) = operation {
            // A panic of what reads the request, maybe while unwinding, would abort the process.
            let read = AssertUnwindSafe(|| core.facts::<S, Req>(cores, kept, operation));
            let facts = || catch_unwind(read).unwrap_or(Facts::unread(*operation));
            core.dropped(scope, facts, || kept.own.captured(&core.ending));
        }
        S::dropped(cores, &mut kept.inside, operation, scope, end);
    }
}
