//! tower-http's `classify` traits, both ways.

mod layer;
mod ours;
mod theirs;

pub use self::{
    layer::{MakeClassifierLayer, MakeClassifierService, StampFuture, Stamped},
    ours::{MakeTriageClassifier, TraceFailure, TriageClassifier},
    theirs::{ByMakeClassifier, by_make_classifier, server_errors},
};
