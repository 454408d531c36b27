//! Dates in header fields: the three forms of HTTP, and RFC 3339.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::number::{all_digits, from_nanos, trim};

const NANOS: i128 = 1_000_000_000;

/// A moment: nanoseconds since the Unix epoch. Dates may lie before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(i128);

impl Moment {
    pub(crate) fn from_unix(since_epoch: Duration) -> Self {
        Self(since_epoch.as_nanos() as i128)
    }

    /// How far it lies ahead of `now`; zero if it has passed.
    pub(crate) fn ahead_of(self, now: SystemTime) -> Duration {
        // A date has at most four digits of year, so the difference always fits.
        let ahead = (self.0 - Self::from(now).0).max(0).unsigned_abs();
        from_nanos(ahead).unwrap_or(Duration::MAX)
    }
}

impl From<SystemTime> for Moment {
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self::from_unix(after),
            Err(before) => Self(-(before.duration().as_nanos() as i128)),
        }
    }
}

/// Reads an HTTP date (RFC 9110, section 5.6.7): IMF-fixdate, RFC 850 or asctime; case-sensitive,
/// in GMT. A wrong weekday or an impossible day makes it invalid. A two-digit year that would lie
/// more than fifty years ahead of `now` is one of the past.
pub(crate) fn http_date(text: &str, now: SystemTime) -> Option<Moment> {
    let text = trim(text);
    imf_fixdate(text).or_else(|| asctime(text)).or_else(|| rfc850(text, now))
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`
fn imf_fixdate(text: &str) -> Option<Moment> {
    let (weekday, rest) = text.split_once(", ")?;
    let rest = rest.strip_suffix(" GMT")?;
    let [day, month, year, time] = split(rest, ' ')?;
    Civil { year: number(year, 4)?, month: month_of(month)?, day: number(day, 2)? }
        .on(position(&WEEKDAYS, weekday)?, time_of_day(time)?)
}

/// `Sun Nov  6 08:49:37 1994`
fn asctime(text: &str) -> Option<Moment> {
    let (weekday, rest) = text.split_once(' ')?;
    let (month, rest) = rest.split_once(' ')?;
    let (day, rest) = (rest.get(..2)?, rest.get(2..)?);
    let day = match day.strip_prefix(' ') {
        Some(padded) => number(padded, 1)?,
        None => number(day, 2)?,
    };
    let [time, year] = split(rest.strip_prefix(' ')?, ' ')?;
    Civil { year: number(year, 4)?, month: month_of(month)?, day }
        .on(position(&WEEKDAYS, weekday)?, time_of_day(time)?)
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`
fn rfc850(text: &str, now: SystemTime) -> Option<Moment> {
    let (weekday, rest) = text.split_once(", ")?;
    let rest = rest.strip_suffix(" GMT")?;
    let [date, time] = split(rest, ' ')?;
    let [day, month, year] = split(date, '-')?;
    let (weekday, seconds) = (position(&LONG_WEEKDAYS, weekday)?, time_of_day(time)?);
    let (day, month, year) = (number(day, 2)?, month_of(month)?, number(year, 2)?);

    let now = Moment::from(now).0;
    let today = Civil::from_days(now.div_euclid(NANOS * 86_400) as i64);
    let limit = (today.year + 50, today.month, today.day, now.rem_euclid(NANOS * 86_400));
    let within_fifty_years = |year| (year, month, day, i128::from(seconds) * NANOS) <= limit;
    let century = today.year.div_euclid(100) * 100;
    let year = [century + 100, century, century - 100]
        .into_iter()
        .map(|century| century + year)
        .find(|year| within_fifty_years(*year))?;
    Civil { year, month, day }.on(weekday, seconds)
}

/// Reads a timestamp of RFC 3339: `2026-03-02T12:00:00.25+01:00`.
pub(crate) fn rfc3339(text: &str) -> Option<Moment> {
    let text = trim(text);
    let (date, rest) = (text.get(..10)?, text.get(10..)?);
    let rest = rest.strip_prefix(['T', 't'])?;
    let (time, rest) = (rest.get(..8)?, rest.get(8..)?);
    let [year, month, day] = split(date, '-')?;
    let date = Civil { year: number(year, 4)?, month: number(month, 2)?, day: number(day, 2)? };

    let (fraction, zone) = match rest.strip_prefix('.') {
        Some(rest) => rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?),
        None => ("0", rest),
    };
    if !all_digits(fraction) {
        return None;
    }
    let nanos: i128 = format!("{fraction:0<9.9}").parse().ok()?;
    let seconds = date.days()? * 86_400 + time_of_day(time)? - zone_offset(zone)?;
    Some(Moment(i128::from(seconds) * NANOS + nanos))
}

