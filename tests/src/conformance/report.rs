//! What came of the rows.

use std::fmt;

/// What came of one row.
#[derive(Debug)]
pub enum Outcome {
    /// As expected.
    Passed,
    /// Not as expected: pairs of expected and actual, each with its place in the row.
    Failed(Vec<String>),
    /// Not run, and why.
    Skipped(String),
}

impl Outcome {
    /// One difference.
    pub fn fail(expected: impl fmt::Display, actual: impl fmt::Display) -> Self {
        Self::Failed(vec![format!("expected {expected}, got {actual}")])
    }

    /// Not run.
    pub fn skip(reason: impl Into<String>) -> Self {
        Self::Skipped(reason.into())
    }

    /// Passed if there is no difference.
    #[must_use]
    pub fn from_differences(differences: Vec<String>) -> Self {
        if differences.is_empty() { Self::Passed } else { Self::Failed(differences) }
    }
}

/// Counts, and prints what is worth reading.
#[derive(Debug, Default)]
pub struct Report {
    passed: usize,
    failed: usize,
    skipped: Vec<(String, String)>,
}

impl Report {
    /// Adds the outcome of `row`; a failure is printed at once.
    pub fn add(&mut self, row: &str, outcome: Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Failed(differences) => {
                self.failed += 1;
                println!("FAILED {row}");
                for difference in differences {
                    println!("    {difference}");
                }
            }
            Outcome::Skipped(reason) => self.skipped.push((row.to_owned(), reason)),
        }
    }

    /// Adds a failure that belongs to no row.
    pub fn fail(&mut self, place: &str, expected: impl fmt::Display, actual: impl fmt::Display) {
        self.add(place, Outcome::fail(expected, actual));
    }

    /// Did every row that was run pass?
    #[must_use]
    pub const fn is_success(&self) -> bool {
        self.failed == 0
    }

    /// Prints what was skipped and why, then the closing line.
    pub fn print_summary(&self) {
        for (row, reason) in &self.skipped {
            println!("skipped {row}: {reason}");
        }
        println!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped.len());
    }
}
