//! What is forgotten: found and dropped by the server, from the columns.

use std::time::Duration;

use tokio_postgres::types::ToSql;
use tower_triage_escalate::Timestamp;
use tower_triage_escalate::store::{Dropped, Retention, StoreError};

use crate::connection::Connections;
use crate::error::within;
use crate::query::{CLOCK, FREE, RETAINING};
use crate::row::millis;

/// How many letters are dropped by one statement: few enough for the time that it has.
const AT_ONCE: i64 = 1000;

type Param<'a> = &'a (dyn ToSql + Sync);

pub(crate) async fn retain(
    connections: &Connections,
    limit: Duration,
    retention: Retention,
    at: Option<Timestamp>,
) -> Result<Dropped, StoreError> {
    let span = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX / 2);
    let most = i64::try_from(retention.most).unwrap_or(i64::MAX);
    let (at, settled) = (at.map(millis), span(retention.settled_for));
    let open = retention.open_for.map(|time| span(time.0));
    let old = "AND (settled < now - $2::bigint OR settled IS NULL AND stored < now - $3::bigint) \
         LIMIT $4::bigint";
    // As `Retention::rank` has it.
    let too_many = "ORDER BY CASE state WHEN 'open' THEN 2 WHEN 'parked' THEN 1 ELSE 0 END, seq \
         LIMIT least((SELECT greatest(count(*) - $2::bigint, 0) FROM tower_triage_letter), $3::bigint)";
    let (old_params, too_many_params): ([Param<'_>; 4], [Param<'_>; 3]) =
        ([&at, &settled, &open, &AT_ONCE], [&at, &most, &AT_ONCE]);
    let mut dropped = Dropped::default();
    for (which, params) in [(old, &old_params[..]), (too_many, &too_many_params)] {
        loop {
            let (settled, open) = within(limit, drop_some(connections, which, params)).await?;
            dropped.settled += u64::try_from(settled).unwrap_or(0);
            dropped.open += u64::try_from(open).unwrap_or(0);
            if settled + open < AT_ONCE {
                break;
            }
        }
    }
    connections.changed.notify_waiters();
    dropped.log();
    Ok(dropped)
}

/// Drops those letters of `which` that may be dropped at all; gives how many were settled, and how
/// many were not.
async fn drop_some(
    connections: &Connections,
    which: &str,
    params: &[Param<'_>],
) -> Result<(i64, i64), StoreError> {
    let sql = format!(
        "WITH clock AS (SELECT coalesce($1::bigint, {CLOCK}) AS now), \
         victims AS (SELECT seq FROM clock, tower_triage_letter WHERE {FREE} \
         AND (asks_until IS NULL OR asks_until <= now) {which} \
         FOR UPDATE OF tower_triage_letter SKIP LOCKED), \
         gone AS (DELETE FROM tower_triage_letter AS l USING victims WHERE l.seq = victims.seq \
         RETURNING l.settled), \
         counted AS (UPDATE tower_triage_store SET dropped = dropped + \
         (SELECT count(*) FROM gone WHERE settled IS NULL)) \
         SELECT count(settled), count(*) - count(settled) FROM gone"
    );
    let mut client = connections.lend().await?;
    client.begin().await?;
    client.run(&format!("SELECT pg_advisory_xact_lock({RETAINING})")).await?;
    let rows = client.query(&sql, params).await?;
    client.commit().await?;
    Ok(rows.first().map_or((0, 0), |row| (row.get(0), row.get(1))))
}
