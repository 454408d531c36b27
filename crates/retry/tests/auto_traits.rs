//! Send, Sync, Clone and Unpin are API.

mod common;

use common::{Ask, Oops, Reply, TestRules};
use static_assertions::{assert_impl_all, assert_not_impl_any};
use std::future::{Pending, Ready};
use std::marker::PhantomPinned;
use tower_service::Service;
use tower_triage_retry::{
    Adaptive, AdaptiveFuture, AdaptiveLayer, Attempt, ByClone, Cubic, Decision, Facts, Never,
    NoNudge, NoRefresh, Progress, Retry, RetryLayer, RetryPlan, RetryPolicy, SendRate,
    budget::Budget, future::ResponseFuture,
};
use tower_triage_test_support::Scripted;

type Inner = Scripted<Ask, Reply, Oops>;
type Future = ResponseFuture<Inner, Ask, TestRules, ByClone, NoNudge, NoRefresh>;

assert_impl_all!(RetryLayer<TestRules>: Send, Sync, Clone, Unpin, std::fmt::Debug);
assert_impl_all!(Retry<Inner, TestRules, ByClone, NoNudge, NoRefresh>: Send, Sync, Clone, Unpin, std::fmt::Debug);
assert_impl_all!(RetryPolicy: Send, Sync, Clone, std::fmt::Debug);
assert_impl_all!(RetryPlan: Send, Sync, Clone, std::fmt::Debug);
assert_impl_all!(Budget: Send, Sync, Clone, std::fmt::Debug);
assert_impl_all!(Attempt: Send, Sync, Copy);
assert_impl_all!(Decision: Send, Sync, Copy);
assert_impl_all!(Facts: Send, Sync, Copy);
assert_impl_all!(Progress: Send, Sync, Copy);
assert_impl_all!(Never: Send, Sync, Copy);
assert_impl_all!(Future: Send, std::fmt::Debug);
assert_impl_all!(AdaptiveLayer<TestRules>: Send, Sync, Clone, Unpin, std::fmt::Debug);
assert_impl_all!(Adaptive<Inner, TestRules>: Send, Sync, Clone, Unpin, std::fmt::Debug);
assert_impl_all!(AdaptiveFuture<Ready<()>, TestRules>: Send, Sync, Unpin, std::fmt::Debug);
assert_impl_all!(SendRate: Send, Sync, Clone, Default);
assert_impl_all!(Cubic: Send, Sync, Copy, PartialEq);

/// A service whose futures are pinned for good.
#[derive(Clone)]
struct Pinned;

struct PinnedFuture(PhantomPinned);

impl std::future::Future for PinnedFuture {
    type Output = Result<Reply, Oops>;

    fn poll(
        self: std::pin::Pin<&mut Self>,
        _cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Self::Output> {
        std::task::Poll::Pending
    }
}

impl Service<Ask> for Pinned {
    type Response = Reply;
    type Error = Oops;
    type Future = PinnedFuture;

    fn poll_ready(
        &mut self,
        _cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Oops>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _ask: Ask) -> PinnedFuture {
        PinnedFuture(PhantomPinned)
    }
}

// The attempt under way lives in the future itself, so its pinning is the future's.
assert_not_impl_any!(ResponseFuture<Pinned, Ask, TestRules, ByClone, NoNudge, NoRefresh>: Unpin);
assert_impl_all!(Ready<()>: Unpin);
assert_impl_all!(Pending<()>: Unpin);

/// One request is kept, and what a failure needs is boxed: the future stays near the inner one.
#[test]
fn the_future_is_small() {
    let inner = size_of::<<Inner as Service<Ask>>::Future>();
    let ours = size_of::<Future>();
    assert!(
        ours <= inner + size_of::<Ask>() + size_of::<Inner>() + 160,
        "{ours} bytes over an inner future of {inner}"
    );
}
