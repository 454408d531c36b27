//! How a call ends that failed: what the caller gets instead of the failure, and what is kept of the
//! call for that.

mod failed;
mod finish;
mod keep;

pub use self::{
    failed::Failed,
    finish::{Finish, MakeAnswer, UseAnswer},
    keep::{ChangeRequest, Keep, Kept, KeptCall, KeptRequest, MaybeCodec, MaybeRetry},
};

use std::fmt;
use std::sync::Arc;

use crate::ask::Asking;

/// What is done with a call that failed, one parameter for each method of
/// [`EscalateLayer`](crate::EscalateLayer) that says so: [`Unset`], or [`Set`] to what it was given.
///
/// `F`: [`finish_with`](crate::EscalateLayer::finish_with). `A`:
/// [`respond_with`](crate::EscalateLayer::respond_with). `C`:
/// [`capture`](crate::EscalateLayer::capture). `G`:
/// [`retry_with`](crate::EscalateLayer::retry_with).
#[derive(Clone)]
pub struct Ending<F = Unset, A = Unset, C = Unset, G = Unset> {
    pub(crate) finish: F,
    pub(crate) respond: A,
    pub(crate) codec: C,
    pub(crate) change: G,
    pub(crate) asking: Option<Asking>,
}

/// The caller gets the failure, and nothing is kept. The default.
pub type KeepFailure = Ending;

/// Not asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unset;

/// As the user gave it. Shared by clones, so that it need not be `Clone`.
pub struct Set<T>(pub(crate) Arc<T>);

impl<T> Set<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(value))
    }
}

impl<T> Clone for Set<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl Ending {
    pub(crate) const fn new() -> Self {
        Self { finish: Unset, respond: Unset, codec: Unset, change: Unset, asking: None }
    }
}

/// Closures print as their types' names.
impl<T> fmt::Debug for Set<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Set({})", std::any::type_name::<T>())
    }
}

impl<F: fmt::Debug, A: fmt::Debug, C: fmt::Debug, G: fmt::Debug> fmt::Debug for Ending<F, A, C, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ending")
            .field("finish", &self.finish)
            .field("respond", &self.respond)
            .field("codec", &self.codec)
            .field("change", &self.change)
            .field("asking", &self.asking)
            .finish()
    }
}
