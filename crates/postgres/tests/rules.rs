//! What errors mean by the types along their chain, without a server.

use std::error::Error;
use std::fmt;
use std::io;
use std::time::Duration;

use tower_triage_core::Describe;
use tower_triage_core::{
    AnyError, BoxError, CircuitOpen, Classify, ClassifyError, Disposition, Elapsed, ErrorClass,
    Failure, Label, ServerWord, Vote,
};
use tower_triage_postgres::{
    PostgresErrors, PostgresRulesExt, Stage, Unit, UnitError, postgres, work_fn,
};

const STAGES: [Stage; 5] =
    [Stage::Connect, Stage::Begin, Stage::Work, Stage::Commit, Stage::Statement];

fn judge(error: impl Into<AnyError>) -> Failure {
    PostgresErrors::default().error(&error.into())
}

fn io_error(kind: io::ErrorKind) -> io::Error {
    io::Error::from(kind)
}

#[test]
fn how_far_the_work_had_come_decides_what_became_of_it() {
    for stage in STAGES {
        let failure = judge(UnitError::new(stage, io_error(io::ErrorKind::ConnectionReset)));
        let expected = match stage {
            Stage::Connect => Disposition::NotSent,
            Stage::Begin | Stage::Work => Disposition::NotProcessed,
            Stage::Commit | Stage::Statement => Disposition::MaybeProcessed,
        };
        assert_eq!((failure.class, failure.disposition), (ErrorClass::Transient, expected));
        assert_eq!(stage.commit_in_flight(), expected == Disposition::MaybeProcessed);
    }
    let bare = judge(io_error(io::ErrorKind::ConnectionReset));
    assert_eq!(bare.disposition, Disposition::MaybeProcessed);
    let refused = judge(io_error(io::ErrorKind::ConnectionRefused));
    assert_eq!(refused.class, ErrorClass::Transient);
}

#[test]
fn a_time_limit_inside_the_work_is_rolled_back_and_one_above_is_not_known() {
    let limit = Elapsed::limit(Duration::from_secs(1));
    let inside = judge(UnitError::new(Stage::Work, limit));
    assert_eq!(inside.class, ErrorClass::Timeout);
    assert_eq!(inside.disposition, Disposition::NotProcessed);
    let above = judge(limit);
    assert_eq!(above.disposition, Disposition::MaybeProcessed);
    assert_eq!(above, limit.failure());
}

#[test]
fn our_own_rejections_are_no_failures_of_the_database() {
    let open = CircuitOpen::new(Label::new("db"), Duration::from_secs(1));
    let failure = judge(open);
    assert_eq!((failure.class, failure.vote), (ErrorClass::Rejected, Vote::Ignore));
    assert_eq!(PostgresErrors::default().error(&open), failure);
}

/// A wrapper that a user or a library may have.
#[derive(Debug)]
struct Wrapped(BoxError);

impl fmt::Display for Wrapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("connection refused, 40001, deadlock")
    }
}

impl Error for Wrapped {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.0)
    }
}

#[test]
fn kf07_wrappers_and_texts_change_nothing() {
    let error = || UnitError::new(Stage::Begin, io_error(io::ErrorKind::ConnectionReset));
    let rules = PostgresErrors::default();
    let bare = rules.error(&error());
    assert_eq!(bare.disposition, Disposition::NotProcessed);
    let boxed: BoxError = Box::new(Wrapped(Box::new(Wrapped(Box::new(error())))));
    assert_eq!(rules.error(&boxed), bare);
    assert_eq!(rules.error(&AnyError::from_boxed(boxed)), bare);
    let text = AnyError::msg("ERROR 40001: deadlock, connection refused");
    assert_eq!(rules.error(&text).class, ErrorClass::Unknown);
}

#[test]
fn an_error_of_ones_own_is_what_its_owner_says() {
    let rules = postgres().own_error(|error: &Wrapped| match error.0.is::<io::Error>() {
        true => ErrorClass::Transient.into(),
        false => ErrorClass::Permanent.into(),
    });
    let judge = |error: AnyError| rules.classify(Err::<&(), _>(&error)).failure().unwrap();
    let own = || Wrapped(io_error(io::ErrorKind::NotFound).into());
    let inside = judge(UnitError::new(Stage::Work, own()).into());
    assert_eq!(inside.class, ErrorClass::Transient);
    assert_eq!(inside.disposition, Disposition::NotProcessed, "it was rolled back");
    assert_eq!(judge(own().into()).disposition, Disposition::MaybeProcessed);
    // Its word comes before what is inside.
    let open = CircuitOpen::new(Label::new("db"), Duration::ZERO);
    assert_eq!(judge(Wrapped(open.into()).into()).class, ErrorClass::Permanent);
    // The types of others are judged as before.
    assert_eq!(judge(open.into()).class, ErrorClass::Rejected);
}

#[test]
fn in_an_open_transaction_nothing_is_repeated() {
    let rules = postgres().in_open_transaction();
    for kind in [io::ErrorKind::ConnectionReset, io::ErrorKind::TimedOut] {
        let error = AnyError::from(io_error(kind));
        let failure = rules.classify(Err::<&(), _>(&error)).failure().unwrap();
        assert_eq!(failure.server, ServerWord::Forbidden);
        assert_eq!(failure.disposition, Disposition::NotProcessed);
    }
    // Units say themselves where they were, and are whole.
    let error = AnyError::from(UnitError::new(Stage::Work, io_error(io::ErrorKind::TimedOut)));
    let failure = rules.classify(Err::<&(), _>(&error)).failure().unwrap();
    assert_eq!(failure.server, ServerWord::Silent);
}

#[tokio::test]
async fn an_error_of_tokio_postgres_by_itself_is_read_with_care() {
    let nobody = "host=127.0.0.1 port=1 user=nobody".parse::<tokio_postgres::Config>().unwrap();
    let Err(error) = nobody.connect(tokio_postgres::NoTls).await else {
        panic!("somebody listens on port 1")
    };
    // Only connecting is refused, so nothing was sent, though the error does not say it.
    let failure = PostgresErrors::default().error(&error);
    assert_eq!((failure.class, failure.reason), (ErrorClass::Transient, "connection_refused"));
    assert_eq!(failure.disposition, Disposition::NotSent);

    // Configuration: no type says so.
    let Err(error) = "port=x".parse::<tokio_postgres::Config>() else { panic!("it is no port") };
    assert_eq!(PostgresErrors::default().error(&error).class, ErrorClass::Unknown);
    let failure = judge(UnitError::new(Stage::Connect, error));
    assert_eq!(failure.disposition, Disposition::NotSent);
}

#[test]
fn a_unit_is_repeatable_if_it_says_so_or_only_reads() {
    let rules = postgres();
    let unit = || Unit::new("pay", work_fn(|_| Box::pin(async { Ok(()) })));
    assert!(!rules.repeatable(&unit()));
    assert!(rules.repeatable(&unit().idempotent(true)));
    assert!(rules.repeatable(&unit().read_only(true)));
    assert!(!rules.repeatable(&unit().read_only(false)));
    assert!(rules.unit_of_work(&unit()));
    assert_eq!(rules.operation(&unit()), "pay");
    assert_eq!(rules.request_id(&unit().request_id("p-17")).unwrap(), "p-17");
    assert_eq!(rules.deadline(&unit()), None);
}
