//! One lost `Sync` breaks stacks far away.

use static_assertions::{assert_impl_all as all, assert_not_impl_any as none};
use tower_triage_dead_letter_postgres::{PostgresOptions, PostgresStore};
use tower_triage_escalate::store::Store;

all!(PostgresStore: Store, Send, Sync, Unpin);
// It is shared behind an `Arc<dyn Store>`; its last handle ends it.
none!(PostgresStore: Clone);
all!(PostgresOptions: Copy, Default, Send, Sync);
