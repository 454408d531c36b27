//! What the writer does to letters, inside its transaction.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, params};
use tower_triage_core::incident::IncidentId;
use tower_triage_escalate::store::{
    Change, Dropped, Filter, LeaseRequest, Letter, LetterState, Put, Retention, StoreError,
};
use tower_triage_escalate::{Escalation, Timestamp};

use crate::error::failed;
use crate::query::Query;
use crate::row::{self, millis};

/// How many letters one transaction drops at most, so that puts do not wait long for retention.
pub(crate) const DROPPED_AT_ONCE: u64 = 1_000;

/// Stores `new`, whose document is `document`.
pub(crate) fn put(
    conn: &Connection,
    new: Letter,
    document: &str,
    now: Timestamp,
) -> Result<Put, StoreError> {
    let Some(mut letter) = row::get(conn, new.id())? else {
        row::insert(conn, &new, document)?;
        return Ok(Put::New);
    };
    let mut escalation: Escalation = new.escalation;
    escalation.request = new.request.map(Arc::new);
    let put = letter.put_again(escalation, now);
    if put != Put::Known {
        row::update(conn, &letter)?;
    }
    Ok(put)
}

pub(crate) fn change(
    conn: &Connection,
    id: IncidentId,
    change: Change,
    now: Timestamp,
) -> Result<Letter, StoreError> {
    let mut letter = row::get(conn, id)?.ok_or(StoreError::NotFound(id))?;
    letter.apply(change, now).map_err(|refused| StoreError::Refused(id, refused))?;
    row::update(conn, &letter)?;
    Ok(letter)
}

pub(crate) fn lease(
    conn: &Connection,
    request: &LeaseRequest,
    now: Timestamp,
) -> Result<Vec<Letter>, StoreError> {
    // Several rows change: all or none.
    whole(conn, || {
        let limit = request.limit as usize;
        let mut leased = Vec::new();
        let mut after = 0;
        while leased.len() < limit {
            let free = candidates(conn, request, after, limit - leased.len(), now)?;
            let Some(last) = free.last() else { break };
            after = last.seq;
            for mut letter in free {
                // What has been tried too often is parked instead.
                let is_leased = letter.lease(request, now);
                row::update(conn, &letter)?;
                leased.extend(is_leased.then_some(letter));
            }
        }
        Ok(leased)
    })
}

/// Letters behind `after` that `request` may have, in the order of storing.
fn candidates(
    conn: &Connection,
    request: &LeaseRequest,
    after: u64,
    limit: usize,
    now: Timestamp,
) -> Result<Vec<Letter>, StoreError> {
    let wanted = |letter: &Letter| letter.is_leasable(request, now);
    if request.ids.is_empty() {
        let query = match request.waiter {
            true => Query::new(&Filter::any(), after, now).free(now),
            false => Query::new(&request.filter, after, now).free(now).due(now),
        };
        return query.run(conn, limit, wanted);
    }
    let mut named = Vec::new();
    for id in &request.ids {
        match row::get(conn, *id) {
            Ok(letter) => named.extend(letter.filter(|found| found.seq > after && wanted(found))),
            Err(StoreError::Corrupt(what)) => {
                tracing::error!(%id, what, "tower-triage: a letter cannot be read");
            }
            Err(error) => return Err(error),
        }
    }
    named.sort_unstable_by_key(|letter| letter.seq);
    named.dedup_by_key(|letter| letter.seq);
    named.truncate(limit);
    Ok(named)
}

/// One part of what `retention` drops; there may be more if it is [`DROPPED_AT_ONCE`].
pub(crate) fn retain(
    conn: &Connection,
    retention: &Retention,
    now: Timestamp,
) -> Result<Dropped, StoreError> {
    whole(conn, || {
        let mut dropping = Dropping { conn, now, dropped: Dropped::default() };
        // A span that is longer than the calendar reaches behind every letter.
        let before = |span: Duration| {
            millis(now).saturating_sub(i64::try_from(span.as_millis()).unwrap_or(i64::MAX))
        };
        dropping.drop(&["settled < ?3"], before(retention.settled_for), u64::MAX)?;
        if let Some(span) = retention.open_for {
            let of = ["state = 'open' AND stored < ?3", "state = 'parked' AND stored < ?3"];
            dropping.drop(&of, before(span.0), u64::MAX)?;
        }
        // The oldest settled ones, then parked ones, then open ones.
        let settled = LetterState::ALL.into_iter().filter(|state| state.is_settled());
        for states in [settled.collect(), vec![LetterState::Parked], vec![LetterState::Open]] {
            let of: Vec<_> = states.iter().map(|s| format!("state = '{s}' AND seq > ?3")).collect();
            let of: Vec<&str> = of.iter().map(String::as_str).collect();
            let beyond = dropping.letters()?.saturating_sub(retention.most);
            dropping.drop(&of, 0, beyond)?;
        }
        let open = dropping.dropped.open;
        if open > 0 {
            let count = "UPDATE counter SET value = value + ?1 WHERE name = 'dropped'";
            conn.execute(count, [open]).map_err(failed)?;
        }
        Ok(dropping.dropped)
    })
}

struct Dropping<'a> {
    conn: &'a Connection,
    now: Timestamp,
    dropped: Dropped,
}

impl Dropping<'_> {
    fn letters(&self) -> Result<u64, StoreError> {
        let count = "SELECT count(*) FROM letter";
        self.conn.query_row(count, [], |row| row.get(0)).map_err(failed)
    }

    /// Drops the oldest letters of those that meet one of the conditions, in which `?3` is `value`:
    /// at most `most`, and no more in all than may be dropped at once. What somebody works on, or
    /// waits for, stays.
    fn drop(&mut self, conditions: &[&str], value: i64, most: u64) -> Result<(), StoreError> {
        let room = DROPPED_AT_ONCE.saturating_sub(self.dropped.settled + self.dropped.open);
        let limit = room.min(most);
        if limit == 0 {
            return Ok(());
        }
        let of = |condition: &&str| {
            format!(
                "SELECT seq FROM letter WHERE {condition} \
                 AND (lease_until IS NULL OR lease_until <= ?1) \
                 AND (asks_until IS NULL OR asks_until <= ?1)"
            )
        };
        let parts: Vec<String> = conditions.iter().map(of).collect();
        let sql = format!(
            "DELETE FROM letter WHERE seq IN ({} ORDER BY seq LIMIT ?2) \
             RETURNING settled IS NOT NULL",
            parts.join(" UNION ALL ")
        );
        let mut statement = self.conn.prepare_cached(&sql).map_err(failed)?;
        let mut rows = statement.query(params![millis(self.now), limit, value]).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            match row.get(0).map_err(failed)? {
                true => self.dropped.settled += 1,
                false => self.dropped.open += 1,
            }
        }
        Ok(())
    }
}

/// Runs `work` as a whole: if it fails, it has done nothing, and the transaction goes on.
fn whole<T>(
    conn: &Connection,
    work: impl FnOnce() -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    conn.execute_batch("SAVEPOINT work").map_err(failed)?;
    let done = work();
    let end = match done {
        Ok(_) => "RELEASE work",
        Err(_) => "ROLLBACK TO work; RELEASE work",
    };
    match (conn.execute_batch(end), done) {
        (Err(error), Ok(_)) => Err(failed(error)),
        // If it went wrong too, there is no transaction any more, and the writer sees that.
        (_, done) => done,
    }
}
