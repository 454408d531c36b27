//! Doubles for the workspace's tests: services that do as they are told and remember it.

mod ports;
#[cfg(feature = "postgres")]
pub mod postgres;
mod scripted;
mod stopwatch;
mod strict;
mod watching;

pub use self::{
    ports::closed_port,
    scripted::{Scripted, scripted},
    stopwatch::Stopwatch,
    strict::Strict,
    watching::Seen,
};
