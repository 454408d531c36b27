//! SQLSTATE → verdict, from plain facts (PostgreSQL documentation, appendix A "PostgreSQL Error
//! Codes" and section 13.5 "Serialization Failure Handling").

use tower_triage_core::{Disposition, ErrorClass, Failure, ServerWord, Verdict, Vote};

/// What of a unit of work the failed request was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WorkUnit {
    /// The whole transaction, `BEGIN` to `COMMIT`: it may run again as it is.
    Transaction,
    /// One statement. With a commit in flight it was sent outside a transaction and commits itself;
    /// without, it is a part of an open transaction, which is gone with it, so it is never
    /// repeated alone.
    Statement,
}

/// What is known of a failure that the server told by an SQLSTATE: plain facts, so that the decision
/// runs without a server. Whether the request is idempotent is asked of the request
/// ([`Describe::repeatable`](tower_triage_core::Describe::repeatable)); here it is only said whether
/// the work may have been done.
///
/// ```
/// use tower_triage_core::{Disposition, ErrorClass};
/// use tower_triage_postgres::{SqlFacts, WorkUnit};
///
/// let deadlock = SqlFacts::new("40P01").verdict().failure().unwrap();
/// assert_eq!(deadlock.class, ErrorClass::Contention);
///
/// let shutdown = SqlFacts::new("57P01");
/// let unknown = shutdown.verdict().failure().unwrap();
/// assert_eq!(unknown.disposition, Disposition::MaybeProcessed);
/// let rolled_back = SqlFacts { commit_in_flight: false, ..shutdown }.verdict().failure().unwrap();
/// assert_eq!(rolled_back.disposition, Disposition::NotProcessed);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SqlFacts<'a> {
    /// The five characters; anything else is judged as an unknown code.
    pub sqlstate: &'a str,
    /// What failed.
    pub unit: WorkUnit,
    /// Had `COMMIT`, or a statement that commits itself, been sent? Then a lost connection leaves
    /// it open whether the work is done; before, the server rolls back.
    pub commit_in_flight: bool,
    /// Did it come as FATAL or PANIC, which ends the session, and not as the ERROR that ends a
    /// transaction? (PgBouncer, for one, tells of a lost server in this way, under any code.)
    pub session_ended: bool,
    /// Did our side cancel the statement? Then 57014 means that, else a time limit of the server.
    pub caller_cancelled: bool,
}

impl<'a> SqlFacts<'a> {
    /// An ERROR while the commit of a whole transaction was in flight, not cancelled by us.
    #[must_use]
    pub const fn new(sqlstate: &'a str) -> Self {
        Self {
            sqlstate,
            unit: WorkUnit::Transaction,
            commit_in_flight: true,
            session_ended: false,
            caller_cancelled: false,
        }
    }

    /// The verdict. Success for the classes 00, 01 and 02, which are no errors.
    pub fn verdict(&self) -> Verdict {
        let Some(failure) = self.judge() else { return Verdict::Success };
        let failure = match failure.disposition {
            // Nobody vouches for a transaction whose session ended under its commit.
            Disposition::NotProcessed if self.session_ended && self.commit_in_flight => {
                failure.disposition(Disposition::MaybeProcessed)
            }
            _ => failure,
        };
        Verdict::Failure(match self.unit {
            WorkUnit::Statement if !self.commit_in_flight => failure.server(ServerWord::Forbidden),
            WorkUnit::Statement | WorkUnit::Transaction => failure,
        })
    }

