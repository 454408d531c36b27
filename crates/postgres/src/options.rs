//! How a transaction begins.

use tokio_postgres::{Client, IsolationLevel, TransactionBuilder};

/// Isolation level, access mode and deferrability; what is not said is the server's default
/// (PostgreSQL documentation, `SET TRANSACTION`).
///
/// A service has them as its defaults ([`Transactions::options`](crate::Transactions::options)), a
/// [`Unit`](crate::Unit) overrides each.
///
/// ```
/// use tokio_postgres::IsolationLevel;
/// use tower_triage_postgres::TransactionOptions;
///
/// let report = TransactionOptions::new()
///     .isolation(IsolationLevel::Serializable)
///     .read_only(true)
///     .deferrable(true); // waits until it can run without being disturbed
/// # let _ = report;
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct TransactionOptions {
    isolation: Option<IsolationLevel>,
    read_only: Option<bool>,
    deferrable: Option<bool>,
}

impl TransactionOptions {
    /// The server's defaults.
    pub const fn new() -> Self {
        Self { isolation: None, read_only: None, deferrable: None }
    }

    /// The isolation level.
    pub const fn isolation(mut self, level: IsolationLevel) -> Self {
        self.isolation = Some(level);
        self
    }

    /// Read only or read write.
    pub const fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = Some(read_only);
        self
    }

    /// Deferrable or not; it has an effect only on a serializable transaction that is read only.
    pub const fn deferrable(mut self, deferrable: bool) -> Self {
        self.deferrable = Some(deferrable);
        self
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only == Some(true)
    }

    /// These, and `defaults` for what they do not say.
    pub(crate) fn or(self, defaults: Self) -> Self {
        Self {
            isolation: self.isolation.or(defaults.isolation),
            read_only: self.read_only.or(defaults.read_only),
            deferrable: self.deferrable.or(defaults.deferrable),
        }
    }

    pub(crate) fn build(self, client: &mut Client) -> TransactionBuilder<'_> {
        let mut builder = client.build_transaction();
        if let Some(level) = self.isolation {
            builder = builder.isolation_level(level);
        }
        if let Some(read_only) = self.read_only {
            builder = builder.read_only(read_only);
        }
        if let Some(deferrable) = self.deferrable {
            builder = builder.deferrable(deferrable);
        }
        builder
    }
}