/// Seconds east of Greenwich.
fn zone_offset(zone: &str) -> Option<i64> {
    if matches!(zone, "Z" | "z") {
        return Some(0);
    }
    let (sign, rest) = match zone.strip_prefix('+') {
        Some(rest) => (1, rest),
        None => (-1, zone.strip_prefix('-')?),
    };
    let [hours, minutes] = split(rest, ':')?;
    let (hours, minutes) = (number(hours, 2)?, number(minutes, 2)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3_600 + minutes * 60))
}

const WEEKDAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const LONG_WEEKDAYS: [&str; 7] =
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

fn position(names: &[&str], name: &str) -> Option<i64> {
    names.iter().position(|known| *known == name).map(|at| at as i64)
}

fn month_of(name: &str) -> Option<i64> {
    position(&MONTHS, name).map(|at| at + 1)
}

/// Exactly `digits` digits.
fn number(text: &str, digits: usize) -> Option<i64> {
    (text.len() == digits && all_digits(text)).then(|| text.parse().ok()).flatten()
}

/// Exactly `N` parts.
fn split<const N: usize>(text: &str, separator: char) -> Option<[&str; N]> {
    let mut parts = text.split(separator);
    let mut found = [""; N];
    for part in &mut found {
        *part = parts.next()?;
    }
    parts.next().is_none().then_some(found)
}

/// Seconds since midnight of `08:49:37`; a leap second counts as the next one.
fn time_of_day(text: &str) -> Option<i64> {
    let [hour, minute, second] = split(text, ':')?;
    let (hour, minute, second) = (number(hour, 2)?, number(minute, 2)?, number(second, 2)?);
    (hour < 24 && minute < 60 && second <= 60).then_some(hour * 3_600 + minute * 60 + second)
}

/// A day of the Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Civil {
    year: i64,
    month: i64,
    day: i64,
}

impl Civil {
    fn is_leap(year: i64) -> bool {
        year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
    }

