//! `grpc-retry-pushback-ms`: the server's own word on the next attempt (gRPC A6).

use std::time::Duration;

use http::HeaderMap;

/// The header.
pub(crate) const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// What a server says with `grpc-retry-pushback-ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushback {
    /// Again, after exactly this time.
    After(Duration),
    /// Not again: a negative number, or something that is no 32-bit number at all.
    Never,
}

impl Pushback {
    /// Reads it from headers or trailers; `None` if the server says nothing. Several values are no
    /// number.
    #[must_use]
    pub fn of_headers(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(PUSHBACK).iter();
        let first = values.next()?;
        let word = match values.next() {
            None => after(first.as_bytes()).map_or(Self::Never, Self::After),
            Some(_) => Self::Never,
        };
        Some(word)
    }
}

/// The time, if it is one: digits, and within 32 bits with a sign.
fn after(text: &[u8]) -> Option<Duration> {
    let text = std::str::from_utf8(text).ok()?.trim_matches([' ', '\t']);
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let millis = u32::try_from(text.parse::<i32>().ok()?).ok()?;
    Some(Duration::from_millis(millis.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn read(values: &[&[u8]]) -> Option<Pushback> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(PUSHBACK, HeaderValue::from_bytes(value).unwrap());
        }
        Pushback::of_headers(&headers)
    }

    #[test]
    fn a_number_of_milliseconds_or_never() {
        let millis = |millis| Some(Pushback::After(Duration::from_millis(millis)));
        assert_eq!(read(&[]), None);
        assert_eq!(read(&[b"0"]), millis(0));
        assert_eq!(read(&[b"1000"]), millis(1000));
        assert_eq!(read(&[b"2147483647"]), millis(i32::MAX as u64));
        for bad in
            ["", "-1", "-0", "+5", "1.5", "1e3", "xxx", "2147483648", "0x10", "1 0", "\u{663}"]
        {
            assert_eq!(read(&[bad.as_bytes()]), Some(Pushback::Never), "{bad}");
        }
        assert_eq!(read(&[b"100", b"10"]), Some(Pushback::Never));
        assert_eq!(read(&[b"100", b"100"]), Some(Pushback::Never));
    }

    proptest! {
        #[test]
        fn any_value_is_a_word(text in proptest::collection::vec(prop_oneof![0x20u8..0x7f, 0x80u8..=0xff], 0..32)) {
            prop_assert!(read(&[&text]).is_some());
        }

        #[test]
        fn every_number_survives(millis in 0..=i32::MAX) {
            let after = Duration::from_millis(millis as u64);
            prop_assert_eq!(read(&[millis.to_string().as_bytes()]), Some(Pushback::After(after)));
        }
    }
}
