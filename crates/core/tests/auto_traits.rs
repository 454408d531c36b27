//! Send, Sync and friends are API: losing one breaks stacks far away.

use static_assertions::{assert_impl_all, assert_not_impl_any};
use tower_triage_core::incident::{Detached, InScope, Scope};
use tower_triage_core::*;

type Rules = Halves<AnyOk, Chain>;

assert_impl_all!(AnyError: Send, Sync, Unpin, std::fmt::Debug, std::fmt::Display);
// Not an `Error`, so that it can be made from every error; `Into<BoxError>` gives the inner one.
assert_not_impl_any!(AnyError: std::error::Error, Clone);
assert_impl_all!(Classifier<Rules>: Send, Sync, Clone, std::fmt::Debug);
assert_impl_all!(ClassifyLayer<Rules, Classifier<Rules>>: Send, Sync, Clone, std::fmt::Debug);
assert_impl_all!(Verdict: Copy, Send, Sync);
assert_impl_all!(Failure: Copy, Send, Sync);
assert_impl_all!(Incident: Clone, Send, Sync, std::fmt::Debug);
assert_impl_all!(CircuitOpen: Copy, Send, Sync, std::error::Error);
// A scope moves with its future, and is part of one call only.
assert_impl_all!(Scope: Send, Unpin);
assert_not_impl_any!(Scope: Clone);
assert_impl_all!(InScope<std::future::Ready<()>>: Send);
assert_impl_all!(Detached<std::future::Ready<()>>: Send);

/// Object safe: a user may hold rules behind a pointer.
#[test]
fn rules_are_object_safe() {
    let rules: Box<dyn Classify<u32, AnyError>> =
        Box::new(Halves { response: AnyOk, error: Chain });
    assert!(rules.classify(Ok(&1)).is_success());
    let facts: Box<dyn Describe<u32>> = Box::new(AnyOk);
    assert!(facts.repeatable(&1));
}
