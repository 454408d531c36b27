//! A reqwest client as a guarded service, and reqwest-middleware both ways; see
//! [`tower_triage_reqwest`].

pub use tower_triage_reqwest::*;
