//! What a layer lets a fused stack do in its place.

use tower_service::Service;
use tracing::span;

use crate::classifier::Classifier;
use crate::incident::Scope;
use crate::label::Operation;

/// What `S` gives for a `Req`.
pub type OutcomeOf<S, Req> = Result<<S as Service<Req>>::Response, <S as Service<Req>>::Error>;

/// A service that can be part of a fused stack: one of our layers' around another part, or the
/// innermost. Implemented by our layers; there is nothing to implement for users.
pub trait Part<R> {
    /// What its layer and those inside share.
    type Cores;

    /// Does it tell somebody of incidents? Only the outermost layer may: another one leaves what it has
    /// to say with the call while that is under way, so then the layers make each call.
    const TELLS: bool;

    /// Takes hold of that.
    fn cores(&self) -> Self::Cores;

    /// Do this layer and all inside judge by `classifier`, and may they be fused?
    fn is_fusible(&self, classifier: &Classifier<R>) -> bool;
}

/// A call of a [`Part`], step by step: what its `Service::call` and its future do, for as long as
/// nothing goes wrong. Each step is the layer's own and of those inside.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of a fused stack",
    note = "`FuseLayer` takes escalate, fallback, retry and breaker layers of ours, in any order; put others above or below it"
)]
pub trait Fusible<R, Req>: Part<R> + Service<Req> {
    /// The service that is called.
    type Innermost: Service<Req, Response = Self::Response, Error = Self::Error>;
    /// What the layers keep for one call. By default nothing: before it begins, and when it is taken.
    type Kept: Default;

    /// Does a layer need the operation of a call that succeeded? Else it may be read from the request
    /// that a layer keeps, when there is something to tell.
    const NAMES_SUCCESSES: bool;

    /// Would a call go through to the innermost service, as far as readiness tells?
    fn is_ready(&self) -> bool;

    /// A call begins, with `request`: what its `Service::call` does before it calls what is inside.
    /// Keeps in place, because moving it costs more than anything else here.
    fn begin(&mut self, cores: &Self::Cores, request: &mut Req, kept: &mut Self::Kept);

    /// The request, if a layer keeps it anyway: then what is to be told of it need not be read until
    /// there is something to tell.
    fn request<'a>(cores: &'a Self::Cores, kept: &'a Self::Kept) -> Option<&'a Req>;

    /// Is the innermost service to be called?
    fn is_admitted(kept: &Self::Kept) -> bool;

    /// The innermost service, to call it; uses up the readiness.
    fn innermost(&mut self) -> &mut Self::Innermost;

    /// The span in which the innermost service is called and polled.
    fn span(kept: &Self::Kept) -> Option<span::Entered<'_>>;

    /// The call succeeded, and met nothing on its way. `false` if the layers have to see for
    /// themselves; what a layer has settled until then it does not settle again.
    /// `operation` is there if a layer [needs](Self::NAMES_SUCCESSES) it.
    fn succeeded(
        cores: &Self::Cores,
        kept: &mut Self::Kept,
        operation: Option<&Operation>,
        outcome: &OutcomeOf<Self, Req>,
    ) -> bool;

    /// The layers' own future of the call, from here on: the innermost service has given `outcome`,
    /// or was not called.
    fn go_on(
        cores: &Self::Cores,
        kept: Self::Kept,
        operation: &Operation,
        scope: Scope,
        outcome: Option<OutcomeOf<Self, Req>>,
    ) -> Self::Future;

    /// The caller drops the call; `end` drops the innermost future. `operation` is there if the call
    /// met anything worth telling.
    fn dropped(
        cores: &Self::Cores,
        kept: &mut Self::Kept,
        operation: Option<&Operation>,
        scope: &mut Scope,
        end: impl FnOnce(),
    );
}
