//! CloudEvents over a real socket. Real time: paused time would run ahead of the network.
#![cfg(feature = "webhook")]

mod common;

use std::time::Duration;

use common::{Broken, Order, TRACE, always, classifier, to_human};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tower::{Layer, ServiceExt};
use tower_triage_core::{Backoff, ErrorClass};
use tower_triage_escalate::{
    Desk, DeskPolicy, EscalateLayer, EscalatePolicy, Escalation, Receiver, WebhookError,
    WebhookSink,
};

/// Answers each connection's request with the next of `answers` (the last repeats), and hands the
/// requests out: head and body.
async fn server(answers: &'static [&'static str]) -> (String, mpsc::Receiver<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}/hook?key=hunter2", listener.local_addr().unwrap());
    let (requests, inbox) = mpsc::channel(16);
    tokio::spawn(async move {
        for n in 0.. {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut text = String::new();
            let (head, body) = loop {
                let mut chunk = [0; 4096];
                let read = socket.read(&mut chunk).await.unwrap();
                text.push_str(std::str::from_utf8(&chunk[..read]).unwrap());
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let head = head.to_ascii_lowercase();
                let length = head.split("content-length: ").nth(1).unwrap();
                let length: usize = length.split("\r\n").next().unwrap().parse().unwrap();
                if body.len() == length {
                    break (head, body.to_owned());
                }
            };
            requests.send((head, body)).await.unwrap();
            let answer = answers.get(n).or(answers.last()).unwrap();
            socket.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (uri, inbox)
}

const TAKEN: &str = "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
const BUSY: &str = "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

fn desk(sink: WebhookSink) -> Desk {
    let policy = DeskPolicy::new().backoff(Backoff::immediate());
    Desk::with_policy(policy, to_human(), [Receiver::new("human").notify(sink)]).unwrap()
}

async fn fail(desk: &Desk) {
    let layer = EscalateLayer::new(classifier(), desk.clone())
        .from("worker 7")
        .policy(EscalatePolicy::new().wait(Duration::from_secs(30)));
    let service = layer.layer(always(|| Err(Broken(ErrorClass::Quota, "balance used up"))));
    service.oneshot(Order::with_id("r-1")).await.unwrap_err();
}

#[tokio::test]
async fn an_escalation_arrives_as_a_cloud_event() {
    let (uri, mut inbox) = server(&[TAKEN]).await;
    let desk = desk(WebhookSink::new(&uri).unwrap());
    fail(&desk).await;
    assert_eq!(desk.counts().delivered, 1);
    let (head, body) = inbox.recv().await.unwrap();
    assert!(head.starts_with("post /hook?key=hunter2 http/1.1"), "{head}");
    assert!(head.contains("content-type: application/cloudevents+json"), "{head}");
    let event: serde_json::Value = serde_json::from_str(&body).unwrap();
    let expected = [
        ("specversion", "1.0"),
        ("type", "io.github.tower-triage.escalation.v1"),
        ("source", "/worker%207"),
        ("subject", "orders.create"),
        ("datacontenttype", "application/json"),
        ("traceparent", TRACE),
        ("severitytext", "ERROR"),
        ("correlationid", "r-1"),
    ];
    for (attribute, value) in expected {
        assert_eq!(event[attribute], value, "{attribute}");
    }
    assert_eq!(event["severitynumber"], 17);
    let names = event.as_object().unwrap().keys().filter(|name| *name != "data");
    for name in names {
        let plain = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        assert!(plain && name.len() <= 20, "{name}");
    }
    let data: Escalation = serde_json::from_value(event["data"].clone()).unwrap();
    assert_eq!(event["id"], data.id.to_string());
    assert_eq!(event["time"], data.last_time.to_string());
    assert_eq!(data.detail, "balance used up");
}

#[tokio::test]
async fn any_answer_but_2xx_is_an_error_and_the_second_try_has_the_same_id() {
    let (uri, mut inbox) = server(&[BUSY, TAKEN]).await;
    let desk = desk(WebhookSink::new(&uri).unwrap());
    fail(&desk).await;
    let mut id = async || {
        let (_, body) = inbox.recv().await.unwrap();
        serde_json::from_str::<serde_json::Value>(&body).unwrap()["id"].clone()
    };
    assert_eq!(id().await, id().await);
    assert_eq!((desk.counts().delivered, desk.counts().not_recorded), (1, 0));
}

/// What a single sending ends with.
async fn send(sink: WebhookSink) -> WebhookError {
    let memory = common::Memory::default();
    fail(&common::desk(&memory)).await;
    sink.oneshot(memory.one()).await.unwrap_err()
}

#[tokio::test]
async fn each_failure_says_what_it_is() {
    let (uri, _inbox) = server(&[BUSY]).await;
    let refused = send(WebhookSink::new(&uri).unwrap()).await;
    assert!(matches!(refused, WebhookError::Refused(status) if status == 503), "{refused}");

    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", silent.local_addr().unwrap());
    let limit = Duration::from_millis(50);
    let late = send(WebhookSink::new(&uri).unwrap().time_limit(limit)).await;
    assert!(matches!(late, WebhookError::TimedOut), "{late}");

    drop(silent);
    let gone = send(WebhookSink::new(&uri).unwrap()).await;
    assert!(matches!(gone, WebhookError::NotSent(_)), "{gone}");
    assert!(std::error::Error::source(&gone).is_some());
}

#[test]
fn an_address_that_cannot_work_is_refused_and_not_repeated() {
    for bad in
        ["", "not a uri?hunter2", "/path/hunter2", "https://a.b/hunter2", "ftp://a.b/hunter2"]
    {
        let error = WebhookSink::new(bad).unwrap_err();
        assert_eq!(error.field(), "uri", "{bad}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
    let sink = WebhookSink::new("http://a.b/hunter2").unwrap();
    assert!(!format!("{sink:?}").contains("hunter2"));
}
