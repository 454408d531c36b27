//! Many calls with one purpose: a wave.

mod calls;
mod chart;
mod summary;
mod watch;

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tower_triage_core::incident::Labels;
use tower_triage_core::{Clock, Incident, Observer, Step};

use self::calls::Calls;

pub use self::calls::CallState;
pub use self::chart::{ChartRow, ChartSpan, WaveChart};
pub use self::summary::{Cause, Problem, WaveSummary};
pub use self::watch::Watch;

/// Follows the calls of a wave: what runs, what waits, what failed and what that held up. A cheap
/// handle; its clones share one state.
///
/// It learns of a call in two ways. [`watch`](Self::watch) tells that a call began and how it ended,
/// successes too; observing the classifier
/// ([`Classifier::observe`](tower_triage_core::Classifier::observe)) tells what happens in between:
/// failures, waits, breakers. Either works without the other's part.
///
/// ```
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_triage_core::{AnyError, AnyOk, Chain, Classifier, Halves};
/// use tower_triage_report::Wave;
/// use tower_triage_retry::RetryLayer;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
/// let wave = Wave::new().expecting(2);
/// classifier.observe(wave.clone());
/// let stack = ServiceBuilder::new()
///     .layer(RetryLayer::new(classifier))
///     .service(service_fn(async |task: u32| match task {
///         1 => Ok("done"),
///         _ => Err(AnyError::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset))),
///     }));
///
/// let first = wave.watch("first", stack.clone().oneshot(1));
/// let second = wave.watch("second", stack.oneshot(2));
/// let _ = (first.await, second.await);
///
/// let summary = wave.summary();
/// assert_eq!((summary.succeeded, summary.failed), (1, 1));
/// assert_eq!(summary.problems[0].retries, 2);
/// println!("{summary}\n{}", wave.chart());
/// # }
/// ```
///
/// Memory is bounded by the calls in flight and [`Wave::KEPT`] ended ones; what is not kept is still
/// counted. Steps that are recorded outside the watched future (in the worker of a `Buffer`) belong to
/// no call.
#[derive(Clone)]
pub struct Wave {
    calls: Arc<Mutex<Calls>>,
    clock: Clock,
}

thread_local! {
    /// Which call of which wave is being polled.
    static POLLED: Cell<Option<(usize, u64)>> = const { Cell::new(None) };
}

impl Wave {
    /// So many ended calls are kept, failed ones before others.
    pub const KEPT: usize = 256;

    /// A wave of unknown size, whose time begins now.
    #[must_use]
    pub fn new() -> Self {
        Self { calls: Arc::default(), clock: Clock::new() }
    }

    /// There will be so many calls: the chart can then say how long the rest will take.
    #[must_use]
    pub fn expecting(self, calls: u64) -> Self {
        self.calls(|state, _| state.expected = Some(calls));
        self
    }

    /// Follows `future`, a call that gives `Ok` or `Err`, from now to its end. A name need not be
    /// unique, but [`block`](Self::block) finds its call by it.
    ///
    /// # Cancel safety
    /// Dropped with its future; the call is then counted as abandoned.
    pub fn watch<F, T, E>(&self, name: impl Into<String>, future: F) -> Watch<F>
    where
        F: Future<Output = Result<T, E>>,
    {
        let id = self.calls(|calls, now| calls.begin(&name.into(), now));
        Watch::new(future, self.clone(), id)
    }

    /// A call that is not made, because the call named `by` failed.
    pub fn block(&self, name: impl Into<String>, by: impl Into<String>) {
        self.calls(|calls, now| calls.block(&name.into(), &by.into(), now));
    }

    /// How the calls ended, what failed, what it held up, and what to do about it.
    #[must_use]
    pub fn summary(&self) -> WaveSummary {
        self.calls(|calls, now| WaveSummary::new(calls, now))
    }

    /// What the calls did over time.
    #[must_use]
    pub fn chart(&self) -> WaveChart {
        self.calls(|calls, now| WaveChart::new(calls, now))
    }

    fn calls<T>(&self, f: impl FnOnce(&mut Calls, Duration) -> T) -> T {
        let now = self.clock.now();
        f(&mut self.calls.lock().unwrap_or_else(PoisonError::into_inner), now)
    }

    /// Runs `poll`, a poll of the call `id`: the steps in it are that call's.
    fn polling<T>(&self, id: u64, poll: impl FnOnce() -> T) -> T {
        struct Back(Option<(usize, u64)>);
        impl Drop for Back {
            fn drop(&mut self) {
                POLLED.set(self.0);
            }
        }
        let _back = Back(POLLED.replace(Some((self.address(), id))));
        poll()
    }

    /// The call of this wave that is being polled.
    fn polled(&self) -> Option<u64> {
        let (wave, id) = POLLED.get()?;
        (wave == self.address()).then_some(id)
    }

    fn address(&self) -> usize {
        Arc::as_ptr(&self.calls).addr()
    }
}

impl Default for Wave {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Wave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wave").finish_non_exhaustive()
    }
}

impl Observer for Wave {
    fn step(&self, _: &Labels, step: &Step) {
        if let Some(id) = self.polled() {
            self.calls(|calls, now| calls.step(id, step, now));
        }
    }

    fn incident(&self, incident: &Incident) {
        if let Some(id) = self.polled() {
            self.calls(|calls, _| calls.incident(id, incident));
        }
    }
}
