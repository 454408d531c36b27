//! What the calls of a fused stack share, and what they do with it.

use std::fmt;
use std::mem;
use std::pin::Pin;

use crate::classifier::Classifier;
use crate::describe::Describe;
use crate::fuse::{Fusible, OutcomeOf, Part};
use crate::incident::Scope;
use crate::label::Operation;

/// What the calls of one fused stack share. Opaque: it is named in the types of service and future.
pub struct Shared<R, C> {
    pub(super) classifier: Classifier<R>,
    pub(super) cores: C,
    /// May they be run as one?
    pub(super) fusible: bool,
}

impl<R, C> Shared<R, C> {
    pub(super) fn new(layers: &impl Part<R, Cores = C>, classifier: Classifier<R>) -> Self {
        let (cores, fusible) = (layers.cores(), layers.is_fusible(&classifier));
        Self { classifier, cores, fusible }
    }

    /// What is being done: `named` when the call began, or by the request that a layer keeps.
    pub(super) fn operation<L, Req>(&self, kept: &L::Kept, named: Option<&Operation>) -> Operation
    where
        L: Fusible<R, Req, Cores = C>,
        R: Describe<Req>,
    {
        let name = |request| self.classifier.rules().operation(request);
        let named = named.copied().or_else(|| L::request(&self.cores, kept).map(name));
        named.unwrap_or_default()
    }

    /// The layers go on, with what the innermost service gave, if it was called.
    #[cold]
    pub(super) fn go_on<L, Req>(
        &self,
        kept: &mut L::Kept,
        named: Option<&Operation>,
        scope: &mut Scope,
        outcome: Option<OutcomeOf<L, Req>>,
    ) -> Pin<Box<L::Future>>
    where
        L: Fusible<R, Req, Cores = C>,
        R: Describe<Req>,
    {
        let operation = self.operation::<L, Req>(kept, named);
        let (kept, scope) = (mem::take(kept), mem::replace(scope, Scope::member()));
        Box::pin(L::go_on(&self.cores, kept, &operation, scope, outcome))
    }
}

impl<R, C> fmt::Debug for Shared<R, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("fusible", &self.fusible).finish_non_exhaustive()
    }
}
