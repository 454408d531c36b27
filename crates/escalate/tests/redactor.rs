//! No secret of a known kind survives in any position, and ordinary text stays as it is.

use proptest::prelude::*;
use serde_json::{Value, json};
use tower_triage_escalate::{CaptureError, Codec, JsonCodec, RedactJson, Redactor};
use tower_triage_test_support::Stopwatch;

/// A secret with how it is recognised: what stands before and behind it.
#[derive(Clone, Debug)]
struct Planted {
    before: &'static str,
    secret: String,
    behind: &'static str,
}

fn secret(
    before: &'static str,
    shape: &'static str,
    behind: &'static str,
) -> BoxedStrategy<Planted> {
    let shape = proptest::string::string_regex(shape).expect("a regex");
    shape.prop_map(move |secret| Planted { before, secret, behind }).boxed()
}

/// Each kind of secret that the redactor promises to find.
fn planted() -> impl Strategy<Value = Planted> {
    proptest::strategy::Union::new([
        secret("Bearer ", "[a-z]{2}[A-Za-z0-9._~-]{12,40}", ""),
        secret("authorization: Basic ", "[A-Za-z0-9+/]{12,30}==", "\n"),
        secret("", "eyJ[A-Za-z0-9_-]{10,40}\\.eyJ[A-Za-z0-9_-]{10,40}\\.[A-Za-z0-9_-]{10,40}", ""),
        secret("", "sk-[A-Za-z]{12}[0-9][A-Za-z0-9]{10,30}", ""),
        secret("", "sk-ant-api03-[A-Za-z0-9_]{20,40}", ""),
        secret("", "sk_live_[A-Za-z0-9]{24}", ""),
        secret("", "gh[pousr]_[A-Za-z0-9]{36}", ""),
        secret("", "github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{20}", ""),
        secret("", "glpat-[A-Za-z0-9_-]{20}", ""),
        secret("", "xox[abprs]-[0-9]{10,12}-[A-Za-z0-9]{12,24}", ""),
        secret("", "A[KS]IA[A-Z0-9]{16}", ""),
        secret("", "AIza[A-Za-z0-9_-]{35}", ""),
        secret("", "npm_[A-Za-z0-9]{36}", ""),
        secret(
            "-----BEGIN RSA PRIVATE KEY-----\n",
            "([A-Za-z0-9+/]{40}\n){2}",
            "-----END RSA PRIVATE KEY-----",
        ),
        secret("https://", "[a-z]{3,8}:[A-Za-z0-9%!]{8,20}", "@example.org/path"),
        secret("https://example.org/?a=1&access_token=", "[A-Za-z0-9%._-]{8,20}", "&b=2"),
        secret("?X-Amz-Signature=", "[0-9a-f]{32}", ""),
        secret("password=", "[A-Za-z0-9!#$*]{8,20}", ""),
        secret("{\"client_secret\":\"", "[A-Za-z0-9!#$*]{8,20}", "\"}"),
        secret("{\\\"password\\\":\\\"", "[A-Za-z0-9!#$*]{8,20}", "\\\"}"),
        secret("Cookie: ", "sid=[A-Za-z0-9]{16}; other=[A-Za-z0-9]{16}", "\n"),
        secret("x-api-key: ", "[A-Za-z0-9]{16,32}", "\n"),
        secret("<apiKey>", "[A-Za-z0-9]{16,32}", "</apiKey>"),
        secret("password: Some(\"", "[A-Za-z0-9 ]{8,20}", "\")"),
    ])
}

/// Ordinary text that may stand around a secret, and must not hide it.
fn around() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[a-z ]{0,20}[ \n,(/\"'é]",
        Just("connection failed for (".to_owned()),
        Just("%3D".to_owned()),
        Just("ü: ".to_owned()),
        Just("\\n".to_owned()),
    ]
}

fn left(secret: &str, text: &str) -> bool {
    // Half of a secret is too much of it.
    secret.split_whitespace().any(|part| part.len() > 3 && text.contains(part))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_secret_survives_in_a_text(planted in planted(), before in around(), behind in "([ \n)]| and so on.{0,9})?") {
        let Planted { before: name, secret, behind: end } = &planted;
        let text = format!("{before}{name}{secret}{end}{behind}");
        let redactor = Redactor::new();
        let clean = redactor.text(&text).into_owned();
        prop_assert!(!left(secret, &clean), "{text:?} became {clean:?}");
        prop_assert!(clean.starts_with(&before), "{text:?} became {clean:?}");
        prop_assert_eq!(redactor.text(&clean), &*clean);
    }

    #[test]
    fn no_secret_survives_in_json(planted in planted(), place in 0..4_usize) {
        let Planted { before, secret, behind } = &planted;
        let text = format!("{before}{secret}{behind}");
        let mut value = match place {
            0 => json!(text),
            1 => json!({ "a": [1, { "b": text }] }),
            2 => json!({ text: 1 }),
            _ => json!({ "nested": json!({ "in text": text }).to_string() }),
        };
        let paths = Redactor::new().json(&mut value);
        prop_assert!(!paths.is_empty());
        prop_assert!(!left(secret, &value.to_string()), "{}", value);
        prop_assert!(Redactor::new().json(&mut value).is_empty());
    }

    #[test]
    fn a_secret_name_is_enough(secret in "[A-Za-z0-9+/ é]{1,20}", name in 0..SECRET.len()) {
        let (name, mut value) = (SECRET[name], json!({ "outer": { SECRET[name]: secret, "id": 7 } }));
        prop_assert_eq!(Redactor::new().json(&mut value), [format!("outer.{name}")]);
        prop_assert_eq!(value, json!({ "outer": { name: "[redacted]", "id": 7 } }));
    }

    #[test]
    fn no_text_panics(text in "([a-z]{0,3}|[ :=\"\\\\'<>&%@/{}\\[\\].,é-]|token|password|Bearer |eyJ|sk-|://|-----BEGIN |PRIVATE KEY-----){0,30}") {
        _ = Redactor::new().text(&text);
    }
}

