//! An incident as a chart over time.

use std::fmt::{self, Write};
use std::time::Duration;

use crate::incident::{Incident, Step, StepKind};

/// An incident as text: a head line, then one line a step with a bar over the call's whole time,
/// `#` where an attempt ran, `.` where the call waited and `|` where something happened at once.
///
/// ```text
/// incident 5f0c… GET /orders: recovered_by_retry after 312ms, 2 attempts
///     90ms |#######                 | attempt 1 failed: Transient (503 Service Unavailable)
///     90ms |       .........        | waiting 120ms
///    312ms |                ########| attempt 2 succeeded
/// ```
///
/// One line stays one line and reads as it is, whatever a server wrote into its error: control
/// characters, and what is invisible or turns the direction of the text, are escaped.
#[derive(Clone, Copy, Debug)]
pub struct Timeline<'a> {
    incident: &'a Incident,
    width: usize,
}

/// The time that a step speaks of, since the call began; see [`Step::span`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Span {
    /// Its begin.
    pub from: Duration,
    /// Its end. What a call still waits for, or a wait that was cut short, ends later than the call.
    pub to: Duration,
    /// What happened in it.
    pub what: SpanKind,
}

/// What happened in a [`Span`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// An attempt, or a fallback step, ran.
    Ran,
    /// The call waited.
    Waited,
    /// Something happened at once.
    Moment,
}

impl<'a> Timeline<'a> {
    /// More columns than any terminal has.
    const MAX_WIDTH: usize = 1000;

    pub(crate) const fn new(incident: &'a Incident, width: usize) -> Self {
        let width = if width > Self::MAX_WIDTH { Self::MAX_WIDTH } else { width };
        Self { incident, width }
    }

    /// The columns of a bar: at least one, and none outside.
    fn columns(&self, bar: &Span) -> std::ops::Range<usize> {
        let left = self.column(bar.from).min(self.width.saturating_sub(1));
        let right = self.column(bar.to).max(left + 1).min(self.width);
        left..right
    }

    /// The column in which `at` falls.
    fn column(&self, at: Duration) -> usize {
        let whole = self.incident.elapsed.as_secs_f64();
        if whole <= 0.0 {
            return 0;
        }
        let share = (at.as_secs_f64() / whole).clamp(0.0, 1.0);
        (share * self.width as f64).round() as usize
    }
}

impl Step {
    /// The time that this step speaks of; what ran, ran since `previous`, when the span of the step
    /// before ended.
    #[must_use]
    pub fn span(&self, previous: Duration) -> Span {
        let (from, to, what) = match &self.kind {
            StepKind::Waiting { delay, .. } => {
                (self.at, self.at.saturating_add(*delay), SpanKind::Waited)
            }
            StepKind::Failed { .. }
            | StepKind::Succeeded { .. }
            | StepKind::FallbackAnswered { .. }
            | StepKind::FallbackFailed { .. } => (previous.min(self.at), self.at, SpanKind::Ran),
            _ => (self.at, self.at, SpanKind::Moment),
        };
        Span { from, to, what }
    }
}

impl fmt::Display for Timeline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Incident { id, operation, resolution, elapsed, attempts, collapsed, .. } =
            self.incident;
        let operation = if operation.is_empty() { "call" } else { operation.as_str() };
        let plural = if *attempts == 1 { "" } else { "s" };
        write!(f, "incident {id} ")?;
        write!(OneLine(f), "{operation}")?;
        writeln!(f, ": {resolution} after {}, {attempts} attempt{plural}", Brief(*elapsed))?;
        let mut end = Duration::ZERO;
        if *collapsed > 0 {
            writeln!(f, "  ({collapsed} earlier steps not kept)")?;
            // When the first step that was kept began, is not known any more.
            end = self.incident.steps.first().map_or(end, |step| step.at);
        }
        for step in &self.incident.steps {
            let bar = step.span(end);
            let columns = self.columns(&bar);
            let mark = match bar.what {
                SpanKind::Ran => '#',
                SpanKind::Waited => '.',
                SpanKind::Moment => '|',
            };
            write!(f, "{:>8} |", Brief(step.at).to_string())?;
            for column in 0..self.width {
                f.write_char(if columns.contains(&column) { mark } else { ' ' })?;
            }
            f.write_str("| ")?;
            if step.nested {
                f.write_str("inside: ")?;
            }
            write!(OneLine(f), "{}", step.kind)?;
            f.write_char('\n')?;
            end = bar.to;
        }
        Ok(())
    }
}

