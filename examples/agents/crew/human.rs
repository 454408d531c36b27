//! Somebody who can be asked. Here a script: it pays, if it is asked as a human.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::json;
use tower_triage::escalate::Decision;
use tower_triage::escalate::store::{Change, Filter, Store, StoreError};

/// What was asked and what was decided, by task. Clones are one.
#[derive(Clone, Default)]
pub(crate) struct Human(Arc<Mutex<Vec<String>>>);

impl Human {
    /// Answers every question that comes to a human, for ever.
    pub(crate) async fn answer(self, store: Arc<dyn Store>) -> Result<(), StoreError> {
        loop {
            let changed = store.changed();
            // The orchestrator is asked first; it has no money.
            let asking = Filter::any().asking().receiver("human");
            for letter in store.list(asking, None, 10).await?.letters {
                let decision = Decision::RetryWith(json!({ "budget": 5 }));
                let (by, why) = ("ada".to_owned(), "it is worth it".to_owned());
                store.change(letter.id(), Change::Answered { decision, by, why }).await?;
                let task = letter.escalation.context.request_id.unwrap_or_default();
                println!("ada was asked: {}\nada pays for it\n", letter.escalation.summary);
                self.0.lock().unwrap_or_else(PoisonError::into_inner).push(task);
            }
            changed.await;
        }
    }

    /// The tasks that a decision was made for.
    pub(crate) fn decided(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
