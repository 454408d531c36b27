//! The server, the database behind it, and what they wrote down.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{MatchedPath, Path, State};
use axum::http::{HeaderName, Response, StatusCode};
use axum::routing::get;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;
use tower::ServiceBuilder;
use tower_http::trace::TraceLayer;
use tower_triage::circuit_breaker::Counts;
use tower_triage::escalate::{ChannelSink, Receiver, Route, Routes};
use tower_triage::fallback::Failed;
use tower_triage::http::{GatewayTimeout, HttpRulesExt, MakeTriageClassifier, Unavailable, http};
use tower_triage::timeout::TimeoutPolicy;
use tower_triage::{
    Backoff, BreakerHandle, BreakerPolicy, CircuitBreakerLayer, ClassSet, Classifier, Desk,
    EscalateLayer, EscalatePolicy, Escalation, FallbackLayer, Operation, TimeoutLayer,
};

use crate::callers::Told;

/// Marks a stale answer.
pub(crate) const STALE: HeaderName = HeaderName::from_static("x-stale-because");
const LIMIT: Duration = Duration::from_millis(100);
const OPEN_FOR: Duration = Duration::from_millis(300);

/// How the database is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Fine,
    Hangs,
    Fails,
}

impl Health {
    const ALL: [Self; 3] = [Self::Fine, Self::Hangs, Self::Fails];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Hangs => "hangs",
            Self::Fails => "fails",
        }
    }
}

/// What the routes need, and what fails.
#[derive(Clone)]
pub(crate) struct Database {
    health: Arc<AtomicU8>,
    /// The calls whose handlers have asked it.
    asked_by: Arc<watch::Sender<Vec<u64>>>,
}

impl Database {
    fn new() -> Self {
        let asked_by = Arc::new(watch::Sender::new(Vec::new()));
        Self { health: Arc::new(AtomicU8::new(Health::Fine as u8)), asked_by }
    }

    pub(crate) fn is(&self, health: Health) {
        self.health.store(health as u8, Ordering::Relaxed);
    }

    pub(crate) fn health(&self) -> Health {
        Health::ALL[usize::from(self.health.load(Ordering::Relaxed))]
    }

    /// How many handlers asked it.
    pub(crate) fn asked(&self) -> u64 {
        self.asked_by.borrow().len() as u64
    }

    /// Until the handler of this call has asked it.
    pub(crate) async fn asked_by(&self, call: u64) {
        // It cannot be closed: this holds the sender.
        let _ = self.asked_by.subscribe().wait_for(|calls| calls.contains(&call)).await;
    }

    async fn read(&self, call: u64) -> Result<&'static str, StatusCode> {
        self.asked_by.send_modify(|calls| calls.push(call));
        match self.health() {
            Health::Fine => {
                sleep(Duration::from_millis(3)).await;
                Ok("a row")
            }
            Health::Hangs => std::future::pending().await,
            Health::Fails => Err(StatusCode::BAD_GATEWAY),
        }
    }
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) database: Database,
    pub(crate) breaker: BreakerHandle,
    letters: mpsc::Receiver<Escalation>,
}

impl Server {
    pub(crate) async fn start() -> Result<Self, Box<dyn Error>> {
        let rules = http().fallback_header(STALE).operation_by(|request| {
            let path = request.extensions.get::<MatchedPath>()?;
            Some(Operation::from_parts(&[request.method.as_str(), " ", path.as_str()]))
        });
        let classifier = Classifier::new(rules);

        let (sink, letters) = ChannelSink::new(1024)?;
        let routes = Routes::new(Route::new(["on-call"], "database_failed"));
        let desk = Desk::new(routes, [Receiver::new("on-call").record(sink)])?;
        // Whoever got a stale answer needs nobody.
        let policy = EscalatePolicy::new().circuit_opened(false);
        let escalate = EscalateLayer::new(classifier.clone(), desk).policy(policy);

        let stale = |_: Failed<'_, Response<Body>, Infallible>| {
            Response::new(Body::from("the order as it was an hour ago"))
        };
        let fallback =
            FallbackLayer::new(classifier.clone()).or_value(ClassSet::bypassable(), stale);

        let plan = BreakerPolicy::new()
            .consecutive_failures(10)
            .open_for(Backoff::fixed(OPEN_FOR))
            .build()?;
        let breaker = CircuitBreakerLayer::new(classifier.clone())
            .name("database")
            .policy(plan)
            .reject_with(Unavailable);
        let handle = breaker.handle();
        let plan = TimeoutPolicy::new(LIMIT).grace(Duration::ZERO).build()?;
        let limit =
            TimeoutLayer::new(classifier.clone(), LIMIT)?.policy(plan).reject_with(GatewayTimeout);

        let database = Database::new();
        let read = |State(database): State<Database>, Path(call): Path<u64>| async move {
            database.read(call).await
        };
        // axum applies the layers for each route, and again for each connection: one state.
        let app = Router::new()
            .route(
                "/orders/{id}",
                get(read).layer(
                    ServiceBuilder::new()
                        .layer(fallback)
                        .layer(breaker.clone())
                        .layer(limit.clone()),
                ),
            )
            .route("/customers/{id}", get(read).layer((breaker.clone(), limit)))
            .route("/reports/{id}", get(read).layer(breaker))
            .layer((TraceLayer::new(MakeTriageClassifier::new(classifier)), escalate))
            .with_state(database.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(Self { address, database, breaker: handle, letters })
    }

    /// Until a call would be let through.
    pub(crate) async fn until_probe_is_due(&self) {
        sleep(self.breaker.time_to_next_probe().unwrap_or_default()).await;
    }

    /// Until the server has noticed everybody who hung up, for a second at most.
    pub(crate) async fn settle(&self, hung_up: u64) {
        for _ in 0..200 {
            if self.breaker.counts().abandoned >= hung_up {
                return;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// The records since last time.
    pub(crate) fn letters(&mut self) -> Vec<Escalation> {
        std::iter::from_fn(|| self.letters.try_recv().ok()).collect()
    }

    /// Where the callers' books and the server's differ.
    pub(crate) fn differences(
        &self,
        told: &Told,
        counts: Counts,
        letters: &[Escalation],
    ) -> Vec<String> {
        let ended = counts.successes + counts.failures + counts.late + counts.abandoned;
        let unsolved = told.failed + told.late + told.refused;
        let not_served = counts.failures + counts.late + counts.rejected;
        [
            ("handlers run, and calls let through", self.database.asked(), ended),
            ("calls that worked, and answers", counts.successes, told.answered),
            ("calls that did not, and who heard of it", not_served, unsolved + told.stale),
            ("calls abandoned, and who hung up", counts.abandoned, told.hung_up),
            ("records, and who got no answer", letters.len() as u64, unsolved),
        ]
        .into_iter()
        .filter(|(_, here, there)| here != there)
        .map(|(what, here, there)| format!("{what}: {here} and {there}"))
        .collect()
    }
}
