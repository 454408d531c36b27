//! One statement that commits itself, as a request.

use std::fmt;
use std::sync::Arc;

use tokio::time::Instant;
use tokio_postgres::types::ToSql;
use tower_triage_core::Label;

use crate::about::About;

/// A request to [`Statements`](crate::Statements): one SQL statement with its parameters, outside
/// any transaction of ours, so that it is a transaction of its own. Cheap to clone.
///
/// ```
/// use tower_triage_postgres::Statement;
///
/// let request = Statement::new("find account", "SELECT cents FROM account WHERE id = $1")
///     .bind(17_i32)
///     .idempotent(true);
/// # let _ = request;
/// ```
#[derive(Clone)]
#[must_use]
pub struct Statement {
    pub(crate) about: About,
    pub(crate) sql: Arc<str>,
    pub(crate) values: Vec<Arc<dyn ToSql + Sync + Send>>,
}

impl Statement {
    /// The statement `sql`. The name comes from a small set, since it becomes a metric label.
    pub fn new(operation: &str, sql: impl Into<Arc<str>>) -> Self {
        Self { about: About::new(operation), sql: sql.into(), values: Vec::new() }
    }

    /// The value of the next parameter: `$1`, `$2` and so on.
    pub fn bind(mut self, value: impl ToSql + Sync + Send + 'static) -> Self {
        self.values.push(Arc::new(value));
        self
    }

    /// Twice is as good as once, as for most that only read: it may be sent again even when nobody
    /// knows whether it was carried out. Default: no.
    pub const fn idempotent(mut self, idempotent: bool) -> Self {
        self.about.idempotent = idempotent;
        self
    }

    /// The moment after which nobody waits. Default: none.
    pub const fn deadline(mut self, deadline: Instant) -> Self {
        self.about.deadline = Some(deadline);
        self
    }

    /// The request's own id, for incidents and escalations. Default: none.
    pub fn request_id(mut self, id: &str) -> Self {
        self.about.request_id = Some(Label::new(id));
        self
    }
}

/// Without the values of the parameters.
impl fmt::Debug for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Statement")
            .field("operation", &self.about.operation)
            .field("sql", &self.sql)
            .field("values", &self.values.len())
            .finish_non_exhaustive()
    }
}
