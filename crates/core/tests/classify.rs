//! Errors are classified by the types along their chain; overrides and stamps hold everywhere.

mod common;

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use common::{Watch, classifier, failing};
use proptest::prelude::*;
use tower::{Service as _, ServiceBuilder, ServiceExt, service_fn};
use tower_triage_core::{
    Advisor, AnyError, AnyOk, BoxError, Chain, CircuitOpen, Classifier, Classify, ClassifyError,
    ClassifyLayer, Describe, Disposition, Elapsed, ErrorClass, Failure, Fingerprint, Halves, Key,
    Label, Note, Observation, Operation, OwnError, Phase, RequestFacts, RetryAfter, RulesExt,
    ServerWord, Target, ToFailure, TraceParent, Verdict, Vote, io_failure,
};

#[derive(Debug)]
struct Wrapped(BoxError, &'static str);

impl fmt::Display for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.1)
    }
}

impl Error for Wrapped {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

fn reset(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, text)
}

#[test]
fn kf07_classify_by_type_through_wrappers() {
    let bare = AnyError::from(reset("connection reset by peer"));
    let other_text = AnyError::from(reset("timeout: 404 not found"));
    let wrapped = AnyError::from(Wrapped(
        Box::new(Wrapped(Box::new(io::Error::other(reset("x"))), "error sending request")),
        "operation timed out", // a lie in the text changes nothing
    ));
    for error in [bare, other_text, wrapped] {
        let failure = Chain.error(&error);
        assert_eq!(failure.class, ErrorClass::Transient, "{error:#}");
        assert_eq!(failure.reason, "connection_reset");
    }
}

#[tokio::test(start_paused = true)]
async fn timers_and_tower_errors_are_known_by_type() {
    let elapsed = tokio::time::timeout(Duration::from_secs(1), std::future::pending::<()>()).await;
    assert_eq!(Chain.error(&AnyError::from(elapsed.unwrap_err())).class, ErrorClass::Timeout);

    let slow = ServiceBuilder::new()
        .timeout(Duration::from_secs(1))
        .service(service_fn(|()| std::future::pending::<Result<(), BoxError>>()));
    let error = AnyError::from_boxed(slow.oneshot(()).await.unwrap_err());
    assert_eq!(Chain.error(&error).class, ErrorClass::Timeout);

    let panicked = tokio::spawn(async { panic!("on purpose") }).await.unwrap_err();
    assert_eq!(Chain.error(&AnyError::from(panicked)).class, ErrorClass::Internal);
    let task = tokio::spawn(std::future::pending::<()>());
    task.abort();
    assert_eq!(Chain.error(&AnyError::from(task.await.unwrap_err())).class, ErrorClass::Cancelled);
    assert_eq!(Chain.error(&AnyError::msg("who knows")).class, ErrorClass::Unknown);
}

#[test]
fn a_rejection_of_ours_is_told_from_the_peers() {
    let open = CircuitOpen::new(Label::new("orders"), Duration::from_secs(7));
    for error in [AnyError::from(open), AnyError::from(Wrapped(Box::new(open), "wrapped"))] {
        let failure = Chain.error(&error);
        assert_eq!(failure.class, ErrorClass::Rejected);
        assert_eq!(failure.disposition, Disposition::NotSent);
        assert_eq!(failure.retry_after, Some(RetryAfter::AtLeast(Duration::from_secs(7))));
    }
}

/// A chain that bites its tail must not hang a client.
#[test]
fn an_endless_chain_ends() {
    #[derive(Debug)]
    struct Endless;
    impl fmt::Display for Endless {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("again")
        }
    }
    impl Error for Endless {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&Self)
        }
    }
    let error = AnyError::from(Endless);
    assert_eq!(Chain.error(&error).class, ErrorClass::Unknown);
    assert_eq!(format!("{error:#}"), "again");
}

