//! How long to wait before the next try: a schedule as plain data, stepped with its randomness as
//! an argument.
//!
//! | schedule | before the n-th retry |
//! |---|---|
//! | [`Backoff::immediate`] | nothing |
//! | [`Backoff::fixed`] | `base` |
//! | [`Backoff::linear`] | `base + (n - 1) * step` |
//! | [`Backoff::exponential`] | `base * factor^(n - 1)` |
//! | [`Backoff::range`] | uniform between two bounds |
//! | [`Backoff::decorrelated`] | uniform between `base` and three times the last delay |
//! | [`Backoff::list`] | the n-th given delay; the last repeats |
//!
//! [`Backoff::first_immediate`] puts a retry without a wait in front of any of them. The
//! [`Jitter`] is drawn around what the curve gives, the cap holds before and after it, and
//! [`HintMode`] says what becomes of the delay when the server asked for another.

mod curve;
mod delays;
mod hint;
mod jitter;
mod schedule;
#[cfg(feature = "serde")]
mod text;

#[cfg(test)]
mod tests;

pub use self::{
    delays::{Delays, Iter},
    hint::{HintMode, Hinted},
    jitter::Jitter,
    schedule::{Backoff, CapWhen},
};
