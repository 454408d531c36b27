//! PagerDuty, Events API v2.

use std::fmt;

use http::StatusCode;
use serde_json::{Map, Value, json};
use tower_triage_core::ConfigError;
use tower_triage_escalate::Escalation;

use crate::client::Client;
use crate::format::Format;
use crate::http_sink::HttpSink;
use crate::link::Link;
use crate::text::{clip, facts, headline, severity};

/// Triggers and resolves alerts of PagerDuty (Events API v2). Only 202 takes an event, and says that
/// it is queued.
///
/// The `dedup_key` is the fingerprint: what fails alike is one alert, and the resolve closes it.
/// Severity is the priority's: `info`, `warning`, `error`, `critical`. Texts are cut to what the API
/// takes (summary 1024 characters, an event 512 KB).
pub type PagerDuty = HttpSink<PagerDutyEvents>;

const ADDRESS: &str = "https://events.pagerduty.com/v2/enqueue";

/// The API's limit.
const SUMMARY: usize = 1024;
/// Ours, so that an event stays far below the API's 512 KB.
const TEXT: usize = 4096;
const FIELDS: usize = 32;
const FIELD: usize = 1024;

/// The form of [`PagerDuty`]'s events. `Debug` shows no key.
#[derive(Clone)]
pub struct PagerDutyEvents {
    routing_key: String,
    link: Option<Link>,
}

impl PagerDuty {
    /// Events with an integration's `routing_key`, through a client of our own.
    ///
    /// # Errors
    /// As [`PagerDuty::with_client`]; and without the feature `tls`, as PagerDuty's address is
    /// `https`.
    pub fn new(routing_key: &str) -> Result<Self, ConfigError> {
        Self::posting(PagerDutyEvents::new(routing_key)?, ADDRESS)
    }

    /// Events with an integration's `routing_key`, through `client`.
    ///
    /// # Errors
    /// A key that is empty or holds anything but letters, digits, `-` and `_`.
    pub fn with_client(client: Client, routing_key: &str) -> Result<Self, ConfigError> {
        Self::posting_through(client, PagerDutyEvents::new(routing_key)?, ADDRESS)
    }

    /// Another address: the one of the EU service region, a relay.
    ///
    /// # Errors
    /// Not a URI, or one without scheme and host.
    pub fn address(self, uri: &str) -> Result<Self, ConfigError> {
        self.at(uri)
    }

    /// Where people can look further or decide: a link of the alert.
    #[must_use]
    pub fn link(mut self, f: impl Fn(&Escalation) -> String + Send + Sync + 'static) -> Self {
        self.format.link = Some(Link::new(f));
        self
    }
}

impl PagerDutyEvents {
    fn new(routing_key: &str) -> Result<Self, ConfigError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
        if routing_key.is_empty() || !routing_key.chars().all(plain) {
            let problem = "an integration key is made of letters and digits";
            return Err(ConfigError::new("routing_key", "not usable", problem));
        }
        Ok(Self { routing_key: routing_key.to_owned(), link: None })
    }

    fn event(&self, escalation: &Escalation) -> Value {
        let from = if escalation.from.is_empty() { "unknown" } else { &escalation.from };
        let action = if escalation.resolved.is_some() { "resolve" } else { "trigger" };
        let mut event = json!({
            "routing_key": self.routing_key,
            "event_action": action,
            "dedup_key": escalation.fingerprint.to_string(),
            "payload": {
                "summary": clip(&headline(escalation), SUMMARY),
                "source": clip(from, SUMMARY),
                "severity": severity(escalation.priority),
                "timestamp": escalation.last_time,
                "component": escalation.operation,
                "group": clip(&escalation.task_type, FIELD),
                "class": escalation.class.as_str(),
                "custom_details": details(escalation),
            },
        });
        if let Some(payload) = event["payload"].as_object_mut() {
            payload.retain(|_, value| value != "");
        }
        if let Some(link) = &self.link {
            event["links"] = json!([{ "href": link.to(escalation), "text": "tower-triage" }]);
        }
        event
    }
}

fn details(escalation: &Escalation) -> Map<String, Value> {
    let texts = [
        ("detail", &escalation.detail),
        ("impact", &escalation.impact),
        ("suggestion", &escalation.suggestion),
    ];
    let texts = texts.into_iter().map(|(name, text)| (name.to_owned(), text.clone()));
    let facts = facts(escalation).map(|(name, text)| (name.to_owned(), text));
    let fields = escalation.context.fields.iter().take(FIELDS);
    let fields = fields.map(|(name, text)| (format!("field.{name}"), clip(text, FIELD).into()));
    let all = texts.chain(facts).chain(fields);
    all.filter(|(_, text)| !text.is_empty())
        .map(|(name, text)| (clip(&name, FIELD).into_owned(), clip(&text, TEXT).into()))
        .collect()
}

