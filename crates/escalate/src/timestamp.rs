//! A moment as RFC 3339 writes it.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tower_triage_core::ConfigError;

const DAY: u64 = 86_400;

/// A moment of the calendar, to the millisecond, in UTC: `2026-03-01T12:00:00.250Z` (RFC 3339).
/// Moments before 1970 become 1970.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The moment `millis` milliseconds after 1970 began, at most the last of the year 9999: RFC 3339
    /// has four digits.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        const LAST: u64 = 253_402_300_799_999;
        Self(if millis < LAST { millis } else { LAST })
    }

    /// Milliseconds since 1970 began.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The moment as the standard library has it.
    #[must_use]
    pub fn to_system_time(self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.0)
    }

    /// The moment `span` earlier.
    #[must_use]
    pub fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(millis(span)))
    }

    /// The moment `span` later.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self::from_millis(self.0.saturating_add(millis(span)))
    }

    /// From `earlier` to this moment; nothing if it is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        Self::from_millis(millis(time.duration_since(UNIX_EPOCH).unwrap_or_default()))
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Year, month and day of a day counted from 1970-01-01. The year is taken to begin in March, so
/// that the leap day is its last.
fn civil(day: u64) -> (u64, u64, u64) {
    let day = day + 719_468; // days from 0000-03-01
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, of_year - (153 * from_march + 2) / 5 + 1)
}

/// The inverse of [`civil`], for years from 1970 on.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let (year, from_march) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year_of_era) = (year / 400, year % 400);
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year - 719_468
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.0 / 1_000, self.0 % 1_000);
        let (year, month, day) = civil(seconds / DAY);
        let (hour, minute, second) = (seconds % DAY / 3_600, seconds % 3_600 / 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Reads what [`fmt::Display`] writes, with or without the fraction; other offsets than `Z` are
/// refused, since nothing here writes them.
impl FromStr for Timestamp {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text).ok_or_else(|| ConfigError::new("time", text, "not RFC 3339 in UTC"))
    }
}

fn parse(text: &str) -> Option<Timestamp> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let numbers = |text: &str, by: char, widths: [usize; 3]| -> Option<[u64; 3]> {
        let mut parts = text.split(by);
        let mut read = |width: usize| {
            let part = parts.next()?;
            let digits = part.len() == width && part.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| part.parse().ok()).flatten()
        };
        let found = [read(widths[0])?, read(widths[1])?, read(widths[2])?];
        parts.next().is_none().then_some(found)
    };
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
    let digits = !fraction.is_empty() && fraction.bytes().all(|b| b.is_ascii_digit());
    if year < 1970 || !(1..=12).contains(&month) || !digits {
        return None;
    }
    let day_number = days(year, month, day.max(1));
    // The 30th of February comes back as another day.
    if civil(day_number) != (year, month, day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let millis: u64 = format!("{fraction:0<3}")[..3].parse().ok()?;
    Some(Timestamp((day_number * DAY + hour * 3_600 + minute * 60 + second) * 1_000 + millis))
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_moments() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(Timestamp(millis).to_string(), text);
            assert_eq!(text.parse::<Timestamp>().unwrap(), Timestamp(millis));
        }
        for bad in [
            "",
            "2023-02-29T00:00:00Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01 00:00:00Z",
            "2024-01-00T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-01-01T00:00:00+02:00",
            "+024-01-01T00:00:00Z",
            "2024-01-01T00:00:00.Z",
            "1969-12-31T00:00:00Z",
        ] {
            assert!(bad.parse::<Timestamp>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn every_moment_is_read_back(millis in 0_u64..=253_402_300_799_999) {
            let moment = Timestamp(millis);
            prop_assert_eq!(moment.to_string().parse::<Timestamp>().unwrap(), moment);
        }
    }
}
