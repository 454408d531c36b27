//! What every request of this crate says of itself.

use tokio::time::Instant;
use tower_triage_core::{Label, Operation};

/// The facts that the rules read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct About {
    pub(crate) operation: Operation,
    pub(crate) idempotent: bool,
    pub(crate) deadline: Option<Instant>,
    pub(crate) request_id: Option<Label>,
}

impl About {
    pub(crate) fn new(operation: &str) -> Self {
        Self {
            operation: Operation::new(operation),
            idempotent: false,
            deadline: None,
            request_id: None,
        }
    }
}
