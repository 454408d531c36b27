//! What a receiver understands.

use std::time::Duration;

use http::StatusCode;
use tower_triage_escalate::Escalation;

/// How a system wants to be told: a pure function from an escalation to the body of a POST.
///
/// Look at [`Escalation::resolved`]: a resolve comes the same way.
pub trait Format: Clone + Send + Sync + 'static {
    /// A short fixed name: in logs.
    const NAME: &'static str;

    /// The body's content type.
    const CONTENT_TYPE: &'static str = "application/json";

    /// The least time between two messages; what comes sooner waits its turn.
    const GAP: Duration = Duration::ZERO;

    /// The body.
    ///
    /// # Errors
    /// No JSON can be made of it.
    fn body(&self, escalation: &Escalation) -> Result<Vec<u8>, serde_json::Error>;

    /// Does this answer say that the message was taken? By default every 2xx does.
    #[must_use]
    fn takes(status: StatusCode) -> bool {
        status.is_success()
    }
}
