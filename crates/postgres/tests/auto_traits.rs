//! One lost `Sync` breaks stacks far away.

use std::rc::Rc;

use static_assertions::{assert_impl_all as all, assert_not_impl_any as none};
use tokio_postgres::NoTls;
use tower_triage_core::{AnyError, Describe, Stamp, StampOutcome};
use tower_triage_postgres::future::ResponseFuture;
use tower_triage_postgres::{
    CancelledByUs, PostgresErrors, PostgresRequests, PostgresRules, Reconnect, SqlFacts, Stage,
    Statement, Statements, TransactionOptions, Transactions, Unit, UnitError, WorkFn, WorkUnit,
};

all!(PostgresRules: Clone, Send, Sync, Unpin);
all!(PostgresErrors: Clone, Send, Sync);
all!(PostgresRequests: Copy, Send, Sync);
all!(SqlFacts<'_>: Copy, Send, Sync);
all!(WorkUnit: Copy, Send, Sync);
all!(Stage: Copy, Send, Sync);
all!(UnitError: Send, Sync, std::error::Error);
all!(CancelledByUs: Send, Sync, std::error::Error);
all!(TransactionOptions: Copy, Send, Sync);
all!(Reconnect<NoTls>: Send, Sync);
all!(Transactions<Reconnect>: Clone, Send, Sync, Unpin);
all!(Statements<Reconnect>: Clone, Send, Sync, Unpin);
// Connections are shared, not copied.
none!(Reconnect<NoTls>: Clone);
// The work decides; what cannot be cloned is sent once.
all!(Unit<()>: Copy, Send, Sync);
all!(Unit<String>: Clone);
none!(Unit<Rc<()>>: Send);
none!(Unit<NoClone>: Clone);
all!(WorkFn<fn()>: Copy, Send, Sync);
all!(Statement: Clone, Send, Sync, Unpin);
// `Send` is what a task needs; a transaction in it is not `Sync` for certain.
all!(ResponseFuture<String>: Send, Unpin);
none!(ResponseFuture<String>: Sync);

all!(PostgresRequests: Describe<Unit<()>>, Describe<Statement>);
all!(PostgresRequests: Stamp<String>);
all!(PostgresErrors: Stamp<AnyError>);
all!(PostgresRules: StampOutcome<String, AnyError>);

#[allow(dead_code, reason = "only its lack of Clone is asked")]
struct NoClone;
