//! One request's part in a budget.

use std::sync::Arc;

use super::in_flight::InFlight;

/// What one logical request holds of its [`Budget`](super::Budget): begun with it, asked with it,
/// dropped with it. Small and without heap of its own. Dropped at any moment it gives back its
/// place in flight, where the budget counts places; what was spent stays spent. By default a part in
/// none.
#[derive(Debug, Default)]
#[must_use = "dropping it ends the request"]
pub struct Spending {
    /// Retries that the request's own limit leaves, once the first was asked for.
    pub(super) limit_left: Option<u32>,
    pub(super) held: Held,
}

/// What the kind of budget keeps per request.
#[derive(Debug, Default)]
pub(super) enum Held {
    #[default]
    Nothing,
    /// What the last retry cost, if there was one.
    Cost(Option<u32>),
    Place(Place),
}

/// An attempt's place among those in flight.
#[derive(Debug)]
pub(super) struct Place {
    budget: Arc<InFlight>,
    attempt: Attempt,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Attempt {
    First,
    Retry,
    Ended,
}

impl Spending {
    pub(super) const fn new(held: Held) -> Self {
        Self { limit_left: None, held }
    }
}

impl Place {
    pub(super) fn first(budget: &Arc<InFlight>) -> Self {
        budget.start_call();
        Self { budget: Arc::clone(budget), attempt: Attempt::First }
    }

    /// Takes a retry's place, instead of the one held.
    pub(super) fn retry(&mut self) -> bool {
        self.end();
        let allowed = self.budget.try_start_retry();
        if allowed {
            self.attempt = Attempt::Retry;
        }
        allowed
    }

    pub(super) fn end(&mut self) {
        match std::mem::replace(&mut self.attempt, Attempt::Ended) {
            Attempt::First => self.budget.end_call(),
            Attempt::Retry => self.budget.end_retry(),
            Attempt::Ended => {}
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.end();
    }
}