/// Classification, section 6: by kind, and where there is none, by the system's number.
#[test]
fn io_errors_by_kind_and_number() {
    use io::ErrorKind as Kind;
    let failure = |error: io::Error| Chain.error(&error);
    for (kind, class, reason) in [
        (Kind::ConnectionRefused, ErrorClass::Transient, "connection_refused"),
        (Kind::ConnectionAborted, ErrorClass::Transient, "connection_aborted"),
        (Kind::BrokenPipe, ErrorClass::Transient, "broken_pipe"),
        (Kind::UnexpectedEof, ErrorClass::Transient, "unexpected_eof"),
        (Kind::NetworkDown, ErrorClass::Transient, "unreachable"),
        (Kind::NotConnected, ErrorClass::Transient, "io_interrupted"),
        (Kind::WouldBlock, ErrorClass::Timeout, "io_timed_out"),
        (Kind::AddrInUse, ErrorClass::Rejected, "no_local_address"),
        (Kind::OutOfMemory, ErrorClass::Rejected, "out_of_memory"),
        (Kind::NotFound, ErrorClass::Permanent, "io_permanent"),
        (Kind::InvalidData, ErrorClass::Internal, "invalid_data"),
        (Kind::ReadOnlyFilesystem, ErrorClass::Internal, "read_only_filesystem"),
        (Kind::StorageFull, ErrorClass::Quota, "storage_full"),
        (Kind::Deadlock, ErrorClass::Contention, "resource_busy"),
        (Kind::Other, ErrorClass::Unknown, "io_unknown"),
    ] {
        let failure = failure(kind.into());
        assert_eq!((failure.class, failure.reason), (class, reason), "{kind:?}");
        // Only the peer has a breaker, and a local answer says nothing of it.
        let ignored = matches!(class.vote(), Vote::Ignore) || class == ErrorClass::Permanent;
        assert_eq!(failure.vote == Vote::Ignore, ignored, "{kind:?}");
        let unclear = matches!(
            class,
            ErrorClass::Transient
                | ErrorClass::Timeout
                | ErrorClass::Internal
                | ErrorClass::Unknown
        );
        assert_eq!(failure.disposition.may_be_processed(), unclear, "{kind:?}");
    }
    let by_phase = |phase, kind| io_failure(kind, None, phase).reason;
    assert_eq!(by_phase(Phase::Connect, Kind::NotFound), "socket_missing");
    assert_eq!(by_phase(Phase::Dns, Kind::Other), "dns");
    assert_eq!(by_phase(Phase::Read, Kind::Other), "io_unknown");

    #[cfg(target_os = "linux")]
    for (number, class, reason) in [
        (24, ErrorClass::Rejected, "out_of_sockets"),
        (112, ErrorClass::Transient, "host_down"),
        (36, ErrorClass::Permanent, "io_permanent"),
        (40, ErrorClass::Permanent, "io_permanent"),
    ] {
        let failure = failure(io::Error::from_raw_os_error(number));
        assert_eq!((failure.class, failure.reason), (class, reason), "{number}");
    }
}

/// The documented defaults, and that wrappers of rules pass every fact on.
#[test]
fn facts_of_requests_are_neutral_or_what_the_rules_say() {
    struct Neutral;
    impl Describe<()> for Neutral {}
    let neutral = (Neutral.repeatable(&()), Neutral.unit_of_work(&()), Neutral.deadline(&()));
    assert_eq!(neutral, (true, true, None));
    assert_eq!((Neutral.operation(&()), Neutral.key(&())), (Operation::EMPTY, Key::EMPTY));
    assert_eq!((Neutral.request_id(&()), Neutral.trace(&())), (None, None));
    assert_eq!(Neutral.target(&()), Target::EMPTY);

    struct Named;
    impl Describe<()> for Named {
        fn operation(&self, _: &()) -> Operation {
            Operation::new("named")
        }
    }
    assert_eq!(Named.key(&()), Operation::new("named"));

    let deadline = tokio::time::Instant::now();
    let trace =
        TraceParent::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap();
    let rules = Halves { response: AnyOk, error: Chain }.describe(move |(): &()| {
        RequestFacts::new("op")
            .repeatable(false)
            .unit_of_work(false)
            .key("key")
            .deadline(deadline)
            .request_id("id")
            .trace(trace)
            .target("target")
    });
    let wrapped = rules.adjust(|_: Result<&u32, &AnyError>, verdict| verdict);
    let halves = Halves { response: rules, error: Chain };
    let facts = |rules: &dyn Describe<()>| {
        assert!(!rules.repeatable(&()) && !rules.unit_of_work(&()));
        assert_eq!((rules.operation(&()), rules.key(&())), (Operation::new("op"), Key::new("key")));
        assert_eq!((rules.deadline(&()), rules.trace(&())), (Some(deadline), Some(trace)));
        assert_eq!(rules.request_id(&()), Some(Label::new("id")));
        assert_eq!(rules.target(&()), Target::new("target"));
    };
    facts(&rules);
    facts(&wrapped);
    facts(&halves);
}

