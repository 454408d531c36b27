//! The HTTP rules on a server: axum's router, whose errors are impossible.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::MatchedPath;
use axum::routing::get;
use http::{Request, StatusCode};
use tower::ServiceExt;
use tower_triage_circuit_breaker::{BreakerPolicy, CircuitBreakerLayer};
use tower_triage_core::{Classifier, Incident, Observer, Operation};
use tower_triage_http::{HttpRulesExt, Unavailable, http};

/// Keeps the names of the operations that failed.
#[derive(Clone, Default)]
struct Operations(Arc<Mutex<Vec<Operation>>>);

impl Observer for Operations {
    fn incident(&self, incident: &Incident) {
        self.0.lock().unwrap().push(incident.operation);
    }
}

#[tokio::test]
async fn a_router_is_guarded_and_names_operations_by_its_matched_path() {
    let rules = http().operation_by(|request| {
        let path = request.extensions.get::<MatchedPath>()?;
        Some(Operation::from_parts(&[request.method.as_str(), " ", path.as_str()]))
    });
    let classifier = Classifier::new(rules);
    let seen = Operations::default();
    classifier.observe(seen.clone());
    let breaker = CircuitBreakerLayer::new(classifier)
        .reject_with(Unavailable)
        .policy(BreakerPolicy::new().consecutive_failures(1).build().unwrap());
    let router = Router::new()
        .route("/orders/{id}", get(|| async { StatusCode::BAD_GATEWAY }))
        .layer(breaker);

    let ask = |router: Router| async move {
        let request = Request::get("/orders/17?secret=1").body(Body::empty()).unwrap();
        router.oneshot(request).await.unwrap().status()
    };
    // Spawned, as a server does it.
    let first = tokio::spawn(ask(router.clone())).await.unwrap();
    let second = tokio::spawn(ask(router)).await.unwrap();
    assert_eq!((first, second), (StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE));
    let seen = seen.0.lock().unwrap();
    assert_eq!(*seen, ["GET /orders/{id}", "GET /orders/{id}"].map(Operation::new));
}
