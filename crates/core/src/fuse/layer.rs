//! The layer.

use std::fmt;
use std::marker::PhantomData;

use tower_layer::Layer;

use crate::classifier::Classifier;
use crate::fuse::{Fused, Innermost, Part, Shared};
use crate::share::{Counted, Leaked, Sharing};

/// Runs the layers `T` as one; see the [module](crate::fuse). `R` are the rules of their classifier,
/// `M` is how a call holds what they share ([`share`](crate::share)).
pub struct FuseLayer<T, R, M = Counted> {
    layers: T,
    classifier: Classifier<R>,
    sharing: PhantomData<fn() -> M>,
}

impl<T, R> FuseLayer<T, R> {
    /// Fuses `layers`, which judge by `classifier`.
    #[must_use]
    pub const fn new(classifier: Classifier<R>, layers: T) -> Self {
        Self { layers, classifier, sharing: PhantomData }
    }

    /// Keeps the state for the rest of the process, so that calls count no references: see
    /// [`Leaked`] for when that is right.
    #[must_use]
    pub fn leak(self) -> FuseLayer<T, R, Leaked> {
        let Self { layers, classifier, .. } = self;
        FuseLayer { layers, classifier, sharing: PhantomData }
    }
}

impl<S, T, R, M> Layer<S> for FuseLayer<T, R, M>
where
    T: Layer<Innermost<S>, Service: Part<R>>,
    M: Sharing<Shared<R, <T::Service as Part<R>>::Cores>>,
{
    type Service = Fused<T::Service, R, M>;

    fn layer(&self, inner: S) -> Self::Service {
        Fused::new(self.layers.layer(Innermost(inner)), self.classifier.clone())
    }
}

impl<T: Clone, R, M> Clone for FuseLayer<T, R, M> {
    fn clone(&self) -> Self {
        Self {
            layers: self.layers.clone(),
            classifier: self.classifier.clone(),
            sharing: PhantomData,
        }
    }
}

impl<T: fmt::Debug, R, M> fmt::Debug for FuseLayer<T, R, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FuseLayer").field("layers", &self.layers).finish_non_exhaustive()
    }
}
