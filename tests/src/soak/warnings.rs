//! Which warnings were there?

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Where warnings are the ordinary report of a step or a retry.
const EXPECTED: [&str; 2] = ["tower_triage_core::classifier", "tower_triage_retry::future"];

/// Collects warnings and errors that are no ordinary reports; each kind once.
#[derive(Clone, Debug, Default)]
pub(super) struct Warnings(Arc<Mutex<BTreeSet<String>>>);

/// Begins to watch the whole process.
pub(super) fn watch() -> Warnings {
    let warnings = Warnings::default();
    // A second soak in one process goes without.
    _ = tracing::subscriber::set_global_default(warnings.clone());
    warnings
}

impl Warnings {
    pub(super) fn unexpected(&self) -> BTreeSet<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        let (level, target) = (*event.metadata().level(), event.metadata().target());
        if level == Level::WARN && EXPECTED.contains(&target) {
            return;
        }
        let mut text = Message(format!("{level} {target}: "));
        event.record(&mut text);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(text.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0.push_str(&format!("{value:?}"));
        }
    }
}
