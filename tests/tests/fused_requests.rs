//! What a fused stack reads from requests late. A binary of its own: `tracing` asks each place for its
//! level once for all threads, and `fused` listens.

mod common;

mod fused {
    mod http;
    mod panics;
}
