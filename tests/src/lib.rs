//! The conformance runner, behaviour as data run against the public API; long random runs against
//! textbook models; a soak of the full stack; and a simulation of retry storms.

/// What the pages in `docs/` show compiles.
#[cfg(doctest)]
#[doc = include_str!("../../docs/retry-storms.md")]
struct RetryStorms;

pub mod conformance;
pub mod learning;
pub mod retry_storm;
pub mod soak;
pub mod textbook;