    fn days_in_month(year: i64, month: i64) -> i64 {
        match month {
            2 if Self::is_leap(year) => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }

    /// Days between 1970-01-01 and the first of January of `year`.
    fn days_before_year(year: i64) -> i64 {
        let leap_days =
            |year: i64| year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
        (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969)
    }

    /// Days since 1970-01-01; `None` if there is no such day.
    fn days(self) -> Option<i64> {
        let Self { year, month, day } = self;
        let exists =
            (1..=12).contains(&month) && (1..=Self::days_in_month(year, month)).contains(&day);
        exists.then(|| {
            let before_month: i64 = (1..month).map(|m| Self::days_in_month(year, m)).sum();
            Self::days_before_year(year) + before_month + day - 1
        })
    }

    fn from_days(days: i64) -> Self {
        // At most one year too early or too late.
        let mut year = 1970 + (days * 400).div_euclid(146_097);
        while Self::days_before_year(year) > days {
            year -= 1;
        }
        while Self::days_before_year(year + 1) <= days {
            year += 1;
        }
        let mut left = days - Self::days_before_year(year);
        let mut month = 1;
        while left >= Self::days_in_month(year, month) {
            left -= Self::days_in_month(year, month);
            month += 1;
        }
        Self { year, month, day: left + 1 }
    }

    /// The moment `seconds` after midnight, if the day is a `weekday` (0 = Sunday).
    fn on(self, weekday: i64, seconds: i64) -> Option<Moment> {
        // 1970-01-01 was a Thursday.
        let days = self.days()?;
        ((days + 4).rem_euclid(7) == weekday)
            .then(|| Moment(i128::from(days * 86_400 + seconds) * NANOS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(unix: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(unix)
    }

    fn unix(moment: Option<Moment>) -> Option<i128> {
        moment.map(|moment| moment.0 / NANOS)
    }

    /// 2026-03-02T12:00:00Z
    const NOW: u64 = 1_772_452_800;

    #[test]
    fn the_three_forms_say_the_same() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            "\t Sun, 06 Nov 1994 08:49:37 GMT ",
        ] {
            assert_eq!(unix(http_date(text, at(NOW))), Some(784_111_777), "{text}");
        }
        assert_eq!(unix(rfc3339("1994-11-06T08:49:37Z")), Some(784_111_777));
        assert_eq!(unix(rfc3339("1994-11-06t10:19:37.5+01:30")), Some(784_111_777));
        assert_eq!(unix(http_date("Thu Mar 12 12:00:09 2026", at(NOW))), Some(1_773_316_809));
        assert_eq!(unix(http_date("Sat, 31 Dec 2016 23:59:60 GMT", at(NOW))), Some(1_483_228_800));
    }

    #[test]
    fn what_no_form_allows_is_invalid() {
        for bad in [
            "",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Zun, 06 Nov 1994 08:49:37 GMT",
            "sun, 06 nov 1994 08:49:37 gmt",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Wed, 30 Feb 1994 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun,  6 Nov 1994 08:49:37 GMT",
            "Sun, 06-Nov-94 08:49:37 GMT",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "Sun Nov 6 08:49:37 1994",
            "Sun Nov  6 08:49:37 1994 GMT",
            "Sun Nov é 08:49:37 1994",
            "1994-11-06T08:49:37Z",
        ] {
            assert_eq!(http_date(bad, at(NOW)), None, "{bad}");
        }
        for bad in [
            "",
            "2026-03-02",
            "2026-03-02T12:00:00",
            "2026-03-02 12:00:00Z",
            "2026-02-29T12:00:00Z",
            "2026-03-02T12:00:00.Z",
            "2026-03-02T12:00:00+1:00",
            "2026-03-02T12:00:00+24:00",
        ] {
            assert_eq!(rfc3339(bad), None, "{bad}");
        }
    }

    #[test]
    fn two_digit_years_lie_at_most_fifty_years_ahead() {
        // 2076-03-02 is a Monday, and exactly fifty years ahead; a second later it is 1976.
        assert!(http_date("Monday, 02-Mar-76 12:00:00 GMT", at(NOW)).unwrap() > at(NOW).into());
        assert_eq!(http_date("Monday, 02-Mar-76 12:00:01 GMT", at(NOW)), None);
        assert!(http_date("Tuesday, 02-Mar-76 12:00:01 GMT", at(NOW)).unwrap() < at(NOW).into());
        // In 2099 the year 05 is 2105, a Tuesday on 6 January.
        let turn = at(4_070_908_800);
        assert!(http_date("Tuesday, 06-Jan-05 00:00:00 GMT", turn).unwrap() > turn.into());
    }

    #[test]
    fn milliseconds_are_kept_and_the_past_is_zero() {
        let now = at(NOW) - Duration::from_millis(250);
        let ahead = |text| http_date(text, now).map(|date| date.ahead_of(now));
        assert_eq!(ahead("Mon, 02 Mar 2026 12:00:05 GMT"), Some(Duration::from_millis(5250)));
        assert_eq!(ahead("Mon, 02 Mar 2026 11:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(ahead("Mon, 01 Jan 1900 00:00:00 GMT"), Some(Duration::ZERO));
    }

    proptest! {
        #[test]
        fn every_day_has_one_number(days in -1_000_000i64..4_000_000) {
            prop_assert_eq!(Civil::from_days(days).days(), Some(days));
        }

        #[test]
        fn what_httpdate_writes_is_read(unix_time in 0u64..253_402_300_800) {
            let text = httpdate::fmt_http_date(at(unix_time));
            prop_assert_eq!(unix(http_date(&text, at(NOW))), Some(i128::from(unix_time)));
        }

        #[test]
        fn any_text_is_read_or_refused(
            text in "[A-Za-z]{0,9},? ?[0-9 ]{0,2}[ -][A-Z]?[a-z]{0,2}[ -][0-9:é .TZ+-]{0,24}(GMT)?",
            seconds: u64,
        ) {
            let now = UNIX_EPOCH.checked_add(Duration::from_secs(seconds >> 1)).unwrap_or(UNIX_EPOCH);
            if let Some(date) = http_date(&text, now) {
                let _ = date.ahead_of(now);
            }
            let _ = rfc3339(&text);
        }
    }
}
