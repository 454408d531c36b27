//! Which auto traits users may rely on.

use std::marker::PhantomPinned;

use static_assertions::{assert_impl_all, assert_not_impl_any};
use tower_triage_core::{AnyOk, Chain, Elapsed, Halves};
use tower_triage_timeout::{
    AsError, NoTell, RejectFn, SoftLimit, TellFn, Timeout, TimeoutLayer, TimeoutPlan,
    TimeoutPolicy, future::ResponseFuture,
};

type Rules = Halves<AnyOk, Chain>;
type Local = std::rc::Rc<()>;

assert_impl_all!(TimeoutLayer<Rules>: Send, Sync, Clone, Unpin, std::fmt::Debug);
assert_impl_all!(Timeout<u8, Rules, AsError, NoTell>: Send, Sync, Clone, Unpin, std::fmt::Debug);
// Not `Sync`: its part of the incident may hold deferred work, which is only `Send`.
assert_impl_all!(ResponseFuture<std::future::Ready<()>, Rules, AsError, NoTell>: Send, std::fmt::Debug);
assert_impl_all!(TimeoutPolicy: Send, Sync, Copy, PartialEq);
assert_impl_all!(TimeoutPlan: Send, Sync, Copy, PartialEq);
assert_impl_all!(SoftLimit: Send, Sync, Copy, Unpin, PartialEq);
assert_impl_all!(Elapsed: Send, Sync, Copy, std::error::Error);

// A layer is shared whatever its closures are; they need not be `Clone`.
struct NotClone;
assert_impl_all!(TimeoutLayer<Rules, RejectFn<NotClone>, TellFn<NotClone>>: Clone);
// A service is a clone only of a clone.
assert_not_impl_any!(Timeout<NotClone, Rules, AsError, NoTell>: Clone);
// A call is one call, and its timer is pinned in it.
assert_not_impl_any!(ResponseFuture<u8, Rules, AsError, NoTell>: Clone, Unpin);
// What the inner service and its future are decides.
assert_not_impl_any!(Timeout<Local, Rules, AsError, NoTell>: Send, Sync);
assert_not_impl_any!(ResponseFuture<Local, Rules, AsError, NoTell>: Send, Sync);
assert_not_impl_any!(ResponseFuture<PhantomPinned, Rules, AsError, NoTell>: Unpin);

/// Waiting for the signal can be done anywhere.
#[test]
fn the_signal_may_be_awaited_on_another_thread() {
    fn sends<T: Send>(_: impl FnOnce(&'static SoftLimit) -> T) {}
    sends(|limit| limit.due());
}

#[test]
fn a_call_adds_its_timer_and_little_else_to_the_inner_future() {
    let own = size_of::<ResponseFuture<[u8; 64], Rules, AsError, NoTell>>() - 64;
    let timer = size_of::<tokio::time::Sleep>();
    assert!(own <= timer + 232, "{own} bytes, the timer {timer}");
}
