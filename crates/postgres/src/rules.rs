//! The PostgreSQL rules: what is read from requests, what errors mean, and how to change it.

use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;
use tokio_postgres::error::{DbError, SqlState};
use tower_triage_core::{
    AnyError, BoxError, CircuitOpen, ClassifyError, ClassifyResponse, Describe, Elapsed,
    ErrorClass, Failure, Halves, Label, Note, Operation, Stamp, Verdict, stamped,
};

use crate::error::UnitError;
use crate::judge::{self, Assume, Changes};
use crate::statement::Statement;
use crate::unit::Unit;

/// The rules for PostgreSQL: every answer is a success, and a half for errors.
pub type PostgresRules<Q = PostgresErrors> = Halves<PostgresRequests, Q>;

/// The rules for PostgreSQL with their defaults.
///
/// Adjust them before they are shared ([`PostgresRulesExt`]), then put them into a
/// [`Classifier`](tower_triage_core::Classifier):
///
/// ```
/// use tokio_postgres::error::SqlState;
/// use tower_triage_core::{Classifier, ErrorClass};
/// use tower_triage_postgres::{PostgresRulesExt, postgres};
///
/// // Keys are drawn at random here, so a duplicate is a lost race.
/// let rules = postgres().sqlstate(&SqlState::UNIQUE_VIOLATION, ErrorClass::Contention);
/// let classifier = Classifier::new(rules);
/// # let _ = classifier;
/// ```
#[must_use]
pub fn postgres() -> PostgresRules {
    PostgresRules::default()
}

/// Changes the rules before they are shared. An extension trait, because the rules are core's
/// [`Halves`].
pub trait PostgresRulesExt: Sized {
    /// Changes the error half.
    #[must_use]
    fn adjust_errors(self, change: impl FnOnce(&mut PostgresErrors)) -> Self;

    /// An error with this code is a failure of `class`, with the class's vote. What became of the
    /// work is read as before: a commit whose outcome is unknown stays so.
    ///
    /// For 23505 and 23P01 where the application picks the keys itself (PostgreSQL documentation,
    /// section 13.5: the violation may be a race), and for codes of your own.
    #[must_use]
    fn sqlstate(self, code: &SqlState, class: ErrorClass) -> Self {
        self.adjust_errors(|half| {
            half.changes.codes.retain(|(known, _)| **known != *code.code());
            half.changes.codes.push((code.code().into(), class));
        })
    }

    /// An error of your own type `T`, anywhere along a chain, is what `judge` says. Without it such
    /// an error is `Unknown`: not repeated, but counted by a breaker and escalated.
    ///
    /// If it ended the work of a [`Unit`] nothing was done, so a class that is repeated when it is
    /// safe is repeated then.
    ///
    /// ```
    /// use std::fmt;
    /// use tower_triage_core::ErrorClass;
    /// use tower_triage_postgres::{PostgresRulesExt, postgres};
    ///
    /// #[derive(Debug)]
    /// struct Overdrawn;
    ///
    /// impl fmt::Display for Overdrawn {
    ///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    ///         f.write_str("the account is overdrawn")
    ///     }
    /// }
    /// impl std::error::Error for Overdrawn {}
    ///
    /// let rules = postgres().own_error(|_: &Overdrawn| ErrorClass::Permanent.into());
    /// # let _ = rules;
    /// ```
    #[must_use]
    fn own_error<T: std::error::Error + 'static>(
        self,
        judge: impl Fn(&T) -> Failure + Send + Sync + 'static,
    ) -> Self {
        self.adjust_errors(|half| {
            half.changes.own.push(Arc::new(move |cause| cause.downcast_ref().map(&judge)));
        })
    }

    /// For a service of your own whose requests are single statements **inside an open
    /// transaction**: none of them is ever repeated, since the transaction is gone with it.
    ///
    /// It concerns only errors that come without a [`UnitError`]; the services of this crate say
    /// themselves how far the work had come. By default such an error is taken for that of a
    /// statement that commits itself.
    #[must_use]
    fn in_open_transaction(self) -> Self {
        self.adjust_errors(|half| half.changes.assume = Assume::InOpenTransaction)
    }
}

impl<P> PostgresRulesExt for Halves<P, PostgresErrors> {
    fn adjust_errors(mut self, change: impl FnOnce(&mut PostgresErrors)) -> Self {
        change(&mut self.error);
        self
    }
}

/// Response half: whatever the database answers is a success. Knows the facts of [`Unit`] and
/// [`Statement`]; for requests of your own use
/// [`RulesExt::describe`](tower_triage_core::RulesExt::describe).
///
/// | fact | unit of work | statement |
/// |---|---|---|
/// | repeatable although it may be done | only if marked, or read only | only if marked |
/// | the whole unit of work | yes | yes: it commits itself |
/// | operation, breaker key | its name | its name |
/// | deadline, request id | its own | its own |
#[derive(Clone, Copy, Debug, Default)]
pub struct PostgresRequests;