/// Wrappers of rules neither lose the notes nor the explanation, nor the word of a classify layer.
#[test]
fn rules_in_rules_keep_notes_explanations_and_stamps() {
    let rules = Halves { response: AnyOk, error: Chain }
        .describe(|(): &()| RequestFacts::new("op"))
        .adjust(|_: Result<&u32, &AnyError>, _| ErrorClass::Quota.into());
    let mut outcome = Err::<u32, _>(AnyError::from(reset("gone")));
    let class = |outcome: &Result<u32, AnyError>| {
        rules.classify(outcome.as_ref()).failure().map(|failure| failure.class)
    };
    let mut text = String::new();
    rules.explain(outcome.as_ref(), &mut text);
    assert_eq!((text.as_str(), class(&outcome)), ("gone", Some(ErrorClass::Quota)));
    let said = Verdict::from(ErrorClass::Declined);
    assert!(rules.annotate(outcome.as_mut(), &Note::Verdict(said)));
    assert_eq!(outcome.as_ref().unwrap_err().verdict().and_then(Verdict::failure), said.failure());
    assert!(!rules.annotate(Ok(&mut 1), &Note::Verdict(said)), "a number carries no note");
}

/// Notes are kept where there is a place for them, and whoever gave one learns whether there is.
#[test]
fn who_has_no_place_for_a_note_says_so() {
    #[derive(Debug)]
    struct Oops(Option<Verdict>);
    impl fmt::Display for Oops {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("oops")
        }
    }
    impl Error for Oops {}
    impl ToFailure for Oops {
        fn to_failure(&self) -> Failure {
            Failure::new(ErrorClass::Transient)
        }
        fn annotate(&mut self, note: &Note) -> bool {
            let Note::Verdict(verdict) = note else { return false };
            self.0 = Some(*verdict);
            true
        }
    }
    #[derive(Debug)]
    struct Bare;
    impl fmt::Display for Bare {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("bare")
        }
    }
    impl Error for Bare {}
    impl ToFailure for Bare {
        fn to_failure(&self) -> Failure {
            Failure::new(ErrorClass::Transient)
        }
    }
    struct Plain;
    impl Classify<u32, Bare> for Plain {
        fn classify(&self, _: Result<&u32, &Bare>) -> Verdict {
            Verdict::Success
        }
    }
    impl ClassifyError<Bare> for Plain {
        fn error(&self, _: &Bare) -> Failure {
            Failure::new(ErrorClass::Transient)
        }
    }
    let note = Note::Verdict(Verdict::Success);
    let mut oops = Oops(None);
    assert!(OwnError.annotate(&mut oops, &note));
    assert_eq!(oops.0, Some(Verdict::Success));
    assert!(!OwnError.annotate(&mut Bare, &note));
    assert!(!Classify::annotate(&Plain, Ok(&mut 1), &note));
    assert!(!ClassifyError::annotate(&Plain, &mut Bare, &note));
}

/// A number ends with its last digit: the point behind it ends the sentence.
#[test]
fn a_fingerprint_knows_a_point_from_a_decimal_one() {
    let failure = Failure::new(ErrorClass::Timeout);
    let of = |text: &str| Fingerprint::of(&Operation::EMPTY, &failure, text);
    assert_eq!(of("took 30s"), of("took 29.98s"));
    assert_ne!(of("took 30s"), of("took 30s."));
}

/// The word of a classify layer is the last one, also for rules that have the last word on the rest.
#[tokio::test]
async fn what_a_classify_layer_said_is_not_adjusted_again() {
    let rules = Halves { response: AnyOk, error: Chain }
        .describe(|_: &u32| RequestFacts::new("op"))
        .adjust(|_: Result<&u32, &AnyError>, _| ErrorClass::Quota.into());
    let classifier = Classifier::new(rules);
    let judge = service_fn(|observation: Observation| async move {
        assert_eq!(observation.local.class, ErrorClass::Quota);
        Ok::<_, AnyError>(Verdict::from(ErrorClass::Declined))
    });
    let stack = ServiceBuilder::new()
        .layer(ClassifyLayer::new(classifier.clone(), judge))
        .service(failing());
    let error = stack.oneshot(1).await.unwrap_err();
    let verdict = classifier.judge::<u32, _>(&Operation::EMPTY, Err(&error));
    assert_eq!(verdict.failure().map(|failure| failure.class), Some(ErrorClass::Declined));
    assert_eq!(error.notes().verdict, error.verdict());
}

