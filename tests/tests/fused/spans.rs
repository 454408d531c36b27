//! What `tracing` is told.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::mem;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

/// Writes down spans and events, and in which span each was; the spans are numbered as they come.
#[derive(Clone, Default)]
pub(super) struct Recorder(Arc<Mutex<Log>>);

#[derive(Default)]
struct Log {
    lines: Vec<String>,
    numbers: HashMap<u64, usize>,
    spans: usize,
}

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl Recorder {
    pub(super) fn listen(&self) -> DefaultGuard {
        let subscriber = Registry::default().with(self.clone()).with(LevelFilter::INFO);
        tracing::subscriber::set_default(subscriber)
    }

    pub(super) fn take(&self) -> Vec<String> {
        mem::take(&mut self.0.lock().unwrap().lines)
    }

    fn write(&self, line: impl FnOnce(&Log) -> String) {
        let mut log = self.0.lock().unwrap();
        let line = line(&log);
        log.lines.push(line);
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let parent = context.span(id).unwrap().parent().map(|span| span.id().into_u64());
        let mut log = self.0.lock().unwrap();
        log.spans += 1;
        let number = log.spans;
        log.numbers.insert(id.into_u64(), number);
        let mut fields = Fields(String::new());
        attributes.record(&mut fields);
        let parent = parent.map(|id| log.numbers[&id]);
        let name = attributes.metadata().name();
        log.lines.push(format!("span {number} {name} in {parent:?}{}", fields.0));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let mut fields = Fields(String::new());
        values.record(&mut fields);
        self.write(|log| format!("record {}{}", log.numbers[&id.into_u64()], fields.0));
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        let current = context.lookup_current().map(|span| span.id().into_u64());
        self.write(|log| format!("event in {:?}{}", current.map(|id| log.numbers[&id]), fields.0));
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        self.write(|log| format!("close {}", log.numbers[&id.into_u64()]));
    }
}
