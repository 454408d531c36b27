//! An owned digest of a failure, for classifiers that are services.

use std::fmt;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use tower_service::Service;

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

/// Names a kind of failure: equal for two failures of one operation, class and reason whose texts
/// differ only in digits, hexadecimal ids and quoted parts. Stable between runs and versions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// The fingerprint of a failure with its text.
    #[must_use]
    pub fn of(operation: &Operation, failure: &Failure, text: &str) -> Self {
        let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
        for part in [operation.as_str(), failure.class.as_str(), failure.reason] {
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

/// Feeds `text` to `hash` word by word: a word with a digit in it is `#`, a quoted part is `"`.
fn normalise(text: &str, hash: &mut Fnv) {
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if matches!(first, '"' | '\'' | '`') {
            if let Some(end) = rest[1..].find(first) {
                hash.write(b"\"");
                rest = &rest[end + 2..];
                continue;
            }
        }
        if first.is_alphanumeric() {
            let word_end =
                |text: &str| text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
            let mut end = word_end(rest);
            let id = rest[..end].bytes().any(|b| b.is_ascii_digit());
            // A number goes on behind its point: 30s and 29.98s are one kind, and so are addresses.
            while id && rest[end..].starts_with('.') && word_end(&rest[end + 1..]) > 0 {
                end += 1 + word_end(&rest[end + 1..]);
            }
            let word = &rest[..end];
            hash.write(if id { b"#" } else { word.as_bytes() });
            rest = &rest[end..];
        } else {
            let mut buffer = [0; 4];
            hash.write(first.encode_utf8(&mut buffer).as_bytes());
            rest = &rest[first.len_utf8()..];
        }
    }
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
        assert_eq!(
            fingerprint("30s left at 10.0.0.7:80."),
            fingerprint("29.98s left at 10.0.0.12:81.")
        );
    }
}