/// A service that is not ready is not called: what judges its outcomes adds nothing to that.
#[tokio::test]
async fn a_classify_layer_is_ready_when_its_service_is() {
    let (classifier, _) = classifier();
    let judge = service_fn(|_: Observation| async { Err::<Verdict, _>(AnyError::msg("none")) });
    let mut stack = ServiceBuilder::new()
        .layer(ClassifyLayer::new(classifier, judge))
        .concurrency_limit(1)
        .service(service_fn(|_: u32| std::future::pending::<Result<u32, AnyError>>()));
    let _under_way = stack.ready().await.unwrap().call(1);
    let ready = std::future::poll_fn(|cx| {
        std::task::Poll::Ready(tower::Service::<u32>::poll_ready(&mut stack, cx).is_ready())
    });
    assert!(!ready.await);
}

/// What is told of a failure is the whole chain, whichever way the error comes, and never more than
/// a line of a log bears.
#[test]
fn errors_are_told_with_their_causes_and_in_bounds() {
    fn told<E: 'static>(error: &E) -> String
    where
        Chain: ClassifyError<E>,
    {
        Classifier::new(Halves { response: AnyOk, error: Chain })
            .explain::<(), E>(Err(error))
            .into()
    }
    let wrapped = || Wrapped(Box::new(reset("gone")), "sending");
    assert_eq!(told(&AnyError::from(wrapped())), "sending: gone");
    assert_eq!(told(&BoxError::from(wrapped())), "sending: gone");
    assert_eq!(told(&io::Error::other(reset("gone"))), "gone");
    let open = CircuitOpen::new(Label::new("orders"), Duration::from_secs(7));
    assert!(told(&open).contains("orders"), "{}", told(&open));
    assert!(!told(&Elapsed::deadline(Duration::from_secs(7))).is_empty());

    // 3 bytes each, cut between two of them; and what comes after the end is not begun.
    let long: &'static str = "漢".repeat(300).leak();
    let error = AnyError::from(Wrapped(Box::new(reset("gone")), long));
    assert_eq!(told(&error), "漢".repeat(170));
    let text: &'static str = "x".repeat(510).leak();
    let error = AnyError::from(Wrapped(Box::new(reset("gone")), text));
    assert_eq!(told(&error), format!("{text}: "));
}

/// Two failures are the same if all that is said of them is.
#[test]
fn failures_differ_by_what_they_say() {
    let failure = Failure::new(ErrorClass::Transient);
    assert_eq!(failure, ErrorClass::Transient.into());
    for other in [
        Failure::new(ErrorClass::Timeout).reason(failure.reason),
        failure.disposition(Disposition::Processed),
        failure.retry_after(RetryAfter::Never),
        failure.server(ServerWord::Demanded),
        failure.vote(Vote::Ignore),
        failure.reason("other"),
    ] {
        assert_ne!(failure, other);
    }
}

/// Classification, section 2: the class's rule, the disposition and the server's word.
#[test]
fn what_may_be_sent_again() {
    let safe = Failure::new(ErrorClass::Transient);
    for (disposition, done) in [
        (Disposition::NotSent, false),
        (Disposition::NotProcessed, false),
        (Disposition::MaybeProcessed, true),
        (Disposition::Processed, true),
    ] {
        assert_eq!(disposition.may_be_processed(), done);
        assert_eq!(safe.disposition(disposition).repeatable(false, false), !done);
        assert!(safe.disposition(disposition).repeatable(true, false));
    }
    let unit = Failure::new(ErrorClass::Contention);
    assert!(unit.repeatable(false, true) && !unit.repeatable(true, false));
    for class in [ErrorClass::Auth, ErrorClass::Permanent] {
        assert!(!Failure::new(class).repeatable(true, true));
        assert!(Failure::new(class).server(ServerWord::Demanded).repeatable(false, false));
    }
    assert!(!safe.server(ServerWord::Forbidden).repeatable(true, true));
}

