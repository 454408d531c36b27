//! Who hears of transitions.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};

use tower_triage_core::incident::run_detached;

use crate::state::Transition;
use crate::sync::{Mutex, MutexGuard};

type Callback = Arc<dyn Fn(&Transition) + Send + Sync>;

/// The subscribers of one layer's circuits.
#[derive(Default)]
pub(crate) struct Watchers {
    callbacks: Mutex<Vec<Callback>>,
}

impl Watchers {
    pub(crate) fn add(&self, callback: impl Fn(&Transition) + Send + Sync + 'static) {
        self.lock().push(Arc::new(callback));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Callback>> {
        self.callbacks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells everybody, outside every lock and outside the call whose outcome caused it. A panic in
    /// a callback must not become the caller's.
    #[cold]
    pub(crate) fn tell(&self, transition: &Transition) {
        let Transition { breaker, from, to, open_for } = transition;
        tracing::info!(%breaker, %from, %to, ?open_for, "circuit breaker changed its state");
        let callbacks = self.lock().clone();
        for callback in callbacks {
            let call = AssertUnwindSafe(|| run_detached(|| callback(transition)));
            if catch_unwind(call).is_err() {
                tracing::error!(%breaker, "a callback panicked; the breaker goes on");
            }
        }
    }
}

impl fmt::Debug for Watchers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchers").field("callbacks", &self.lock().len()).finish()
    }
}
