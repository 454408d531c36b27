//! The conformance runner, behaviour as data run against the public API; long random runs against
//! textbook models; and a soak of the full stack.

pub mod conformance;
pub mod retry_storm;
pub mod soak;
pub mod textbook;
