//! Prometheus Alertmanager, API v2.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tower_triage_core::ConfigError;
use tower_triage_escalate::Escalation;

use crate::client::Client;
use crate::format::Format;
use crate::http_sink::HttpSink;
use crate::link::Link;
use crate::text::{clip, facts, headline, severity};

/// Posts alerts to Alertmanager (`POST /api/v2/alerts`). Every 2xx takes them.
///
/// Labels are an alert's identity: `alertname`, `service` (who failed), `operation`, `class`,
/// `reason`, `severity`, `fingerprint` and your own; no ids. Everything else is in annotations.
///
/// # How long an alert is open
///
/// Alertmanager wants clients to repeat an alert while it is open, or to say when it ends. This one
/// says so: `endsAt` is 15 min ([`open_for`](Self::open_for)) after the last failure, and the resolve
/// sets it to now. While failures come, the desk's windows repeat the alert, each time with a later
/// `endsAt`; when they stop, the resolve closes it; when this process dies, it ends by itself. So it
/// must be longer than the desk's
/// [`window`](tower_triage_escalate::DeskPolicy::window) and
/// [`resolve_after`](tower_triage_escalate::DeskPolicy::resolve_after) together (6 min by default).
///
/// An alert whose severity or service changes from one notification to the next is another one to
/// Alertmanager; the resolve closes the last, those before end by themselves.
pub type Alertmanager = HttpSink<AlertmanagerAlerts>;

const PATH: &str = "/api/v2/alerts";
/// Of an annotation, so that an alert stays small; Alertmanager itself sets no limit.
const TEXT: usize = 8192;
const NAME: &str = "TowerTriageEscalation";

/// The form of [`Alertmanager`]'s alerts.
#[derive(Clone, Debug)]
pub struct AlertmanagerAlerts {
    labels: BTreeMap<String, String>,
    open_for: Duration,
    link: Option<Link>,
}

impl Alertmanager {
    /// Alerts to the Alertmanager at `base` (`http://alertmanager:9093`, or with the prefix it runs
    /// under), through a client of our own.
    ///
    /// # Errors
    /// As [`HttpSink::posting`].
    pub fn new(base: &str) -> Result<Self, ConfigError> {
        Self::posting(AlertmanagerAlerts::new(), &address(base))
    }

    /// Alerts to the Alertmanager at `base` through `client`.
    ///
    /// # Errors
    /// As [`HttpSink::posting_through`].
    pub fn with_client(client: Client, base: &str) -> Result<Self, ConfigError> {
        Self::posting_through(client, AlertmanagerAlerts::new(), &address(base))
    }

    /// Adds a label to each alert, or replaces one of ours: `team`, `alertname`. One that is
    /// replaced by nothing (`""`) is left out.
    ///
    /// # Errors
    /// A name that is no label's (`[a-zA-Z_][a-zA-Z0-9_]*`), or an `alertname` of nothing.
    pub fn label(
        mut self,
        name: impl Into<String>,
        value: impl Into<String>,
    ) -> Result<Self, ConfigError> {
        let (name, value) = (name.into(), value.into());
        if !is_label(&name) {
            let problem = "a label's name is letters, digits and `_`, no digit first";
            return Err(ConfigError::new("label", name, problem));
        }
        if name == "alertname" && value.is_empty() {
            return Err(ConfigError::new("label", name, "an alert needs a name"));
        }
        self.format.labels.insert(name, value);
        Ok(self)
    }

    /// How long after the last failure an alert is open if no resolve comes. Default: 15 min.
    #[must_use]
    pub fn open_for(mut self, time: Duration) -> Self {
        self.format.open_for = time;
        self
    }

    /// Where people can look further or decide: the alert's `generatorURL`.
    #[must_use]
    pub fn link(mut self, f: impl Fn(&Escalation) -> String + Send + Sync + 'static) -> Self {
        self.format.link = Some(Link::new(f));
        self
    }
}

fn address(base: &str) -> String {
    let base = base.trim_end_matches('/');
    if base.ends_with(PATH) { base.to_owned() } else { format!("{base}{PATH}") }
}

/// Prometheus' rule for the names of labels.
fn is_label(name: &str) -> bool {
    let mut bytes = name.bytes();
    let first = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    bytes.next().is_some_and(first) && bytes.all(|b| first(b) || b.is_ascii_digit())
}

impl AlertmanagerAlerts {
    fn new() -> Self {
        Self { labels: BTreeMap::new(), open_for: Duration::from_secs(15 * 60), link: None }
    }

    fn alerts(&self, escalation: &Escalation) -> Value {
        let ends = escalation
            .resolved
            .unwrap_or_else(|| escalation.last_time.plus(self.open_for))
            // A calendar may jump, and an alert that ends before it starts is refused.
            .max(escalation.first_time);
        let mut alert = json!({
            "labels": self.labels(escalation),
            "annotations": annotations(escalation),
            "startsAt": escalation.first_time,
            "endsAt": ends,
        });
        if let Some(link) = &self.link {
            alert["generatorURL"] = link.to(escalation).into();
        }
        json!([alert])
    }

