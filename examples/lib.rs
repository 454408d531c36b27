//! Stories on real sockets. Run one with `cargo run --example NAME`.
