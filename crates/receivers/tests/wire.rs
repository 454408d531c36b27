//! Over a real socket, with the clients that the sinks make themselves. Real time: paused time would
//! run ahead of the network.

mod common;

use bytes::Bytes;
use common::{escalation, resolve};
use http_body_util::Full;
use hyper_util::client::legacy::Client as Hyper;
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tower::ServiceExt;
use tower_triage_core::ErrorClass;
use tower_triage_receivers::{Alertmanager, Client, PagerDuty, SendError, Slack, WebhookSink};
use tower_triage_test_support::closed_port;

/// Answers each connection's request with the next of `answers` (the last repeats), and hands the
/// requests out: head and body.
async fn server(answers: &'static [&'static str]) -> (String, mpsc::Receiver<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let (requests, inbox) = mpsc::channel(16);
    tokio::spawn(async move {
        for n in 0.. {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut bytes = Vec::new();
            let (head, body) = loop {
                let mut chunk = [0; 4096];
                let read = socket.read(&mut chunk).await.unwrap();
                bytes.extend_from_slice(&chunk[..read]);
                let text = String::from_utf8_lossy(&bytes);
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

const TAKEN: &str = "HTTP/1.1 202 Accepted\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";
const LATER: &str =
    "HTTP/1.1 429 Busy\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

#[tokio::test]
async fn a_cloud_event_arrives_at_the_second_try() {
    let (uri, mut inbox) = server(&[LATER, TAKEN]).await;
    let sink = WebhookSink::new(&format!("{uri}/hook?key=hunter2")).unwrap();
    sink.oneshot(escalation()).await.unwrap();
    let (first, second) = (inbox.recv().await.unwrap(), inbox.recv().await.unwrap());
    assert_eq!(first, second);
    let (head, body) = second;
    assert!(head.starts_with("post /hook?key=hunter2 http/1.1"), "{head}");
    assert!(head.contains("content-type: application/cloudevents+json"), "{head}");
    let event: serde_json::Value = serde_json::from_str(&body).unwrap();
    for (attribute, value) in [
        ("specversion", "1.0"),
        ("type", "io.github.tower-triage.escalation.v1"),
        ("id", "01234567-89ab-cdef-0123-456789abcdef"),
        ("source", "/worker%207"),
        ("subject", "orders.create"),
        ("time", "2026-01-02T03:04:06.500Z"),
        ("datacontenttype", "application/json"),
        ("severitytext", "ERROR"),
        ("correlationid", "r-1"),
    ] {
        assert_eq!(event[attribute], value, "{attribute}");
    }
    for name in event.as_object().unwrap().keys().filter(|name| *name != "data") {
        let plain = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        assert!(plain && name.len() <= 20, "{name}");
    }
    assert_eq!(event["data"]["detail"], "balance used up");
}

#[tokio::test]
async fn alerts_messages_and_pages_arrive() {
    let (uri, mut inbox) = server(&[TAKEN]).await;
    let mut arrived = async || {
        let (head, body) = inbox.recv().await.unwrap();
        let path = head.split(' ').nth(1).unwrap().to_owned();
        (path, serde_json::from_str::<serde_json::Value>(&body).unwrap())
    };
    Alertmanager::new(&uri).unwrap().oneshot(resolve()).await.unwrap();
    let (path, body) = arrived().await;
    assert_eq!(
        (&*path, &body[0]["endsAt"]),
        ("/api/v2/alerts", &"2026-01-02T03:09:06.500Z".into())
    );

    Slack::new(&format!("{uri}/services/x")).unwrap().oneshot(escalation()).await.unwrap();
    let (path, body) = arrived().await;
    assert_eq!((&*path, &body["text"]), ("/services/x", &"[high] orders.create failed".into()));

    let hyper = Hyper::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let pager = PagerDuty::with_client(Client::new(hyper), "R0UTINGKEY").unwrap();
    pager.address(&format!("{uri}/v2/enqueue")).unwrap().oneshot(escalation()).await.unwrap();
    let (path, body) = arrived().await;
    assert_eq!((&*path, &body["routing_key"]), ("/v2/enqueue", &"R0UTINGKEY".into()));
}

#[tokio::test]
async fn nobody_there_is_no_answer() {
    let gone = closed_port();
    let hyper = Hyper::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let sink = WebhookSink::with_client(Client::bare(hyper), &format!("http://{gone}")).unwrap();
    let error = sink.oneshot(escalation()).await.unwrap_err();
    let error = *error.downcast::<SendError>().unwrap();
    assert!(matches!(error, SendError::NoAnswer { class: ErrorClass::Transient, .. }), "{error}");
}