/// A duration in whole milliseconds, from ten seconds on in tenths of a second.
struct Brief(Duration);

impl fmt::Display for Brief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < Duration::from_secs(10) {
            write!(f, "{}ms", self.0.as_millis())
        } else {
            write!(f, "{:.1}s", self.0.as_secs_f64())
        }
    }
}

/// Is `c` invisible, or does it change how the text around it is shown? Control characters, line and
/// paragraph separators, interlinear annotation, and what Unicode has the property
/// `Default_Ignorable_Code_Point` for (the bidirectional controls are among them).
#[must_use]
pub fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{115f}'..='\u{1160}'
                | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}'
                | '\u{ffa0}'
                | '\u{fff0}'..='\u{fffb}'
                | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Passes text on with what is invisible escaped.
struct OneLine<'a, 'b>(&'a mut fmt::Formatter<'b>);

impl Write for OneLine<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            if is_invisible(c) {
                write!(self.0, "{}", c.escape_default())?;
            } else {
                self.0.write_char(c)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use proptest::prelude::*;

    use super::*;
    use crate::class::{ClassSet, ErrorClass};
    use crate::incident::{IncidentId, LayerKind, Refusal, Resolution};
    use crate::label::Operation;
    use crate::verdict::Failure;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn failed(attempt: u32, detail: &str) -> StepKind {
        let failure = Failure::new(ErrorClass::Transient);
        StepKind::Failed { attempt, failure, detail: detail.to_owned().into() }
    }

    fn incident(elapsed: Duration, steps: Vec<(Duration, StepKind)>) -> Incident {
        Incident {
            id: IncidentId::from_bits(0),
            operation: Operation::new("GET /orders"),
            started: SystemTime::UNIX_EPOCH,
            elapsed,
            steps: steps
                .into_iter()
                .map(|(at, kind)| Step::new(at, LayerKind::Retry, kind))
                .collect(),
            collapsed: 0,
            attempts: 2,
            failure: None,
            classes: ClassSet::NONE,
            resolution: Resolution::RecoveredByRetry,
            not_recorded: false,
        }
    }

    /// The bars and texts of the lines of steps.
    fn lines(incident: &Incident, width: usize) -> Vec<String> {
        let text = incident.timeline(width).to_string();
        text.lines().filter(|line| line.contains('|')).map(str::to_owned).collect()
    }

    #[test]
    fn shows_what_ran_what_waited_and_for_how_long() {
        let incident = incident(
            ms(400),
            vec![
                (ms(100), failed(1, "503 Service Unavailable")),
                (ms(100), StepKind::Waiting { delay: ms(200), hinted: false }),
                (ms(400), StepKind::Succeeded { attempt: 2 }),
            ],
        );
        let expected = "\
incident 00000000-0000-4000-8000-000000000000 GET /orders: recovered_by_retry after 400ms, 2 attempts
   100ms |##      | attempt 1 failed: Transient (503 Service Unavailable)
   100ms |  ....  | waiting 200ms
   400ms |      ##| attempt 2 succeeded
";
        assert_eq!(incident.timeline(8).to_string(), expected);
    }

    #[test]
    fn what_takes_no_time_takes_one_column() {
        let incident = incident(
            ms(100),
            vec![
                (ms(0), failed(1, "")),
                (ms(100), StepKind::NotRetried { why: Refusal::BudgetExhausted }),
            ],
        );
        assert_eq!(
            lines(&incident, 4),
            [
                "     0ms |#   | attempt 1 failed: Transient (Transient)",
                "   100ms |   || not repeated: budget exhausted",
            ]
        );
    }

    #[test]
    fn a_wait_that_was_cut_short_ends_with_the_chart() {
        let wait = StepKind::Waiting { delay: Duration::MAX, hinted: true };
        let incident = incident(ms(100), vec![(ms(50), failed(1, "")), (ms(50), wait)]);
        assert!(lines(&incident, 4)[1].contains("|  ..| waiting"), "{:?}", lines(&incident, 4));
    }

    #[test]
    fn a_server_cannot_write_lines_of_its_own() {
        let detail = "broken\n  999ms |####| attempt 9 succeeded\u{1b}[2J";
        let incident = incident(ms(100), vec![(ms(100), failed(1, detail))]);
        let text = incident.timeline(4).to_string();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains(r"broken\n"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }

    /// What hides, reverses or breaks text is shown as what it is; words of any script stay.
    #[test]
    fn a_server_cannot_write_what_cannot_be_seen() {
        let hidden = [
            '\u{85}',
            '\u{ad}',
            '\u{200b}',
            '\u{200e}',
            '\u{200f}',
            '\u{2028}',
            '\u{2029}',
            '\u{202a}',
            '\u{202e}',
            '\u{2060}',
            '\u{2066}',
            '\u{2069}',
            '\u{61c}',
            '\u{feff}',
            '\u{e0041}',
        ];
        let detail = hidden.iter().collect::<String>() + "naïve 漢字 שלום";
        let incident = incident(ms(100), vec![(ms(100), failed(1, &detail))]);
        let text = incident.timeline(4).to_string();
        assert!(!text.contains(hidden), "{text:?}");
        assert!(text.contains(r"\u{202e}") && text.contains("naïve 漢字 שלום"), "{text}");
    }

    #[test]
    fn says_what_was_not_kept_and_draws_no_attempt_over_it() {
        let mut incident =
            incident(ms(100), vec![(ms(50), failed(40, "")), (ms(100), failed(41, ""))]);
        incident.collapsed = 32;
        let text = incident.timeline(4).to_string();
        assert!(text.contains("32 earlier steps not kept"), "{text}");
        assert!(text.contains("|  # | attempt 40"), "{text}");
        assert!(text.contains("|  ##| attempt 41"), "{text}");
    }

    #[test]
    fn names_a_call_without_operation_and_one_inside() {
        let mut incident = incident(Duration::from_secs(75), vec![(ms(1500), failed(1, ""))]);
        incident.operation = Operation::default();
        incident.attempts = 1;
        incident.steps[0].nested = true;
        let text = incident.timeline(2).to_string();
        assert!(text.contains(" call: recovered_by_retry after 75.0s, 1 attempt\n"), "{text}");
        assert!(text.contains("  1500ms |# | inside: attempt 1"), "{text}");
    }

    proptest! {
        /// Whatever the times are: every line has a bar of the asked width with a mark in it.
        #[test]
        fn every_step_has_its_mark(
            elapsed: Duration,
            times in proptest::collection::vec((any::<Duration>(), any::<Duration>()), 0..6),
            width in 1_usize..40,
        ) {
            let steps = times
                .into_iter()
                .flat_map(|(at, delay)| {
                    [(at, StepKind::Waiting { delay, hinted: false }), (at, failed(1, ""))]
                })
                .collect();
            let incident = incident(elapsed, steps);
            let lines = lines(&incident, width);
            prop_assert_eq!(lines.len(), incident.steps.len());
            for line in lines {
                let bar: String = line.chars().skip_while(|c| *c != '|').skip(1).take(width).collect();
                prop_assert!(bar.contains(['#', '.']), "{}", line);
                prop_assert_eq!(line.chars().skip_while(|c| *c != '|').nth(width + 1), Some('|'));
            }
        }
    }

    #[test]
    fn no_width_and_any_width_are_drawn() {
        let incident = incident(ms(100), vec![(ms(100), failed(1, ""))]);
        assert!(lines(&incident, 0)[0].contains("|| attempt 1"));
        assert!(lines(&incident, usize::MAX)[0].len() < 1100);
    }
}
