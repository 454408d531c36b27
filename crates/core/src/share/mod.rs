//! How a layer shares its state: the one place that decides it.
//!
//! What all services of one layer value share (classifier, policy, state) sits behind one handle.
//! A call takes hold of it and lets go at its end, wherever the future is by then. How that is done
//! is the layer's type parameter `M`:
//!
//! | `M` | a call costs | memory | for |
//! |---|---|---|---|
//! | [`Counted`], the default | one reference count of the thread that makes it: another one writes to it only if it ends the call | given back | everything |
//! | [`Leaked`] (`.leak()` at the layer) | nothing | never given back | stacks built once for the life of the process |
//!
//! The layers' code does not know which it is: they ask [`Sharing`] only.

mod apart;
mod cells;
mod counted;
mod numbers;
mod thread;

use std::ops::Deref;

use self::apart::Apart;
pub use self::cells::Cells;
pub use self::counted::{Held, PerThread};

/// A way to share a `T` among services and the calls that are under way.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot share the state of this layer",
    note = "`.leak()` needs a stack without borrows: everything in the layer and in the service it is put around must be `'static`"
)]
pub trait Sharing<T> {
    /// What a service holds.
    type Handle: Clone + Deref<Target = T>;
    /// What a call holds.
    type Held: Deref<Target = T>;

    /// Starts sharing `value`.
    fn share(value: T) -> Self::Handle;

    /// Takes hold for one call.
    fn hold(handle: &mut Self::Handle) -> Self::Held;
}

/// Counts references, each thread its own: the default. See [`PerThread`].
#[derive(Clone, Copy, Debug)]
pub struct Counted;

impl<T> Sharing<T> for Counted {
    type Handle = PerThread<T>;
    type Held = Held<T>;

    fn share(value: T) -> PerThread<T> {
        PerThread::new(value)
    }

    #[inline]
    fn hold(handle: &mut PerThread<T>) -> Held<T> {
        handle.hold()
    }
}

/// Keeps the state for the rest of the process, so that nothing is counted: calls are cheaper, and
/// clones of the service cost what the clone of the innermost service costs.
///
/// **Each application of the layer leaks**: some hundred bytes, and for a retry a clone of the inner
/// service with whatever that holds.
/// For a client or server that is built once. Not for a router that applies its layers anew for
/// each connection (axum's does under `axum::serve`), nor for stacks that come and go.
#[derive(Clone, Copy, Debug)]
pub struct Leaked;

impl<T: 'static> Sharing<T> for Leaked {
    type Handle = &'static T;
    type Held = &'static T;

    fn share(value: T) -> &'static T {
        Box::leak(Box::new(value))
    }

    #[inline]
    fn hold(handle: &mut &'static T) -> &'static T {
        handle
    }
}
