//! The tables, and how they came to be.

use tower_triage_escalate::store::StoreError;

use crate::connection::Lent;
use crate::query::MIGRATING;

/// What turns each version of the schema into the next; the first makes it.
const STEPS: [&str; 1] = [include_str!("schema/1.sql")];

/// Brings the schema to the present version. Of several processes that start together one does it.
pub(crate) async fn migrate(client: &mut Lent) -> Result<(), StoreError> {
    let row = client.query("SHOW server_encoding", &[]).await?;
    let encoding: String = row.first().map_or_else(String::new, |row| row.get(0));
    if encoding != "UTF8" {
        let problem = format!("the database is encoded in {encoding}; letters need UTF8");
        return Err(StoreError::unavailable(problem));
    }
    // Most of the time there is nothing to do, and then nothing but reading has to be allowed.
    if version(client).await? == Some(STEPS.len()) {
        return Ok(());
    }
    client.begin().await?;
    client.run(&format!("SELECT pg_advisory_xact_lock({MIGRATING})")).await?;
    // One row: what is true of the whole store. A session that has looked for the table in vain
    // remembers that; this statement looks again.
    let table = "CREATE TABLE IF NOT EXISTS tower_triage_store \
         (version int NOT NULL, dropped bigint NOT NULL DEFAULT 0); \
         INSERT INTO tower_triage_store (version) \
         SELECT 0 WHERE NOT EXISTS (SELECT FROM tower_triage_store)";
    client.run(table).await?;
    let old = version(client).await?.unwrap_or(0);
    let Some(steps) = STEPS.get(old..) else {
        return Err(StoreError::Corrupt(format!(
            "the schema has version {old}, made by a newer program; this one knows {}",
            STEPS.len()
        )));
    };
    for step in steps {
        client.run(step).await?;
    }
    client.run(&format!("UPDATE tower_triage_store SET version = {}", STEPS.len())).await?;
    client.commit().await
}

async fn version(client: &mut Lent) -> Result<Option<usize>, StoreError> {
    let table = client.query("SELECT to_regclass('tower_triage_store') IS NULL", &[]).await?;
    if table.first().is_none_or(|row| row.get(0)) {
        return Ok(None);
    }
    let rows = client.query("SELECT version::int FROM tower_triage_store", &[]).await?;
    let version: Option<i32> = rows.first().map(|row| row.get(0));
    Ok(version.map(|version| usize::try_from(version).unwrap_or(usize::MAX)))
}
