//! Statements.

use std::fmt::Write as _;
use std::sync::LazyLock;

use tokio_postgres::types::ToSql;
use tower_triage_core::ClassSet;
use tower_triage_escalate::Timestamp;
use tower_triage_escalate::store::Filter;

use crate::row::{Found, Rows, millis};
use crate::text;

/// What wakes those who wait for a change.
pub(crate) const CHANNEL: &str = "tower_triage";
/// Held by a statement that stores new letters. Their numbers are given out before they are
/// committed, so without it a reader could see number 2 before number 1, and go on behind it.
const STORING: i64 = 0x7472_6961_6765_0001;
/// Held by who changes the schema.
pub(crate) const MIGRATING: i64 = 0x7472_6961_6765_0002;
/// Held by who drops letters: two that count at the same time would drop twice as many.
pub(crate) const RETAINING: i64 = 0x7472_6961_6765_0003;

/// The server's clock, which all processes share; of the statement's beginning, so that an index may
/// be used.
pub(crate) const CLOCK: &str = "floor(extract(epoch FROM statement_timestamp()) * 1000)::bigint";

/// A statement put together from pieces and values.
pub(crate) struct Query {
    pub(crate) sql: String,
    values: Vec<Box<dyn ToSql + Send + Sync>>,
}

impl Query {
    /// The time as `now`, then what [`Found`] reads, of letters that meet the conditions to come.
    pub(crate) fn letters(at: Option<Timestamp>) -> Self {
        let mut query = Self { sql: "WITH clock AS (SELECT ".to_owned(), values: Vec::new() };
        query.push("coalesce(", at.map(millis), "::bigint, ");
        _ = write!(
            query.sql,
            "{CLOCK}) AS now) SELECT {}, now FROM clock, tower_triage_letter WHERE true",
            Found::COLUMNS
        );
        query
    }

    /// Adds text with a value in its middle.
    pub(crate) fn push(
        &mut self,
        before: &str,
        value: impl ToSql + Send + Sync + 'static,
        after: &str,
    ) {
        self.values.push(Box::new(value));
        _ = write!(self.sql, "{before}${}{after}", self.values.len());
    }

    /// Only letters that match. Some may be left that do not; see [`text::encode`].
    pub(crate) fn filter(&mut self, filter: &Filter) {
        if filter.classes != ClassSet::ALL {
            let classes: Vec<_> = filter.classes.iter().map(|class| class.as_str()).collect();
            self.push(" AND class = ANY (", classes, ")");
        }
        if !filter.states.is_empty() {
            let states: Vec<_> = filter.states.iter().map(|state| state.as_str()).collect();
            self.push(" AND state = ANY (", states, ")");
        }
        for (column, pattern) in [("operation", &filter.operation), ("sender", &filter.from)] {
            if pattern != "*" {
                self.push(&format!(" AND {column} LIKE "), text::like(pattern), "");
            }
        }
        if let Some(name) = &filter.receiver {
            self.push(" AND strpos(receivers, ", text::name(name), ") > 0");
        }
        if let Some(kind) = filter.fingerprint {
            self.push(" AND fingerprint = ", kind.to_string(), "");
        }
        if let Some(moment) = filter.before {
            self.push(" AND stored < ", millis(moment), "");
        }
        if let Some(moment) = filter.after {
            self.push(" AND stored >= ", millis(moment), "");
        }
        if filter.asking {
            self.sql.push_str(" AND asks_until > now");
        }
    }

    pub(crate) fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        self.values.iter().map(|value| &**value as &(dyn ToSql + Sync)).collect()
    }
}

/// Nobody works on it.
pub(crate) const FREE: &str = "(leased_until IS NULL OR leased_until <= now)";

/// `unnest` of the columns of [`Rows`].
fn unnest() -> String {
    let columns = Rows::COLUMNS.iter().zip(1..);
    let arrays: Vec<_> = columns.map(|((_, kind), n)| format!("${n}::{kind}")).collect();
    format!("unnest({})", arrays.join(", "))
}

fn names(columns: &[(&str, &str)]) -> String {
    columns.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

/// Stores new letters; gives the ids of those that were not there.
pub(crate) static INSERT: LazyLock<String> = LazyLock::new(|| {
    let (all, own) = (names(&Rows::COLUMNS), names(&Rows::COLUMNS[3..]));
    // The lock comes first, because without its row there is none of the others.
    format!(
        "WITH gate AS MATERIALIZED (SELECT pg_advisory_xact_lock({STORING})), \
         new AS (INSERT INTO tower_triage_letter (id, {own}) SELECT id::uuid, {own} \
         FROM gate, {unnest} WITH ORDINALITY AS t ({all}, place) ORDER BY place \
         ON CONFLICT (id) DO NOTHING RETURNING id) \
         SELECT id::text, pg_notify('{CHANNEL}', '') FROM new",
        unnest = unnest(),
    )
});

/// Writes letters back that have not been changed since; gives one row for each.
static UPDATE: LazyLock<[String; 2]> = LazyLock::new(|| {
    let set: Vec<_> =
        Rows::COLUMNS[3..].iter().map(|(name, _)| format!("{name} = t.{name}")).collect();
    let update = format!(
        "WITH changed AS (UPDATE tower_triage_letter AS l SET version = l.version + 1, {set} \
         FROM {unnest} AS t ({all}) WHERE l.seq = t.seq AND l.version = t.version \
         RETURNING l.seq) SELECT seq",
        set = set.join(", "),
        unnest = unnest(),
        all = names(&Rows::COLUMNS),
    );
    let tell = format!("{update}, pg_notify('{CHANNEL}', '') FROM changed");
    [format!("{update} FROM changed"), tell]
});

/// As [`UPDATE`]; `tell` wakes those who wait. Not more often than needed: transactions that do
/// commit one after the other.
pub(crate) fn update(tell: bool) -> &'static str {
    &UPDATE[usize::from(tell)]
}
