//! An error's chain → failure: where the work stood, what the server said, what became of the
//! connection; by type, never by text.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use tokio_postgres::error::{DbError, Severity};
use tokio_postgres::types::{WasNull, WrongType};
use tower_triage_core::{
    Disposition, ErrorClass, Failure, Phase, ServerWord, Vote, causes, classify_chain, find,
    io_failure, local_failure,
};

use crate::error::{CancelledByUs, Stage, UnitError};
use crate::sqlstate::{SqlFacts, WorkUnit};

/// Where an error came from that does not say it itself, because it was not met by a service of
/// this crate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Assume {
    /// From a statement that commits itself: the careful reading.
    #[default]
    CommitsItself,
    /// From a statement inside an open transaction.
    InOpenTransaction,
}

/// What the user changed about the rules. Few of each, so a search is as fast as anything.
#[derive(Clone, Default)]
pub(crate) struct Changes {
    pub(crate) assume: Assume,
    /// Codes with another class.
    pub(crate) codes: Vec<(Box<str>, ErrorClass)>,
    /// Error types of the user's own.
    pub(crate) own: Vec<Arc<JudgeOwn>>,
}

/// Judges a link of a chain, if it is of the type that it knows.
pub(crate) type JudgeOwn = dyn Fn(&(dyn Error + 'static)) -> Option<Failure> + Send + Sync;

/// Classifies by the outermost type along the chain that decides.
pub(crate) fn failure(error: &(dyn Error + 'static), changes: &Changes) -> Failure {
    let mut place = Place::new(changes.assume);
    for cause in causes(error) {
        if let Some(own) = changes.own.iter().find_map(|judge| judge(cause)) {
            return place.outcome_of(own);
        }
        if let Some(unit) = cause.downcast_ref::<UnitError>() {
            place.stage = Some(unit.stage());
        } else if cause.is::<CancelledByUs>() {
            place.caller_cancelled = true;
        } else if let Some(local) = local_failure(cause) {
            return place.outcome_of(local);
        } else if let Some(server) = cause.downcast_ref::<DbError>() {
            return place.server_said(server, &changes.codes);
        } else if let Some(client) = cause.downcast_ref::<tokio_postgres::Error>() {
            if let Some(failure) = place.client_said(client) {
                return failure;
            }
        }
    }
    place.outcome_of(classify_chain(error, place.phase()))
}

/// What the walk has learned so far.
struct Place {
    stage: Option<Stage>,
    caller_cancelled: bool,
    assume: Assume,
}

impl Place {
    const fn new(assume: Assume) -> Self {
        Self { stage: None, caller_cancelled: false, assume }
    }

    const fn commit_in_flight(&self) -> bool {
        match (self.stage, self.assume) {
            (Some(stage), _) => stage.commit_in_flight(),
            (None, Assume::CommitsItself) => true,
            (None, Assume::InOpenTransaction) => false,
        }
    }

    fn phase(&self) -> Phase {
        match self.stage {
            Some(Stage::Connect) => Phase::Connect,
            Some(Stage::Begin | Stage::Work | Stage::Commit | Stage::Statement) | None => {
                Phase::Unknown
            }
        }
    }

    fn facts<'a>(&self, sqlstate: &'a str) -> SqlFacts<'a> {
        SqlFacts {
            sqlstate,
            unit: match (self.stage, self.assume) {
                (None, Assume::InOpenTransaction) => WorkUnit::Statement,
                (Some(_), _) | (None, Assume::CommitsItself) => WorkUnit::Transaction,
            },
            commit_in_flight: self.commit_in_flight(),
            session_ended: false,
            caller_cancelled: self.caller_cancelled,
        }
    }

    /// The decision by SQLSTATE. A warning's code on an error cannot make it a success.
    fn server_said(&self, server: &DbError, changed: &[(Box<str>, ErrorClass)]) -> Failure {
        let sqlstate = server.code().code();
        let session_ended =
            matches!(server.parsed_severity(), Some(Severity::Fatal | Severity::Panic));
        let facts = SqlFacts { session_ended, ..self.facts(sqlstate) };
        let unknown = Failure::new(ErrorClass::Unknown).reason("sqlstate_of_no_error");
        let failure = facts.verdict().failure().unwrap_or(unknown);
        let Some((_, class)) = changed.iter().find(|(code, _)| **code == *sqlstate) else {
            return failure;
        };
        let changed = failure.reclassified(*class).reason("sqlstate_override");
        match failure.class {
            // Of a code that nobody knows we still know that an ERROR rolls back.
            ErrorClass::Unknown if !(session_ended && facts.commit_in_flight) => {
                changed.disposition(Disposition::NotProcessed)
            }
            _ => changed,
        }
    }

    /// What tokio-postgres says of its own, if its source does not say more.
    fn client_said(&self, error: &tokio_postgres::Error) -> Option<Failure> {
        if error.is_closed() {
            let lost = self.facts("08006").verdict().failure();
            return lost.map(|failure| failure.reason("connection_closed"));
        }
        let Some(source) = error.source() else {
            // Row count, columns, parameters: the call does not fit the answer. One message that
            // fits no protocol looks the same from outside.
            return Some(misuse("unexpected_answer"));
        };
        if source.is::<WrongType>() || source.is::<WasNull>() {
            return Some(misuse("type_conversion"));
        }
        if source.is::<DbError>() {
            return None;
        }
        match find::<io::Error>(source) {
            Some(io) => Some(self.io(io)),
            // Conversions fail with any type; while connecting it is configuration, credentials
            // or TLS, and of those nothing is known by type.
            None => match self.stage {
                Some(Stage::Begin | Stage::Work | Stage::Commit | Stage::Statement) => {
                    Some(misuse("type_conversion"))
                }
                Some(Stage::Connect) | None => None,
            },
        }
    }

    fn io(&self, error: &io::Error) -> Failure {
        let phase = match error.kind() {
            // Neither happens on an open connection.
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Phase::Connect,
            _ => self.phase(),
        };
        let failure = io_failure(error.kind(), error.raw_os_error(), phase);
        match (failure.class, self.stage) {
            // A name that was not found, a server that broke off while it let us in: they have no
            // kind of their own, and the stage tells.
            (ErrorClass::Unknown, Some(Stage::Connect)) => Failure::new(ErrorClass::Transient)
                .disposition(Disposition::NotSent)
                .reason("connect"),
            _ => self.outcome_of(failure),
        }
    }

    /// A failure that was found without the server's word: what became of the work follows from
    /// how far it had come.
    fn outcome_of(&self, failure: Failure) -> Failure {
        match (self.stage, self.assume) {
            _ if failure.disposition == Disposition::NotSent => failure,
            (Some(Stage::Connect), _) => failure.disposition(Disposition::NotSent),
            (Some(Stage::Begin | Stage::Work), _) => failure.disposition(Disposition::NotProcessed),
            (Some(Stage::Commit | Stage::Statement), _) | (None, Assume::CommitsItself) => failure,
            // The transaction around it is gone, and the statement alone is not the work.
            (None, Assume::InOpenTransaction) => {
                failure.disposition(Disposition::NotProcessed).server(ServerWord::Forbidden)
            }
        }
    }
}

/// The call is wrong, not the server.
const fn misuse(reason: &'static str) -> Failure {
    Failure::new(ErrorClass::Permanent).vote(Vote::Ignore).reason(reason)
}

/// Writes the chain for people. Of the server's answer severity, code and message: its DETAIL may
/// hold the row's values.
pub(crate) fn explain(error: &(dyn Error + 'static), out: &mut dyn fmt::Write) {
    const DEPTH: usize = 16;
    let mut separator = "";
    for cause in causes(error).take(DEPTH) {
        let wraps_server = cause.is::<tokio_postgres::Error>()
            && cause.source().is_some_and(<dyn Error>::is::<DbError>);
        if wraps_server {
            continue;
        }
        let _ = match cause.downcast_ref::<DbError>() {
            Some(server) => write!(
                out,
                "{separator}{} {}: {}",
                server.severity(),
                server.code().code(),
                server.message()
            ),
            None => write!(out, "{separator}{cause}"),
        };
        separator = ": ";
    }
}
