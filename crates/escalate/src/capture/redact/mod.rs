//! Takes secrets out of what is stored, logged or sent.

mod names;
mod shapes;

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::Value;

use self::names::Name;
use self::shapes::Text;

/// What stands in the place of a secret.
pub(crate) const REDACTED: &str = "[redacted]";
/// How many paths are listed.
const PATHS: usize = 32;

/// Takes secrets out: by the name of a field, and by the shape of a text.
///
/// | taken out | how it is known |
/// |---|---|
/// | fields with a word like `password`, `secret`, `authorization`, `cookie`, `credentials`, `api_key`, `private_key` anywhere in their name | whole, but for `true`, `false`, `null` |
/// | fields whose name ends in `token`, `signature`, `sig`, `session`, `session_id`, `auth`, `jwt`, `otp` | if they are texts or numbers; not page tokens |
/// | the same as `name=value`, `"name": "value"`, `name: value`, `<name>value<` in a text | the value |
/// | `Bearer ..`, `Basic ..`, JSON web tokens, private keys in PEM | by their form |
/// | keys of OpenAI, Anthropic, Stripe, GitHub, GitLab, Slack, AWS, Google, SendGrid, Hugging Face, npm, PyPI | by their prefix |
/// | user name and password of a URL | by the `@` |
///
/// Names are compared by their words, in any case and any spelling (`X-Api-Key`, `xApiKey`). What
/// looks like chance (UUIDs, hashes, base64) stays: there is no guess by entropy. So a secret under
/// an innocent name with no form of its own is not seen: name it with [`also`](Self::also). In a
/// sentence such as `wrong password: for Bob` what follows the colon is taken out too.
///
/// ```
/// use tower_triage_escalate::Redactor;
///
/// let redactor = Redactor::new();
/// assert_eq!(redactor.text("GET https://me:pw@host/a?token=x1&n=2"), "GET https://[redacted]@host/a?token=[redacted]&n=2");
/// let mut body = serde_json::json!({ "user": "ann", "password": "hunter2" });
/// assert_eq!(redactor.json(&mut body), ["password"]);
/// assert_eq!(body["user"], "ann");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redactor {
    keep: BTreeSet<String>,
    also: BTreeSet<String>,
}

impl Redactor {
    /// With the names and shapes of the table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What is called so is no secret: the whole name, in any case and spelling.
    #[must_use]
    pub fn keep(mut self, name: &str) -> Self {
        self.keep.insert(names::normal(name));
        self
    }

    /// What is called so is a secret: the whole name, in any case and spelling.
    #[must_use]
    pub fn also(mut self, name: &str) -> Self {
        self.also.insert(names::normal(name));
        self
    }

    /// Is what is called so a secret?
    #[must_use]
    pub fn is_secret(&self, name: &str) -> bool {
        self.name(name) != Name::Plain
    }

    /// `text` without what has the shape or the name of a secret.
    #[must_use]
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let scan = Text::new(text, |name: &str| self.name(name));
        let mut clean = String::new();
        let mut copied = 0;
        while let Some(secret) = scan.next(copied) {
            clean.push_str(&text[copied..secret.start]);
            clean.push_str(REDACTED);
            copied = secret.end;
        }
        if copied == 0 {
            return Cow::Borrowed(text);
        }
        clean.push_str(&text[copied..]);
        Cow::Owned(clean)
    }

    /// Takes secrets out of `value`; gives the paths of what was changed, with dots, the first 32.
    pub fn json(&self, value: &mut Value) -> Vec<String> {
        let mut paths = Vec::new();
        self.walk(value, "", &mut paths);
        paths
    }

    fn name(&self, name: &str) -> Name {
        let normal = names::normal(name);
        if self.also.contains(&normal) {
            Name::Strong
        } else if self.keep.contains(&normal) {
            Name::Plain
        } else {
            names::name(&normal)
        }
    }

    fn walk(&self, value: &mut Value, path: &str, paths: &mut Vec<String>) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(clean) = self.text(text) {
                    *text = clean;
                    note(path, paths);
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.walk(item, &join(path, &index.to_string()), paths);
                }
            }
            Value::Object(fields) => {
                let secret = |key: &String| matches!(self.text(key), Cow::Owned(_));
                if fields.keys().any(secret) {
                    let renamed = std::mem::take(fields).into_iter();
                    *fields =
                        renamed.map(|(key, item)| (self.text(&key).into_owned(), item)).collect();
                    note(path, paths);
                }
                for (key, item) in fields.iter_mut() {
                    let path = join(path, key);
                    let secret = match (self.name(key), &*item) {
                        (Name::Plain, _) | (_, Value::Null | Value::Bool(_)) => false,
                        (_, Value::String(text)) => !text.is_empty() && text != REDACTED,
                        (_, Value::Number(_)) | (Name::Strong, _) => true,
                        (Name::Weak, Value::Array(_) | Value::Object(_)) => false,
                    };
                    if secret {
                        *item = Value::String(REDACTED.to_owned());
                        note(&path, paths);
                    } else {
                        self.walk(item, &path, paths);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
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
