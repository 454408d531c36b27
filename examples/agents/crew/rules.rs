//! What a failure of the crew is: what the models say by the rules for LLM APIs, what breaks on the
//! way by the rules for HTTP, and what the crew itself finds wrong.

use std::fmt;

use tower_triage::http::HttpErrors;
use tower_triage::{
    AnyError, ClassifyError, ClassifyResponse, ErrorClass, Failure, Halves, Note, Stamp, Verdict,
    Vote, stamped,
};

use crate::crew::task::Report;

/// The crew's rules.
pub(crate) type Rules = Halves<Reports, Errors>;

pub(crate) const fn rules() -> Rules {
    Halves { response: Reports, error: Errors }
}

/// A failure that knows what it is.
#[derive(Debug)]
pub(crate) struct Trouble {
    failure: Failure,
    text: String,
}

impl Trouble {
    pub(crate) fn new(failure: impl Into<Failure>, text: impl Into<String>) -> Self {
        let failure = failure.into();
        // An answer that nobody understands is one: whoever gave it is not down.
        let failure = match failure.class {
            ErrorClass::Unknown => failure.vote(Vote::Ignore),
            _ => failure,
        };
        Self { failure, text: text.into() }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Trouble {}

/// The half for what the crew hands in: it is what was asked for, and carries notes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reports;

impl ClassifyResponse<Report> for Reports {
    fn response(&self, _: &Report) -> Verdict {
        Verdict::Success
    }

    fn annotate(&self, report: &mut Report, note: &Note) -> bool {
        report.notes.add(note);
        true
    }
}

impl Stamp<Report> for Reports {}

/// The half for errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Errors;

impl ClassifyError<AnyError> for Errors {
    fn error(&self, error: &AnyError) -> Failure {
        let known = || error.find::<Trouble>().map(|trouble| trouble.failure);
        stamped(error).or_else(known).unwrap_or_else(|| HttpErrors.error(error))
    }

    fn annotate(&self, error: &mut AnyError, note: &Note) -> bool {
        ClassifyError::<AnyError>::annotate(&HttpErrors, error, note)
    }

    fn explain(&self, error: &AnyError, out: &mut dyn fmt::Write) {
        ClassifyError::<AnyError>::explain(&HttpErrors, error, out);
    }
}

impl Stamp<AnyError> for Errors {}
