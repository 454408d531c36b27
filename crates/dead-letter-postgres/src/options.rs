//! What a store may use, and how long it may take.

use std::time::Duration;

use tower_triage_core::ConfigError;
use tower_triage_escalate::store::StoreError;

/// What a [`PostgresStore`](crate::PostgresStore) may use, and how long a call may take.
///
/// | setting | default | refused |
/// |---|---|---|
/// | [`connections`](Self::connections) | 8 | 0 |
/// | [`timeout`](Self::timeout) | 10 s | 0 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostgresOptions {
    pub(crate) connections: usize,
    pub(crate) timeout: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self { connections: 8, timeout: Duration::from_secs(10) }
    }
}

impl PostgresOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How many connections there may be at a time; one more listens once somebody has waited for a
    /// change.
    #[must_use]
    pub const fn connections(mut self, most: usize) -> Self {
        self.connections = most;
        self
    }

    /// How long a call may take, connecting and waiting for a connection included. Then it fails
    /// with [`StoreError::Unavailable`], and its connection is closed.
    #[must_use]
    pub const fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = limit;
        self
    }

    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let zero = [("connections", self.connections == 0), ("timeout", self.timeout.is_zero())];
        match zero.into_iter().find(|(_, is_zero)| *is_zero) {
            Some((field, _)) => {
                let error = ConfigError::new(field, 0, "it must be more than nothing");
                Err(StoreError::unavailable(error))
            }
            None => Ok(()),
        }
    }
}
