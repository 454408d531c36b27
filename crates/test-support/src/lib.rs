//! Doubles for the workspace's tests: services that do as they are told and remember it.

mod scripted;
mod strict;
mod watching;

pub use self::{
    scripted::{Scripted, scripted},
    strict::Strict,
    watching::Seen,
};
