//! One verdict per failure, for every layer of tower-triage.
#![doc = ""]

mod any_error;
pub mod backoff;
mod chain;
mod class;
mod classifier;
mod classify;
mod classify_layer;
mod clock;
mod config;
mod describe;
pub mod incident;
mod label;
mod note;
mod observation;
mod random;
mod rejection;
mod share;
mod trace;
mod verdict;

pub use self::{
    any_error::{AnyError, BoxError},
    backoff::{Backoff, Delays, Jitter},
    chain::{
        Chain, Phase, causes, classify_chain, find, io_failure, local_failure, stamped, write_chain,
    },
    class::{ClassSet, ErrorClass, EscalateWhen, RetryRule, Vote},
    classifier::Classifier,
    classify::{
        AdjustExt, Adjusted, AnyOk, Classify, ClassifyError, ClassifyFn, ClassifyResponse, Halves,
        OwnError, ToFailure, classify_fn,
    },
    classify_layer::{ClassifyLayer, ClassifyService},
    clock::{Clock, wall_clock},
    config::ConfigError,
    describe::{Describe, Key, Target},
    incident::{Incident, LayerKind, Observer, Refusal, Resolution, Step, StepKind},
    label::{Label, Operation},
    note::{Note, Notes, Stamp, StampOutcome},
    observation::{Fingerprint, Observation},
    random::Random,
    rejection::CircuitOpen,
    share::Shared,
    trace::TraceParent,
    verdict::{Disposition, Failure, RetryAfter, ServerWord, Verdict},
};
