//! One error, the ways out of it, and whether to take one without asking.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tower_triage_core::{ErrorClass, Incident, StepKind, duration_text};

use crate::advice::{Difficulty, Severity, diagnosis};
use crate::page::{Cell, Draw, Page, Tone};
use crate::text::brief;
use crate::view::{Shown, View};

/// One error, with what can be done about it. Plain data: change any field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorReport {
    /// What was being done.
    pub operation: String,
    /// The class.
    pub class: ErrorClass,
    /// What a person should read.
    pub error: String,
    /// What is behind it.
    pub diagnosis: String,
    /// How much harm it does.
    pub severity: Severity,
    /// How hard the way out is.
    pub difficulty: Difficulty,
    /// The ways out.
    pub options: Vec<Choice>,
    /// The confidence from which on an option is applied without asking: of the modes of the
    /// `orchestrator` preset, 0.9 (cautious), 0.7 (balanced) or 0.5 (aggressive). Default: 0.9.
    pub threshold: f64,
}

/// One way out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// What would be done.
    pub action: String,
    /// How likely it is to help, from 0 to 1; with any other number it is shown, and never recommended.
    pub confidence: f64,
    /// How long it is expected to take.
    #[serde(with = "duration_text")]
    pub expected: Duration,
    /// What it may spoil.
    pub risk: Risk,
}

/// As it is offered to somebody who decides.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { action, confidence, expected, risk } = self;
        let (expected, risk) = (brief(*expected), risk.as_str());
        write!(f, "{action} (confidence {confidence:.2}, about {expected}, {risk} risk)")
    }
}

/// What an option may spoil.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// Nothing.
    Low,
    /// Something that can be mended.
    Medium,
    /// Something that cannot.
    High,
}

impl Risk {
    /// A fixed name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Advice<'a> {
    /// The recommended option, without asking.
    Apply(&'a Choice),
    /// Ask: no option is sure enough.
    Escalate,
}

impl ErrorReport {
    /// Of an error of this class; diagnosis, severity and difficulty are what the class commonly
    /// means. There are no options yet.
    #[must_use]
    pub fn new(operation: impl Into<String>, class: ErrorClass, error: impl Into<String>) -> Self {
        Self {
            operation: operation.into(),
            class,
            error: error.into(),
            diagnosis: diagnosis(class).to_owned(),
            severity: Severity::of(class),
            difficulty: Difficulty::of(class),
            options: Vec::new(),
            threshold: 0.9,
        }
    }

    /// Of the failure that decided `incident`, as far as it is written. `None` if nothing failed in
    /// it.
    #[must_use]
    pub fn of(incident: &Incident) -> Option<Self> {
        let failure = incident.failure?;
        // Calls made on the way fail in their own words.
        let mut own = incident.steps.iter().rev().filter(|step| !step.nested);
        let detail = own.find_map(|step| match &step.kind {
            StepKind::Failed { failure: failed, detail, .. } if failed.class == failure.class => {
                Some(detail.to_string())
            }
            refused @ StepKind::Rejected { .. } if failure.class == ErrorClass::Rejected => {
                Some(refused.to_string())
            }
            _ => None,
        });
        let error = detail.filter(|text| !text.is_empty());
        let error = error.unwrap_or_else(|| failure.reason.to_owned());
        Some(Self::new(incident.operation.to_string(), failure.class, error))
    }

    /// With one more way out.
    #[must_use]
    pub fn option(mut self, option: Choice) -> Self {
        self.options.push(option);
        self
    }

    /// With another [threshold](Self::threshold).
    #[must_use]
    pub const fn threshold(mut self, threshold: f64) -> Self {
        self.threshold = threshold;
        self
    }

    /// The option with most confidence; of equals the one with least risk, then the quickest. One
    /// whose confidence is not from 0 to 1 is none.
    #[must_use]
    pub fn recommended(&self) -> Option<&Choice> {
        let known = self.options.iter().filter(|option| (0.0..=1.0).contains(&option.confidence));
        known.min_by(|one, other| {
            let surer = other.confidence.total_cmp(&one.confidence);
            surer.then(one.risk.cmp(&other.risk)).then(one.expected.cmp(&other.expected))
        })
    }

    /// The recommended option, if its confidence reaches the threshold.
    #[must_use]
    pub fn advice(&self) -> Advice<'_> {
        match self.recommended() {
            Some(option) if option.confidence >= self.threshold => Advice::Apply(option),
            _ => Advice::Escalate,
        }
    }

    /// As it is shown in `view`.
    #[must_use]
    pub fn show(&self, view: View) -> Shown<'_> {
        Shown::new(self, view)
    }
}

impl Draw for ErrorReport {
    fn draw(&self, page: &mut Page<'_, '_>) -> fmt::Result {
        let Self { operation, class, error, diagnosis, threshold, .. } = self;
        let (severity, difficulty) = (self.severity.as_str(), self.difficulty.as_str());
        let head = format!("{class} in {operation}: severity {severity}, way out {difficulty}");
        page.line(Tone::Bad, head)?;
        page.line(Tone::Plain, format!("  error      {error}"))?;
        page.line(Tone::Plain, format!("  diagnosis  {diagnosis}"))?;
        let recommended = self.recommended();
        let row = |option: &Choice| {
            let mark = recommended.is_some_and(|best| std::ptr::eq(best, option));
            let tone = if mark { Tone::Head } else { Tone::Plain };
            [
                Cell::new(format!("{} {}", if mark { "*" } else { " " }, option.action)).tone(tone),
                Cell::number(format_args!("{:.2}", option.confidence)),
                Cell::number(brief(option.expected)),
                Cell::new(option.risk.as_str()),
            ]
        };
        let rows: Vec<_> = self.options.iter().map(row).collect();
        page.table(["  option", "confidence", "expected", "risk"], &rows)?;
        match (self.advice(), recommended) {
            (Advice::Apply(Choice { action, confidence, .. }), _) => page.line(
                Tone::Good,
                format!("applied: {action} ({confidence:.2} reaches {threshold:.2})"),
            ),
            (Advice::Escalate, Some(Choice { action, confidence, .. })) => page.line(
                Tone::Doubtful,
                format!("escalated: {action}? ({confidence:.2} is below {threshold:.2})"),
            ),
            (Advice::Escalate, None) => page.line(Tone::Doubtful, "escalated: nobody knows a way"),
        }
    }
}

impl fmt::Display for ErrorReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Shown::plain(self, f)
    }
}
