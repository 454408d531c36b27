//! One memory for all layers.

use std::convert::Infallible;
use std::fmt;
use std::future::{Ready, ready};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use tower_service::Service;
use tower_triage_core::{
    Advisor, Classifier, ErrorClass, Fingerprint, Incident, Observation, Observer, Verdict,
    wall_clock,
};

use crate::file::{OpenError, Opened, SaveError, Saver, load};
use crate::lesson::{Lesson, Tried, lessons};
use crate::memory::{Advice, Known, Memory};
use crate::mode::Mode;
use crate::policy::LearnPlan;
use crate::remedy::Remedy;
use crate::text::{self, ImportError, Imported};

/// A [`Memory`] that all layers of a stack share: it learns from the incidents of a
/// [`Classifier`], and that asks it about unknown failures. Its clones are one memory.
///
/// See the [crate's documentation](crate) for an example.
///
/// It is asked on the failure path only, behind a short lock. It is also a `Service<Observation>`,
/// for a [`ClassifyLayer`](tower_triage_core::ClassifyLayer) or a remote classifier.
#[derive(Clone)]
pub struct Learner {
    shared: Arc<Shared>,
    saver: Option<Saver>,
}

/// What the writer of the file shares too.
pub(crate) struct Shared {
    memory: Mutex<Memory>,
    /// Something was learned since this was last cleared.
    pub(crate) changed: AtomicBool,
    clock: Box<dyn Fn() -> SystemTime + Send + Sync>,
}

impl Learner {
    /// An empty memory, forgotten with the process.
    #[must_use]
    pub fn new(plan: LearnPlan) -> Self {
        Self::with_clock(plan, wall_clock)
    }

    /// The same by another calendar, for tests and simulations.
    #[must_use]
    pub fn with_clock(
        plan: LearnPlan,
        clock: impl Fn() -> SystemTime + Send + Sync + 'static,
    ) -> Self {
        Self::from_memory(Memory::new(plan), clock, None)
    }

    /// What the file remembers; a missing file is an empty memory. From then on it is written again
    /// every 5 s if something was learned, on [`flush`](Self::flush), and when the last clone is gone, by
    /// a thread of its own. The file is replaced, never changed: a crash leaves the last one whole,
    /// and costs what was learned in the last seconds. Lines that cannot be read are skipped, counted
    /// ([`Opened::skipped`]), and kept in a file beside (`.unreadable` behind its name).
    ///
    /// One process writes a file, not several: each has its own, and [imports](Self::import) those
    /// of the others. Blocks while it reads: to be called when a program starts.
    ///
    /// # Errors
    /// The file cannot be read, or is something else than a memory: it is then left alone. There is
    /// no thread for the writer.
    pub fn open(path: impl AsRef<Path>, plan: LearnPlan) -> Result<(Self, Opened), OpenError> {
        let mut memory = Memory::new(plan);
        let opened = load(path.as_ref(), &mut memory, since_1970(wall_clock()))?;
        let mut learner = Self::from_memory(memory, wall_clock, None);
        let saver = Saver::start(path.as_ref().to_owned(), Arc::clone(&learner.shared));
        learner.saver = Some(saver.map_err(OpenError::File)?);
        Ok((learner, opened))
    }

    fn from_memory(
        memory: Memory,
        clock: impl Fn() -> SystemTime + Send + Sync + 'static,
        saver: Option<Saver>,
    ) -> Self {
        let (memory, clock) = (Mutex::new(memory), Box::new(clock));
        Self { shared: Arc::new(Shared { memory, changed: AtomicBool::new(false), clock }), saver }
    }

    /// Learns from the incidents of every layer that shares `classifier`, and advises all of them.
    pub fn attach<R>(&self, classifier: &Classifier<R>) {
        classifier.observe(self.clone());
        classifier.advised_by(self.clone());
    }

    /// Puts down what came of a remedy that the layers know nothing of.
    pub fn record(&self, kind: Fingerprint, remedy: Remedy, worked: bool) {
        let now = self.shared.now();
        self.shared.change(|memory| memory.record(kind, remedy, worked, now));
    }

    /// How to treat an unknown failure of this kind; see [`Memory::advise`].
    #[must_use]
    pub fn advise(&self, kind: Fingerprint) -> Option<Advice> {
        let now = self.shared.now();
        self.shared.memory().advise(kind, now)
    }

