//! What can be done about a failure.

use std::fmt;

use serde::{Deserialize, Serialize};
use tower_triage_core::{ErrorClass, Label, RetryRule};

/// Something that may solve a failure: a name of your choice (`retry`, `nudge`, `replan`,
/// `fallback/service`), and the class under which a failure must be treated so that it gets there.
///
/// The class is how the layers know: as `Transient` it is retried, as `Declined` it goes straight
/// to the fallback, as `Quota` to whatever your stack has for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Remedy {
    /// The name. Bounded; longer ones are cut (see [`Label`]).
    pub name: Label<31>,
    /// As what the failure is treated.
    pub class: ErrorClass,
}

impl Remedy {
    /// A remedy under a name.
    #[must_use]
    pub fn new(name: &str, class: ErrorClass) -> Self {
        Self { name: Label::new(name), class }
    }

    /// Does its class lead to another attempt of the same thing? Else to something else.
    pub(crate) const fn repeats(class: ErrorClass) -> bool {
        !matches!(class.retry(), RetryRule::Never)
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (as {})", self.name, self.class)
    }
}
