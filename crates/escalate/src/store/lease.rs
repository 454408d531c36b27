//! Who wants to work on letters, and on which.

use std::time::Duration;

use tower_triage_core::incident::IncidentId;

use crate::store::Filter;

/// Asks for letters to work on; see [`Store::lease`](crate::store::Store::lease).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct LeaseRequest {
    /// Who asks, for people.
    pub owner: String,
    /// How many at most.
    pub limit: u32,
    /// How long they are theirs. Default: 5 min.
    pub time: Duration,
    /// Open letters that are due and match; not looked at if there are `ids`.
    pub filter: Filter,
    /// These, due or not, parked or not.
    pub ids: Vec<IncidentId>,
    /// A letter that was tried so often is parked instead. Default: 5; it does not hold for `ids`.
    pub park_after: u32,
    /// It is the call itself, which waited for the answer: it does not wait for the letter to be
    /// due.
    pub waiter: bool,
}

impl LeaseRequest {
    /// Up to `limit` open letters that are due.
    #[must_use]
    pub fn new(owner: impl Into<String>, limit: u32) -> Self {
        Self {
            owner: owner.into(),
            limit,
            time: Duration::from_secs(300),
            filter: Filter::default(),
            ids: Vec::new(),
            park_after: 5,
            waiter: false,
        }
    }

    /// How long they are the asker's.
    #[must_use]
    pub const fn time(mut self, time: Duration) -> Self {
        self.time = time;
        self
    }

    /// Only those that match.
    #[must_use]
    pub fn filter(mut self, filter: Filter) -> Self {
        self.filter = filter;
        self
    }

    /// Only these.
    #[must_use]
    pub fn ids(mut self, ids: impl IntoIterator<Item = IncidentId>) -> Self {
        self.ids = ids.into_iter().collect();
        self
    }

    /// What was tried so often is parked.
    #[must_use]
    pub const fn park_after(mut self, tries: u32) -> Self {
        self.park_after = tries;
        self
    }

    /// For the call that waited for the answer to letter `id`.
    #[must_use]
    pub fn waiter(id: IncidentId, owner: impl Into<String>) -> Self {
        Self { waiter: true, ..Self::new(owner, 1).ids([id]) }
    }
}
