//! Send, Sync and friends are API: losing one breaks code far away.

use static_assertions::assert_impl_all;
use tower_triage_dead_letter_sqlite::{OpenError, SqliteOptions, SqliteStore};

assert_impl_all!(SqliteStore: Send, Sync, Clone, Unpin, std::fmt::Debug);
assert_impl_all!(SqliteOptions: Send, Sync, Copy, std::fmt::Debug);
assert_impl_all!(OpenError: Send, Sync, std::error::Error);
