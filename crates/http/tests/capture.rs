//! HTTP requests are captured without credentials, and made again as they were.

use bytes::Bytes;
use http::{HeaderName, Request};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use proptest::prelude::*;
use serde_json::json;
use tower_triage_core::incident::IncidentId;
use tower_triage_escalate::{CaptureError, Captured, Codec, Redactor};
use tower_triage_http::{CaptureBody, HttpCodec, ReplayBody};

type Plain = Request<Full<Bytes>>;

fn post(content_type: &str, body: impl Into<Bytes>) -> Plain {
    Request::post("https://shop.example/orders?draft=1")
        .header("content-type", content_type)
        .body(Full::new(body.into()))
        .unwrap()
}

fn capture<B: CaptureBody>(request: &Request<B>) -> Captured {
    HttpCodec::new().encode(request).unwrap()
}

fn again(captured: &Captured) -> Result<Plain, CaptureError> {
    HttpCodec::new().decode(captured)
}

fn body(request: Plain) -> Bytes {
    request.into_body().captured().unwrap()
}

#[test]
fn it_comes_back_as_it_was_but_for_credentials() {
    let mut request = post("application/json", r#"{ "b": 1.10, "a": [] }"#);
    for (name, value) in [
        ("authorization", "Bearer s3cr3t-1"),
        ("cookie", "sid=s3cr3t-2"),
        ("x-api-key", "s3cr3t-3"),
        ("x-internal", "s3cr3t-4"),
        ("accept", "text/html"),
        ("accept", "text/plain"),
        ("idempotency-key", "order-7"),
        ("content-length", "22"),
    ] {
        request.headers_mut().append(HeaderName::from_static(name), value.parse().unwrap());
    }
    let captured = capture(&request);
    let text = serde_json::to_string(&captured).unwrap();
    assert!(!text.contains("s3cr3t"), "{text}");
    assert_eq!(captured.data["credentials"], json!(["authorization", "cookie", "x-api-key"]));
    assert!(!format!("{captured:?}").contains("orders"));

    let request = again(&captured).unwrap();
    assert_eq!(request.method(), "POST");
    assert_eq!(request.uri(), "https://shop.example/orders?draft=1");
    let accepts: Vec<_> = request.headers().get_all("accept").iter().collect();
    assert_eq!(accepts, ["text/html", "text/plain"]);
    assert_eq!(request.headers().len(), 4);
    assert_eq!(body(request), r#"{ "b": 1.10, "a": [] }"#, "to the byte");
}

#[test]
fn the_id_is_the_key_unless_there_is_one() {
    let (codec, id) = (HttpCodec::new(), IncidentId::from_bits(7));
    let key = |request: Plain| request.headers()["idempotency-key"].clone();
    assert_eq!(key(codec.identified(post("text/plain", "x"), id)), id.to_string());
    let mut own = post("text/plain", "x");
    own.headers_mut().insert("idempotency-key", "own".parse().unwrap());
    assert_eq!(key(codec.identified(own, id)), "own");
}

#[test]
fn secrets_in_target_header_and_body_are_taken_out_and_it_says_where() {
    let secret = "hunter2hunter2";
    let json = format!(r#"{{"user":"ann","login":{{"password":"{secret}"}}}}"#);
    let form = format!("user=ann&password={secret}");
    let cases = [
        (post("application/json", json), "body.login.password"),
        (post("application/x-www-form-urlencoded", form), "body"),
        (post("text/xml", format!("<password>{secret}</password>")), "body"),
        (post("text/plain", format!("curl -H 'Authorization: Bearer {secret}'")), "body"),
        (post("application/x-ndjson", format!("{{}}\n{{\"token\":\"{secret}\"}}")), "body"),
    ];
    for (request, path) in cases {
        let captured = capture(&request);
        assert!(!captured.data.to_string().contains(secret), "{}", captured.data);
        assert_eq!(again(&captured).unwrap_err(), CaptureError::Redacted(vec![path.to_owned()]));
    }
    let target = format!("https://shop.example/a?access_token={secret}");
    let captured = capture(&Request::get(&target).body(()).unwrap());
    assert_eq!(captured.data["target"], "https://shop.example/a?access_token=[redacted]");
    assert_eq!(captured.redacted, ["target"]);

    let own = HeaderName::from_static("x-callback");
    let mut request = post("text/plain", "");
    let url = format!("https://me:{secret}@shop.example/");
    request.headers_mut().insert(&own, url.parse().unwrap());
    let captured = HttpCodec::new().header(&own).encode(&request).unwrap();
    assert_eq!(captured.redacted, ["headers.x-callback"]);
    assert!(!captured.data.to_string().contains(secret));
}

#[test]
fn a_credential_is_captured_only_if_it_is_said_to_be_none() {
    let name = HeaderName::from_static("x-session");
    let mut request = post("text/plain", "");
    request.headers_mut().insert(&name, "blue".parse().unwrap());
    let chosen = HttpCodec::new().header(&name);
    assert!(!chosen.encode(&request).unwrap().data.to_string().contains("blue"));
    let kept = chosen.redactor(Redactor::new().keep("x-session"));
    assert!(kept.encode(&request).unwrap().data.to_string().contains("blue"));
}

#[test]
fn what_is_not_whole_is_shown_and_not_driven() {
    let long = post("text/plain", vec![b'x'; 64 * 1024 + 1]);
    let multipart = post("multipart/form-data; boundary=b", "--b\r\n");
    let mut hidden = b"\xff\xfe password=hunter2hunter2".to_vec();
    hidden.push(0xff);
    let hidden = post("application/octet-stream", hidden);
    let mut header = post("text/plain", "x");
    let value = http::HeaderValue::from_bytes(b"\xff").unwrap();
    header.headers_mut().insert("user-agent", value);
    for (request, why) in [
        (long, "the body has 65537 bytes, and 65536 are captured"),
        (multipart, "a multipart body may hold secrets that nobody finds"),
        (hidden, "the body is no text, and a secret stands in it"),
        (header, "a header is no text"),
    ] {
        let captured = capture(&request);
        assert_eq!(captured.data["target"], "https://shop.example/orders?draft=1");
        assert_eq!(again(&captured).unwrap_err(), CaptureError::Incomplete(why.to_owned()));
    }
    let most = post("text/plain", vec![b'x'; 64 * 1024]);
    assert_eq!(body(again(&capture(&most)).unwrap()).len(), 64 * 1024);
}

#[test]
fn the_whole_is_bounded() {
    let mut request = post("text/plain", "");
    request.headers_mut().insert("user-agent", "x".repeat(300).parse().unwrap());
    let codec = HttpCodec::new().limit(300);
    assert_eq!(codec.encode(&request).unwrap_err(), CaptureError::TooLarge { limit: 300 });
}

#[test]
fn what_is_not_ours_or_broken_is_refused_without_a_panic() {
    let good = json!({ "method": "GET", "target": "/" });
    assert!(again(&Captured::new("http", good.clone())).is_ok());
    assert!(matches!(again(&Captured::new("json", good)), Err(CaptureError::OtherCodec { .. })));
    for broken in [
        json!(null),
        json!({ "method": "G T", "target": "/" }),
        json!({ "method": "GET", "target": "a b" }),
        json!({ "method": "GET", "target": "/", "headers": [["a b", "c"]] }),
        json!({ "method": "GET", "target": "/", "headers": [["a", "b\nc"]] }),
        json!({ "method": "GET", "target": "/", "body": { "base64": "?" } }),
        json!({ "method": "GET", "target": "/", "body": {} }),
        json!({ "method": "GET", "target": "/", "body": { "text": "a", "base64": "YQ==" } }),
    ] {
        let error = again(&Captured::new("http", broken.clone())).unwrap_err();
        assert!(matches!(error, CaptureError::Unreadable(_)), "{broken}: {error}");
    }
}

#[tokio::test]
async fn a_body_that_streams_is_captured_once_it_was_read() {
    let stream = || {
        let frames =
            ["one", " two"].map(|text| Ok::<_, std::io::Error>(Frame::data(Bytes::from(text))));
        ReplayBody::new(StreamBody::new(futures_util::stream::iter(frames)))
    };
    let body = stream();
    let kept = Request::post("/").body(body.clone()).unwrap();
    let codec = HttpCodec::new();
    let unread = CaptureError::Incomplete("the request body was not read to its end".to_owned());
    assert_eq!(again(&codec.encode(&kept).unwrap()).unwrap_err(), unread);
    assert_eq!(body.collect().await.unwrap().to_bytes(), "one two");
    let captured = codec.encode(&kept).unwrap();
    assert_eq!(captured.data["body"], json!({ "text": "one two" }));

    // Back into the same type of body, and into another.
    let mut same: Request<ReplayBody<Full<Bytes>>> = codec.decode(&captured).unwrap();
    assert_eq!(http_body::Body::size_hint(same.body()).exact(), Some(7));
    assert_eq!(same.body_mut().collect().await.unwrap().to_bytes(), "one two");
    assert_eq!(again(&captured).unwrap().into_body().captured().unwrap(), "one two");
}

#[test]
fn every_body_in_memory_comes_back() {
    fn same<B: CaptureBody>(body: B, expected: &str) {
        let bytes = body.captured().unwrap();
        assert_eq!(bytes, expected);
        assert_eq!(B::restored(bytes).captured().unwrap(), expected);
    }
    same(Bytes::from("a"), "a");
    same("a".to_owned(), "a");
    same(b"a".to_vec(), "a");
    same(Full::new(Bytes::from("a")), "a");
    same(Empty::<Bytes>::new(), "");
    same((), "");
    same(ReplayBody::new(Empty::<Bytes>::new()), "");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let captured = capture(&post("application/octet-stream", bytes.clone()));
        let stored = serde_json::to_string(&captured).unwrap();
        let captured: Captured = serde_json::from_str(&stored).unwrap();
        prop_assert_eq!(body(again(&captured).unwrap()), bytes);
    }
}
