//! A small protocol: replies with a status, judged like HTTP's, and errors of any type.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::fmt;
use std::io;
use std::time::Duration;

use tower_triage_core::{
    AnyError, Chain, CircuitOpen, Classifier, ClassifyResponse, Describe, ErrorClass, Halves,
    Label, Note, Notes, Operation, Verdict,
};
use tower_triage_test_support::{Scripted, scripted};

/// A response that is not `Clone`, with room for notes.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) body: String,
    pub(crate) notes: Notes,
}

pub(crate) fn reply(status: u16, body: &str) -> Reply {
    Reply { status, body: body.to_owned(), notes: Notes::default() }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Status;

impl ClassifyResponse<Reply> for Status {
    fn response(&self, reply: &Reply) -> Verdict {
        match reply.status {
            429 => ErrorClass::Throttled.into(),
            503 => ErrorClass::Transient.into(),
            400..=499 => ErrorClass::Permanent.into(),
            _ => Verdict::Success,
        }
    }

    fn annotate(&self, reply: &mut Reply, note: &Note) -> bool {
        reply.notes.add(note);
        true
    }

    fn explain(&self, reply: &Reply, out: &mut dyn fmt::Write) {
        _ = write!(out, "status {}", reply.status);
    }
}

impl<Req> Describe<Req> for Status {
    fn operation(&self, _request: &Req) -> Operation {
        Operation::new("ask")
    }
}

pub(crate) type Rules = Halves<Status, Chain>;

pub(crate) fn classifier() -> Classifier<Rules> {
    Classifier::new(Halves { response: Status, error: Chain })
}

/// A transient error whose text is `text`.
pub(crate) fn reset(text: &'static str) -> AnyError {
    AnyError::from(io::Error::new(io::ErrorKind::ConnectionReset, text))
}

/// What a breaker below says.
pub(crate) fn rejected() -> AnyError {
    AnyError::from(CircuitOpen::new(Label::new("db"), Duration::from_secs(3)))
}

/// A service that answers with `lines`, in order; the last one repeats.
pub(crate) fn script<Req, Res: 'static, E: 'static, const N: usize>(
    lines: [fn() -> Result<Res, E>; N],
) -> Scripted<Req, Res, E> {
    scripted(lines)
}
