//! The peers, on the same work. Each is configured to do what ours does: up to three attempts with a
//! budget where it has one, a breaker by failure rate, a fixed value as fallback. Where the work
//! fails, no budget refuses, no breaker trips and no retry waits, as far as a peer can be told so.

mod backon;
mod breakers;
mod resilience;
mod seatbelt;
mod tower_retry;

use crate::case::Case;
use crate::sizes::Size;

/// What is not compared, and why. Printed below the table.
pub const NOT_COMPARED: &[(&str, &str)] = &[
    (
        "retries without a wait of tower-resilience and backon",
        "they sleep for a delay of zero, which is a tick of the timer",
    ),
    ("failsafe and recloser where a fallback answers", "they only break circuits"),
    (
        "reqwest-retry",
        "it is bound to a reqwest client, so it cannot wrap the same work: `http` compares it",
    ),
];

/// All peers.
#[must_use]
pub fn cases() -> Vec<Case> {
    let mut cases = tower_retry::cases();
    cases.extend(resilience::cases());
    cases.extend(seatbelt::cases());
    cases.extend(breakers::cases());
    cases.extend(backon::cases());
    cases
}

/// The peers' futures over HTTP requests.
#[must_use]
pub fn http_sizes() -> Vec<Size> {
    vec![resilience::http_size(), seatbelt::http_size(), tower_retry::http_size()]
}
