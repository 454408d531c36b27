//! A row of the table: a name and a loop that makes calls.

use std::fmt;
use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::pin::{Pin, pin};
use std::sync::{Mutex, OnceLock, PoisonError};

use tower_service::Service;

use crate::work::WorkFailed;

/// Makes as many calls as it is told, on whichever thread asks for them. What it does once per run
/// (cloning the service) is spread over all calls.
pub type Loop = Box<dyn Fn(u64) -> Running + Send + Sync>;

/// A loop that runs.
pub type Running = Pin<Box<dyn Future<Output = ()>>>;

/// Something that can be called `n` times.
pub struct Case {
    /// What is measured: what fails, and how often.
    pub group: &'static str,
    /// Whose layers.
    pub who: String,
    /// The loop over a service that each run keeps.
    pub kept: Made,
    /// The loop that clones the service for each call, where it is a Tower service.
    pub cloned: Option<Made>,
    /// Is it measured what a second thread brings?
    pub two_threads: bool,
    /// Bytes of the future, where its type is at hand.
    pub size: Option<usize>,
}

/// A loop that is made when it is first needed, inside the runtime that needs it: warming up one
/// case must not be paid for by a process that runs another.
pub struct Made {
    make: Box<dyn Fn() -> Loop + Send + Sync>,
    made: OnceLock<Loop>,
}

impl Made {
    /// `make` makes the loop.
    pub fn new(make: impl Fn() -> Loop + Send + Sync + 'static) -> Self {
        Self { make: Box::new(make), made: OnceLock::new() }
    }

    /// Makes `calls` calls.
    #[must_use]
    pub fn run(&self, calls: u64) -> Running {
        self.made.get_or_init(&self.make)(calls)
    }
}

/// How a call must end; anything else ends the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// With an answer.
    Answer,
    /// With an error.
    Error,
    /// With either, as the work decides: whoever has no fallback.
    Either,
}

impl Expect {
    /// Ends the program if `outcome` is another.
    pub fn check<T, E>(self, who: &str, outcome: &Result<T, E>) {
        let right = match self {
            Self::Answer => outcome.is_ok(),
            Self::Error => outcome.is_err(),
            Self::Either => true,
        };
        assert!(right, "{who}: expected {self:?}, got ok: {}", outcome.is_ok());
    }
}

impl Case {
    /// A case of any loop.
    pub fn new(
        group: &'static str,
        who: impl Into<String>,
        make: impl Fn() -> Loop + Send + Sync + 'static,
    ) -> Self {
        Self {
            group,
            who: who.into(),
            kept: Made::new(make),
            cloned: None,
            two_threads: true,
            size: None,
        }
    }

    /// A case of a Tower service, kept and cloned per call; its future is sized.
    pub fn tower<S, M>(group: &'static str, who: &'static str, expect: Expect, make: M) -> Self
    where
        S: Service<u64, Response = u64> + Clone + Send + 'static,
        M: Fn() -> S + Clone + Send + Sync + 'static,
    {
        let (cloning, sized) = (make.clone(), make.clone());
        let mut case = Self::new(group, who, move || kept_loop(who, expect, make()));
        case.cloned = Some(Made::new(move || cloned_loop(who, expect, cloning())));
        case.size = future_size(&mut sized());
        case
    }

    /// The same, but two threads are not measured.
    #[must_use]
    pub fn one_thread(mut self) -> Self {
        self.two_threads = false;
        self
    }

    /// `group: who`, by which one case is found.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}: {}", self.group, self.who)
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Made").field("made", &self.made.get().is_some()).finish_non_exhaustive()
    }
}

/// Calls a service one call after the other, readiness first.
pub fn kept_loop<S>(who: &'static str, expect: Expect, service: S) -> Loop
where
    S: Service<u64, Response = u64> + Clone + Send + 'static,
{
    let shared = Mutex::new(service);
    Box::new(move |calls| {
        let mut service = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(async move {
            for request in 0..calls {
                call(&mut service, who, expect, request).await;
            }
        })
    })
}

/// Calls a clone of a service each time, as servers do that clone per request.
fn cloned_loop<S>(who: &'static str, expect: Expect, service: S) -> Loop
where
    S: Service<u64, Response = u64> + Clone + Send + 'static,
{
    let shared = Mutex::new(service);
    Box::new(move |calls| {
        let service = shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Box::pin(async move {
            for request in 0..calls {
                call(&mut service.clone(), who, expect, request).await;
            }
        })
    })
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "part of the measured loop, in every case alike")]
async fn call<S>(service: &mut S, who: &str, expect: Expect, request: u64)
where
    S: Service<u64, Response = u64>,
{
    let ready = poll_fn(|cx| service.poll_ready(cx)).await;
    assert!(ready.is_ok(), "{who}: not ready");
    // Pinned where it is made: moving the future is not the layers' cost.
    let outcome = pin!(service.call(black_box(request))).await;
    expect.check(who, &black_box(outcome));
}

/// The size of the future of a call; `None` for a service that is not ready at once.
pub fn future_size<S: Service<u64>>(service: &mut S) -> Option<usize> {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    match service.poll_ready(&mut cx) {
        std::task::Poll::Ready(Ok(())) => Some(size_of_val(&service.call(0))),
        _ => None,
    }
}

/// Fails a call, so that a breaker that trips at once is open.
#[must_use]
pub fn tripped<S>(mut service: S) -> S
where
    S: Service<u64, Error = WorkFailed>,
{
    use futures_util::FutureExt;
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let _ = service.poll_ready(&mut cx);
    let outcome = service.call(0).now_or_never();
    assert!(matches!(outcome, Some(Err(_))), "the first call should have failed");
    service
}

/// Runs a loop to its end where it is made, outside the runtime: nothing in it may wait.
///
/// # Panics
/// If it waits.
pub fn complete(running: Running) {
    use futures_util::FutureExt;
    assert!(running.now_or_never().is_some(), "a warm-up does not wait");
}
