//! What `tracing` is told: a span per attempt (KF-63), a warning per retry.

mod common;

use std::collections::HashMap;
use std::fmt;
use std::future::ready;
use std::sync::{Arc, Mutex};

use common::{Ask, Oops, Reply, ask, classifier, every, ms, oops, plan, reply};
use tower::{Layer as _, ServiceExt, service_fn};
use tower_triage_core::ErrorClass;
use tower_triage_retry::RetryLayer;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Instrument, Level, Subscriber, info_span};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

/// Remembers the attempts' spans in the order of their begin, and the warnings of retries.
#[derive(Clone, Default)]
struct Recorder {
    spans: Arc<Mutex<Vec<(Id, Seen)>>>,
    warnings: Arc<Mutex<Vec<Seen>>>,
}

#[derive(Clone, Debug, Default)]
struct Seen {
    parent: Option<String>,
    fields: HashMap<&'static str, String>,
    events: Vec<String>,
    closed: bool,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.insert(field.name(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl Recorder {
    /// Up to the level that attempts have, and no further: all of this binary does.
    fn listen() -> (Self, DefaultGuard) {
        let recorder = Self::default();
        let subscriber = Registry::default().with(recorder.clone()).with(LevelFilter::INFO);
        (recorder, tracing::subscriber::set_default(subscriber))
    }

    fn attempts(&self) -> Vec<Seen> {
        self.spans.lock().unwrap().iter().map(|(_, seen)| seen.clone()).collect()
    }

    /// The last attempt with this id: the registry uses ids again.
    fn with(&self, id: &Id, f: impl FnOnce(&mut Seen)) {
        let mut list = self.spans.lock().unwrap();
        if let Some((_, seen)) = list.iter_mut().rev().find(|(of, seen)| of == id && !seen.closed) {
            f(seen);
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if attributes.metadata().name() == "attempt" {
            let parent = context.span(id).unwrap().parent().map(|span| span.name().to_owned());
            let mut seen = Seen { parent, ..Seen::default() };
            attributes.record(&mut seen);
            self.spans.lock().unwrap().push((id.clone(), seen));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _context: Context<'_, S>) {
        self.with(id, |seen| values.record(seen));
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        let mut fields = Seen::default();
        event.record(&mut fields);
        if fields.fields.contains_key("action") {
            assert_eq!(*event.metadata().level(), Level::WARN);
            self.warnings.lock().unwrap().push(fields);
        }
        if let Some(span) = context.lookup_current() {
            self.with(&span.id(), |seen| seen.events.push(message.0));
        }
    }

    fn on_close(&self, id: Id, _context: Context<'_, S>) {
        self.with(&id, |seen| seen.closed = true);
    }
}

fn layer() -> RetryLayer<common::TestRules> {
    RetryLayer::new(classifier().0).policy(plan(every(ms(100))))
}

#[tokio::test(start_paused = true)]
async fn kf63_every_attempt_has_its_own_span() {
    let (recorder, _guard) = Recorder::listen();
    let calls = std::sync::atomic::AtomicUsize::new(0);
    let calls = Arc::new(calls);
    let service = service_fn(move |_: Ask| {
        let call = calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1;
        tracing::info!("called {call}");
        async move {
            tokio::task::yield_now().await;
            tracing::info!("inside {call}");
            match call {
                1 => Err(oops(ErrorClass::Timeout)),
                2 => Ok(reply(503)),
                _ => Ok(reply(200)),
            }
        }
    });
    let retry = layer().layer(service);
    // The call is made in the caller's span, and polled elsewhere.
    let call = info_span!("caller").in_scope(|| {
        let mut retry = retry;
        tower::Service::call(&mut retry, ask())
    });
    call.instrument(info_span!("elsewhere")).await.unwrap();

    let attempts = recorder.attempts();
    assert_eq!(attempts.len(), 3);
    for (n, attempt) in attempts.iter().enumerate() {
        let n = n + 1;
        assert_eq!(attempt.parent.as_deref(), Some("caller"), "attempt {n}");
        assert_eq!(attempt.fields["number"], n.to_string());
        assert_eq!(attempt.events, [format!("called {n}"), format!("inside {n}")]);
        assert!(attempt.closed, "attempt {n}");
    }
    let of = |field: &str| -> Vec<Option<&str>> {
        attempts.iter().map(|seen| seen.fields.get(field).map(String::as_str)).collect()
    };
    assert_eq!(of("delay_ms"), [Some("0"), Some("100"), Some("100")]);
    assert_eq!(of("previous"), [None, Some("Timeout"), Some("Transient")]);
    assert_eq!(of("class"), [Some("Timeout"), Some("Transient"), None]);
}

#[tokio::test(start_paused = true)]
async fn kf63_closed_when_cancelled_and_before_the_wait() {
    /// Says something when it is dropped.
    struct LastWord;
    impl Drop for LastWord {
        fn drop(&mut self) {
            tracing::info!("cancelled");
        }
    }
    let (recorder, _guard) = Recorder::listen();
    let hanging = service_fn(|_: Ask| {
        let word = LastWord;
        async move {
            std::future::pending::<()>().await;
            drop(word);
            Ok::<Reply, Oops>(reply(200))
        }
    });
    let mut call = tokio_test::task::spawn(layer().layer(hanging).oneshot(ask()));
    assert!(call.poll().is_pending());
    assert!(!recorder.attempts()[0].closed);
    drop(call);
    let attempts = recorder.attempts();
    assert_eq!(attempts.len(), 1);
    assert!(attempts[0].closed);
    assert_eq!(attempts[0].events, ["cancelled"]);

    // The wait belongs to no attempt.
    let failing = service_fn(|_: Ask| ready(Err::<Reply, _>(oops(ErrorClass::Transient))));
    let mut call = tokio_test::task::spawn(layer().layer(failing).oneshot(ask()));
    assert!(call.poll().is_pending());
    assert_eq!(recorder.attempts().len(), 2);
    assert!(recorder.attempts()[1].closed);
}

#[tokio::test(start_paused = true)]
async fn e05_one_structured_warning_per_retry() {
    let (recorder, _guard) = Recorder::listen();
    let failing = service_fn(|_: Ask| ready(Err::<Reply, _>(oops(ErrorClass::Throttled))));
    layer().layer(failing).oneshot(ask()).await.unwrap_err();
    let warnings = recorder.warnings.lock().unwrap();
    assert_eq!(warnings.len(), 2);
    for (field, value) in [
        ("action", "retry"),
        ("operation", ""),
        ("attempt", "2"),
        ("max_attempts", "3"),
        ("wait_ms", "100"),
        ("error.type", "Throttled"),
        ("message", "Throttled (Throttled): attempt 2 follows in 100ms"),
    ] {
        assert_eq!(warnings[0].fields[field], value, "{field}");
    }
    assert_eq!(warnings[1].fields["attempt"], "3");
}