    fn judge(&self) -> Option<Failure> {
        use ErrorClass as C;
        let Some((group, code)) = well_formed(self.sqlstate) else {
            return Some(unknown("sqlstate_malformed"));
        };
        let failure = match code {
            "40001" => rolled_back(C::Contention).reason("serialization_failure"),
            "40P01" => rolled_back(C::Contention).reason("deadlock_detected"),
            "55P03" => rolled_back(C::Contention).reason("lock_not_available"),
            "40000" | "55006" | "72000" => rolled_back(C::Contention).reason("lost_a_race"),

            "40003" | "08007" => maybe(C::Transient).reason("commit_outcome_unknown"),
            "08000" | "08006" => self.session_lost("connection_lost"),
            "57P01" => self.session_lost("admin_shutdown"),
            "57P02" => self.session_lost("crash_shutdown"),
            "08001" | "08003" | "08004" => unsent(C::Transient).reason("cannot_connect"),
            "57P03" => unsent(C::Transient).reason("cannot_connect_now"),
            // Only a session that does nothing is ended so.
            "57P05" | "25P03" => unsent(C::Transient).reason("idle_too_long"),
            "HV00N" => rolled_back(C::Transient).reason("fdw_cannot_connect"),

            // Of the whole server, so it counts as its failure.
            "53300" => unsent(C::Throttled).vote(Vote::Failure).reason("too_many_connections"),
            "53000" | "53200" => {
                rolled_back(C::Throttled).vote(Vote::Failure).reason("out_of_resources")
            }
            "53100" => rolled_back(C::Quota).reason("disk_full"),
            "53400" => rolled_back(C::Quota).reason("configuration_limit"),

            "57014" if self.caller_cancelled => rolled_back(C::Cancelled).reason("query_canceled"),
            "57014" => rolled_back(C::Timeout).reason("statement_timeout"),
            "25006" => rolled_back(C::Declined).reason("read_only_transaction"),

            "XX000" | "XX001" | "XX002" => rolled_back(C::Internal).reason("server_defect"),
            "P0004" => rolled_back(C::Internal).reason("assertion_failed"),
            "08P01" => rolled_back(C::Internal).reason("protocol_violation"),
            "57P04" => rolled_back(C::Permanent).reason("database_dropped"),
            "40002" | "23505" | "23P01" => rolled_back(C::Permanent).reason("integrity_violation"),
            _ => return by_group(group),
        };
        Some(failure)
    }

    fn session_lost(&self, reason: &'static str) -> Failure {
        let failure = Failure::new(ErrorClass::Transient).reason(reason);
        match self.commit_in_flight {
            true => failure.disposition(Disposition::MaybeProcessed),
            false => failure.disposition(Disposition::NotProcessed),
        }
    }
}

/// What the first two characters say, where the code itself says no more.
fn by_group(group: &str) -> Option<Failure> {
    use ErrorClass as C;
    Some(match group {
        "00" | "01" | "02" => return None,
        "28" => rolled_back(C::Auth).reason("authorization"),
        "58" => rolled_back(C::Internal).reason("system_error"),
        "F0" => rolled_back(C::Internal).reason("configuration_file"),
        "23" => rolled_back(C::Permanent).reason("integrity_violation"),
        "21" | "22" => rolled_back(C::Permanent).reason("bad_data"),
        "24" | "25" | "26" => rolled_back(C::Permanent).reason("invalid_state"),
        "0A" => rolled_back(C::Permanent).reason("not_supported"),
        "3D" | "42" | "44" => rolled_back(C::Permanent).reason("syntax_or_access"),
        "54" | "55" => rolled_back(C::Permanent).reason("not_possible"),
        "P0" => rolled_back(C::Permanent).reason("raised_by_function"),
        _ => unknown("sqlstate_unknown"),
    })
}

/// Group and code, if it is five digits and capital letters.
fn well_formed(sqlstate: &str) -> Option<(&str, &str)> {
    let fits = sqlstate.len() == 5
        && sqlstate.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
    fits.then(|| (&sqlstate[..2], sqlstate))
}

/// An ERROR aborts the transaction: whatever it did is gone.
const fn rolled_back(class: ErrorClass) -> Failure {
    Failure::new(class).disposition(Disposition::NotProcessed)
}

/// The server did not let us in.
const fn unsent(class: ErrorClass) -> Failure {
    Failure::new(class).disposition(Disposition::NotSent)
}

const fn maybe(class: ErrorClass) -> Failure {
    Failure::new(class).disposition(Disposition::MaybeProcessed)
}

const fn unknown(reason: &'static str) -> Failure {
    maybe(ErrorClass::Unknown).reason(reason)
}
