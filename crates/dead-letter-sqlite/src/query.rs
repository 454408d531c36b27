//! Filters as SQL: what the columns can say. The filter itself has the last word.

use std::fmt::Write as _;

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use tower_triage_core::ClassSet;
use tower_triage_escalate::Timestamp;
use tower_triage_escalate::store::{Filter, Letter, LetterState, StoreError};

use crate::error::failed;
use crate::row::{self, millis};

/// Letters that may match, in the order of storing.
pub(crate) struct Query {
    states: Vec<LetterState>,
    conditions: String,
    values: Vec<Value>,
}

impl Query {
    /// What `filter` may match behind `after`.
    pub(crate) fn new(filter: &Filter, after: u64, now: Timestamp) -> Self {
        let states = match filter.states.as_slice() {
            [] => LetterState::ALL.to_vec(),
            states => LetterState::ALL.into_iter().filter(|s| states.contains(s)).collect(),
        };
        let mut query = Self { states, conditions: String::new(), values: Vec::new() };
        query.and("seq > ?", i64::try_from(after).unwrap_or(i64::MAX));
        if filter.classes != ClassSet::ALL {
            let names: Vec<_> =
                filter.classes.iter().map(|c| format!("'{}'", c.as_str())).collect();
            query.conditions += &format!(" AND class IN ({})", names.join(", "));
        }
        query.matches("operation", &filter.operation);
        query.matches("sender", &filter.from);
        if let Some(fingerprint) = filter.fingerprint {
            query.and("fingerprint = ?", fingerprint.to_string());
        }
        if let Some(moment) = filter.before {
            query.and("stored < ?", millis(moment));
        }
        if let Some(moment) = filter.after {
            query.and("stored >= ?", millis(moment));
        }
        if filter.asking {
            query.and("asks_until > ?", millis(now));
        }
        query
    }

    /// Only what is open and in nobody's hands.
    pub(crate) fn free(mut self, now: Timestamp) -> Self {
        self.states.retain(|state| *state == LetterState::Open);
        self.and("(lease_until IS NULL OR lease_until <= ?)", millis(now));
        self
    }

    /// Only what is due.
    pub(crate) fn due(mut self, now: Timestamp) -> Self {
        self.and("due <= ?", millis(now));
        self
    }

    fn and(&mut self, condition: &str, value: impl Into<Value>) {
        self.values.push(value.into());
        let numbered = condition.replace('?', &format!("?{}", self.values.len()));
        let _ = write!(self.conditions, " AND {numbered}");
    }

    /// The pattern as far as it goes before its first star.
    fn matches(&mut self, column: &str, pattern: &str) {
        match pattern.split_once('*') {
            None => self.and(&format!("{column} = ?"), pattern.to_owned()),
            Some(("", _)) => {}
            Some((head, _)) => self.and(&format!("instr({column}, ?) = 1"), head.to_owned()),
        }
    }

    /// One walk through the index per state, merged: it begins at the cursor and ends when the
    /// caller has had enough.
    fn sql(&self) -> String {
        let of = |state: &LetterState| {
            let conditions = &self.conditions;
            format!("SELECT seq, document FROM letter WHERE state = '{state}'{conditions}")
        };
        let parts: Vec<String> = self.states.iter().map(of).collect();
        format!("{} ORDER BY seq", parts.join(" UNION ALL "))
    }

    /// The first `limit` letters for which `wanted` is true. One that cannot be read is left out
    /// with a line in the log: it must not stand in the way of all behind it.
    pub(crate) fn run(
        &self,
        conn: &Connection,
        limit: usize,
        wanted: impl Fn(&Letter) -> bool,
    ) -> Result<Vec<Letter>, StoreError> {
        let mut found = Vec::new();
        if self.states.is_empty() || limit == 0 {
            return Ok(found);
        }
        let mut statement = conn.prepare_cached(&self.sql()).map_err(failed)?;
        let mut rows = statement.query(params_from_iter(&self.values)).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            match row::read(row) {
                Ok(letter) if wanted(&letter) => found.push(letter),
                Ok(_) => {}
                Err(StoreError::Corrupt(what)) => {
                    tracing::error!(what, "tower-triage: a letter cannot be read, and is left out");
                }
                Err(error) => return Err(error),
            }
            if found.len() == limit {
                break;
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::{Place, SqliteOptions};

    fn plan(query: &Query) -> String {
        let folder = tempfile::tempdir().unwrap();
        let (_, conn) = Place::open(SqliteOptions::new(), &folder.path().join("store")).unwrap();
        let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {}", query.sql())).unwrap();
        let rows = statement.query_map(params_from_iter(&query.values), |row| row.get(3)).unwrap();
        rows.map(Result::<String, _>::unwrap).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn every_query_walks_the_index_and_sorts_nothing() {
        let now = Timestamp::from_millis(1_000);
        let all = Filter::any().operation("orders.*").from("shop").asking().before(now).after(now);
        for query in [
            Query::new(&Filter::any(), 0, now),
            Query::new(&all, 7, now),
            Query::new(&Filter::any().states([LetterState::Parked]), 0, now),
            Query::new(&Filter::any(), 0, now).free(now).due(now),
        ] {
            let plan = plan(&query);
            assert!(plan.contains("USING INDEX letter_facts (state=? AND seq>?)"), "{plan}");
            assert!(!plan.contains("TEMP B-TREE") && !plan.contains("SCAN"), "{plan}");
        }
    }
}
