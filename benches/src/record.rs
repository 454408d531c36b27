//! The recorded figures that the gate compares with, and where they differ.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Instructions may differ by this share.
pub const TOLERANCE: f64 = 0.02;

/// Everything that is recorded, by name.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Allocations of a call.
    pub allocations: BTreeMap<String, f64>,
    /// Instructions of a call.
    pub instructions: BTreeMap<String, f64>,
    /// Instructions of calls of peers: they do not change with our code, so where they differ the
    /// machine counts otherwise (another memcpy, another clock).
    pub controls: BTreeMap<String, f64>,
    /// Bytes of a future.
    pub sizes: BTreeMap<String, f64>,
}

/// A figure that is not as recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    what: &'static str,
    name: String,
    recorded: Option<f64>,
    now: Option<f64>,
}

/// `gate.json` of this package.
fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("gate.json")
}

impl Record {
    /// Reads the checked-in file.
    ///
    /// # Errors
    /// It is not there, or not a record.
    pub fn read() -> io::Result<Self> {
        let text = std::fs::read_to_string(file())?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Writes the checked-in file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self) -> io::Result<()> {
        std::fs::write(file(), serde_json::to_string_pretty(self)? + "\n")
    }

    /// What `now` has otherwise: allocations at all, instructions beyond the tolerance (up or down:
    /// a record that is not kept true guards nothing), sizes that grew. Instructions are left alone
    /// where `now` could count none.
    #[must_use]
    pub fn differences(&self, now: &Self) -> Vec<Difference> {
        let equal = |recorded: f64, now: f64| recorded == now;
        let no_larger = |recorded: f64, now: f64| now <= recorded;
        let mut found = compare("allocations", &self.allocations, &now.allocations, equal);
        if !now.instructions.is_empty() && self.counts_as(now) {
            found.extend(compare("instructions", &self.instructions, &now.instructions, near));
        }
        found.extend(compare("bytes of future", &self.sizes, &now.sizes, no_larger));
        found
    }
}

impl Record {
    /// Was `now` counted on a machine that counts as the recorded one did?
    #[must_use]
    pub fn counts_as(&self, now: &Self) -> bool {
        compare("instructions", &self.controls, &now.controls, near).is_empty()
    }
}

fn near(recorded: f64, now: f64) -> bool {
    (now - recorded).abs() <= recorded * TOLERANCE
}

fn compare(
    what: &'static str,
    recorded: &BTreeMap<String, f64>,
    now: &BTreeMap<String, f64>,
    good: impl Fn(f64, f64) -> bool,
) -> Vec<Difference> {
    let mut names: Vec<&String> = recorded.keys().chain(now.keys()).collect();
    names.sort_unstable();
    names.dedup();
    names
        .into_iter()
        .map(|name| Difference {
            what,
            name: name.clone(),
            recorded: recorded.get(name).copied(),
            now: now.get(name).copied(),
        })
        .filter(|difference| match (difference.recorded, difference.now) {
            (Some(recorded), Some(now)) => !good(recorded, now),
            _ => true,
        })
        .collect()
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, name, .. } = self;
        match (self.recorded, self.now) {
            (Some(recorded), Some(now)) if recorded > 0.0 => {
                let change = (now / recorded - 1.0) * 100.0;
                write!(f, "{name}: {what} {recorded} -> {now} ({change:+.1} %)")
            }
            (Some(recorded), Some(now)) => write!(f, "{name}: {what} {recorded} -> {now}"),
            (Some(recorded), None) => write!(f, "{name}: {what} {recorded} -> not measured"),
            (None, now) => {
                write!(f, "{name}: {what} not recorded -> {}", now.unwrap_or_default())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(allocations: f64, instructions: f64, size: f64) -> Record {
        let one = |figure| BTreeMap::from([("a".to_owned(), figure)]);
        let controls = one(50.0);
        let (allocations, instructions) = (one(allocations), one(instructions));
        Record { allocations, instructions, controls, sizes: one(size) }
    }

    #[test]
    fn what_violates_the_record_is_found_and_nothing_else() {
        let recorded = record(3.0, 100.0, 104.0);
        let cases = [
            (record(3.0, 102.0, 104.0), 0),
            (record(3.0, 98.0, 96.0), 0),
            (record(2.0, 100.0, 104.0), 1),
            (record(3.1, 100.0, 104.0), 1),
            (record(3.0, 102.1, 104.0), 1),
            (record(3.0, 97.0, 104.0), 1),
            (record(3.0, 100.0, 112.0), 1),
            (record(4.0, 110.0, 112.0), 3),
        ];
        for (now, violations) in cases {
            assert_eq!(recorded.differences(&now).len(), violations, "{now:?}");
        }
    }

    #[test]
    fn what_was_not_measured_or_not_recorded_is_a_difference() {
        let recorded = record(0.0, 100.0, 104.0);
        let gone = Record { allocations: BTreeMap::new(), ..recorded.clone() };
        let lines: Vec<String> =
            recorded.differences(&gone).iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["a: allocations 0 -> not measured"]);
        let lines: Vec<String> =
            gone.differences(&recorded).iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["a: allocations not recorded -> 0"]);
    }

    #[test]
    fn without_valgrind_only_instructions_are_left_alone() {
        let recorded = record(0.0, 100.0, 104.0);
        let uncounted = Record { instructions: BTreeMap::new(), ..record(0.0, 0.0, 112.0) };
        let lines: Vec<String> =
            recorded.differences(&uncounted).iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["a: bytes of future 104 -> 112 (+7.7 %)"]);
    }

    #[test]
    fn on_a_machine_that_counts_otherwise_instructions_are_left_alone() {
        let recorded = record(0.0, 100.0, 104.0);
        let mut elsewhere = record(0.0, 150.0, 104.0);
        assert_eq!(recorded.differences(&elsewhere).len(), 1);
        elsewhere.controls.insert("a".to_owned(), 60.0);
        assert!(recorded.differences(&elsewhere).is_empty() && !recorded.counts_as(&elsewhere));
    }
}
