//! Looking at a body while it passes.

use std::sync::{Arc, Mutex, PoisonError};
use std::task::Context;
use std::time::SystemTime;

use http::{HeaderMap, Method, StatusCode, header};

use super::layer::{Asked, Settings};
use crate::body::{BodyFacts, BodyReader, Format};
use crate::decision::LlmFacts;
use crate::late::{LateFailure, OnLate, Reporting};

/// How an answer is to be read, if its body can say anything.
pub(super) fn format(method: &Method, status: StatusCode, headers: &HeaderMap) -> Option<Format> {
    let encoded = headers.get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity");
    if encoded || *method == Method::HEAD {
        return None;
    }
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default().trim();
    let is = |name: &str| kind.eq_ignore_ascii_case(name);
    if is("text/event-stream") {
        return (status.is_client_error() || status.is_server_error() || *method == Method::POST)
            .then_some(Format::Events);
    }
    let json = is("application/json")
        || is("application/x-ndjson")
        || is("application/jsonl")
        || kind.len() > 5 && kind.as_bytes()[kind.len() - 5..].eq_ignore_ascii_case(b"+json");
    match status.as_u16() {
        100..=399 => (json && *method == Method::POST).then_some(Format::Json),
        // Whatever it calls itself: what is no JSON is found out at its first byte.
        _ => Some(Format::Json),
    }
}

/// Reads a body while it passes, and tells of a failure that comes after its beginning was passed on.
pub(super) struct Look {
    pub(super) reader: BodyReader,
    asked: Asked,
    on_late: Option<Arc<OnLate>>,
    told: bool,
    /// In a lock only so that the body stays `Sync`; it is never waited for.
    reporting: Mutex<Option<Reporting>>,
}

impl Look {
    pub(super) fn new(format: Format, asked: Asked, settings: &Settings) -> Self {
        Self {
            reader: BodyReader::new(format, settings.limit),
            asked,
            on_late: settings.on_late.clone(),
            told: false,
            reporting: Mutex::new(None),
        }
    }

    /// Tells what the reader has found by now, and drives on what hearing of it began.
    pub(super) fn report(&mut self, cx: &mut Context<'_>) {
        if let Some(said) = self.reader.take_later() {
            self.tell(said);
        }
        let reporting = self.reporting.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(future) = reporting {
            if future.as_mut().poll(cx).is_ready() {
                *reporting = None;
            }
        }
    }

    /// The body broke.
    pub(super) fn broke(&mut self, cx: &mut Context<'_>) {
        self.tell(BodyFacts::CUT_OFF);
        self.report(cx);
    }

    fn tell(&mut self, body: BodyFacts) {
        // What follows from the first failure is none of its own.
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        // There is nobody left to wait, so hints and their clock do not matter.
        let (headers, now) = (HeaderMap::new(), SystemTime::UNIX_EPOCH);
        let facts = LlmFacts { status: 200, headers: &headers, body, now };
        let Some(failure) = facts.verdict().failure() else { return };
        tracing::warn!(
            error.r#type = failure.class.as_str(),
            reason = failure.reason,
            "an answer failed after its beginning was passed on; nothing is repeated",
        );
        if let (Some(on_late), Some(uri)) = (&self.on_late, self.asked.uri.take()) {
            let late = LateFailure::new(failure, self.asked.method.clone(), uri);
            *self.reporting.get_mut().unwrap_or_else(PoisonError::into_inner) = on_late(&late);
        }
    }
}
