//! retry

pub mod budget;
