//! Reports on failures, for people: what failed and how often, what the breakers do, what can be done
//! about an error, what became of many calls, and when.
//!
//! ```
//! use tower::{ServiceBuilder, ServiceExt, service_fn};
//! use tower_triage_core::{AnyError, AnyOk, Chain, Classifier, ErrorClass, Halves};
//! use tower_triage_report::{FailureLog, View};
//! use tower_triage_retry::RetryLayer;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
//! let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
//! let log = FailureLog::new();
//! classifier.observe(log.clone());
//!
//! let stack = ServiceBuilder::new()
//!     .layer(RetryLayer::new(classifier))
//!     .service(service_fn(async |_: u32| -> Result<(), AnyError> {
//!         Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into())
//!     }));
//! stack.oneshot(1).await.unwrap_err();
//!
//! let report = log.report();
//! assert_eq!(report.by_class, [(ErrorClass::Transient, 3)]); // three attempts
//! println!("{}", report.show(View::stdout()));
//! # }
//! ```
//!
//! # The reports
//!
//! | report | says | fed by |
//! |---|---|---|
//! | [`FailureReport`] | totals, by class, by operation, by hour | [`FailureLog`], an observer |
//! | [`BreakerTable`] | name, success rate, state, what it does now | [`BreakerHandle`]s |
//! | [`ErrorReport`] | class, error, diagnosis, and options with confidence, time and risk | an incident, and you |
//! | [`WaveSummary`] | failed, blocked, succeeded; root cause and what it held up; a plan | [`Wave`] |
//! | [`WaveChart`] | what ran, waited and failed when; parallel efficiency; time left | [`Wave`] |
//!
//! Each is plain data with serde, and shows itself as text: plain and 80 columns wide by `Display`
//! (`{report:120}` for another width), or in a [`View`] with `show`: [`View::stdout`] takes the
//! terminal's width, and colours only a terminal.
//!
//! # How it learns of successes
//!
//! Observers hear of calls that meet a failure, and of no others: the happy path stays free. So a
//! [`FailureLog`] knows no success rate; a breaker does ([`BreakerTable`]), because it counts. Whoever
//! wants to see every call of a job gives its futures to [`Wave::watch`].
//!
//! # Where it sits
//!
//! Beside the stack: nothing here is a layer, and nothing is called unless something failed, apart
//! from the futures that you let a wave watch.
//!
//! # Defaults
//!
//! | what | default |
//! |---|---|
//! | width | the terminal's, else `COLUMNS`, else 80 |
//! | colour | on a terminal, unless `NO_COLOR` is set |
//! | kept | 64 operations, 24 hours; 256 ended calls of a wave |
//! | confidence from which on an option is applied | 0.9 |
//!
//! # What it does not do
//!
//! It acts on nothing: it does not apply the option that it recommends. It keeps nothing beyond this
//! process, serves no page and exports no metric.
//!
//! [`BreakerHandle`]: tower_triage_circuit_breaker::BreakerHandle

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

mod advice;
mod breakers;
mod error;
mod failures;
mod page;
mod text;
mod view;
mod wave;

pub use self::{
    advice::{Difficulty, Severity},
    breakers::{BreakerStatus, BreakerTable},
    error::{Advice, Choice, ErrorReport, Risk},
    failures::{FailureLog, FailureReport},
    view::{Shown, View},
    wave::{CallState, Cause, ChartRow, ChartSpan, Problem, Watch, Wave, WaveChart, WaveSummary},
};
