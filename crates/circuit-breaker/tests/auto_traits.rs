//! Which auto traits users may rely on.

use std::marker::PhantomPinned;

use static_assertions::{assert_impl_all, assert_not_impl_any};
use tower_triage_circuit_breaker::{
    AsError, BreakerHandle, BreakerPlan, BreakerPolicy, CircuitBreaker, CircuitBreakerLayer,
    Counts, KeyedSettings, RejectFn, Sample, State, Transition, future::ResponseFuture,
};
use tower_triage_core::{AnyOk, Chain, Halves};

type Rules = Halves<AnyOk, Chain>;
type Local = std::rc::Rc<()>;

assert_impl_all!(CircuitBreakerLayer<Rules>: Send, Sync, Clone, Unpin, std::fmt::Debug);
assert_impl_all!(CircuitBreaker<u8, Rules, AsError>: Send, Sync, Clone, Unpin, std::fmt::Debug);
// Not `Sync`: its part of the incident may hold deferred work, which is only `Send`.
assert_impl_all!(ResponseFuture<std::future::Ready<()>, Rules, AsError>: Send, Unpin, std::fmt::Debug);
assert_impl_all!(BreakerHandle: Send, Sync, Clone, Unpin, std::fmt::Debug);
assert_impl_all!(BreakerPolicy: Send, Sync, Clone, PartialEq);
assert_impl_all!(BreakerPlan: Send, Sync, Clone, PartialEq);
assert_impl_all!(KeyedSettings: Send, Sync, Copy);
assert_impl_all!(Counts: Send, Sync, Copy);
assert_impl_all!(Sample: Send, Sync, Copy);
assert_impl_all!(State: Send, Sync, Copy);
assert_impl_all!(Transition: Send, Sync, Copy);

// A layer is shared whatever its closures are; they need not be `Clone`.
struct NotClone;
assert_impl_all!(CircuitBreakerLayer<Rules, RejectFn<NotClone>>: Clone);
// A service is a clone only of a clone.
assert_not_impl_any!(CircuitBreaker<NotClone, Rules, AsError>: Clone);
// A call is one call.
assert_not_impl_any!(ResponseFuture<u8, Rules, AsError>: Clone);
// What the inner service and its future are decides.
assert_not_impl_any!(CircuitBreaker<Local, Rules, AsError>: Send, Sync);
assert_not_impl_any!(ResponseFuture<Local, Rules, AsError>: Send, Sync);
assert_not_impl_any!(ResponseFuture<PhantomPinned, Rules, AsError>: Unpin);

#[test]
fn a_call_adds_little_to_the_inner_future() {
    let own = size_of::<ResponseFuture<[u8; 64], Rules, AsError>>() - 64;
    assert!(own <= 192, "{own}");
}
