//! Short text that is copied inline: operation names, breaker keys, request ids, targets.

use std::fmt;
use std::hash::{Hash, Hasher};

/// Text of at most `N` bytes, stored inline: `Copy`, never on the heap.
///
/// Longer text is cut at a character boundary and ends in `~` and eight hex digits made from the
/// whole, so that two long texts with one beginning stay two labels.
#[derive(Clone, Copy)]
pub struct Label<const N: usize = 47> {
    len: u8,
    bytes: [u8; N],
}

/// The name of what is being done: a route template, an RPC method, a tool. It must come from a
/// small set, because it becomes a metric label; never a raw path or an id.
pub type Operation = Label<47>;

impl<const N: usize> Label<N> {
    /// The empty label.
    pub const EMPTY: Self = Self { len: 0, bytes: [0; N] };

    const TAIL: usize = 9;

    /// `text`, shortened if it does not fit.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self::from_parts(&[text])
    }

    /// A label known when the program is built, in a `const` or `static`.
    ///
    /// # Panics
    /// If `text` does not fit, which in a `const` is an error of the compiler.
    #[must_use]
    pub const fn literal(text: &str) -> Self {
        assert!(text.len() <= N, "the label is too long");
        let mut label = Self::EMPTY;
        let mut at = 0;
        while at < text.len() {
            label.bytes[at] = text.as_bytes()[at];
            at += 1;
        }
        label.len = text.len() as u8;
        label
    }

    /// The concatenation of `parts`, without building it on the heap.
    #[must_use]
    pub fn from_parts(parts: &[&str]) -> Self {
        const { assert!(N >= 16 && N <= 255, "a label holds 16 to 255 bytes") };
        let mut label = Self::EMPTY;
        let mut at = 0;
        for part in parts {
            let Some(place) = label.bytes.get_mut(at..at + part.len()) else {
                return Self::shortened(parts);
            };
            place.copy_from_slice(part.as_bytes());
            at += part.len();
        }
        label.len = at as u8;
        label
    }

    /// The beginning of `parts`, which do not fit, and the hash of all.
    #[cold]
    fn shortened(parts: &[&str]) -> Self {
        let mut label = Self::EMPTY;
        let mut at = 0;
        for part in parts {
            let mut end = part.len().min(N - Self::TAIL - at);
            while !part.is_char_boundary(end) {
                end -= 1;
            }
            label.bytes[at..at + end].copy_from_slice(&part.as_bytes()[..end]);
            at += end;
            if end < part.len() {
                break;
            }
        }
        // FNV-1a over everything: stable between runs, and it need not resist an attacker.
        let hash = parts
            .iter()
            .flat_map(|part| part.bytes())
            .fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
        label.bytes[at] = b'~';
        for nibble in 0..8 {
            label.bytes[at + 1 + nibble] =
                b"0123456789abcdef"[(hash >> (28 - 4 * nibble) & 0xf) as usize];
        }
        label.len = (at + Self::TAIL) as u8;
        label
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.text()).unwrap_or_default()
    }

    #[inline]
    fn text(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Is there no text?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<const N: usize> Default for Label<N> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<const N: usize> From<&str> for Label<N> {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

/// By bytes: keys are compared and hashed for every call, and need no check of their encoding.
impl<const N: usize> PartialEq for Label<N> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl<const N: usize> PartialEq<str> for Label<N> {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl<const N: usize> PartialEq<&str> for Label<N> {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl<const N: usize> Eq for Label<N> {}

impl<const N: usize> Hash for Label<N> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text().hash(state);
    }
}

impl<const N: usize> fmt::Debug for Label<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl<const N: usize> fmt::Display for Label<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(feature = "serde")]
impl<const N: usize> serde::Serialize for Label<N> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(feature = "serde")]
impl<'de, const N: usize> serde::Deserialize<'de> for Label<N> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| Self::new(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_with_one_beginning_stay_apart() {
        let a = Operation::new(&("x".repeat(60) + "a"));
        let b = Operation::new(&("x".repeat(60) + "b"));
        assert_ne!(a, b);
        assert_eq!(a.as_str().len(), 47);
        assert_eq!(Operation::new(&"y".repeat(47)).as_str(), "y".repeat(47));
    }

    /// A metric's name today is its name tomorrow: FNV-1a of the whole text, in hexadecimal digits.
    #[test]
    fn a_shortened_label_is_the_same_in_every_run() {
        let label = Label::<20>::new("GET /orders/with/a/long/path");
        assert_eq!(label.as_str(), "GET /orders~8eda414f");
    }

    #[test]
    fn a_label_is_its_text() {
        let label = Label::<20>::new("orders");
        assert!(label == *"orders" && label == "orders");
        assert!(label != *"order" && label != "order");
        #[cfg(feature = "serde")]
        {
            let json = serde_json::to_string(&label).unwrap();
            assert_eq!(json, r#""orders""#);
            assert_eq!(serde_json::from_str::<Label<20>>(&json).unwrap(), label);
        }
    }

    #[test]
    fn cuts_between_characters() {
        for n in 0..60 {
            let text = "a".repeat(n) + &"é".repeat(30);
            let label = Operation::from_parts(&[&text[..n], &text[n..]]);
            assert_eq!(label, Operation::new(&text));
            assert!(label.as_str().len() <= 47 && !label.is_empty());
        }
    }
}