    /// What is known for this kind of failure, the surest first.
    #[must_use]
    pub fn known(&self, kind: Fingerprint) -> Vec<Known> {
        let now = self.shared.now();
        self.shared.memory().known(kind, now)
    }

    /// Forgets what is known for this kind of failure.
    pub fn forget(&self, kind: Fingerprint) {
        self.shared.change(|memory| memory.forget(kind));
    }

    /// From now on this sure.
    pub fn set_mode(&self, mode: Mode) {
        self.shared.memory().set_mode(mode);
    }

    /// How many kinds of failure are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.memory().len()
    }

    /// Is nothing remembered?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Everything, as JSON, one document a line: what [`import`](Self::import) reads, and what the
    /// file holds. Fingerprints, remedies and counts; no text of any failure.
    #[must_use]
    pub fn export(&self) -> String {
        self.shared.export()
    }

    /// Adds the experience of another instance ([`export`](Self::export)) to this one's. To be done
    /// once: what is imported twice counts twice.
    ///
    /// # Errors
    /// It is not the text of a memory, or of a later version; then nothing is imported. Single lines
    /// that cannot be read are skipped and counted.
    pub fn import(&self, text: &str) -> Result<Imported, ImportError> {
        let now = self.shared.now();
        self.shared.change(|memory| text::read(text, memory, now))
    }

    /// Writes the file now, and waits until it is on the disk. Without a file nothing happens.
    ///
    /// # Errors
    /// It could not be written; the old one is as it was.
    ///
    /// # Cancel safety
    /// Dropped, it is written all the same.
    pub async fn flush(&self) -> Result<(), SaveError> {
        match &self.saver {
            Some(saver) => saver.flush().await,
            None => Ok(()),
        }
    }
}

impl Shared {
    /// A memory is whole between any two of its methods, so a panic elsewhere does it no harm.
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Memory) -> T) -> T {
        let done = change(&mut self.memory());
        self.changed.store(true, Ordering::Release);
        done
    }

    fn now(&self) -> Duration {
        since_1970((self.clock)())
    }

    pub(crate) fn export(&self) -> String {
        // The copy is made under the lock, the text outside.
        let memory = self.memory().clone();
        text::write(&memory)
    }
}

fn since_1970(date: SystemTime) -> Duration {
    date.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

impl Observer for Learner {
    fn incident(&self, incident: &Incident) {
        let plan = self.shared.memory().plan().clone();
        let lessons = lessons(incident, &plan);
        if lessons.is_empty() {
            return;
        }
        let now = self.shared.now();
        let tried = |kind| {
            let of_kind = lessons.iter().filter(move |lesson| lesson.kind == kind);
            of_kind.filter_map(|lesson| lesson.tried.remedy()).collect::<Vec<_>>()
        };
        self.shared.change(|memory| {
            for Lesson { kind, tried: what, worked } in &lessons {
                match what {
                    Tried::Remedy(remedy) => memory.record(*kind, *remedy, *worked, now),
                    Tried::As(class) => memory.record_useless(*kind, *class, &tried(*kind), now),
                }
            }
        });
    }
}

impl Advisor for Learner {
    fn advise(&self, observation: &Observation) -> Option<ErrorClass> {
        let advice = Self::advise(self, observation.fingerprint)?;
        let Advice { remedy, confidence, trial } = advice;
        tracing::debug!(
            operation = observation.operation.as_str(),
            fingerprint = %observation.fingerprint,
            remedy = remedy.name.as_str(),
            confidence,
            trial,
            "an unknown failure is treated as {}",
            remedy.class,
        );
        Some(remedy.class)
    }
}

impl Service<Observation> for Learner {
    type Response = Verdict;
    type Error = Infallible;
    type Future = Ready<Result<Verdict, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, observation: Observation) -> Self::Future {
        let local = observation.local;
        let advised = match local.class {
            ErrorClass::Unknown => Advisor::advise(self, &observation),
            _ => None,
        };
        ready(Ok(advised.map_or(local, |class| local.learned(class)).into()))
    }
}

impl fmt::Debug for Learner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Learner").field("kinds", &self.len()).finish_non_exhaustive()
    }
}
