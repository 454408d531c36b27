//! An owned digest of a failure, for classifiers that are services.

use std::fmt;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use tower_service::Service;

use crate::class::ErrorClass;
use crate::classifier::Classifier;
use crate::label::Operation;
use crate::verdict::{Failure, Verdict};

/// What a classifying service is told of a failed outcome: owned and free of the user's types, so
/// that it can be sent away, while the outcome itself stays where it is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Observation {
    /// What was being done.
    pub operation: Operation,
    /// The rules' own verdict.
    pub local: Failure,
    /// Alike for failures that differ only in numbers, ids and quoted parts.
    pub fingerprint: Fingerprint,
    /// The error's chain or the status line, as text, at most 512 bytes.
    pub chain: String,
    /// The beginning of the body, where the protocol's adapter gives one; empty otherwise.
    pub body_prefix: Vec<u8>,
}

impl Observation {
    /// An observation of `local`, fingerprinted from operation, class, reason and chain.
    #[must_use]
    pub fn new(operation: Operation, local: Failure, chain: String) -> Self {
        let fingerprint = Fingerprint::of(&operation, &local, &chain);
        Self { operation, local, fingerprint, chain, body_prefix: Vec::new() }
    }

    /// With the beginning of the body.
    #[must_use]
    pub fn body_prefix(mut self, prefix: Vec<u8>) -> Self {
        self.body_prefix = prefix;
        self
    }
}

/// Says what an unknown failure is to be treated as, from experience
/// ([`Classifier::advised_by`](crate::Classifier::advised_by)).
///
/// Asked on the failure path only, by each layer that judges the outcome, outside the call's scope.
/// It must not block, and answer the same as long as it has learned nothing new: layers that act on
/// two answers count the outcome as two. A panic is caught and logged; the failure stays unknown.
pub trait Advisor: Send + Sync {
    /// The class to treat it as; `None` leaves it unknown.
    fn advise(&self, observation: &Observation) -> Option<ErrorClass>;
}

