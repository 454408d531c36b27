//! One verdict per failure, for every layer of tower-triage.
//!
//! This crate is what the layers have in common, without I/O and without a protocol:
//!
//! | piece | question it answers |
//! |---|---|
//! | [`ErrorClass`], [`Verdict`], [`Failure`] | what happened? |
//! | [`Classify`], [`Halves`], [`classify_fn`], [`Chain`] | who says so? |
//! | [`Describe`] | what is known of the request? |
//! | [`Classifier`] | the one handle that all layers of a stack share: rules, overrides, counters, observers |
//! | [`ClassifyLayer`] | a classifier that has to be asked: remote, learned |
//! | [`AnyError`], [`CircuitOpen`], [`Elapsed`] | which error types fit every stack? |
//! | [`incident`] | the record of one call that met a failure |
//! | [`FuseLayer`] | how do several layers cost little more than one? |
//! | [`Backoff`], [`Jitter`] | how long until the next try? |
//!
//! ```
//! use std::io;
//! use tower_triage_core::{AnyError, AnyOk, Chain, Classifier, ErrorClass, Halves, Operation, Verdict};
//!
//! let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
//! let reset = AnyError::from(io::Error::from(io::ErrorKind::ConnectionReset));
//! let verdict = classifier.judge::<(), _>(&Operation::EMPTY, Err(&reset));
//! assert_eq!(verdict.failure().unwrap().class, ErrorClass::Transient);
//! ```
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `tower` | yes | tower's own errors (timeout, load shed, buffer) are known by type |
//! | `tower-balance` | no | those of tower's balancer |
//! | `serde` | no | `Serialize` and `Deserialize` for plain data |
//! | `coarse-clock` | no | `Clock::coarse`, a cheaper clock for breakers and budgets, on Linux |
//!
//! # What it does not do
//!
//! It repeats nothing, opens nothing and sends nothing: that is what the layers do.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

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
#[cfg(feature = "serde")]
pub mod duration_text;
mod elapsed;
pub mod fuse;
mod held;
pub mod incident;
mod label;
mod note;
mod observation;
mod random;
pub mod redact;
mod rejection;
mod rules_ext;
pub mod share;
mod sync;
mod trace;
mod verdict;

pub use self::{
    any_error::{AnyError, BoxError},
    backoff::{Backoff, CapWhen, Delays, HintMode, Jitter},
    chain::{
        Chain, Phase, causes, classify_chain, find, io_failure, local_failure, stamped, write_chain,
    },
    class::{ClassSet, ErrorClass, EscalateWhen, RetryRule, Vote},
    classifier::Classifier,
    classify::{
        AnyOk, Classify, ClassifyError, ClassifyFn, ClassifyResponse, Halves, OwnError, ToFailure,
        classify_fn,
    },
    classify_layer::{ClassifyLayer, ClassifyService},
    clock::{Clock, wall_clock},
    config::ConfigError,
    describe::{Describe, Key, Target},
    elapsed::Elapsed,
    fuse::FuseLayer,
    held::HeldError,
    incident::{Incident, LayerKind, Observer, Refusal, Resolution, Step, StepKind},
    label::{Label, Operation},
    note::{Note, Notes, Stamp, StampOutcome},
    observation::{Advisor, Fingerprint, Observation},
    random::Random,
    rejection::CircuitOpen,
    rules_ext::{Adjusted, Described, RequestFacts, RulesExt},
    share::{Counted, Leaked, Sharing},
    trace::TraceParent,
    verdict::{Disposition, Failure, RetryAfter, ServerWord, Verdict},
};
