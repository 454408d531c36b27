//! The peers, on the same work. Each is configured to do what ours does by default: up to three
//! attempts with a budget where it has one, a breaker by failure rate, a fixed value as fallback.

mod backon;
mod breakers;
mod resilience;
mod seatbelt;
mod tower_retry;

use crate::measure::Case;

/// Peers that do not build here, and why. Printed below the table.
pub const NOT_COMPARED: &[(&str, &str)] = &[];

/// All peers.
#[must_use]
pub fn cases() -> Vec<Case> {
    let mut cases = vec![tower_retry::case()];
    cases.extend(resilience::cases());
    cases.extend(seatbelt::cases());
    cases.extend(breakers::cases());
    cases.push(backon::case());
    cases
}
