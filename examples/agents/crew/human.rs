//! Somebody who can be asked. Here a script, which takes the first way out that it is offered.

use std::sync::{Arc, Mutex, PoisonError};

use tower_triage::Escalation;
use tower_triage::escalate::Decision;
use tower_triage::escalate::store::{Change, Filter, Store, StoreError};

/// Keeps a book of the tasks that were decided. Clones are one.
#[derive(Clone, Default)]
pub(crate) struct Human(Arc<Mutex<Vec<String>>>);

impl Human {
    /// Answers whatever comes to a human, for ever. The orchestrator is asked first, and has no
    /// answer.
    pub(crate) async fn answer(self, store: Arc<dyn Store>) -> Result<(), StoreError> {
        loop {
            let changed = store.changed();
            let questions = Filter::any().asking().receiver("human");
            for letter in store.list(questions, None, 10).await?.letters {
                let Escalation { id, summary, context, question, .. } = letter.escalation;
                let report = context.fields.get("error_report").map_or("", String::as_str);
                println!("ada is asked: {summary}\n{report}");
                let options = question.map(|question| question.options).unwrap_or_default();
                let choice = options.into_iter().next();
                let decision = choice.map_or(Decision::Abort, |choice| choice.decision);
                println!("ada decides: {}\n", decision.value().unwrap_or_default());
                let (by, why) = ("ada".to_owned(), "it is worth it".to_owned());
                store.change(id, Change::Answered { decision, by, why }).await?;
                let mut book = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                book.extend(context.request_id);
            }
            changed.await;
        }
    }

    /// Was there a decision about this task?
    pub(crate) fn decided(&self, task: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|known| known == task)
    }
}
