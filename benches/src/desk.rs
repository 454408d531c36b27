//! What it costs to have a failure on the disk before its caller hears of it.
//!
//! The load is failing calls through an [`EscalateLayer`] in durable mode, each caller one call after
//! the other. What the record costs them is seen beside a sink that takes everything at once; what
//! can be had at all is seen in [`appends`]: records of that size written and synced, one by one.

use std::convert::Infallible;
use std::fs::OpenOptions;
use std::future::{Ready, ready};
use std::io::{self, Write};
use std::path::Path;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_triage_core::{AnyError, AnyOk, Chain, Classifier, Halves};
use tower_triage_escalate::{
    Desk, EscalateLayer, EscalatePolicy, Escalation, Receiver, Route, Routes,
};

/// What a while of load brought.
#[derive(Clone, Debug, Default)]
pub struct Load {
    /// How long each write took its caller, in microseconds, sorted.
    pub micros: Vec<f64>,
    /// Seconds that all of it took.
    pub seconds: f64,
}

impl Load {
    /// Writes per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.micros.len() as f64 / self.seconds
    }

    /// Microseconds within which this share of the writes was done.
    #[must_use]
    pub fn percentile(&self, share: f64) -> f64 {
        let at = (self.micros.len() as f64 * share) as usize;
        self.micros.get(at.min(self.micros.len().saturating_sub(1))).copied().unwrap_or_default()
    }

    /// Adds another while.
    pub fn add(&mut self, other: Self) {
        self.micros.extend(other.micros);
        self.micros.sort_unstable_by(f64::total_cmp);
        self.seconds += other.seconds;
    }
}

/// Takes everything, and keeps nothing.
#[derive(Clone, Copy, Debug)]
pub struct AtOnce;

impl Service<Escalation> for AtOnce {
    type Response = ();
    type Error = Infallible;
    type Future = Ready<Result<(), Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Escalation) -> Self::Future {
        ready(Ok(()))
    }
}

/// The name of the receiver that is told.
pub const RECEIVER: &str = "ops";

/// Lets `callers` make failing calls for `time`; the receiver has each failure before its caller does.
///
/// # Panics
/// If not every failure was recorded.
pub async fn failing_calls(receiver: Receiver, callers: usize, time: Duration) -> Load {
    let routes = Routes::new(Route::new([RECEIVER], "look_into_it"));
    let desk = Desk::new(routes, [receiver]).expect("its name is RECEIVER, and it has a sink");
    let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
    // Nobody is let go before it is recorded.
    let policy = EscalatePolicy::new().wait(Duration::from_secs(60));
    let service = ServiceBuilder::new()
        .layer(EscalateLayer::new(classifier, desk.clone()).policy(policy).from("shop"))
        .service(service_fn(|_order: u64| async {
            Err::<(), _>(AnyError::from(io::Error::from(io::ErrorKind::ConnectionReset)))
        }));
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let mut service = service.clone();
        tasks.spawn(async move {
            let mut micros = Vec::new();
            let mut now = Instant::now();
            while now < begun + time {
                let call = service.ready().await.expect("it is always ready").call(7);
                assert!(call.await.is_err());
                let done = Instant::now();
                micros.push((done - now).as_secs_f64() * 1e6);
                now = done;
            }
            micros
        });
    }
    let mut load = Load::default();
    for micros in tasks.join_all().await {
        load.micros.extend(micros);
    }
    load.seconds = begun.elapsed().as_secs_f64();
    load.micros.sort_unstable_by(f64::total_cmp);
    assert_eq!(desk.counts().delivered, load.micros.len() as u64, "{:?}", desk.counts());
    load
}

/// Appends `bytes` bytes to a new file at `path` and syncs (`fdatasync`), again and again for
/// `time`.
///
/// # Errors
/// The file cannot be written.
pub fn appends(path: &Path, bytes: usize, time: Duration) -> io::Result<Load> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    let record = vec![b'x'; bytes];
    let mut load = Load::default();
    let begun = Instant::now();
    let mut now = begun;
    while now < begun + time {
        file.write_all(&record)?;
        file.sync_data()?;
        let done = Instant::now();
        load.micros.push((done - now).as_secs_f64() * 1e6);
        now = done;
    }
    load.seconds = begun.elapsed().as_secs_f64();
    load.micros.sort_unstable_by(f64::total_cmp);
    Ok(load)
}
