//! The conformance runner: behaviour as data, run against the public API.

pub mod conformance;
