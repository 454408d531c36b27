//! PostgreSQL: SQLSTATE rules, transactions and statements as services; see [`tower_triage_postgres`].

pub use tower_triage_postgres::*;
