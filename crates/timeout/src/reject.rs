//! What a caller gets instead of an answer.

use std::fmt;

use tower_triage_core::Elapsed;

/// Turns an elapsed time limit into what the caller gets: an error, or a response where errors are
/// impossible.
///
/// A response made here is stamped as timed out where its type can carry the stamp, so that the
/// layers above do not take it for an answer of the dependency.
#[diagnostic::on_unimplemented(
    message = "an elapsed time limit cannot become a `Result<{Res}, {E}>` by `{Self}`",
    note = "`AsError`, the default, needs `{E}: From<Elapsed>`: add a variant with `#[from] Elapsed`, or map the error below the layer (`.map_err(AnyError::from)`)",
    note = "or say what the caller gets: `.reject_with(reject_fn(|elapsed| ..))`"
)]
pub trait Reject<Res, E> {
    /// What the caller gets.
    ///
    /// # Errors
    /// If an elapsed limit is an error here.
    fn reject(&self, elapsed: Elapsed) -> Result<Res, E>;
}

/// An elapsed limit is an error: [`Elapsed`] enters by `From`. The default.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsError;

#[diagnostic::do_not_recommend]
impl<Res, E: From<Elapsed>> Reject<Res, E> for AsError {
    fn reject(&self, elapsed: Elapsed) -> Result<Res, E> {
        Err(elapsed.into())
    }
}

/// A closure as [`Reject`]; see [`reject_fn`].
#[derive(Clone, Copy)]
pub struct RejectFn<F> {
    f: F,
}

/// Answers with what `f` makes of the elapsed limit.
///
/// ```
/// use tower_triage_core::Elapsed;
/// use tower_triage_timeout::{Reject, reject_fn};
///
/// let reject = reject_fn(|elapsed: Elapsed| Ok::<_, String>(elapsed.to_string()));
/// let elapsed = Elapsed::limit(std::time::Duration::from_secs(3));
/// assert_eq!(reject.reject(elapsed).unwrap(), "no answer within 3s");
/// ```
pub const fn reject_fn<Res, E, F>(f: F) -> RejectFn<F>
where
    F: Fn(Elapsed) -> Result<Res, E>,
{
    RejectFn { f }
}

impl<Res, E, F: Fn(Elapsed) -> Result<Res, E>> Reject<Res, E> for RejectFn<F> {
    fn reject(&self, elapsed: Elapsed) -> Result<Res, E> {
        (self.f)(elapsed)
    }
}

impl<F> fmt::Debug for RejectFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RejectFn({})", std::any::type_name::<F>())
    }
}
