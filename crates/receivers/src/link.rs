//! Where to decide, or to look further.

use std::fmt;
use std::sync::Arc;

use tower_triage_escalate::Escalation;

/// A function from an escalation to an address for people.
#[derive(Clone)]
pub(crate) struct Link(Arc<dyn Fn(&Escalation) -> String + Send + Sync>);

impl Link {
    pub(crate) fn new(f: impl Fn(&Escalation) -> String + Send + Sync + 'static) -> Self {
        Self(Arc::new(f))
    }

    pub(crate) fn to(&self, escalation: &Escalation) -> String {
        (self.0)(escalation)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}
