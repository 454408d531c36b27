//! Opens a store by its name.

use std::sync::Arc;

use tower_triage_escalate::store::Store;

use crate::exit::Exit;

/// The store at `place`: a file, or a URL.
pub(crate) async fn open(place: Option<&str>) -> Result<Arc<dyn Store>, Exit> {
    let missing = "which store? Give --store FILE, --store postgres://.., or TRIAGE_STORE";
    match place.filter(|place| !place.is_empty()) {
        None => Err(Exit::Usage(missing.to_owned())),
        Some(url) if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
            postgres(url).await
        }
        Some(path) => sqlite(path).await,
    }
}

#[cfg(feature = "postgres")]
async fn postgres(url: &str) -> Result<Arc<dyn Store>, Exit> {
    use tower_triage_dead_letter_postgres::PostgresStore;

    Ok(Arc::new(PostgresStore::connect(url).await?))
}

#[cfg(not(feature = "postgres"))]
async fn postgres(_url: &str) -> Result<Arc<dyn Store>, Exit> {
    Err(Exit::Usage("this `triage` was built without PostgreSQL".to_owned()))
}

#[cfg(feature = "sqlite")]
async fn sqlite(path: &str) -> Result<Arc<dyn Store>, Exit> {
    use tower_triage_dead_letter_sqlite::SqliteStore;

    // Blocks, and nothing else goes on yet.
    match SqliteStore::open_existing(path) {
        Ok(store) => Ok(Arc::new(store)),
        Err(error) => Err(Exit::Store(error.to_string())),
    }
}

#[cfg(not(feature = "sqlite"))]
async fn sqlite(_path: &str) -> Result<Arc<dyn Store>, Exit> {
    Err(Exit::Usage("this `triage` was built without SQLite".to_owned()))
}
