//! Moments that configured spans lead to, however long the spans are.

use std::time::Duration;

use tokio::time::Instant;

/// So far away that nobody lives to see it, and near enough to be a moment.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 3600);

/// `span` after `now`, but no further away than 30 years.
pub(crate) fn later(now: Instant, span: Duration) -> Instant {
    now + span.min(FAR)
}