#[test]
fn any_error_gives_back_what_was_put_in() {
    let error = AnyError::from(reset("gone"));
    assert!(error.downcast_ref::<io::Error>().is_some());
    let boxed: BoxError = error.into();
    assert!(boxed.downcast_ref::<io::Error>().is_some(), "the very box, not a wrapper");
}

#[test]
fn overrides_hold_at_run_time_and_the_most_specific_wins() {
    let (classifier, _) = classifier();
    let (op, other) = (Operation::new("GET /a"), Operation::new("GET /b"));
    let error = AnyError::from(reset("x"));
    let class = |op: &Operation| {
        classifier.judge::<u32, _>(op, Err(&error)).failure().map(|failure| failure.class)
    };
    assert_eq!(class(&op), Some(ErrorClass::Transient));
    classifier.override_class(ErrorClass::Transient, ErrorClass::Internal);
    assert_eq!(class(&op), Some(ErrorClass::Internal));
    classifier.override_reason("connection_reset", ErrorClass::Declined);
    classifier.override_operation(op, ErrorClass::Quota);
    assert_eq!(class(&op), Some(ErrorClass::Quota));
    assert_eq!(class(&other), Some(ErrorClass::Declined));
    classifier.clear_overrides();
    assert_eq!(class(&op), Some(ErrorClass::Transient));
    assert_eq!(classifier.judge::<u32, AnyError>(&op, Ok(&1)), Verdict::Success);
}

/// A costly classifier runs once per attempt outcome and every layer above believes it.
#[tokio::test(start_paused = true)]
async fn kf08_a_classify_layer_is_asked_once_and_believed_by_all() {
    let (classifier, seen) = classifier();
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let judge = {
        let asked = asked.clone();
        service_fn(move |observation: Observation| {
            asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            assert_eq!(observation.local.class, ErrorClass::Transient);
            assert!(observation.chain.contains("reset"), "{}", observation.chain);
            std::future::ready(Ok::<_, AnyError>(Verdict::from(ErrorClass::Quota)))
        })
    };
    let stack = ServiceBuilder::new()
        .layer(Watch::new(&classifier))
        .map_result(|result| result)
        .layer(Watch::new(&classifier))
        .layer(ClassifyLayer::new(classifier.clone(), judge))
        .service(failing());
    stack.oneshot(1).await.unwrap_err();
    assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 1);
    assert_eq!(classifier.count(ErrorClass::Quota), 1);
    assert_eq!(seen.incidents()[0].failure.unwrap().class, ErrorClass::Quota);
}

#[tokio::test(start_paused = true)]
async fn a_judge_that_fails_or_is_late_leaves_the_local_verdict() {
    for late in [false, true] {
        let (classifier, _) = classifier();
        let judge = service_fn(move |_: Observation| async move {
            if late {
                std::future::pending::<()>().await;
            }
            Err::<Verdict, _>(AnyError::msg("no idea"))
        });
        let begun = tokio::time::Instant::now();
        let stack = ServiceBuilder::new()
            .layer(Watch::new(&classifier))
            .layer(ClassifyLayer::new(classifier.clone(), judge))
            .service(failing());
        stack.oneshot(1).await.unwrap_err();
        assert_eq!(classifier.count(ErrorClass::Transient), 1);
        assert!(begun.elapsed() <= Duration::from_millis(251));
    }
    let (classifier, _) = classifier();
    let error = ClassifyLayer::new(classifier.clone(), classifier).limit(Duration::ZERO);
    assert_eq!(error.unwrap_err().field(), "limit");
}

/// The shared classifier itself is such a service: it answers what it was taught.
#[tokio::test]
async fn the_classifier_as_a_service_answers_what_it_was_taught() {
    let (classifier, _) = classifier();
    let local = Failure::new(ErrorClass::Transient);
    let lesson = Fingerprint::of(&Operation::EMPTY, &local, "shard 7 is read only");
    classifier.teach(lesson, ErrorClass::Declined);
    let ask = |text: &str| {
        let observation = Observation::new(Operation::EMPTY, local, text.to_owned());
        classifier.clone().oneshot(observation)
    };
    let class = |verdict: Verdict| verdict.failure().unwrap().class;
    assert_eq!(class(ask("shard 12 is read only").await.unwrap()), ErrorClass::Declined);
    assert_eq!(class(ask("shard 12 is gone").await.unwrap()), ErrorClass::Transient);
}

