//! How many letters there are: counted by the server, from the columns.

use tower_triage_escalate::Timestamp;
use tower_triage_escalate::store::{LetterState, Stats, StoreError};

use crate::connection::Connections;
use crate::query::CLOCK;
use crate::row::{millis, moment};
use crate::text;

pub(crate) async fn count(
    connections: &Connections,
    at: Option<Timestamp>,
) -> Result<Stats, StoreError> {
    // Class and operation are of interest as long as there is something to do.
    let sql = format!(
        "WITH clock AS (SELECT coalesce($1::bigint, {CLOCK}) AS now) \
         SELECT state, \
         CASE WHEN settled IS NULL THEN class END, CASE WHEN settled IS NULL THEN operation END, \
         count(*), count(*) FILTER (WHERE asks_until > now), \
         count(*) FILTER (WHERE leased_until > now), min(stored) \
         FROM clock, tower_triage_letter GROUP BY 1, 2, 3"
    );
    let mut client = connections.lend().await?;
    let mut stats = Stats::default();
    for row in client.query(&sql, &[&at.map(millis)]).await? {
        let name: &str = row.get(0);
        let state = LetterState::ALL.into_iter().find(|state| state.as_str() == name);
        let state = state.ok_or_else(|| StoreError::Corrupt(format!("a letter is `{name}`")))?;
        let count = |column: usize| u64::try_from(row.get::<_, i64>(column)).unwrap_or(0);
        stats.total += count(3);
        *stats.by_state.entry(state).or_default() += count(3);
        stats.asking += count(4);
        stats.leased += count(5);
        if let (Some(class), Some(operation)) = (row.get(1), row.get::<_, Option<&str>>(2)) {
            *stats.by_class.entry(class).or_default() += count(3);
            *stats.by_operation.entry(text::decode(operation)).or_default() += count(3);
        }
        if state == LetterState::Open {
            let oldest = moment(row.get(6));
            stats.oldest_open = Some(stats.oldest_open.map_or(oldest, |first| first.min(oldest)));
        }
    }
    let dropped = client.query("SELECT dropped FROM tower_triage_store", &[]).await?;
    let dropped: i64 = dropped.first().map_or(0, |row| row.get(0));
    stats.dropped = u64::try_from(dropped).unwrap_or(0);
    Ok(stats)
}
