//! An answer instead of the failure: built from what is known, or from what somebody decided.

use serde_json::Value;

use crate::ask::Asking;
use crate::ending::{Ending, Failed, MaybeRetry, Set, Unset};
use crate::question::Accepts;

/// What the caller gets when the stack has failed. Implemented by every [`Ending`].
pub trait Finish<Res, E> {
    /// An answer built from what is known; `None` leaves the failure as it is.
    fn finish(&self, failed: Failed<'_, Res, E>) -> Option<Res>;

    /// Who is asked, if anybody is.
    fn asking(&self) -> Option<&Asking>;

    /// An answer made of what somebody decided; `None` if none can be made of it.
    fn respond(&self, value: &Value, failed: Failed<'_, Res, E>) -> Option<Res>;

    /// Can an answer be made of what somebody decides, and can the request be sent again?
    fn accepts(&self) -> Accepts;
}

/// A forced finish, or none.
pub trait MakeAnswer<Res, E> {
    /// An answer built from what is known.
    fn make(&self, failed: Failed<'_, Res, E>) -> Option<Res>;
}

/// What becomes of a decision to respond, or nothing.
pub trait UseAnswer<Res, E> {
    /// Can it be?
    const ACCEPTED: bool;

    /// An answer made of the value.
    fn answer(&self, value: &Value, failed: Failed<'_, Res, E>) -> Option<Res>;
}

impl<Res, E> MakeAnswer<Res, E> for Unset {
    fn make(&self, _failed: Failed<'_, Res, E>) -> Option<Res> {
        None
    }
}

impl<Res, E, F: Fn(Failed<'_, Res, E>) -> Option<Res>> MakeAnswer<Res, E> for Set<F> {
    fn make(&self, failed: Failed<'_, Res, E>) -> Option<Res> {
        (self.0)(failed)
    }
}

impl<Res, E> UseAnswer<Res, E> for Unset {
    const ACCEPTED: bool = false;

    fn answer(&self, _value: &Value, _failed: Failed<'_, Res, E>) -> Option<Res> {
        None
    }
}

impl<Res, E, A: Fn(&Value, Failed<'_, Res, E>) -> Option<Res>> UseAnswer<Res, E> for Set<A> {
    const ACCEPTED: bool = true;

    fn answer(&self, value: &Value, failed: Failed<'_, Res, E>) -> Option<Res> {
        (self.0)(value, failed)
    }
}

impl<Res, E, F, A, C, G> Finish<Res, E> for Ending<F, A, C, G>
where
    F: MakeAnswer<Res, E>,
    A: UseAnswer<Res, E>,
    G: MaybeRetry,
{
    fn finish(&self, failed: Failed<'_, Res, E>) -> Option<Res> {
        self.finish.make(failed)
    }

    fn asking(&self) -> Option<&Asking> {
        self.asking.as_ref()
    }

    fn respond(&self, value: &Value, failed: Failed<'_, Res, E>) -> Option<Res> {
        self.respond.answer(value, failed)
    }

    fn accepts(&self) -> Accepts {
        Accepts { retry: G::RETRIES, respond: A::ACCEPTED }
    }
}