/// What the rules cannot tell is looked up: what was taught first, then the advisor is asked, in every
/// layer, and about nothing else.
#[tokio::test]
async fn every_layer_sees_what_experience_says_of_an_unknown_failure() {
    struct Read(std::sync::Arc<std::sync::Mutex<Vec<Observation>>>);
    impl Advisor for Read {
        fn advise(&self, observation: &Observation) -> Option<ErrorClass> {
            self.0.lock().unwrap().push(observation.clone());
            observation.chain.contains("busy").then_some(ErrorClass::Throttled)
        }
    }
    let (classifier, _) = classifier();
    let operation = Operation::new("plan");
    let judge = |text: &str| {
        let error = AnyError::msg(text);
        classifier.judge::<u32, _>(&operation, Err(&error)).failure().unwrap()
    };
    let unknown = judge("shard 7 is busy");
    assert_eq!((unknown.class, unknown.is_learned()), (ErrorClass::Unknown, false));

    let asked = std::sync::Arc::default();
    classifier.advised_by(Read(std::sync::Arc::clone(&asked)));
    let advised = judge("shard 7 is busy");
    assert_eq!((advised.class, advised.is_learned()), (ErrorClass::Throttled, true));
    assert_eq!((advised.reason, advised.disposition), (unknown.reason, unknown.disposition));
    assert_eq!(advised.vote, ErrorClass::Throttled.vote());
    assert_eq!(judge("shard 7 is gone").class, ErrorClass::Unknown);
    {
        let asked = asked.lock().unwrap();
        assert_eq!(asked.len(), 2);
        assert_eq!(asked[0].operation, operation);
        let fingerprint = Fingerprint::of(&operation, &unknown, "shard 12 is busy");
        assert_eq!(asked[0].fingerprint, fingerprint);
        assert_eq!(Fingerprint::of(&operation, &advised, "shard 12 is busy"), fingerprint);
    }

    // What was taught needs no advice.
    let kind = Fingerprint::of(&operation, &unknown, "shard 1 is gone");
    classifier.teach(kind, ErrorClass::Declined);
    assert_eq!(judge("shard 7 is gone").class, ErrorClass::Declined);
    assert_eq!(asked.lock().unwrap().len(), 2);

    // An override is no experience, and what it makes known is not looked up.
    classifier.override_reason(unknown.reason, ErrorClass::Transient);
    let overridden = judge("shard 7 is busy");
    assert_eq!((overridden.class, overridden.is_learned()), (ErrorClass::Transient, false));
    classifier.clear_overrides();
    assert_eq!(judge("shard 7 is busy").class, ErrorClass::Unknown);
    assert_eq!(asked.lock().unwrap().len(), 2);
}

/// Labels come from fixed sets: 100 000 messages and ids make no new series.
#[tokio::test]
async fn kf62_metric_labels_are_bounded() {
    let (classifier, seen) = classifier();
    let mut stack =
        ServiceBuilder::new().layer(Watch::new(&classifier)).service(service_fn(|n: u32| {
            std::future::ready(Err::<u32, _>(AnyError::msg(format!("no row /users/{n}"))))
        }));
    for n in 0..100_000 {
        let _ = tower::Service::call(&mut stack, n).await;
    }
    let series: std::collections::HashSet<_> = seen.labels().into_iter().collect();
    assert_eq!(series.len(), 1, "{series:?}");
}

const KINDS: [io::ErrorKind; 12] = [
    io::ErrorKind::ConnectionRefused,
    io::ErrorKind::ConnectionReset,
    io::ErrorKind::TimedOut,
    io::ErrorKind::WouldBlock,
    io::ErrorKind::AddrInUse,
    io::ErrorKind::NotFound,
    io::ErrorKind::InvalidData,
    io::ErrorKind::StorageFull,
    io::ErrorKind::ResourceBusy,
    io::ErrorKind::PermissionDenied,
    io::ErrorKind::Other,
    io::ErrorKind::OutOfMemory,
];

