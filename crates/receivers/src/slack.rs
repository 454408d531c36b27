//! Slack, incoming webhooks.

use std::time::Duration;

use serde_json::{Value, json};
use tower_triage_core::ConfigError;
use tower_triage_escalate::{Escalation, Question};

use crate::client::Client;
use crate::format::Format;
use crate::http_sink::HttpSink;
use crate::link::Link;
use crate::text::{facts, headline};

/// Posts messages to a channel of Slack through an incoming webhook. Every 2xx takes one.
///
/// One message a second, as Slack asks; a 429 is waited out as its `Retry-After` says. Texts are
/// escaped and cut to what Slack takes, and nothing in them is taken for a mention or a link.
/// Decisions are made by a [`link`](Self::link), not by buttons: an incoming webhook hears no answer.
pub type Slack = HttpSink<SlackMessages>;

/// Slack's limit of a section's text is 3000 characters; a field's is 2000. All blocks together
/// may be refused from about 13,000 on, though no page of Slack's says so: ours are below 9000.
const SECTION: usize = 2900;
const FIELD: usize = 200;
/// Slack's limit of a section's fields.
const FIELDS: usize = 10;

/// The form of [`Slack`]'s messages.
#[derive(Clone, Debug, Default)]
pub struct SlackMessages {
    link: Option<Link>,
}

impl Slack {
    /// Messages to the webhook's `uri`, which is its secret, through a client of our own.
    ///
    /// # Errors
    /// As [`HttpSink::posting`].
    pub fn new(uri: &str) -> Result<Self, ConfigError> {
        Self::posting(SlackMessages::default(), uri)
    }

    /// Messages to the webhook's `uri` through `client`.
    ///
    /// # Errors
    /// As [`HttpSink::posting_through`].
    pub fn with_client(client: Client, uri: &str) -> Result<Self, ConfigError> {
        Self::posting_through(client, SlackMessages::default(), uri)
    }

    /// Where people can look further or decide.
    #[must_use]
    pub fn link(mut self, f: impl Fn(&Escalation) -> String + Send + Sync + 'static) -> Self {
        self.format.link = Some(Link::new(f));
        self
    }
}

impl SlackMessages {
    fn message(&self, escalation: &Escalation) -> Value {
        let headline = escape(&headline(escalation), SECTION - 100);
        let mark = match escalation.resolved {
            Some(_) => String::new(),
            None => format!("[{}] ", escalation.priority.as_str()),
        };
        let mut blocks = vec![section(format!("*{mark}{headline}*"))];
        if escalation.resolved.is_none() {
            let field = |(name, text): (&str, String)| {
                mrkdwn(format!("*{name}*\n{}", escape(&text, FIELD)))
            };
            let from = ("from", escalation.from.clone());
            let fields =
                [from].into_iter().filter(|(_, from)| !from.is_empty()).chain(facts(escalation));
            blocks.push(json!({
                "type": "section",
                "fields": fields.filter(|(name, _)| SHOWN.contains(name)).take(FIELDS).map(field).collect::<Vec<_>>(),
            }));
            if !escalation.detail.is_empty() {
                // The text must not end its own frame.
                let detail = escalation.detail.replace("```", "'''");
                blocks.push(section(format!("```{}```", escape(&detail, SECTION))));
            }
            let help = format!("{}\n{}", escalation.impact, escalation.suggestion);
            blocks.push(section(escape(&help, SECTION / 2)));
            blocks.extend(escalation.question.as_ref().map(question));
        }
        if let Some(link) = &self.link {
            let href = href(&link.to(escalation));
            let verb = if escalation.question.is_some() { "Decide" } else { "Look at it" };
            blocks.push(section(format!("<{href}|{verb}>")));
        }
        let record = mrkdwn(format!("record {}", escalation.id));
        blocks.push(json!({ "type": "context", "elements": [record] }));
        json!({ "text": format!("{mark}{headline}"), "blocks": blocks })
    }
}

/// The facts that a message has room for.
const SHOWN: [&str; 10] = [
    "from",
    "operation",
    "class",
    "task_type",
    "attempts",
    "target",
    "first_time",
    "last_time",
    "trace_id",
    "request_id",
];

fn question(question: &Question) -> Value {
    let options = question.options.iter().map(|choice| format!("\n• {}", choice.label));
    let options = options.collect::<String>();
    let Question { text, deadline, on_timeout, .. } = question;
    let text = format!("{text}{options}\nuntil {deadline}, then: {on_timeout}");
    section(escape(&text, SECTION / 2))
}

fn section(text: String) -> Value {
    json!({ "type": "section", "text": mrkdwn(text) })
}

fn mrkdwn(text: String) -> Value {
    json!({ "type": "mrkdwn", "text": text, "verbatim": true })
}

/// Slack's three control characters, escaped; at most `most` characters then, no escape cut in two.
fn escape(text: &str, most: usize) -> String {
    let mut out = String::new();
    let mut length = 0;
    let mut buffer = [0; 4];
    for c in text.chars() {
        let piece = match c {
            '&' => "&amp;",
            '<' => "&lt;",
            '>' => "&gt;",
            _ => c.encode_utf8(&mut buffer),
        };
        let chars = piece.chars().count();
        if length + chars + 1 > most {
            out.push('…');
            break;
        }
        out.push_str(piece);
        length += chars;
    }
    out
}