impl<Res> ClassifyResponse<Res> for PostgresRequests {
    fn response(&self, _response: &Res) -> Verdict {
        Verdict::Success
    }
}

/// No response is a failure.
impl<Res> Stamp<Res> for PostgresRequests {}

impl<W> Describe<Unit<W>> for PostgresRequests {
    fn operation(&self, unit: &Unit<W>) -> Operation {
        unit.about.operation
    }

    fn repeatable(&self, unit: &Unit<W>) -> bool {
        unit.about.idempotent || unit.options.is_read_only()
    }

    fn deadline(&self, unit: &Unit<W>) -> Option<Instant> {
        unit.about.deadline
    }

    fn request_id(&self, unit: &Unit<W>) -> Option<Label> {
        unit.about.request_id
    }
}

impl Describe<Statement> for PostgresRequests {
    fn operation(&self, statement: &Statement) -> Operation {
        statement.about.operation
    }

    fn repeatable(&self, statement: &Statement) -> bool {
        statement.about.idempotent
    }

    fn deadline(&self, statement: &Statement) -> Option<Instant> {
        statement.about.deadline
    }

    fn request_id(&self, statement: &Statement) -> Option<Label> {
        statement.about.request_id
    }
}

/// Error half: errors of this crate and of tokio-postgres, boxed, in an [`AnyError`], or bare; with
/// those of std, tokio and tower, and our own rejections.
///
/// For an error type of your own implement [`ClassifyError`] for it on this type (it is allowed,
/// because your type is local to you), or swap this half (`postgres().errors(OwnError)`).
#[derive(Clone, Default)]
pub struct PostgresErrors {
    changes: Changes,
}

impl PostgresErrors {
    /// What `error` means, by the types along its chain. For error types of your own:
    ///
    /// ```
    /// use tower_triage_core::{ClassifyError, ErrorClass, Failure};
    /// use tower_triage_postgres::PostgresErrors;
    ///
    /// enum ShopError { Sold, Database(tokio_postgres::Error) }
    ///
    /// impl ClassifyError<ShopError> for PostgresErrors {
    ///     fn error(&self, error: &ShopError) -> Failure {
    ///         match error {
    ///             ShopError::Sold => ErrorClass::Permanent.into(),
    ///             ShopError::Database(error) => self.judge(error),
    ///         }
    ///     }
    /// }
    /// ```
    pub fn judge(&self, error: &(dyn std::error::Error + 'static)) -> Failure {
        judge::failure(error, &self.changes)
    }
}

impl fmt::Debug for PostgresErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresErrors")
            .field("assume", &self.changes.assume)
            .field("codes", &self.changes.codes)
            .field("own", &self.changes.own.len())
            .finish()
    }
}

impl ClassifyError<AnyError> for PostgresErrors {
    fn error(&self, error: &AnyError) -> Failure {
        stamped(error).unwrap_or_else(|| self.judge(error.as_error()))
    }

    fn annotate(&self, error: &mut AnyError, note: &Note) -> bool {
        error.annotate(note);
        true
    }

    fn explain(&self, error: &AnyError, out: &mut dyn fmt::Write) {
        judge::explain(error.as_error(), out);
    }
}

impl Stamp<AnyError> for PostgresErrors {}

impl ClassifyError<BoxError> for PostgresErrors {
    fn error(&self, error: &BoxError) -> Failure {
        self.judge(&**error)
    }

    fn explain(&self, error: &BoxError, out: &mut dyn fmt::Write) {
        judge::explain(&**error, out);
    }
}

impl ClassifyError<UnitError> for PostgresErrors {
    fn error(&self, error: &UnitError) -> Failure {
        self.judge(error)
    }

    fn explain(&self, error: &UnitError, out: &mut dyn fmt::Write) {
        judge::explain(error, out);
    }
}

impl ClassifyError<tokio_postgres::Error> for PostgresErrors {
    fn error(&self, error: &tokio_postgres::Error) -> Failure {
        self.judge(error)
    }

    fn explain(&self, error: &tokio_postgres::Error, out: &mut dyn fmt::Write) {
        judge::explain(error, out);
    }
}

impl ClassifyError<DbError> for PostgresErrors {
    fn error(&self, error: &DbError) -> Failure {
        self.judge(error)
    }

    fn explain(&self, error: &DbError, out: &mut dyn fmt::Write) {
        judge::explain(error, out);
    }
}

impl ClassifyError<CircuitOpen> for PostgresErrors {
    fn error(&self, error: &CircuitOpen) -> Failure {
        self.judge(error)
    }

    fn explain(&self, error: &CircuitOpen, out: &mut dyn fmt::Write) {
        judge::explain(error, out);
    }
}

impl ClassifyError<Elapsed> for PostgresErrors {
    fn error(&self, error: &Elapsed) -> Failure {
        error.failure()
    }

    fn explain(&self, error: &Elapsed, out: &mut dyn fmt::Write) {
        judge::explain(error, out);
    }
}
