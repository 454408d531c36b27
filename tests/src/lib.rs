//! The conformance runner, behaviour as data run against the public API; and long random runs against
//! textbook models.

pub mod conformance;
pub mod textbook;