/// An address inside of `<…|…>`.
fn href(address: &str) -> String {
    let safe = address.replace('|', "%7C").replace('<', "%3C").replace('>', "%3E");
    safe.replace('&', "&amp;").replace(char::is_whitespace, "%20")
}

impl Format for SlackMessages {
    const NAME: &'static str = "slack";
    const GAP: Duration = Duration::from_secs(1);

    fn body(&self, escalation: &Escalation) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(&self.message(escalation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn message(escalation: &Escalation) -> Value {
        SlackMessages::default().message(escalation)
    }

    #[test]
    fn a_message() {
        let mut escalation = sample::escalation();
        escalation.count = 12;
        let headline =
            "[high] orders.create failed after 2 attempts: quota (balance) (12 failures)";
        let text = |text: &str| json!({ "type": "mrkdwn", "text": text, "verbatim": true });
        let section = |it: &str| json!({ "type": "section", "text": text(it) });
        let expected = json!({
            "text": headline,
            "blocks": [
                section(&format!("*{headline}*")),
                { "type": "section", "fields": [
                    text("*from*\nworker 7"),
                    text("*operation*\norders.create"),
                    text("*class*\nQuota"),
                    text("*task_type*\nhuman_required"),
                    text("*attempts*\n2"),
                    text("*first_time*\n2026-01-02T03:04:05.000Z"),
                    text("*last_time*\n2026-01-02T03:04:06.500Z"),
                    text("*target*\nPOST shop.example/orders"),
                    text("*trace_id*\n0af7651916cd43dd8448eb211c80319c"),
                    text("*request_id*\nr-1"),
                ]},
                section("```balance &lt; 0 &amp; used up```"),
                section("the caller got the failure\ntop up the balance"),
                { "type": "context", "elements": [text("record 01234567-89ab-cdef-0123-456789abcdef")] },
            ],
        });
        assert_eq!(message(&escalation), expected);
    }

    #[test]
    fn a_resolve_is_short() {
        let message = message(&sample::resolve(3));
        let text = message["text"].as_str().unwrap();
        assert!(text.starts_with("resolved: orders.create"), "{text}");
        assert!(text.ends_with("(3 more failures until then)"), "{text}");
        assert_eq!(message["blocks"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn a_question_has_its_answers_its_deadline_and_a_link() {
        let mut value = sample::json();
        value["question"] = json!({
            "text": "Charge <again>?",
            "options": [
                { "label": "yes", "decision": "retry" },
                { "label": "no", "decision": "abort" },
            ],
            "deadline": "2026-01-02T03:14:06.500Z",
            "on_timeout": "abort",
        });
        let link = Link::new(|it| format!("https://desk/{}?a=1&b=<x|y>", it.id));
        let messages = SlackMessages { link: Some(link) };
        let message = messages.message(&serde_json::from_value(value).unwrap());
        let all = message["blocks"].to_string();
        let asked =
            "Charge &lt;again&gt;?\\n• yes\\n• no\\nuntil 2026-01-02T03:14:06.500Z, then: abort";
        assert!(all.contains(asked), "{all}");
        let link =
            "<https://desk/01234567-89ab-cdef-0123-456789abcdef?a=1&amp;b=%3Cx%7Cy%3E|Decide>";
        assert!(all.contains(link), "{all}");
    }

    #[test]
    fn slacks_limits_hold_whatever_comes() {
        let message = message(&sample::huge());
        let blocks = message["blocks"].as_array().unwrap();
        assert!(blocks.len() <= 50);
        let mut total = 0;
        let mut check = |text: &Value, most: usize| {
            let text = text["text"].as_str().unwrap();
            let chars = text.chars().count();
            assert!((1..=most).contains(&chars), "{chars}");
            assert!(!text.replace("&lt;", "").replace("&gt;", "").contains(['<', '>']), "{text}");
            for escape in text.split('&').skip(1) {
                assert!(["amp;", "lt;", "gt;"].iter().any(|it| escape.starts_with(it)), "{text}");
            }
            total += chars;
        };
        for block in blocks {
            block.get("text").into_iter().for_each(|text| check(text, 3000));
            for field in block["fields"].as_array().into_iter().flatten() {
                check(field, 2000);
            }
        }
        assert!(blocks[1]["fields"].as_array().unwrap().len() <= 10);
        assert!(total < 9_000, "{total}");
        let detail = blocks[2]["text"]["text"].as_str().unwrap();
        assert_eq!(detail.matches("```").count(), 2, "the frame is not broken");
    }

    #[test]
    fn no_escape_is_cut_in_two() {
        assert_eq!(escape("a<b", 10), "a&lt;b");
        assert_eq!(escape("a<b", 5), "a…");
        assert_eq!(escape("abc", 3), "ab…");
    }
}
