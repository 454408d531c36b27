//! Durations as people write them in configuration files: `250ms`, `1.5s`, `5m`.
//!
//! Fields of plain-data policies use it under the feature `serde`:
//! `#[serde(with = "tower_triage_core::duration_text")]`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Units, the largest first.
const UNITS: [(&str, u128); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Writes the duration as a whole number of the largest unit that is exact.
///
/// # Errors
/// The serializer's.
pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&text(*duration))
}

/// Reads a number and its unit, one of `ns`, `us`, `ms`, `s`, `m`, `h`, `d`.
///
/// # Errors
/// If the text is not one, or longer than a [`Duration`] can be.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
    parse(&text).ok_or_else(|| {
        de::Error::invalid_value(
            de::Unexpected::Str(&text),
            &"a duration such as `250ms`, `1.5s` or `5m`",
        )
    })
}

/// A duration that reads and writes itself so, where `with` does not reach: inside an `Option` or
/// a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DurationText(#[serde(with = "self")] pub Duration);

fn text(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    let exact = UNITS.iter().find(|(_, unit)| nanos % unit == 0);
    // A nanosecond divides everything.
    let (name, unit) = exact.copied().unwrap_or(("ns", 1));
    format!("{}{name}", nanos / unit)
}

fn parse(text: &str) -> Option<Duration> {
    let text = text.trim();
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(unit_at);
    let unit = UNITS.iter().find(|(name, _)| *name == unit.trim_start())?.1;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    // More decimals than a day has nanoseconds say nothing.
    if fraction.len() > 14 {
        return None;
    }
    let part = fraction.parse::<u128>().ok()? * unit / 10_u128.pow(fraction.len() as u32);
    let nanos = whole.parse::<u128>().ok()?.checked_mul(unit)?.checked_add(part)?;
    let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
    Some(Duration::new(seconds, (nanos % 1_000_000_000) as u32))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, nanos) in [
            ("250ms", 250_000_000),
            ("1.5s", 1_500_000_000),
            ("0.25ms", 250_000),
            ("5m", 300_000_000_000),
            (" 2 h ", 7_200_000_000_000),
            ("0s", 0),
            ("7ns", 7),
            ("10us", 10_000),
            ("0.00000000000001d", 0),
            ("1.00000000000001d", 86_400_000_000_000),
        ] {
            assert_eq!(parse(text), Some(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest() {
        for text in [
            "1.000000000000001d",
            "",
            "5",
            "s",
            "-1s",
            "1,5s",
            "1..5s",
            ".s",
            "1e3s",
            "5 parsecs",
            "99999999999999999999d",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn writes_the_largest_exact_unit() {
        for (millis, written) in [(0, "0s"), (1500, "1500ms"), (90_000, "90s"), (300_000, "5m")] {
            assert_eq!(text(Duration::from_millis(millis)), written);
        }
    }

    proptest! {
        #[test]
        fn reads_what_it_wrote(duration: Duration) {
            prop_assert_eq!(parse(&text(duration)), Some(duration));
        }

        #[test]
        fn no_text_panics(text in ".{0,20}") {
            let _ = parse(&text);
        }
    }

    #[test]
    fn goes_inside_a_list() {
        let list =
            vec![DurationText(Duration::from_secs(1)), DurationText(Duration::from_millis(5))];
        let json = serde_json::to_string(&list).expect("writes");
        assert_eq!(json, r#"["1s","5ms"]"#);
        assert_eq!(serde_json::from_str::<Vec<DurationText>>(&json).expect("reads"), list);
    }
}
