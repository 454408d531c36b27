//! `grpc-timeout`: how much time the caller gives (grpc/doc, PROTOCOL-HTTP2).

use std::time::Duration;

use http::{HeaderMap, HeaderValue};

/// The header.
pub(crate) const TIMEOUT: &str = "grpc-timeout";

/// The most digits that the value may have.
const DIGITS: usize = 8;

/// The time that a `grpc-timeout` gives: up to eight digits and a unit. `None` for anything else.
#[must_use]
pub fn timeout_of(headers: &HeaderMap) -> Option<Duration> {
    let (unit, digits) = headers.get(TIMEOUT)?.as_bytes().split_last()?;
    if digits.is_empty() || digits.len() > DIGITS {
        return None;
    }
    let mut amount = 0u64;
    for digit in digits {
        amount = amount * 10 + u64::from(digit.is_ascii_digit().then(|| digit - b'0')?);
    }
    match unit {
        b'H' => Some(Duration::from_secs(amount * 60 * 60)),
        b'M' => Some(Duration::from_secs(amount * 60)),
        b'S' => Some(Duration::from_secs(amount)),
        b'm' => Some(Duration::from_millis(amount)),
        b'u' => Some(Duration::from_micros(amount)),
        b'n' => Some(Duration::from_nanos(amount)),
        _ => None,
    }
}

/// Tells the peer, and tonic's channel, how much time there is: in the finest unit that has room for
/// it, never more than `left`, and never nothing.
///
/// A time limit below the retry layer tells it to each attempt with
/// `.tell(|request, limit| set_timeout(request.headers_mut(), limit.time_until_dropped()))`.
///
/// ```
/// use std::time::Duration;
/// use tower_triage_grpc::{set_timeout, timeout_of};
///
/// let mut headers = http::HeaderMap::new();
/// set_timeout(&mut headers, Duration::from_millis(1500));
/// assert_eq!(headers["grpc-timeout"], "1500000u");
/// assert_eq!(timeout_of(&headers), Some(Duration::from_millis(1500)));
/// ```
pub fn set_timeout(headers: &mut HeaderMap, left: Duration) {
    // A text of digits and a letter is always a header.
    if let Ok(value) = HeaderValue::try_from(text(left)) {
        headers.insert(TIMEOUT, value);
    }
}

fn text(left: Duration) -> String {
    const MOST: u128 = 10_u128.pow(DIGITS as u32) - 1;
    let nanos = left.as_nanos().max(1);
    let units: [(u128, char); 6] = [
        (1, 'n'),
        (1_000, 'u'),
        (1_000_000, 'm'),
        (1_000_000_000, 'S'),
        (60 * 1_000_000_000, 'M'),
        (60 * 60 * 1_000_000_000, 'H'),
    ];
    let in_unit = units.into_iter().map(|(size, unit)| (nanos / size, unit));
    let (amount, unit) =
        in_unit.into_iter().find(|(amount, _)| *amount <= MOST).unwrap_or((MOST, 'H'));
    format!("{amount}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &[u8]) -> Option<Duration> {
        let value = HeaderValue::from_bytes(text).unwrap();
        timeout_of(&HeaderMap::from_iter([(TIMEOUT.parse().unwrap(), value)]))
    }

    #[test]
    fn digits_and_a_unit() {
        assert_eq!(read(b"1H"), Some(Duration::from_secs(3600)));
        assert_eq!(read(b"2M"), Some(Duration::from_secs(120)));
        assert_eq!(read(b"10S"), Some(Duration::from_secs(10)));
        assert_eq!(read(b"99999999m"), Some(Duration::from_millis(99_999_999)));
        assert_eq!(read(b"7u"), Some(Duration::from_micros(7)));
        assert_eq!(read(b"0n"), Some(Duration::ZERO));
        for bad in ["", "S", "10", "10s", "-1S", "+1S", "1.5S", "100000000n", "1 S", "x1S"] {
            assert_eq!(read(bad.as_bytes()), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_time_or_none(text in proptest::collection::vec(prop_oneof![0x20u8..0x7f, 0x80u8..=0xff], 0..16)) {
            let _ = read(&text);
        }

        #[test]
        fn no_time_is_added_and_little_lost(secs in 0..1u64 << 48, nanos in 0u32..1_000_000_000) {
            let left = Duration::new(secs, nanos);
            let read = read(text(left).as_bytes()).unwrap();
            prop_assert!(read <= left.max(Duration::from_nanos(1)));
            // Eight digits: at most a part in a hundred thousand is cut off.
            if secs < 99_999_999 * 3600 {
                prop_assert!(left - read.min(left) <= left / 100_000);
            }
        }
    }
}
