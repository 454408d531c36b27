//! Which auto traits users may rely on.

use static_assertions::{assert_impl_all, assert_not_impl_any};
use tower::Layer;
use tower_triage_core::{AnyError, AnyOk, Chain, Halves};
use tower_triage_ladder::{Change, Changes, Entry, Ladder, Level, Rungs};

assert_impl_all!(Ladder: Send, Sync, Clone, PartialEq, Default, std::fmt::Display);
assert_impl_all!(Level: Send, Sync, Copy, Ord, std::hash::Hash, std::fmt::Display);
assert_impl_all!(Entry: Send, Sync, Clone, PartialEq, Default);
assert_impl_all!(Changes: Send, Sync, Clone, PartialEq, Default, std::fmt::Display);
assert_impl_all!(Change: Send, Sync, Clone, PartialEq, std::fmt::Display);

type Rules = Halves<AnyOk, Chain>;
assert_impl_all!(Rungs<Rules>: Send, Sync, Clone, Unpin, std::fmt::Debug, std::fmt::Display);

/// A service that is `Send` and not `Sync`, as many are.
#[derive(Clone)]
struct OneThread(std::marker::PhantomData<std::cell::Cell<u32>>);

type Stack = <Rungs<Rules, AnyError> as Layer<OneThread>>::Service;
assert_impl_all!(Stack: Send, Clone);
assert_not_impl_any!(Stack: Sync);