    fn labels(&self, escalation: &Escalation) -> BTreeMap<String, String> {
        let ours = [
            ("alertname", NAME),
            ("service", &escalation.from),
            ("operation", &escalation.operation),
            ("class", escalation.class.as_str()),
            ("reason", &escalation.reason),
            ("severity", severity(escalation.priority)),
            ("fingerprint", &escalation.fingerprint.to_string()),
        ];
        let mut labels =
            BTreeMap::from(ours.map(|(name, value)| (name.to_owned(), value.to_owned())));
        labels.extend(self.labels.clone());
        labels.retain(|_, value| !value.is_empty());
        labels
    }
}

fn annotations(escalation: &Escalation) -> Map<String, Value> {
    let headline = headline(escalation);
    let texts = [
        ("summary", &headline),
        ("description", &escalation.detail),
        ("impact", &escalation.impact),
        ("suggestion", &escalation.suggestion),
    ];
    let texts = texts.into_iter().map(|(name, text)| (name, text.clone()));
    let facts =
        facts(escalation).filter(|(name, _)| !["operation", "class", "reason"].contains(name));
    let all = texts.chain(facts).filter(|(_, text)| !text.is_empty());
    all.map(|(name, text)| (name.to_owned(), clip(&text, TEXT).into())).collect()
}

impl Format for AlertmanagerAlerts {
    const NAME: &'static str = "alertmanager";

    fn body(&self, escalation: &Escalation) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(&self.alerts(escalation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn alert(escalation: &Escalation) -> Value {
        AlertmanagerAlerts::new().alerts(escalation)[0].clone()
    }

    #[test]
    fn an_alert() {
        let expected = json!([{
            "labels": {
                "alertname": "TowerTriageEscalation",
                "service": "worker 7",
                "operation": "orders.create",
                "class": "Quota",
                "reason": "balance",
                "severity": "error",
                "fingerprint": "00000000deadbeef",
            },
            "annotations": {
                "summary": "orders.create failed after 2 attempts: quota (balance)",
                "description": "balance < 0 & used up",
                "impact": "the caller got the failure",
                "suggestion": "top up the balance",
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
            },
            "startsAt": "2026-01-02T03:04:05.000Z",
            "endsAt": "2026-01-02T03:19:06.500Z",
        }]);
        assert_eq!(AlertmanagerAlerts::new().alerts(&sample::escalation()), expected);
    }

    #[test]
    fn a_resolve_is_the_same_alert_and_ends_now() {
        let (open, over) = (alert(&sample::escalation()), alert(&sample::resolve(2)));
        assert_eq!(over["labels"], open["labels"]);
        assert_eq!(over["endsAt"], "2026-01-02T03:09:06.500Z");
    }

    #[test]
    fn two_failures_of_a_kind_are_one_alert() {
        let mut other = sample::escalation();
        other.id = "ffffffffffffffffffffffffffffffff".parse().unwrap();
        other.context.request_id = Some("r-2".to_owned());
        other.context.trace_id = None;
        other.last_time = other.last_time.plus(Duration::from_secs(1));
        assert_eq!(alert(&other)["labels"], alert(&sample::escalation())["labels"]);
    }

    #[test]
    fn an_alert_does_not_end_before_it_starts() {
        let mut jumped = sample::resolve(0);
        jumped.first_time = jumped.last_time.plus(Duration::from_secs(86_400));
        let alert = alert(&jumped);
        assert_eq!(alert["endsAt"], alert["startsAt"]);
    }

    #[test]
    fn labels_of_ones_own() {
        let alerts = Alertmanager::new("http://am:9093").unwrap();
        let alerts = alerts.label("team", "shop").unwrap().label("alertname", "Orders").unwrap();
        let alerts = alerts.label("reason", "").unwrap().open_for(Duration::from_secs(60));
        let alert = &alerts.format.alerts(&sample::escalation())[0];
        assert_eq!(alert["labels"]["team"], "shop");
        assert_eq!(alert["labels"]["alertname"], "Orders");
        assert!(alert["labels"].get("reason").is_none());
        assert_eq!(alert["endsAt"], "2026-01-02T03:05:06.500Z");
        for bad in ["", "9lives", "team-name", "größe", "a b"] {
            assert_eq!(alerts.clone().label(bad, "x").unwrap_err().field(), "label", "{bad}");
        }
        assert!(alerts.label("alertname", "").is_err());
    }

    #[test]
    fn every_label_has_a_valid_name_and_annotations_are_bounded() {
        let alert = alert(&sample::huge());
        assert!(alert["labels"].as_object().unwrap().keys().all(|name| is_label(name)));
        let annotations = alert["annotations"].as_object().unwrap();
        assert!(annotations.keys().all(|name| is_label(name)));
        assert!(annotations.values().all(|text| text.as_str().unwrap().chars().count() <= TEXT));
    }

    #[test]
    fn the_address_is_the_base_or_the_whole() {
        for base in ["http://am:9093", "http://am:9093/", "http://am:9093/api/v2/alerts"] {
            assert_eq!(address(base), "http://am:9093/api/v2/alerts");
        }
        assert_eq!(address("http://am/prefix/"), "http://am/prefix/api/v2/alerts");
    }
}
