//! Send, Sync and friends are API: losing one breaks stacks far away.

use static_assertions::{assert_impl_all, assert_not_impl_any};
use tower_triage_core::{AnyOk, Chain, Halves};
use tower_triage_escalate::*;

type Rules = Halves<AnyOk, Chain>;

assert_impl_all!(EscalateLayer<Rules>: Send, Sync, Clone, Unpin, std::fmt::Debug);
assert_impl_all!(Escalate<(), Rules, KeepFailure, std::io::Error>: Send, Sync, Clone, Unpin);
// As `Sync` as the inner service, whatever its error is.
assert_impl_all!(Escalate<(), Rules, KeepFailure, std::cell::Cell<u8>>: Send, Sync);
// A closure that is not `Clone` is shared.
assert_impl_all!(EscalateLayer<Rules, Ending<Set<fn()>>>: Clone, std::fmt::Debug);
assert_impl_all!(
    future::ResponseFuture<std::future::Ready<()>, (), (), Rules, KeepFailure>: Send, Unpin
);
// A call under way is one; and nobody shares a future.
assert_not_impl_any!(
    future::ResponseFuture<std::future::Ready<()>, (), (), Rules, KeepFailure>: Clone, Sync
);
// A response that is not `Sync` (a body, a stream) must not take `Send` away.
assert_impl_all!(
    future::ResponseFuture<std::future::Ready<()>, std::cell::Cell<u8>, (), Rules, KeepFailure>:
    Send
);
assert_impl_all!(Desk: Send, Sync, Clone, std::fmt::Debug);
assert_impl_all!(Delivery: Send, Unpin, std::fmt::Debug);
assert_impl_all!(Receiver: Send, Sync, std::fmt::Debug);
assert_impl_all!(Escalation: Send, Sync, Clone, std::fmt::Debug, serde::Serialize);
assert_impl_all!(Routes: Send, Sync, Clone, serde::Serialize, serde::de::DeserializeOwned);
assert_impl_all!(ChannelSink: Send, Sync, Clone, std::fmt::Debug);
assert_impl_all!(JsonLinesSink: Send, Sync, Clone, std::fmt::Debug);
assert_impl_all!(LogSink: Send, Sync, Copy, std::fmt::Debug);
// A worker may be spawned, whatever its service is besides `Send`.
assert_impl_all!(Redrive<(), std::cell::Cell<u8>, Rules>: Send, std::fmt::Debug);
assert_impl_all!(RedrivePolicy: Send, Sync, Clone, serde::Serialize, serde::de::DeserializeOwned);
// A codec is no more than its settings, whatever it captures.
assert_impl_all!(JsonCodec<std::rc::Rc<()>>: Send, Sync, Clone, std::fmt::Debug);
assert_impl_all!(Captured: Send, Sync, Clone, std::fmt::Debug, serde::Serialize);
