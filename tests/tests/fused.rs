//! A fused stack does as its layers do one by one.

mod common;

mod fused {
    mod http;
    mod panics;
    mod spans;
    mod story;
}
