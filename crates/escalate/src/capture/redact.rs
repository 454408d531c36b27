//! Takes secrets out of what is captured.

use std::borrow::Cow;

use serde_json::Value;
use tower_triage_core::redact::{REDACTED, Redactor, Secrecy};

/// How many paths are listed.
const PATHS: usize = 32;

/// A [`Redactor`] of JSON.
pub trait RedactJson {
    /// Takes secrets out of `value`; gives the paths of what was changed, with dots, the first 32.
    fn json(&self, value: &mut Value) -> Vec<String>;
}

impl RedactJson for Redactor {
    fn json(&self, value: &mut Value) -> Vec<String> {
        let mut paths = Vec::new();
        walk(self, value, "", &mut paths);
        paths
    }
}

fn walk(redactor: &Redactor, value: &mut Value, path: &str, paths: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(clean) = redactor.text(text) {
                *text = clean;
                note(path, paths);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                walk(redactor, item, &join(path, &index.to_string()), paths);
            }
        }
        Value::Object(fields) => {
            let secret = |key: &String| matches!(redactor.text(key), Cow::Owned(_));
            if fields.keys().any(secret) {
                let renamed = std::mem::take(fields).into_iter();
                *fields =
                    renamed.map(|(key, item)| (redactor.text(&key).into_owned(), item)).collect();
                note(path, paths);
            }
            for (key, item) in fields.iter_mut() {
                let path = join(path, key);
                let secret = match (redactor.name(key), &*item) {
                    (Secrecy::Plain, _) | (_, Value::Null | Value::Bool(_)) => false,
                    (_, Value::String(text)) => !text.is_empty() && text != REDACTED,
                    (_, Value::Number(_)) | (Secrecy::Strong, _) => true,
                    (Secrecy::Weak, Value::Array(_) | Value::Object(_)) => false,
                };
                if secret {
                    *item = Value::String(REDACTED.to_owned());
                    note(&path, paths);
                } else {
                    walk(redactor, item, &path, paths);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn note(path: &str, paths: &mut Vec<String>) {
    if paths.len() < PATHS {
        paths.push(path.to_owned());
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
