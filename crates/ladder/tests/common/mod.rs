//! What the tests of the ladder share.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_triage_core::{
    AnyError, AnyOk, Chain, Classifier, ClassifyError, ErrorClass, Failure, Halves, Incident, Note,
    RetryAfter,
};
use tower_triage_escalate::{ChannelSink, Desk, Escalation, Failed, Receiver, Route, Routes};
use tower_triage_ladder::Ladder;
use tower_triage_test_support::Seen;

pub const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// An error that says what it is.
#[derive(Debug)]
pub struct Oops(Failure);

impl std::fmt::Display for Oops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "it was {}", self.0.class)
    }
}

impl std::error::Error for Oops {}

/// Believes what an [`Oops`] says; the rest is as usual.
#[derive(Clone, Copy, Debug)]
pub struct Said;

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
pub enum Act {
    Answer,
    Fail(ErrorClass),
    /// Throttled, and asked to come back then.
    Later(Duration),
    Hang,
}

/// What was called, and when, in milliseconds.
#[derive(Clone)]
pub struct Log {
    begun: Instant,
    lines: Arc<Mutex<Vec<(u128, String)>>>,
}

impl Log {
    pub fn new() -> Self {
        Self { begun: Instant::now(), lines: Arc::default() }
    }

    pub fn lines(&self) -> Vec<(u128, String)> {
        self.lines.lock().unwrap().clone()
    }

    fn put(&self, what: &str) {
        let at = self.begun.elapsed().as_millis();
        self.lines.lock().unwrap().push((at, what.to_owned()));
    }
}

/// Answers with the job's own text, or as `act` says of it. It is called by its `name`, or by the job
/// that it gets.
pub fn agent(
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
                Act::Hang => pending().await,
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
pub fn desk() -> (Desk, tokio::sync::mpsc::Receiver<Escalation>) {
    let (sink, inbox) = ChannelSink::new(64).unwrap();
    let routes = Routes::new(Route::new(["operator"], "human_required"));
    (Desk::new(routes, [Receiver::new("operator").record(sink)]).unwrap(), inbox)
}

/// One call from the bottom to wherever it ends.
pub struct Run {
    pub answer: Result<String, AnyError>,
    /// Milliseconds.
    pub took: u128,
    pub calls: Vec<(u128, String)>,
    pub incident: Option<Incident>,
    pub told: Vec<Escalation>,
}

impl Run {
    pub fn names(&self) -> Vec<&str> {
        self.calls.iter().map(|(_, name)| name.as_str()).collect()
    }

    /// When it was called so.
    pub fn times(&self, name: &str) -> Vec<u128> {
        self.calls.iter().filter(|(_, called)| called == name).map(|(at, _)| *at).collect()
    }
}

/// Asks the ladder with all its levels once, in a task of its own and un-boxed. The jobs are called
/// `asked`, `nudged` and `replanned`, and level 4 is called `backup`.
pub async fn climb(ladder: Ladder, act: impl FnMut(&str) -> Act + Send + Clone + 'static) -> Run {
    let (log, seen, (desk, mut inbox)) = (Log::new(), Seen::default(), desk());
    let classifier = Classifier::new(Halves { response: AnyOk, error: Said });
    classifier.observe(seen.clone());
    let backup = agent(Some("backup"), &log, act.clone());
    let rungs = ladder
        .build(classifier, desk)
        .unwrap()
        .nudge(|_job: String, _failed| "nudged".to_owned())
        .replan(|_job: String, _failed| "replanned".to_owned())
        .fallback(backup)
        .finish(|failed: Failed<'_, String, AnyError>| format!("incomplete: {}", failed.failure.class));
    let stack = ServiceBuilder::new().layer(rungs).service(agent(None, &log, act));
    let begun = Instant::now();
    let call = tokio::spawn(async move { stack.oneshot("asked".to_owned()).await });
    let answer = call.await.unwrap();
    let took = begun.elapsed().as_millis();
    let told = std::iter::from_fn(|| inbox.try_recv().ok()).collect();
    let incident = seen.incidents().pop();
    Run { answer, took, calls: log.lines(), incident, told }
}
