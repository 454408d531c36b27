//! Everything outside the crew: two models behind local servers, and an archive. It fails as the
//! [`Fate`] of each task has it, and keeps a book of what it was asked and what it said.

mod archive;
mod fate;
mod models;

use std::sync::{Arc, Mutex, PoisonError};

pub(crate) use self::archive::Archive;
pub(crate) use self::fate::{Fate, PLAN};
pub(crate) use self::models::{CUE, Servers};

/// What the world said to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Said {
    /// A page, or an answer.
    Yes,
    /// A page is to be looked up first.
    LookUp,
    RateLimited,
    Unavailable,
    /// Nothing.
    Hung,
    TooLong,
    Refused,
    Prose,
    Mystery,
    NotThere,
    Reset,
    Corrupt,
    Fee,
}

/// One request, and what was said.
#[derive(Clone)]
pub(crate) struct Entry {
    pub(crate) task: String,
    /// Which part, of a task that came in parts.
    pub(crate) part: Option<u64>,
    /// `large`, `small` or `archive`.
    pub(crate) who: &'static str,
    /// The model's prompt, the archive's page.
    pub(crate) what: String,
    pub(crate) said: Said,
}

/// The book. Clones are one.
#[derive(Clone, Default)]
pub(crate) struct Book(Arc<Mutex<Vec<Entry>>>);

impl Book {
    /// Writes down what `say` says, given how often `who` was asked for the same task before.
    fn enter(&self, entry: Entry, say: impl FnOnce(&Entry, usize) -> Said) -> Said {
        let mut entries = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let by = |entry: &Entry| (entry.task.clone(), entry.part, entry.who);
        let before = entries.iter().filter(|other| by(other) == by(&entry)).count();
        let said = say(&entry, before);
        entries.push(Entry { said, ..entry });
        said
    }

    /// Everything, oldest first.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
