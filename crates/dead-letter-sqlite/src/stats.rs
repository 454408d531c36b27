//! Counts, from the index alone.

use rusqlite::{Connection, Row};
use tower_triage_escalate::Timestamp;
use tower_triage_escalate::store::{LetterState, Stats, StoreError};

use crate::error::failed;
use crate::row::millis;

/// Both read the index and no document. This one follows it.
const ALL: &str = "SELECT state, count(*) FROM letter INDEXED BY letter_facts GROUP BY state";
/// And this one has to sort, so it leaves the settled ones out, which are most.
const UNSETTLED: &str = "SELECT state, class, operation, count(*), \
    count(*) FILTER (WHERE asks_until > ?1), count(*) FILTER (WHERE lease_until > ?1), min(stored) \
    FROM letter INDEXED BY letter_facts WHERE state IN ('open', 'parked') \
    GROUP BY state, class, operation";

pub(crate) fn stats(conn: &Connection, now: Timestamp) -> Result<Stats, StoreError> {
    let mut stats = Stats::default();
    // All see the same moment.
    let tx = conn.unchecked_transaction().map_err(failed)?;
    let dropped = "SELECT value FROM counter WHERE name = 'dropped'";
    stats.dropped = tx.query_row(dropped, [], |row| row.get(0)).map_err(failed)?;

    let mut statement = tx.prepare_cached(ALL).map_err(failed)?;
    let mut rows = statement.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let count: u64 = row.get(1).map_err(failed)?;
        stats.total += count;
        stats.by_state.insert(state(row)?, count);
    }

    let mut statement = tx.prepare_cached(UNSETTLED).map_err(failed)?;
    let mut rows = statement.query([millis(now)]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let count: u64 = row.get(3).map_err(failed)?;
        *stats.by_class.entry(row.get(1).map_err(failed)?).or_default() += count;
        *stats.by_operation.entry(row.get(2).map_err(failed)?).or_default() += count;
        stats.asking += row.get::<_, u64>(4).map_err(failed)?;
        stats.leased += row.get::<_, u64>(5).map_err(failed)?;
        if state(row)? == LetterState::Open {
            let stored = Timestamp::from_millis(row.get(6).map_err(failed)?);
            stats.oldest_open = Some(stats.oldest_open.map_or(stored, |oldest| oldest.min(stored)));
        }
    }
    Ok(stats)
}

fn state(row: &Row<'_>) -> Result<LetterState, StoreError> {
    let name: String = row.get(0).map_err(failed)?;
    let state = LetterState::ALL.into_iter().find(|state| state.as_str() == name);
    state.ok_or_else(|| StoreError::Corrupt(format!("state `{name}`")))
}
