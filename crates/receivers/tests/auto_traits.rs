//! Send, Sync, Clone and Unpin are API.

use static_assertions::{assert_impl_all, assert_not_impl_any};
use tower_service::Service;
use tower_triage_escalate::{Escalation, IntoSink};
use tower_triage_receivers::{Alertmanager, Client, PagerDuty, SendError, Slack, WebhookSink};

assert_impl_all!(WebhookSink: Send, Sync, Clone, Unpin, std::fmt::Debug, IntoSink);
assert_impl_all!(PagerDuty: Send, Sync, Clone, Unpin, std::fmt::Debug, IntoSink);
assert_impl_all!(Alertmanager: Send, Sync, Clone, Unpin, std::fmt::Debug, IntoSink);
assert_impl_all!(Slack: Send, Sync, Clone, Unpin, std::fmt::Debug, IntoSink);
assert_impl_all!(<Slack as Service<Escalation>>::Future: Send, Unpin);
assert_impl_all!(Client: Send, Sync, Clone, std::fmt::Debug);
assert_impl_all!(SendError: Send, Sync, Copy, std::error::Error);

// A client may be anything, and it need not survive a panic.
assert_not_impl_any!(Client: std::panic::UnwindSafe);
