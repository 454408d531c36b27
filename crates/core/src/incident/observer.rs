//! Who watches.

use crate::class::ErrorClass;
use crate::incident::{Incident, LayerKind, Step};
use crate::label::{Label, Operation};

/// Sees the steps and the incidents of every layer that shares a classifier
/// ([`Classifier::observe`](crate::Classifier::observe)): for metrics, logs, reports.
///
/// Called on the failure path only, outside every lock and detached from the call's scope. It must
/// not block: an abandoned incident is delivered from a `Drop`. A panic is caught and logged.
pub trait Observer: Send + Sync {
    /// Something happened in a call. `labels` come from fixed sets, fit for metric labels.
    fn step(&self, _labels: &Labels, _step: &Step) {}

    /// A call that met a failure has ended.
    fn incident(&self, _incident: &Incident) {}
}

/// The labels of one step. Every value comes from a fixed set, so the number of series does not
/// grow with paths, ids or messages; `operation` and `name` are as bounded as you keep them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Labels {
    /// Which layer.
    pub layer: LayerKind,
    /// The name of the breaker it speaks of; empty otherwise.
    pub name: Label,
    /// What was being done: a template.
    pub operation: Operation,
    /// The class it speaks of.
    pub class: Option<ErrorClass>,
    /// What happened.
    pub outcome: &'static str,
    /// Why; empty if there is nothing to say.
    pub reason: &'static str,
}