proptest! {
    /// Before sending nothing can have been processed, whatever the error; nothing panics.
    #[test]
    fn before_sending_nothing_was_processed(kind in 0..KINDS.len(), os in any::<Option<i32>>()) {
        for phase in [Phase::Dns, Phase::Connect, Phase::Tls] {
            prop_assert!(!io_failure(KINDS[kind], os, phase).disposition.may_be_processed());
        }
        let _ = io_failure(KINDS[kind], os, Phase::Read);
    }

    #[test]
    fn fingerprints_and_labels_take_any_text(text in ".*", cut in 0_usize..100) {
        let failure = Failure::new(ErrorClass::Unknown);
        let a = Fingerprint::of(&Operation::new(&text), &failure, &text);
        prop_assert_eq!(a, Fingerprint::of(&Operation::new(&text), &failure, &text));
        let cut = text.char_indices().nth(cut).map_or(text.len(), |(at, _)| at);
        prop_assert_eq!(Label::<20>::new(&text), Label::<20>::from_parts(&[&text[..cut], &text[cut..]]));
    }
}

/// Ours is known by its type, however deep it lies; after the deadline nobody asks for a retry.
#[test]
fn an_elapsed_time_limit_is_a_timeout_by_type() {
    use tower_triage_core::{Elapsed, ServerWord};

    let after = Duration::from_secs(3);
    let cases = [
        (Elapsed::limit(after), ServerWord::Silent, Disposition::MaybeProcessed),
        (Elapsed::deadline(after), ServerWord::Forbidden, Disposition::MaybeProcessed),
        (Elapsed::not_sent(), ServerWord::Forbidden, Disposition::NotSent),
    ];
    for (elapsed, word, disposition) in cases {
        let failure = Chain.error(&elapsed);
        assert_eq!(failure.class, ErrorClass::Timeout);
        assert_eq!((failure.server, failure.disposition), (word, disposition));
        assert_eq!(failure.repeatable(true, true), !elapsed.is_deadline());
        let sent = disposition != Disposition::NotSent;
        assert_eq!(
            (elapsed.was_sent(), elapsed.after()),
            (sent, if sent { after } else { Duration::ZERO })
        );
        assert_eq!(Chain.error(&AnyError::from(elapsed)), failure);
        let wrapped: BoxError = Box::new(io::Error::other(elapsed));
        assert_eq!(Chain.error(&wrapped), failure);
    }
}

/// A closure's last word and a closure's facts, over any rules, in any order; the rest of the rules
/// stays.
#[tokio::test]
async fn rules_are_changed_by_closures() {
    use tower_triage_core::{Classify, Describe, RequestFacts, RulesExt, classify_fn};

    let rules = common::rules()
        .describe(|n: &u32| RequestFacts::new("count").repeatable(n % 2 == 0).key("even"))
        .adjust(|outcome: Result<&u32, &AnyError>, verdict| match outcome {
            Ok(0) => ErrorClass::Transient.into(),
            _ => verdict,
        });
    assert_eq!(rules.classify(Ok(&0)), ErrorClass::Transient.into());
    let error = AnyError::from(reset("x"));
    assert_eq!(rules.classify(Err(&error)).failure().unwrap().reason, "connection_reset");
    assert_eq!((rules.repeatable(&2), rules.repeatable(&3)), (true, false));
    assert_eq!((rules.operation(&1), rules.key(&1)), ("count".into(), "even".into()));
    assert!(rules.unit_of_work(&1) && rules.deadline(&1).is_none());

    let closure = classify_fn(|_: Result<&u32, &AnyError>| Verdict::Success)
        .describe(|_: &u32| RequestFacts::new("nothing").target("nowhere"));
    assert!(closure.classify(Err(&error)).is_success());
    assert_eq!(closure.target(&1), "nowhere");
    assert_eq!(closure.key(&1), "nothing", "the operation is the key");
}

/// The judge's word is the last: neither a closure nor an override is applied to it once more.
#[tokio::test(start_paused = true)]
async fn kf08_a_stamp_is_not_adjusted_again() {
    let (classifier, seen) = classifier();
    classifier.override_class(ErrorClass::Transient, ErrorClass::Permanent);
    classifier.override_class(ErrorClass::Permanent, ErrorClass::Timeout);
    let judge = service_fn(|observation: Observation| {
        std::future::ready(Ok::<_, AnyError>(Verdict::Failure(observation.local)))
    });
    let stack = ServiceBuilder::new()
        .layer(Watch::new(&classifier))
        .layer(ClassifyLayer::new(classifier.clone(), judge))
        .service(failing());
    stack.oneshot(1).await.unwrap_err();
    assert_eq!(seen.incidents()[0].failure.unwrap().class, ErrorClass::Permanent);
}
