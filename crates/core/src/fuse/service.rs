//! Readiness and call.

use std::fmt;
use std::task::{Context, Poll};

use tower_service::Service;

use crate::classifier::Classifier;
use crate::classify::Classify;
use crate::describe::Describe;
use crate::fuse::future::State;
use crate::fuse::{Fusible, Part, ResponseFuture, Shared};
use crate::incident::scope::{Calling, Scope, calling};
use crate::share::{Counted, Sharing};

/// The service of a [`FuseLayer`](crate::fuse::FuseLayer): the layers `L` with what they are put
/// around. Its readiness is theirs.
pub struct Fused<L: Part<R>, R, M: Sharing<Shared<R, L::Cores>> = Counted> {
    layers: L,
    shared: M::Handle,
}

impl<L: Part<R>, R, M: Sharing<Shared<R, L::Cores>>> Fused<L, R, M> {
    pub(super) fn new(layers: L, classifier: Classifier<R>) -> Self {
        let shared = M::share(Shared::new(&layers, classifier));
        Self { layers, shared }
    }
}

impl<L, R, M, Req> Service<Req> for Fused<L, R, M>
where
    L: Fusible<R, Req>,
    R: Classify<L::Response, L::Error> + Describe<Req>,
    M: Sharing<Shared<R, L::Cores>>,
{
    type Response = L::Response;
    type Error = L::Error;
    type Future = ResponseFuture<L, R, Req, M>;

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), L::Error>> {
        self.layers.poll_ready(cx)
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    fn call(&mut self, request: Req) -> Self::Future {
        let scope = Scope::join();
        let shared = M::hold(&mut self.shared);
        match scope.is_owner() && shared.fusible && self.layers.is_ready() {
            true => self.call_fused(shared, scope, request),
            false => self.call_layers(shared, &scope, request),
        }
    }
}

impl<L: Part<R>, R, M: Sharing<Shared<R, L::Cores>>> Fused<L, R, M> {
    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    fn call_fused<Req>(
        &mut self,
        shared: M::Held,
        scope: Scope,
        mut request: Req,
    ) -> ResponseFuture<L, R, Req, M>
    where
        L: Fusible<R, Req>,
        R: Describe<Req>,
    {
        // Made where it stays: the only thing that is returned.
        let mut call = ResponseFuture::<L, R, Req, M>::new(shared, scope);
        self.layers.begin(&call.shared.cores, &mut request, &mut call.kept);
        if L::NAMES_SUCCESSES || L::request(&call.shared.cores, &call.kept).is_none() {
            call.operation = Some(call.shared.classifier.rules().operation(&request));
        }
        if L::is_admitted(&call.kept) {
            let _span = L::span(&call.kept);
            let _calling = Calling::begin();
            call.state = State::Fused { future: self.layers.innermost().call(request) };
        } else {
            call.not_admitted();
        }
        call
    }

    /// The layers make the call; they join the scope themselves.
    #[cold]
    fn call_layers<Req>(
        &mut self,
        shared: M::Held,
        scope: &Scope,
        request: Req,
    ) -> ResponseFuture<L, R, Req, M>
    where
        L: Fusible<R, Req>,
        R: Describe<Req>,
    {
        let future = match scope.is_owner() {
            true => self.layers.call(request),
            false => calling(|| self.layers.call(request)),
        };
        ResponseFuture::layered(shared, future)
    }
}

impl<L: Part<R> + Clone, R, M: Sharing<Shared<R, L::Cores>>> Clone for Fused<L, R, M> {
    fn clone(&self) -> Self {
        Self { layers: self.layers.clone(), shared: self.shared.clone() }
    }
}

impl<L: Part<R> + fmt::Debug, R, M: Sharing<Shared<R, L::Cores>>> fmt::Debug for Fused<L, R, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fused").field("layers", &self.layers).finish_non_exhaustive()
    }
}