/// Names a kind of failure: equal for two failures of one operation, class and reason whose texts
/// differ only in numbers, ids and quoted parts. Stable between runs and versions. A failure that is
/// treated as something [by experience](Failure::is_learned) keeps the fingerprint that it had
/// before, class `Unknown`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// The fingerprint of a failure with its text.
    #[must_use]
    pub fn of(operation: &Operation, failure: &Failure, text: &str) -> Self {
        let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
        let class = if failure.is_learned() { ErrorClass::Unknown } else { failure.class };
        for part in [operation.as_str(), class.as_str(), failure.reason] {
            hash.write(part.as_bytes());
            hash.write(b"\0");
        }
        normalise(text, &mut hash);
        Self(hash.0)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// As sixteen hexadecimal digits: many readers of JSON lose the low bits of a 64-bit number.
#[cfg(feature = "serde")]
impl serde::Serialize for Fingerprint {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Fingerprint {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        u64::from_str_radix(&text, 16).map(Self).map_err(serde::de::Error::custom)
    }
}

/// FNV-1a, 64 bits: small, and the same everywhere.
struct Fnv(u64);

impl Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Feeds `text` to `hash` piece by piece: an id is `#`, a quoted part is `"`.
fn normalise(text: &str, hash: &mut Fnv) {
    let (mut rest, mut before) = (text, None);
    while let Some(first) = rest.chars().next() {
        let piece = if first.is_alphanumeric() {
            let end = chain_end(rest);
            ids(&rest[..end], hash);
            end
        } else if let Some(end) = quoted(rest, first, before) {
            hash.write(b"\"");
            end
        } else {
            let end = first.len_utf8();
            hash.write(&rest.as_bytes()[..end]);
            end
        };
        before = rest[..piece].chars().next_back();
        rest = &rest[piece..];
    }
}

/// The end of the words that `text` begins with, as far as dashes join them: an id may have parts
/// without a digit.
fn chain_end(text: &str) -> usize {
    let mut end = word_end(text);
    while text[end..].starts_with('-') && word_end(&text[end + 1..]) > 0 {
        end += 1 + word_end(&text[end + 1..]);
    }
    end
}

/// The end of the word that `text` begins with. A number goes on behind its point or comma: 30s and
/// 29.98s are one kind, and so are addresses.
fn word_end(text: &str) -> usize {
    let plain = |text: &str| text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
    let mut end = plain(text);
    while has_digit(&text[..end]) {
        let next = text.get(end + 1..).unwrap_or_default();
        let goes_on = match text.as_bytes().get(end) {
            Some(b'.') => plain(next) > 0,
            Some(b',') => next.starts_with(|c: char| c.is_ascii_digit()),
            _ => false,
        };
        if !goes_on {
            break;
        }
        end += 1 + plain(next);
    }
    end
}

fn has_digit(word: &str) -> bool {
    word.bytes().any(|b| b.is_ascii_digit())
}

/// Words joined by dashes: one with a digit in it is an id, and beside an id so is one of
/// hexadecimal digits only.
fn ids(chain: &str, hash: &mut Fnv) {
    let any = has_digit(chain);
    for (at, word) in chain.split('-').enumerate() {
        if at > 0 {
            hash.write(b"-");
        }
        let is_id = has_digit(word) || any && word.bytes().all(|b| b.is_ascii_hexdigit());
        hash.write(if is_id { b"#" } else { word.as_bytes() });
    }
}

/// The end of the quoted part that `text` begins with, if it begins with one. Within a word a
/// single quote is an apostrophe.
fn quoted(text: &str, first: char, before: Option<char>) -> Option<usize> {
    let close = match first {
        '"' | '`' => first,
        '\'' if !before.is_some_and(char::is_alphanumeric) => '\'',
        '\u{201c}' => '\u{201d}',
        '\u{2018}' => '\u{2019}',
        '\u{ab}' => '\u{bb}',
        _ => return None,
    };
    let mut inside = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = inside.next() {
        if c == '\\' {
            inside.next();
        } else if c == close {
            let within = |next: &(usize, char)| first == '\'' && next.1.is_alphanumeric();
            if !inside.peek().is_some_and(within) {
                return Some(at + c.len_utf8());
            }
        }
    }
    None
}

/// The classifier as a service over observations: it answers what it was taught, else the local
/// verdict. A remote or learned classifier has the same shape and takes its place in a
/// [`ClassifyLayer`](crate::ClassifyLayer).
impl<R> Service<Observation> for Classifier<R> {
    type Response = Verdict;
    type Error = std::convert::Infallible;
    type Future = Ready<Result<Verdict, Self::Error>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, observation: Observation) -> Self::Future {
        let failure = match self.taught(observation.fingerprint) {
            Some(class) => observation.local.reclassified(class),
            None => observation.local,
        };
        ready(Ok(Verdict::Failure(failure)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorClass;

    fn fingerprint(text: &str) -> Fingerprint {
        Fingerprint::of(&Operation::new("op"), &ErrorClass::Transient.into(), text)
    }

    #[test]
    fn numbers_ids_and_quotes_do_not_matter_and_words_do() {
        let a = fingerprint("user 17 not found in 'eu-west' (request 7f3a-9b)");
        assert_eq!(a, fingerprint("user 4242 not found in 'us' (request 00aa1-0c)"));
        assert_ne!(a, fingerprint("user 17 not allowed in 'eu-west' (request 7f3a-9b)"));
        assert_ne!(fingerprint("it's é"), fingerprint("it's e"));
        for (one, other) in [
            ("can't find 'alice'", "can't find 'bob'"),
            ("no 'it's' here", "no 'that' here"),
            (r#"bad "say \"hi\" x" now"#, r#"bad "y" now"#),
            ("user \u{201c}a b\u{201d}", "user \u{201c}c\u{201d}"),
            (
                "job 550e8400-e29b-41d4-abcd-446655440000",
                "job 6ba7b810-9dad-11d1-80b4-00c04fd430c8",
            ),
            ("1,024 of 7 rows", "3 of 12,345,678 rows"),
        ] {
            assert_eq!(fingerprint(one), fingerprint(other), "{one}");
        }
        for (one, other) in [
            ("planner-7 failed", "worker-7 failed"),
            ("retry-after missing", "retry-before missing"),
            ("shards 1, beyond", "shards 1 beyond"),
            ("users' list", "users list"),
        ] {
            assert_ne!(fingerprint(one), fingerprint(other), "{one}");
        }
        let unknown = Failure::new(ErrorClass::Unknown).reason("why");
        let of = |failure| Fingerprint::of(&Operation::EMPTY, &failure, "text");
        assert_eq!(of(unknown), of(unknown.learned(ErrorClass::Quota)));
        assert_ne!(of(unknown), of(unknown.reclassified(ErrorClass::Quota)));
        assert_eq!(
            fingerprint("30s left at 10.0.0.7:80."),
            fingerprint("29.98s left at 10.0.0.12:81.")
        );
    }
}
