//! Decimal numbers in header fields.

use std::time::Duration;

use tower_triage_core::RetryAfter;

const NANOS_PER_SECOND: u32 = 1_000_000_000;

/// A non-negative decimal, exact to nine digits behind the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    /// `None`: more than 64 bits.
    whole: Option<u64>,
    billionths: u32,
}

impl Decimal {
    /// Reads digits with an optional fraction, spaces and tabs around them trimmed. Signs,
    /// exponents, words and a lone point are no numbers; leading zeros are fine.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = trim(text);
        let (whole, fraction) = match text.split_once('.') {
            Some((whole, fraction)) if all_digits(fraction) => (whole, fraction),
            Some(_) => return None,
            None => (text, ""),
        };
        if !all_digits(whole) {
            return None;
        }
        // Digits alone fail to parse only if they do not fit.
        let whole = whole.parse().ok();
        let mut billionths = 0;
        for position in 0..9 {
            let digit = fraction.as_bytes().get(position).map_or(0, |digit| digit - b'0');
            billionths = billionths * 10 + u32::from(digit);
        }
        Some(Self { whole, billionths })
    }

    pub(crate) fn is_zero(self) -> bool {
        self.whole == Some(0) && self.billionths == 0
    }

    /// As seconds; `None` if it does not fit.
    pub(crate) fn seconds(self) -> Option<Duration> {
        self.whole.map(|whole| Duration::new(whole, self.billionths))
    }

    /// As milliseconds; `None` if it does not fit.
    pub(crate) fn millis(self) -> Option<Duration> {
        let behind_point = Duration::from_nanos(u64::from(self.billionths / 1_000));
        self.whole.map(|whole| Duration::from_millis(whole) + behind_point)
    }

    /// In units of `nanos` nanoseconds each; `None` if it does not fit.
    pub(crate) fn of_unit(self, nanos: u64) -> Option<Duration> {
        let behind_point =
            u128::from(self.billionths) * u128::from(nanos) / u128::from(NANOS_PER_SECOND);
        let total = u128::from(self.whole?) * u128::from(nanos) + behind_point;
        from_nanos(total)
    }
}

/// `None` if it does not fit.
pub(crate) fn from_nanos(nanos: u128) -> Option<Duration> {
    let per_second = u128::from(NANOS_PER_SECOND);
    let seconds = u64::try_from(nanos / per_second).ok()?;
    Some(Duration::new(seconds, (nanos % per_second) as u32))
}

/// A lower bound; a number too large to represent is longer than any cap.
pub(crate) fn at_least(delay: Option<Duration>) -> RetryAfter {
    delay.map_or(RetryAfter::Never, RetryAfter::AtLeast)
}

/// Optional white space (RFC 9110, section 5.6.3) around a value removed.
pub(crate) fn trim(text: &str) -> &str {
    text.trim_matches([' ', '\t'])
}

/// At least one digit, and nothing else.
pub(crate) fn all_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_digits_with_an_optional_fraction_and_nothing_else() {
        let seconds = |text| Decimal::parse(text).and_then(Decimal::seconds);
        assert_eq!(seconds("3"), Some(Duration::from_secs(3)));
        assert_eq!(seconds("\t007 "), Some(Duration::from_secs(7)));
        assert_eq!(seconds("1.5"), Some(Duration::from_millis(1500)));
        assert_eq!(seconds("0.0000000019"), Some(Duration::from_nanos(1)));
        for bad in [
            "", " ", "-5", "+5", "1e3", "inf", "nan", "0x10", "5.", ".5", "1.2.3", "1,5", "5 s",
            "٣",
        ] {
            assert_eq!(Decimal::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn too_large_is_a_number_and_not_a_duration() {
        let huge = Decimal::parse("99999999999999999999999999999999999").unwrap();
        assert_eq!((huge.seconds(), huge.millis(), huge.of_unit(1)), (None, None, None));
        assert_eq!(at_least(huge.seconds()), RetryAfter::Never);
        let max = Decimal::parse("18446744073709551615.999999999").unwrap();
        assert_eq!(max.seconds(), Some(Duration::MAX));
        assert_eq!(max.of_unit(3_600_000_000_000), None);
    }

    #[test]
    fn milliseconds_keep_their_fraction() {
        let millis = |text| Decimal::parse(text).and_then(Decimal::millis);
        assert_eq!(millis("1500"), Some(Duration::from_millis(1500)));
        assert_eq!(millis("0.25"), Some(Duration::from_micros(250)));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".*") {
            if let Some(decimal) = Decimal::parse(&text) {
                prop_assert!(trim(&text).bytes().all(|b| b.is_ascii_digit() || b == b'.'));
                let _ = (decimal.seconds(), decimal.millis(), decimal.of_unit(u64::MAX));
            }
        }

        #[test]
        fn every_number_of_seconds_survives(seconds: u64, millis in 0u32..1000) {
            let read = Decimal::parse(&format!("{seconds}.{millis:03}")).unwrap();
            prop_assert_eq!(read.seconds(), Some(Duration::new(seconds, millis * 1_000_000)));
        }
    }
}
