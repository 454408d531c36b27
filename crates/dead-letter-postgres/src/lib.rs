mod connection;
mod error;
mod options;
mod query;
mod retain;
mod row;
mod schema;
mod stats;
mod store;
mod text;
mod writer;

pub use self::{options::PostgresOptions, store::PostgresStore};
