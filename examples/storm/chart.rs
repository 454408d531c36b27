//! The breaker's states over time, under the phases of the upstream.

use std::fmt::Write;
use std::time::Duration;

use tower_triage::circuit_breaker::State;

use crate::upstream::Phase;

const WIDTH: usize = 72;

/// Two lines: what the upstream did, and what the breaker made of it.
pub(crate) fn breaker(
    phases: &[(Duration, Phase)],
    states: &[(Duration, State)],
    whole: Duration,
) -> String {
    let at = |column: usize| whole.mul_f64((column as f64 + 0.5) / WIDTH as f64);
    let current = |column: usize| {
        let now = at(column);
        states.iter().rev().find(|(since, _)| *since <= now).map_or(State::Closed, |(_, s)| *s)
    };
    let mut upstream = String::new();
    for (index, (since, phase)) in phases.iter().enumerate() {
        let until = phases.get(index + 1).map_or(whole, |(next, _)| *next);
        let columns = (0..WIDTH).filter(|c| (*since..until).contains(&at(*c))).count();
        let name: String = phase.name().chars().take(columns.saturating_sub(1)).collect();
        let _ = write!(upstream, "|{name:<width$}", width = columns.saturating_sub(1));
    }
    let strip: String = (0..WIDTH)
        .map(|column| match current(column) {
            State::Closed | State::ForcedClosed | State::Disabled => '_',
            State::Open | State::ForcedOpen => '#',
            State::HalfOpen => '?',
        })
        .collect();
    format!("  upstream {upstream}\n  breaker  {strip}   _ closed  # open  ? half-open\n")
}
