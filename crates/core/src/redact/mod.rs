//! Takes secrets out of what is stored, logged or sent.

mod names;
mod shapes;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

pub use self::names::Secrecy;
use self::shapes::Text;

/// What stands in the place of a secret.
pub const REDACTED: &str = "[redacted]";
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
/// use tower_triage_core::redact::Redactor;
///
/// let redactor = Redactor::new();
/// assert_eq!(redactor.text("GET https://me:pw@host/a?token=x1&n=2"), "GET https://[redacted]@host/a?token=[redacted]&n=2");
/// assert!(redactor.is_secret("X-Api-Key") && !redactor.is_secret("Accept"));
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
        self.name(name) != Secrecy::Plain
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

    /// What a name says of what stands under it.
    #[must_use]
    pub fn name(&self, name: &str) -> Secrecy {
        let normal = names::normal(name);
        if self.also.contains(&normal) {
            Secrecy::Strong
        } else if self.keep.contains(&normal) {
            Secrecy::Plain
        } else {
            names::name(&normal)
        }
    }
}

/// What a dependency said, for a person. It may quote what it was told, so `Display`, `Debug` and serde
/// show it without secrets; [`as_str`](Self::as_str) is all of it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Detail(String);

impl Detail {
    /// All of it, secrets too: not for a log.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Is there nothing to say?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<String> for Detail {
    fn from(text: String) -> Self {
        Self(text)
    }
}

/// All of it.
impl From<Detail> for String {
    fn from(detail: Detail) -> Self {
        detail.0
    }
}

impl fmt::Display for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&Redactor::new().text(&self.0))
    }
}

impl fmt::Debug for Detail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&Redactor::new().text(&self.0), f)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Detail {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
