//! A fused stack does as its layers do one by one.

mod common;

mod fused {
    mod spans;
    mod story;
}
