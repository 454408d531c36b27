//! CloudEvents 1.0.

use tower_triage_core::ConfigError;
use tower_triage_escalate::{CloudEvent, Escalation};

use crate::client::Client;
use crate::format::Format;
use crate::http_sink::HttpSink;

/// Posts each escalation as a [`CloudEvent`]. Every 2xx takes it.
///
/// The same escalation has the same event id whenever it is sent, so a receiver that keeps one event
/// per id has no duplicates.
pub type WebhookSink = HttpSink<CloudEvents>;

/// CloudEvents 1.0: JSON event format, structured mode.
#[derive(Clone, Copy, Debug, Default)]
pub struct CloudEvents;

impl Format for CloudEvents {
    const NAME: &'static str = "cloud-events";
    const CONTENT_TYPE: &'static str = CloudEvent::CONTENT_TYPE;

    fn body(&self, escalation: &Escalation) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(&CloudEvent::new(escalation))
    }
}

impl WebhookSink {
    /// Posts to `uri` through a client of our own, protected.
    ///
    /// # Errors
    /// As [`HttpSink::posting`].
    pub fn new(uri: &str) -> Result<Self, ConfigError> {
        Self::posting(CloudEvents, uri)
    }

    /// Posts to `uri` through `client`.
    ///
    /// # Errors
    /// As [`HttpSink::posting_through`].
    pub fn with_client(client: Client, uri: &str) -> Result<Self, ConfigError> {
        Self::posting_through(client, CloudEvents, uri)
    }
}