impl Format for PagerDutyEvents {
    const NAME: &'static str = "pagerduty";

    fn body(&self, escalation: &Escalation) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(&self.event(escalation))
    }

    fn takes(status: StatusCode) -> bool {
        status == StatusCode::ACCEPTED
    }
}

impl fmt::Debug for PagerDutyEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PagerDutyEvents").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn events() -> PagerDutyEvents {
        PagerDutyEvents::new("R0UTINGKEY").unwrap()
    }

    #[test]
    fn a_trigger() {
        let expected = json!({
            "routing_key": "R0UTINGKEY",
            "event_action": "trigger",
            "dedup_key": "00000000deadbeef",
            "payload": {
                "summary": "orders.create failed after 2 attempts: quota (balance)",
                "source": "worker 7",
                "severity": "error",
                "timestamp": "2026-01-02T03:04:06.500Z",
                "component": "orders.create",
                "group": "human_required",
                "class": "Quota",
                "custom_details": {
                    "detail": "balance < 0 & used up",
                    "impact": "the caller got the failure",
                    "suggestion": "top up the balance",
                    "operation": "orders.create",
                    "class": "Quota",
                    "reason": "balance",
                    "task_type": "human_required",
                    "outcome": "failed",
                    "count": "1",
                    "attempts": "2",
                    "first_time": "2026-01-02T03:04:05.000Z",
                    "last_time": "2026-01-02T03:04:06.500Z",
                    "target": "POST shop.example/orders",
                    "trace_id": "0af7651916cd43dd8448eb211c80319c",
                    "request_id": "r-1",
                    "record": "01234567-89ab-cdef-0123-456789abcdef",
                    "field.shop": "Köln",
                },
            },
        });
        assert_eq!(events().event(&sample::escalation()), expected);
    }

    #[test]
    fn a_resolve_has_the_same_key_and_says_what_was_not_told() {
        let event = events().event(&sample::resolve(7));
        assert_eq!(event["event_action"], "resolve");
        assert_eq!(event["dedup_key"], events().event(&sample::escalation())["dedup_key"]);
        assert_eq!(event["payload"]["custom_details"]["count"], "7");
    }

    #[test]
    fn the_apis_limits_hold_whatever_comes() {
        let huge = sample::huge();
        let event = events().event(&huge);
        let payload = &event["payload"];
        let length = |text: &Value| text.as_str().unwrap().chars().count();
        assert_eq!(length(&payload["summary"]), 1024);
        assert!(length(&payload["source"]) <= 1024);
        assert!(length(&event["dedup_key"]) <= 255);
        let body = events().body(&huge).unwrap();
        assert!(body.len() < 512 * 1024, "{}", body.len());
        assert!(body.len() > 20_000, "what fits is told: {}", body.len());
    }

    #[test]
    fn what_is_empty_is_left_out_but_for_the_source() {
        let mut escalation = sample::escalation();
        escalation.from.clear();
        escalation.operation.clear();
        let event = events().event(&escalation);
        assert_eq!(event["payload"]["source"], "unknown");
        assert!(event["payload"].get("component").is_none());
        assert!(event.get("links").is_none());
    }

    #[test]
    fn a_link_is_one_of_the_alerts() {
        let mut events = events();
        events.link = Some(Link::new(|escalation| format!("https://desk/{}", escalation.id)));
        let href = &events.event(&sample::escalation())["links"][0]["href"];
        assert_eq!(href, "https://desk/01234567-89ab-cdef-0123-456789abcdef");
    }

    #[test]
    fn only_202_takes_an_event() {
        assert!(PagerDutyEvents::takes(StatusCode::ACCEPTED));
        assert!(!PagerDutyEvents::takes(StatusCode::OK));
    }

    #[test]
    fn a_key_that_cannot_be_one_is_refused_and_none_is_shown() {
        for bad in ["", "hunter2 ", "hunter2\n", "hunter2\""] {
            let error = PagerDutyEvents::new(bad).unwrap_err();
            assert_eq!(error.field(), "routing_key");
            assert!(!error.to_string().contains("hunter2"));
        }
        assert!(!format!("{:?}", events()).contains("R0UTINGKEY"));
    }
}
