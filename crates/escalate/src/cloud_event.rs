//! The wire form: CloudEvents 1.0, structured JSON.

use serde::Serialize;
use tower_triage_core::TraceParent;

use crate::{Escalation, Timestamp};

/// An escalation as a CloudEvent (CloudEvents 1.0, JSON event format, structured mode). Sent with
/// content type [`CloudEvent::CONTENT_TYPE`].
///
/// `id` is the escalation's (a resolve's ends in `.resolved`) and the same on each sending, so that a
/// receiver keeps one; `source` is `/` and who failed; `type` is [`CloudEvent::TYPE`], or
/// [`CloudEvent::RESOLVED`]; `subject` is the operation; `time` is the last failure's, or when it was
/// found to be over. Extensions:
/// `traceparent` (distributed tracing), `severitytext` and `severitynumber` (OpenTelemetry),
/// `correlationid` (the request's own id).
#[derive(Clone, Debug, Serialize)]
pub struct CloudEvent<'a> {
    specversion: &'static str,
    id: String,
    source: String,
    r#type: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    subject: &'a str,
    time: Timestamp,
    datacontenttype: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<TraceParent>,
    severitytext: &'static str,
    severitynumber: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlationid: Option<&'a str>,
    data: &'a Escalation,
}

impl<'a> CloudEvent<'a> {
    /// The content type of the structured mode.
    pub const CONTENT_TYPE: &'static str = "application/cloudevents+json";
    /// The event's type: reverse DNS, with the version of the data's form.
    pub const TYPE: &'static str = "io.github.tower-triage.escalation.v1";
    /// The type of a resolve ([`Escalation::resolved`]).
    pub const RESOLVED: &'static str = "io.github.tower-triage.escalation.resolved.v1";

    /// `escalation` as an event.
    #[must_use]
    pub fn new(escalation: &'a Escalation) -> Self {
        let (severitytext, severitynumber) = escalation.priority.severity();
        let (r#type, suffix) = match escalation.resolved {
            None => (Self::TYPE, ""),
            Some(_) => (Self::RESOLVED, ".resolved"),
        };
        Self {
            specversion: "1.0",
            id: format!("{}{suffix}", escalation.id),
            source: uri_path(&escalation.from),
            r#type,
            subject: &escalation.operation,
            time: escalation.resolved.unwrap_or(escalation.last_time),
            datacontenttype: "application/json",
            traceparent: escalation.context.traceparent,
            severitytext,
            severitynumber,
            correlationid: escalation.context.request_id.as_deref(),
            data: escalation,
        }
    }
}

/// `/` and `name` as a path segment of a URI (RFC 3986, section 3.3).
fn uri_path(name: &str) -> String {
    name.bytes().fold("/".to_owned(), |mut path, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                path.push(char::from(byte));
            }
            _ => path.push_str(&format!("%{byte:02X}")),
        }
        path
    })
}
