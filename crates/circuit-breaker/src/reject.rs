//! What a caller gets instead of a call.

use std::fmt;

use tower_triage_core::CircuitOpen;

/// Turns a rejection into what the caller gets: an error, or a response where errors are impossible.
///
/// A response made here is stamped as rejected where its type can carry the stamp, so that the
/// layers above do not take it for an answer of the dependency.
#[diagnostic::on_unimplemented(
    message = "an open circuit cannot become a `Result<{Res}, {E}>` by `{Self}`",
    note = "`AsError`, the default, needs `{E}: From<CircuitOpen>`: add a variant with `#[from] CircuitOpen`, or map the error below the layer (`.map_err(AnyError::from)`)",
    note = "or say what the caller gets: `.reject_with(reject_fn(|open| ..))`"
)]
pub trait Reject<Res, E> {
    /// What the caller gets.
    ///
    /// # Errors
    /// If a rejection is an error here.
    fn reject(&self, rejection: CircuitOpen) -> Result<Res, E>;
}

/// A rejection is an error: [`CircuitOpen`] enters by `From`. The default.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsError;

#[diagnostic::do_not_recommend]
impl<Res, E: From<CircuitOpen>> Reject<Res, E> for AsError {
    fn reject(&self, rejection: CircuitOpen) -> Result<Res, E> {
        Err(rejection.into())
    }
}

/// A closure as [`Reject`]; see [`reject_fn`].
#[derive(Clone, Copy)]
pub struct RejectFn<F> {
    f: F,
}

/// Rejects with what `f` makes of the rejection.
///
/// ```
/// use tower_triage_circuit_breaker::{Reject, reject_fn};
/// use tower_triage_core::CircuitOpen;
///
/// let reject = reject_fn(|open: CircuitOpen| Ok::<_, String>(format!("{} is down", open.name())));
/// let open = CircuitOpen::new("shop".into(), std::time::Duration::ZERO);
/// assert_eq!(reject.reject(open).unwrap(), "shop is down");
/// ```
pub const fn reject_fn<Res, E, F>(f: F) -> RejectFn<F>
where
    F: Fn(CircuitOpen) -> Result<Res, E>,
{
    RejectFn { f }
}

impl<Res, E, F: Fn(CircuitOpen) -> Result<Res, E>> Reject<Res, E> for RejectFn<F> {
    fn reject(&self, rejection: CircuitOpen) -> Result<Res, E> {
        (self.f)(rejection)
    }
}

impl<F> fmt::Debug for RejectFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RejectFn({})", std::any::type_name::<F>())
    }
}
