//! KF-57: a record that held 20 kinds of secret, in every form in which it is stored, logged, printed
//! and sent. Neither of them is in any of these.
//!
//! Secrets come in two ways: with the request (its address, its headers, its body) and in the text of
//! the error, where dependencies like to quote what they refused.

mod secret_forms;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::client::legacy::Client as Hyper;
use hyper_util::rt::TokioExecutor;
use secret_forms::{Forms, KINDS, SLACK, receivers_at, request, server};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_triage::http::{HttpReplay, http};
use tower_triage::retry::{ClassRule, RetryPolicy};
use tower_triage::{
    AnyError, AnyOk, Backoff, Chain, Classifier, ErrorClass, FallbackLayer, Halves, RetryLayer,
};
use tower_triage_dead_letter_postgres::PostgresStore;
use tower_triage_dead_letter_sqlite::SqliteStore;
use tower_triage_escalate::store::{Filter, MemoryStore, Store, StoreSink};
use tower_triage_escalate::{
    Desk, DeskPolicy, EscalateLayer, EscalatePolicy, JsonCodec, JsonLinesSink, LogSink, Receiver,
    Route, Routes,
};
use tower_triage_http::HttpCodec;
use tower_triage_test_support::Seen;
use tower_triage_test_support::postgres::PostgresServer;

type Request = ::http::Request<Full<Bytes>>;
type Response = ::http::Response<Full<Bytes>>;

/// The dependency: it quotes what it is told to.
fn quoting(
    text: String,
) -> impl Service<Request, Response = Response, Error = AnyError, Future: Send> + Clone + Send + 'static
{
    service_fn(move |_: Request| {
        let text = text.clone();
        async move {
            let refused = std::io::ErrorKind::ConnectionReset;
            Err(AnyError::from(std::io::Error::new(refused, text)))
        }
    })
}

