//! What the tests of the ladder share.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower::{Service, service_fn};
use tower_triage_core::{AnyError, Chain, ClassifyError, ErrorClass, Failure, Note, RetryAfter};
use tower_triage_escalate::{ChannelSink, Desk, Escalation, Receiver, Route, Routes};

/// An error that says what it is.
#[derive(Debug)]
pub(crate) struct Oops(Failure);

impl std::fmt::Display for Oops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "it was {}", self.0.class)
    }
}

impl std::error::Error for Oops {}

/// Believes what an [`Oops`] says; the rest is as usual.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said;

impl ClassifyError<AnyError> for Said {
    fn error(&self, error: &AnyError) -> Failure {
        let said = error.downcast_ref::<Oops>().map(|Oops(failure)| *failure);
        said.unwrap_or_else(|| ClassifyError::error(&Chain, error))
    }

    fn annotate(&self, error: &mut AnyError, note: &Note) -> bool {
        ClassifyError::annotate(&Chain, error, note)
    }

    fn explain(&self, error: &AnyError, out: &mut dyn std::fmt::Write) {
        ClassifyError::explain(&Chain, error, out);
    }
}

/// What becomes of one call of a service.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Answer,
    Fail(ErrorClass),
    /// Throttled, and asked to come back then.
    Later(Duration),
    /// Answers after that time.
    Slow(Duration),
}

/// What was called, and when, in milliseconds.
#[derive(Clone)]
pub(crate) struct Log {
    begun: Instant,
    lines: Arc<Mutex<Vec<(u128, String)>>>,
}

impl Act {
    pub(crate) const HANG: Self = Self::Slow(Duration::MAX);
}

impl Log {
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), lines: Arc::default() }
    }

    pub(crate) fn lines(&self) -> Vec<(u128, String)> {
        self.lines.lock().unwrap().clone()
    }

    fn put(&self, what: &str) {
        let at = self.begun.elapsed().as_millis();
        self.lines.lock().unwrap().push((at, what.to_owned()));
    }
}

/// Answers with the job's own text, or as `act` says of it. It is called by its `name`, or by the job
/// that it gets.
pub(crate) fn agent(
    name: Option<&'static str>,
    log: &Log,
    act: impl FnMut(&str) -> Act + Send + 'static,
) -> impl Service<
    String,
    Response = String,
    Error = AnyError,
    Future = impl Future<Output = Result<String, AnyError>> + Send,
> + Clone
+ Send
+ 'static {
    let (log, act) = (log.clone(), Arc::new(Mutex::new(act)));
    service_fn(move |job: String| {
        let name = name.map_or(job, str::to_owned);
        log.put(&name);
        let act = (act.lock().unwrap())(&name);
        async move {
            let failure = match act {
                Act::Answer => return Ok(name),
                Act::Slow(time) => {
                    sleep(time).await;
                    return Ok(name);
                }
                Act::Fail(class) => Failure::new(class),
                Act::Later(time) => {
                    Failure::new(ErrorClass::Throttled).retry_after(RetryAfter::AtLeast(time))
                }
            };
            Err(Oops(failure).into())
        }
    })
}

/// A desk, and what comes to it.
pub(crate) fn desk() -> (Desk, tokio::sync::mpsc::Receiver<Escalation>) {
    let (sink, inbox) = ChannelSink::new(64).unwrap();
    let routes = Routes::new(Route::new(["operator"], "human_required"));
    (Desk::new(routes, [Receiver::new("operator").record(sink)]).unwrap(), inbox)
}
