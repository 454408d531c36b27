//! gRPC: rules, trailers, service config, UNAVAILABLE rejections; see [`tower_triage_grpc`].

pub use tower_triage_grpc::*;
