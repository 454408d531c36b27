//! Secrets, what holds them, and where they must not be.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::to_bytes;
use axum::extract::Request as Incoming;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use hyper_util::client::legacy::Client as Hyper;
use hyper_util::client::legacy::connect::HttpConnector;
use tower::{ServiceExt, service_fn};
use tower_triage_escalate::{Escalation, Receiver};
use tower_triage_receivers::{Alertmanager, Client, PagerDuty, Slack, WebhookSink};

/// A kind of secret: how a text quotes it, and what must not be seen.
pub(crate) struct Kind {
    quote: &'static str,
    pub(crate) secret: &'static str,
}

impl Kind {
    /// A sentence of a dependency that quotes it.
    pub(crate) fn quoted(&self) -> String {
        format!("refused: {}", self.quote.replace("{}", self.secret))
    }
}

const fn kind(quote: &'static str, secret: &'static str) -> Kind {
    Kind { quote, secret }
}

/// The keys of the receivers themselves.
pub(crate) const SLACK: &str = "T0SLACK0B0HOOK0hunter2";
const ROUTING_KEY: &str = "R0UTINGKEY0hunter2";

pub(crate) const KINDS: [Kind; 22] = [
    kind("Authorization: Bearer {}", "bearer-4f9a1c77d2e84b0f"),
    kind("authorization: Basic {}", "c2hvcDpiYXNpYy1wYXNzd29yZA=="),
    kind("Cookie: theme=dark; sid={}", "cookie-98aa7c6b5d4e"),
    kind("Set-Cookie: sid={}; HttpOnly", "setcookie-11bb22cc33dd"),
    kind("X-Api-Key: {}", "apikey-55ee66ff77aa"),
    kind("Proxy-Authorization: Basic {}", "cHJveHk6cHJveHktcGFzc3dvcmQ="),
    kind("access key {}", "AKIAIOSFODNN7EXAMPLE"),
    kind("aws_secret_access_key = {}", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    kind("token {} lacks a scope", "ghp_16C7e42F292c6912E7710c838347Ae178B4a"),
    kind("{} is not in the channel", "xoxb-2109876543-abcdefGHIJKLmnopQRST"),
    kind("Incorrect API key provided: {}.", "sk-proj-Ab3dEf6hIj9kLm2nOp5qRs8tUv1w"),
    kind(
        "token expired: {}",
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
    ),
    kind(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----",
        "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj",
    ),
    kind("error for url (https://shop:{}@api.example/orders)", "userinfo-aa11bb22cc"),
    kind("GET /orders?access_token={}&page=2", "query-dd33ee44ff"),
    kind(r#"{"user": "ann", "password": "{}"}"#, "password-0a1b2c3d4e"),
    kind(r#"{"client_secret":"{}"}"#, "clientsecret-5f6a7b8c"),
    kind(r#"{"access_token":"{}","expires_in":3600}"#, "accesstoken-9d0e1f2a"),
    kind(r#"{"refresh_token": "{}"}"#, "refreshtoken-3b4c5d6e"),
    kind("connecting to postgres://shop:{}@db.example:5432/orders failed", "dbpassword-7f8a9b0c"),
    kind("session_id={} is unknown", "session-1d2e3f4a5b"),
    kind("password=\"{}\" is wrong", "quoted-6c7d8e9f0a"),
];

/// The `n`th request; it holds all of them.
pub(crate) fn request(n: usize) -> Request<Full<Bytes>> {
    let secret = |n: usize| KINDS[n].secret;
    let fields = [
        ("aws_access_key_id", 6),
        ("aws_secret_access_key", 7),
        ("github_token", 8),
        ("slack_token", 9),
        ("openai_api_key", 10),
        ("jwt", 11),
        ("private_key", 12),
        ("password", 15),
        ("client_secret", 16),
        ("access_token", 17),
        ("refresh_token", 18),
        ("session_id", 20),
        ("passphrase", 21),
    ];
    let mut body: BTreeMap<_, _> =
        fields.iter().map(|(name, n)| (*name, secret(*n).to_owned())).collect();
    body.insert("database", KINDS[19].quoted());
    body.insert("note", KINDS.iter().map(|kind| kind.quoted() + "\n").collect());
    let address = format!(
        "https://shop:{}@api.example/orders?access_token={}&page=2",
        secret(13),
        secret(14)
    );
    Request::put(address)
        .header("content-type", "application/json")
        .header("authorization", format!("Bearer {}", secret(0)))
        .header("x-authorization", format!("Basic {}", secret(1)))
        .header("cookie", format!("theme=dark; sid={}", secret(2)))
        .header("set-cookie", format!("sid={}", secret(3)))
        .header("x-api-key", secret(4))
        .header("proxy-authorization", format!("Basic {}", secret(5)))
        .header("x-request-id", format!("r-{n}"))
        .body(Full::from(serde_json::to_vec(&body).unwrap()))
        .unwrap()
}

/// Answers every receiver as it wants to be answered; gives its address, and what it was sent: path,
/// and headers and body.
pub(crate) async fn server() -> (String, Arc<Mutex<Vec<(String, String)>>>) {
    let inbox = Arc::new(Mutex::new(Vec::new()));
    let posts = Arc::clone(&inbox);
    let router = Router::new().fallback(move |incoming: Incoming| {
        let posts = Arc::clone(&posts);
        async move {
            let (head, body) = incoming.into_parts();
            let body = to_bytes(body, usize::MAX).await.unwrap();
            let path = head.uri.path().replace(SLACK, "slack");
            let mut message = format!("{:?}\n{}", head.headers, String::from_utf8_lossy(&body));
            if path == "/v2/enqueue" {
                // Where it has to be.
                message = message.replace(ROUTING_KEY, "routing key");
            }
            posts.lock().unwrap().push((path, message));
            StatusCode::ACCEPTED
        }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address, inbox)
}

/// All four receivers, each as a sink of records and of notifications; and how they are printed.
pub(crate) fn receivers_at(
    address: &str,
    hyper: Hyper<HttpConnector, Full<Bytes>>,
) -> (Vec<Receiver>, String) {
    let client = Client::new(hyper);
    let events = WebhookSink::with_client(client.clone(), &format!("{address}/events")).unwrap();
    let pager = PagerDuty::with_client(client.clone(), ROUTING_KEY).unwrap();
    let pager = pager.address(&format!("{address}/v2/enqueue")).unwrap();
    let alerts = Alertmanager::with_client(client.clone(), address).unwrap();
    let slack = Slack::with_client(client.clone(), &format!("{address}/{SLACK}")).unwrap();
    let printed = format!("{events:?} {pager:?} {alerts:?} {slack:?} {client:?}");
    // A message a second is too slow for a test: each has a pace of its own.
    let address = address.to_owned();
    let impatient = service_fn(move |escalation: Escalation| {
        let uri = format!("{address}/{SLACK}");
        Slack::with_client(client.clone(), &uri).unwrap().oneshot(escalation)
    });
    let receivers = vec![
        Receiver::new("events").record(events.clone()).notify(events),
        Receiver::new("pager").record(pager.clone()).notify(pager),
        Receiver::new("alerts").record(alerts.clone()).notify(alerts),
        Receiver::new("slack").record(impatient.clone()).notify(impatient),
    ];
    (receivers, printed)
}

/// Everything that was stored, printed and sent; and a subscriber that hears everything that is
/// logged, of everybody.
pub(crate) struct Forms {
    forms: Mutex<Vec<(String, String)>>,
    log: Log,
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Forms {
    /// From now on everything is heard.
    pub(crate) fn new() -> Self {
        let log = Log::default();
        let writer = log.clone();
        tracing_subscriber::fmt()
            .with_max_level(tracing::Level::TRACE)
            .with_span_events(tracing_subscriber::fmt::format::FmtSpan::FULL)
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .init();
        Self { forms: Mutex::default(), log }
    }

    pub(crate) fn add(&self, name: impl Into<String>, text: impl Into<String>) {
        self.forms.lock().unwrap().push((name.into(), text.into()));
    }

    /// No secret is in any form; nor those of `more`.
    pub(crate) fn assert_clean(&self, more: &[&str]) {
        let log = self.log.0.lock().unwrap().clone();
        let log = String::from_utf8(log).unwrap();
        assert!(log.contains("tower_triage::escalation"), "the log was heard");
        let mut forms = self.forms.lock().unwrap().clone();
        forms.extend(log.lines().map(|line| ("logged".to_owned(), line.to_owned())));
        let secrets =
            KINDS.iter().map(|kind| kind.secret).chain([ROUTING_KEY]).chain(more.iter().copied());
        let mut leaks = BTreeMap::<_, String>::new();
        for secret in secrets {
            // In JSON a slash may be escaped.
            let escaped = secret.replace('/', "\\/");
            for (name, text) in &forms {
                if let Some(at) = text.find(secret).or_else(|| text.find(&escaped)) {
                    let from = text[..at].char_indices().rev().nth(60).map_or(0, |(at, _)| at);
                    let around = text[from..].chars().take(100).collect();
                    leaks.entry((secret, name.as_str())).or_insert(around);
                }
            }
        }
        for ((secret, name), around) in &leaks {
            eprintln!("{name}: `{secret}` in: {around:?}");
        }
        assert!(leaks.is_empty(), "{} leaks in {} forms", leaks.len(), forms.len());
    }
}
