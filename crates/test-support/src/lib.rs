//! Doubles for the workspace's tests: services that do as they are told and remember it.

#[cfg(feature = "postgres")]
pub mod postgres;
mod scripted;
mod strict;
mod watching;

pub use self::{
    scripted::{Scripted, scripted},
    strict::Strict,
    watching::Seen,
};