/// It answers 401, with a cookie and a body.
fn refusing()
-> impl Service<Request, Response = Response, Error = AnyError, Future: Send> + Clone + Send + 'static
{
    service_fn(|_: Request| async {
        let response = ::http::Response::builder().status(401);
        let response = response.header("set-cookie", format!("sid={}; HttpOnly", KINDS[3].secret));
        Ok(response.body(Full::from(KINDS[0].secret)).unwrap())
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kf57_twenty_kinds_of_secret_are_in_no_form_of_a_record() {
    let forms = Forms::new();
    let home = tempfile::tempdir().unwrap();
    let (server, inbox) = server().await;
    let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
    let sqlite: Arc<dyn Store> = Arc::new(SqliteStore::open(home.path().join("desk.db")).unwrap());
    let spill = JsonLinesSink::open(home.path().join("spill.jsonl")).unwrap();

    let mut stores = vec![("memory", memory), ("sqlite", sqlite)];
    let postgres = tokio::task::spawn_blocking(PostgresServer::shared).await.unwrap();
    match &postgres {
        Some(server) => {
            let store = PostgresStore::connect(&server.config()).await.unwrap();
            stores.push(("postgres", Arc::new(store)));
        }
        None => eprintln!("skipped: the store in PostgreSQL"),
    }

    // Everybody is told of everything.
    let mut receivers: Vec<_> = stores
        .iter()
        .map(|(name, store)| Receiver::new(*name).record(StoreSink::new(Arc::clone(store))))
        .collect();
    receivers.extend([
        Receiver::new("spill").record(spill),
        Receiver::new("log").record(LogSink).notify(LogSink),
    ]);
    let (sinks, printed) = receivers_at(&server, Hyper::builder(TokioExecutor::new()).build_http());
    forms.add("printed: receivers", printed);
    receivers.extend(sinks);
    let policy = DeskPolicy::new().window(Duration::from_millis(1));
    let policy = policy.resolve_after(Some(Duration::from_millis(1)));
    let mut names: Vec<_> = stores.iter().map(|(name, _)| *name).collect();
    names.extend(["spill", "log", "events", "pager", "alerts", "slack"]);
    let routes = Routes::new(Route::new(names.clone(), "human_required"));
    let desk = Desk::with_policy(policy, routes, receivers).unwrap();

    let classifier = Classifier::new(http());
    let seen = Seen::default();
    classifier.observe(seen.clone());
    let retry = RetryPolicy::default().attempts(2);
    let retry = retry.retry(ErrorClass::Transient, ClassRule::new(Backoff::immediate()));
    let patient = EscalatePolicy::new().wait(Duration::from_secs(60));
    // Somebody who chooses every header there is.
    let codec = request(0).headers().keys().fold(HttpCodec::new(), HttpCodec::header);
    forms.add("printed: codec", format!("{codec:?}"));
    let escalate = EscalateLayer::new(classifier.clone(), desk.clone()).from("shop");
    let escalate = escalate.policy(patient).capture(codec);
    forms.add("printed: layer", format!("{escalate:?} {escalate:#?}"));
    let failing = ErrorClass::Transient;
    for (n, kind) in KINDS.iter().enumerate() {
        let backup = quoting(format!("the backup says: {}", kind.quoted()));
        let stack = ServiceBuilder::new()
            .layer(escalate.clone())
            .layer(FallbackLayer::new(classifier.clone()).or_service(failing, backup))
            .layer(
                RetryLayer::new(classifier.clone())
                    .policy(retry.clone().build().unwrap())
                    .replay(HttpReplay::new()),
            )
            .service(quoting(kind.quoted()));
        let error = stack.oneshot(request(n)).await.unwrap_err();
        assert!(error.to_string().contains(kind.secret), "the caller gets the error as it is");
    }
    let response = escalate.layer(refusing()).oneshot(request(KINDS.len())).await.unwrap();
    assert_eq!(response.status(), 401);
    // The same as a type of the user's.
    let job = String::from_utf8(request(0).into_body().into_inner().unwrap().to_vec()).unwrap();
    let job: serde_json::Value = serde_json::from_str(&job).unwrap();
    let rules = Halves { response: AnyOk, error: Chain };
    let typed = EscalateLayer::new(Classifier::new(rules), desk.clone()).policy(patient);
    let typed = typed.capture(JsonCodec::<serde_json::Value>::new());
    let down = service_fn(|_: serde_json::Value| async {
        Err::<(), _>(AnyError::from(std::io::Error::from(std::io::ErrorKind::ConnectionReset)))
    });
    typed.layer(down).oneshot(job).await.unwrap_err();
    let records = KINDS.len() as u64 + 2;
    assert_eq!(desk.counts().delivered, records * names.len() as u64, "{:?}", desk.counts());

    // That it is over is told too: by LogSink, and by the four receivers.
    let over = async {
        while desk.counts().resolved < 5 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), over).await.unwrap();

    // Stored.
    for (name, store) in &stores {
        let page = store.list(Filter::any(), None, 1000).await.unwrap();
        assert_eq!(page.letters.len() as u64, records);
        for letter in page.letters {
            forms.add(format!("stored: {name}"), serde_json::to_string(&letter).unwrap());
            forms.add(format!("printed: letter of {name}"), format!("{letter:?} {letter:#?}"));
            let escalation = &letter.escalation;
            let request = letter.request.as_ref().expect("it was captured");
            assert!(!request.data.is_null());
            assert!(request.data.to_string().contains("page=2"), "what is no secret is kept");
            forms.add("printed: captured", format!("{request:?} {request:#?}"));
            forms.add("printed: escalation", format!("{escalation:?} {escalation:#?}"));
            forms.add("printed: context", format!("{:?}", escalation.context));
            forms.add("printed: attempts", format!("{:?}", escalation.attempts));
        }
        forms.add("printed: store", format!("{store:?}"));
    }
    for file in std::fs::read_dir(home.path()).unwrap() {
        let path = file.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        forms.add(
            format!("stored: {:?}", path.file_name().unwrap()),
            String::from_utf8_lossy(&bytes),
        );
    }
    // Printed.
    for incident in seen.incidents() {
        forms.add("printed: incident", format!("{incident:?}"));
    }
    forms.add("printed: desk", format!("{desk:?} {desk:#?}"));
    // Sent: notifications, and that it is over.
    let sent = inbox.lock().unwrap().clone();
    assert!(sent.len() as u64 >= 4 * records, "{}", sent.len());
    for (path, message) in sent {
        forms.add(format!("sent: {path}"), message);
    }
    forms.assert_clean(&[SLACK]);
}
