//! HTTP: rules, hints, replay, 503 rejections; see [`tower_triage_http`].

pub use tower_triage_http::*;
