//! sqlite

mod change;
mod connect;
mod error;
mod query;
mod reader;
mod row;
mod stats;
mod store;
mod watch;
mod writer;

pub use self::{connect::SqliteOptions, error::OpenError, store::SqliteStore};
