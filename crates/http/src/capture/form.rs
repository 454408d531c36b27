//! A body as JSON holds it, without secrets.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};
use tower_triage_escalate::{RedactJson, Redactor};

/// What is stored of a body, and where something was taken out of it.
pub(super) struct Stored {
    /// Nothing if the body is empty.
    pub(super) body: Option<Value>,
    pub(super) redacted: Vec<String>,
}

/// Why the body is not stored.
pub(super) const MULTIPART: &str = "a multipart body may hold secrets that nobody finds";
const HIDDEN: &str = "the body is no text, and a secret stands in it";

/// `bytes` as text, if they are one, else as base64.
pub(super) fn store(
    bytes: &Bytes,
    content_type: &str,
    redactor: &Redactor,
) -> Result<Stored, &'static str> {
    if bytes.is_empty() {
        return Ok(Stored { body: None, redacted: Vec::new() });
    }
    if content_type.trim_start().to_ascii_lowercase().starts_with("multipart/") {
        return Err(MULTIPART);
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        let lossy = String::from_utf8_lossy(bytes);
        return match redactor.text(&lossy) {
            clean if clean == lossy => {
                let body = Some(json!({ "base64": STANDARD.encode(bytes) }));
                Ok(Stored { body, redacted: Vec::new() })
            }
            _ => Err(HIDDEN),
        };
    };
    // JSON is looked through by its fields. What holds no secret stays as it was, to the byte.
    let (text, redacted) = match serde_json::from_str::<Value>(text) {
        Ok(mut value @ (Value::Object(_) | Value::Array(_) | Value::String(_))) => {
            match redactor.json(&mut value) {
                paths if paths.is_empty() => (text.to_owned(), paths),
                paths => (value.to_string(), paths.iter().map(|path| join(path)).collect()),
            }
        }
        _ => match redactor.text(text) {
            clean if clean == text => (text.to_owned(), Vec::new()),
            clean => (clean.into_owned(), vec!["body".to_owned()]),
        },
    };
    Ok(Stored { body: Some(json!({ "text": text })), redacted })
}

/// The bytes again.
pub(super) fn restore(body: Option<&Value>) -> Result<Bytes, &'static str> {
    let Some(body) = body else { return Ok(Bytes::new()) };
    let field = |name| body.get(name).and_then(Value::as_str);
    match (field("text"), field("base64")) {
        (Some(text), None) => Ok(Bytes::copy_from_slice(text.as_bytes())),
        (None, Some(text)) => {
            STANDARD.decode(text).map(Bytes::from).map_err(|_| "its body is not base64")
        }
        _ => Err("its body is neither text nor base64"),
    }
}

fn join(path: &str) -> String {
    if path.is_empty() { "body".to_owned() } else { format!("body.{path}") }
}
