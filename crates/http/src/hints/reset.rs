//! Vendors' reset fields: when a limit that is used up is filled again.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderName};
use tower_triage_core::RetryAfter;

use super::date::{Moment, rfc3339};
use super::number::{Decimal, at_least, trim};
use super::texts;

/// The longest wait that a used-up limit asks for: whoever repeats earlier meets that limit again.
pub(super) fn longest_reset(headers: &HeaderMap, now: SystemTime) -> Option<RetryAfter> {
    let anthropic = headers.keys().filter_map(|name| anthropic_reset(headers, name, now));
    let openai = [
        ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
        ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ]
    .into_iter()
    .filter(|(remaining, _)| is_used_up(headers, remaining))
    .filter_map(|(_, reset)| texts(headers, reset).find_map(clock_duration));
    let plain = is_used_up(headers, "x-ratelimit-remaining")
        .then(|| texts(headers, "x-ratelimit-reset").find_map(|text| epoch_or_seconds(text, now)))
        .flatten();
    anthropic.chain(openai).chain(plain).max_by_key(|wait| wait.duration())
}

/// Does the field `remaining` say that nothing is left?
pub(crate) fn is_used_up(headers: &HeaderMap, remaining: &str) -> bool {
    texts(headers, remaining).find_map(Decimal::parse).is_some_and(Decimal::is_zero)
}

/// `anthropic-ratelimit-<what>-reset`, an RFC 3339 date.
fn anthropic_reset(headers: &HeaderMap, name: &HeaderName, now: SystemTime) -> Option<RetryAfter> {
    let limit = name.as_str().strip_suffix("-reset")?;
    limit.strip_prefix("anthropic-ratelimit-")?;
    if !is_used_up(headers, &format!("{limit}-remaining")) {
        return None;
    }
    let reset = texts(headers, name.as_str()).find_map(rfc3339)?;
    Some(RetryAfter::AtLeast(reset.ahead_of(now)))
}

/// `6m0s`, `1h2m3.5s`, `20ms`: numbers with units, added up.
fn clock_duration(text: &str) -> Option<RetryAfter> {
    let mut rest = trim(text);
    let mut total = Some(Duration::ZERO);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let unit_at = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, behind) = rest.split_at(unit_at);
        let unit_end = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(unit_end);
        let part = Decimal::parse(number)?.of_unit(nanos_of(unit)?);
        total = total.zip(part).and_then(|(total, part)| total.checked_add(part));
        rest = behind;
    }
    Some(at_least(total))
}

fn nanos_of(unit: &str) -> Option<u64> {
    Some(match unit {
        "h" => 3_600_000_000_000,
        "m" => 60_000_000_000,
        "s" => 1_000_000_000,
        "ms" => 1_000_000,
        "us" => 1_000,
        "ns" => 1,
        _ => return None,
    })
}

/// From 1e9 on seconds since the Unix epoch, below it seconds from now.
fn epoch_or_seconds(text: &str, now: SystemTime) -> Option<RetryAfter> {
    const FIRST_EPOCH: Duration = Duration::from_secs(1_000_000_000);
    let Some(seconds) = Decimal::parse(text)?.seconds() else { return Some(RetryAfter::Never) };
    let wait =
        if seconds >= FIRST_EPOCH { Moment::from_unix(seconds).ahead_of(now) } else { seconds };
    Some(RetryAfter::AtLeast(wait))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_durations_with_units() {
        let millis = |text| clock_duration(text).map(|wait| wait.duration().as_millis());
        assert_eq!(millis("6m0s"), Some(360_000));
        assert_eq!(millis("1h2m3.5s"), Some(3_723_500));
        assert_eq!(millis(" 20ms"), Some(20));
        for bad in ["", "6", "s", "6m0", "-6s", "6 m", "1d", "1e3s", "1.s", "µs"] {
            assert_eq!(clock_duration(bad), None, "{bad}");
        }
        assert_eq!(clock_duration(&format!("{}h1s", u64::MAX)), Some(RetryAfter::Never));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[0-9a-zµ. \\-]*") {
            let _ = clock_duration(&text);
            let _ = epoch_or_seconds(&text, SystemTime::UNIX_EPOCH);
        }
    }
}
