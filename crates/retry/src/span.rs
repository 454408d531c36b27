//! The `tracing` span of each attempt.

use tower_triage_core::ErrorClass;
use tracing::span::Entered;
use tracing::{Span, field};

use crate::replay::Attempt;

/// The span of the attempt that is under way, a child of the caller's. Empty, and without cost,
/// where nobody listens.
#[derive(Debug, Default)]
pub(crate) struct AttemptSpan(Option<Box<Spans>>);

#[derive(Debug)]
struct Spans {
    /// The span in which the call was made: a further attempt may begin in a poll elsewhere.
    caller: Span,
    attempt: Span,
}

impl Spans {
    #[cold]
    fn close(&mut self) {
        self.attempt = Span::none();
    }
}

impl AttemptSpan {
    /// Opens the first attempt's span in the caller's.
    #[inline]
    pub(crate) fn first() -> Self {
        // The macro asks the same, in more instructions.
        if tracing::Level::INFO > tracing::level_filters::LevelFilter::current() {
            return Self(None);
        }
        Self::open()
    }

    #[cold]
    fn open() -> Self {
        let attempt = tracing::info_span!(
            "attempt",
            number = 1_u32,
            previous = field::Empty,
            delay_ms = 0_u64,
            class = field::Empty
        );
        if attempt.is_disabled() {
            return Self(None);
        }
        Self(Some(Box::new(Spans { caller: Span::current(), attempt })))
    }

    /// Opens the span of a further attempt.
    pub(crate) fn next(&mut self, attempt: &Attempt) {
        let Some(spans) = &mut self.0 else { return };
        spans.attempt = tracing::info_span!(
            parent: &spans.caller,
            "attempt",
            number = attempt.number,
            previous = attempt.previous.map(|failure| failure.class.as_str()),
            delay_ms = u64::try_from(attempt.wait.as_millis()).unwrap_or(u64::MAX),
            class = field::Empty
        );
    }

    /// Everything until the guard is dropped happens in the attempt.
    #[inline]
    pub(crate) fn enter(&self) -> Option<Entered<'_>> {
        self.0.as_ref().map(|spans| spans.attempt.enter())
    }

    /// Closes the span of an attempt that failed.
    pub(crate) fn failed(&mut self, class: ErrorClass) {
        if let Some(spans) = &self.0 {
            spans.attempt.record("class", class.as_str());
        }
        self.close();
    }

    /// Closes the span.
    #[inline]
    pub(crate) fn close(&mut self) {
        if let Some(spans) = &mut self.0 {
            spans.close();
        }
    }
}