const SECRET: [&str; 20] = [
    "authorization",
    "Proxy-Authorization",
    "cookie",
    "Set-Cookie",
    "x-api-key",
    "apiKey",
    "token",
    "access_token",
    "refreshToken",
    "id_token",
    "password",
    "PASSWD",
    "db-pwd",
    "secret",
    "client_secret",
    "private_key",
    "session",
    "credential",
    "x-signature",
    "sessionId",
];

#[test]
fn ordinary_text_stays() {
    for text in [
        "0b9f2f8e-6d0c-4b3e-9d3b-1f6f0a9f4c11",
        "/objects/9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
        "GET https://api.example.org/v1/orders/17?page=2&page_token=CAUQAA failed",
        "unexpected token: `}` at line 3",
        "max_tokens: 4096, total_tokens=17",
        "Basic authentication failed; use a bearer token instead",
        "WWW-Authenticate: Bearer realm=\"shop\", error=\"invalid_token\"",
        "sk-learn is not scikit; task-sk-one-two-three-four-five-six",
        "mail me@example.org, or see https://example.org/@me and https://h:8080/?mail=a@b",
        "std::io::Error { kind: ConnectionReset } in token::Kind",
        "if token == expected",
        "the secretary: Bob",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "eyJ is how JSON begins in base64: eyJhIjoxfQ==",
        "has_password=true",
        "",
    ] {
        assert_eq!(Redactor::new().text(text), text);
    }
    let value = json!({
        "usage": { "max_tokens": 5, "token_type": "x" }, "has_password": true, "cookie": null,
        "author": "Ann", "session": { "title": "talk" }, "pi": 3.5,
    });
    let mut walked = value.clone();
    assert_eq!(Redactor::new().json(&mut walked), [""; 0]);
    assert_eq!(walked, value);
}

#[test]
fn names_can_be_kept_and_added() {
    let redactor = Redactor::new().keep("Session-Id").also("ssn");
    let mut value = json!({ "session_id": "abc", "SSN": "078", "password": 1, "tokens": ["a"] });
    assert_eq!(redactor.json(&mut value), ["SSN", "password"]);
    assert_eq!(redactor.text("sessionId=abc&ssn=078"), "sessionId=abc&ssn=[redacted]");
}

/// What an attacker may send must not hold up whoever writes the record.
#[test]
fn time_grows_with_the_length_and_no_faster() {
    for piece in [
        "a-",
        ".",
        "eyJ-",
        "eyJaaaaaaaaaaaa-",
        "sk-",
        "basic+",
        "token:",
        "://a:b",
        "-----BEGIN ",
        "password",
        "token:\"",
        "token:\\\"",
        "é",
        "<a>",
        "xoxb-",
        "\\",
        "a=\"",
    ] {
        let text = piece.repeat(200_000 / piece.len());
        let watch = Stopwatch::start();
        _ = Redactor::new().text(&text);
        let took = watch.time();
        assert!(took < std::time::Duration::from_secs(5), "{piece}: {took:?}");
    }
}

#[test]
fn a_codec_redacts_bounds_and_says_why() {
    let codec = JsonCodec::<Value>::new().limit(100).name("orders");
    let order = json!({ "order": 7, "price": 0.1 });
    let captured = codec.encode(&order).expect("fits");
    assert_eq!((captured.codec.as_str(), &captured.redacted), ("orders", &vec![]));
    assert_eq!(codec.decode(&captured), Ok(order));

    let captured = codec.encode(&json!({ "password": "hunter2" })).expect("fits");
    assert_eq!(captured.data, json!({ "password": "[redacted]" }));
    let redacted = CaptureError::Redacted(vec!["password".to_owned()]);
    assert_eq!(codec.decode(&captured), Err(redacted));

    let long = json!("x".repeat(99));
    assert_eq!(codec.encode(&long), Err(CaptureError::TooLarge { limit: 100 }));
    assert!(codec.encode(&json!("x".repeat(98))).is_ok());

    let other = JsonCodec::<Value>::new().decode(&captured).expect_err("another codec");
    assert_eq!(other.to_string(), "the request was captured by codec `orders`, not by `json`");
}

#[test]
fn an_error_quotes_no_value() {
    let text = JsonCodec::<String>::new().encode(&"the PIN is 1234".to_owned()).expect("fits");
    let error = JsonCodec::<u32>::new().decode(&text).expect_err("not a number");
    assert!(!error.to_string().contains("PIN"), "{error}");
    assert!(error.to_string().contains("u32"), "{error}");
}
