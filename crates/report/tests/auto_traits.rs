//! What users store, name, clone and send.

use static_assertions::{assert_impl_all, assert_not_impl_any};
use tower_triage_core::Observer;
use tower_triage_report::{
    BreakerTable, ErrorReport, FailureLog, FailureReport, View, Watch, Wave, WaveChart, WaveSummary,
};

assert_impl_all!(FailureLog: Observer, Clone, Send, Sync, Unpin);
assert_impl_all!(Wave: Observer, Clone, Send, Sync, Unpin);
assert_impl_all!(Watch<std::future::Ready<Result<(), ()>>>: Send, Sync, Unpin);
// As movable as the call that it follows, no more.
assert_not_impl_any!(Watch<*const ()>: Send);
assert_impl_all!(FailureReport: Clone, Send, Sync, Unpin);
assert_impl_all!(BreakerTable: Clone, Send, Sync, Unpin);
assert_impl_all!(ErrorReport: Clone, Send, Sync, Unpin);
assert_impl_all!(WaveSummary: Clone, Send, Sync, Unpin);
assert_impl_all!(WaveChart: Clone, Send, Sync, Unpin);
assert_impl_all!(View: Copy, Send, Sync, Unpin);
