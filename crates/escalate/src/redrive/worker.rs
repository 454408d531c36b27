//! A worker, and what it is told.

use std::collections::HashSet;
use std::fmt;
use std::future::{Future, pending};
use std::sync::Arc;

use serde_json::Value;
use tower_service::Service;
use tower_triage_core::incident::IncidentId;
use tower_triage_core::{Classifier, Classify, ConfigError, Random};

use crate::capture::Codec;
use crate::redrive::drive::Shared;
use crate::redrive::plan::{Plan, Planned};
use crate::redrive::policy::RedrivePolicy;
use crate::redrive::progress::{Driven, Progress};
use crate::redrive::run::{Run, Until, Watch, Which};
use crate::store::{Filter, LetterState, Store, StoreError};

/// Drives letters again: leases them, makes requests of them, calls a service, and settles; see
/// the [table](crate::redrive) of what becomes of a letter.
///
/// Use it as a loop of your own ([`run_once`](Self::run_once)), until nothing is due
/// ([`drain`](Self::drain)), or as a worker ([`run`](Self::run)). Any number of them may work on one
/// store, in any number of processes.
///
/// The service is cloned for each call, and each clone is polled ready before it is called. Its
/// calls run in tasks of the worker's, which end with it. Nothing reads a response's body.
///
/// ```
/// use std::sync::Arc;
/// use tower::service_fn;
/// use tower_triage_core::{AnyError, AnyOk, Chain, Classifier, Halves};
/// use tower_triage_escalate::store::{MemoryStore, Store};
/// use tower_triage_escalate::{JsonCodec, Redrive, RedrivePolicy};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
/// let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
/// let shop = service_fn(|order: u32| async move { Ok::<_, AnyError>(order) });
///
/// let mut worker = Redrive::new(store, JsonCodec::<u32>::new(), classifier, shop)
///     .policy(RedrivePolicy::new().rate(100.0).concurrency(8))?;
/// let progress = worker.drain().await?;
/// assert_eq!((progress.redriven, progress.failed), (0, 0)); // there are no letters
/// # Ok(()) }
/// ```
///
/// # Cancel safety
/// A worker that is dropped in the middle stops its calls. Their letters come back when their lease
/// ends, and are sent a second time.
pub struct Redrive<Req, S, R> {
    shared: Shared<Req, R>,
    service: S,
    which: Which,
    watch: Option<Watch>,
}

impl<Req, S, R> Redrive<Req, S, R> {
    /// A worker on `store`, for all that is due, with the default policy.
    pub fn new(
        store: Arc<dyn Store>,
        codec: impl Codec<Req> + 'static,
        classifier: Classifier<R>,
        service: S,
    ) -> Self {
        let shared = Shared {
            store,
            codec: Arc::new(codec),
            classifier,
            policy: RedrivePolicy::new(),
            random: Arc::default(),
            with_id: None,
            change: None,
        };
        let which = Which::Filter(Filter::any());
        Self { shared, service, which, watch: None }
    }

    /// How fast, and how often.
    ///
    /// # Errors
    /// A setting that cannot work.
    pub fn policy(mut self, policy: RedrivePolicy) -> Result<Self, ConfigError> {
        policy.check()?;
        self.shared.policy = policy;
        Ok(self)
    }

    /// Only open letters that match, when they are due.
    #[must_use]
    pub fn filter(mut self, filter: Filter) -> Self {
        self.which = Which::Filter(filter);
        self
    }

    /// Only these, each of them once, due or not, parked or not.
    #[must_use]
    pub fn ids(mut self, ids: impl IntoIterator<Item = IncidentId>) -> Self {
        let mut seen = HashSet::new();
        let once = ids.into_iter().filter(|id| seen.insert(*id));
        self.which = Which::Ids(once.collect());
        self
    }

    /// How the letter's id is put into a request, for a receiver that keeps one request of those
    /// with the same id. Default: as the codec does ([`Codec::identified`]).
    #[must_use]
    pub fn with_id(mut self, f: impl Fn(Req, IncidentId) -> Req + Send + Sync + 'static) -> Self {
        self.shared.with_id = Some(Arc::new(f));
        self
    }

    /// How a request is changed when somebody answered so
    /// ([`Decision::RetryWith`](crate::Decision::RetryWith)) after its call had ended; `None` if it
    /// cannot be, and the letter is parked. Default: it is parked.
    #[must_use]
    pub fn change(
        mut self,
        f: impl Fn(Req, &Value) -> Option<Req> + Send + Sync + 'static,
    ) -> Self {
        self.shared.change = Some(Arc::new(f));
        self
    }

    /// Hears what came of each letter, in the worker's own task: it must not block.
    #[must_use]
    pub fn watch(mut self, f: impl Fn(&Driven, &Progress) + Send + Sync + 'static) -> Self {
        self.watch = Some(Arc::new(f));
        self
    }

    /// Where the jitter of waits comes from.
    #[must_use]
    pub fn random(mut self, random: Random) -> Self {
        self.shared.random = Arc::new(random);
        self
    }

    /// What would be sent: up to `limit` letters from behind `after` on. Nothing is leased, and
    /// whether a letter is due is left aside. Of named letters all that exist are given, in the
    /// order of their names.
    ///
    /// # Errors
    /// The store's.
    pub async fn plan(&mut self, after: Option<u64>, limit: u32) -> Result<Plan<Req>, StoreError> {
        // Its parts, so that the service need not be `Sync`.
        let (shared, which) = (self.shared.clone(), self.which.clone());
        let planned = |letter| {
            let request = shared.request(&letter);
            Planned { letter, request }
        };
        match which {
            Which::Filter(filter) => {
                let filter = filter.states([LetterState::Open]);
                let page = shared.store.list(filter, after, limit).await?;
                let letters = page.letters.into_iter().map(planned).collect();
                Ok(Plan { letters, next: page.next })
            }
            Which::Ids(ids) => {
                let mut letters = Vec::new();
                for id in ids {
                    letters.extend(shared.store.get(id).await?.map(planned));
                }
                Ok(Plan { letters, next: None })
            }
        }
    }
}

impl<Req, S, R> Redrive<Req, S, R>
where
    Req: Send + 'static,
    S: Service<Req> + Clone + Send + 'static,
    S::Response: Send,
    S::Error: Send,
    S::Future: Send,
    R: Classify<S::Response, S::Error> + Send + Sync + 'static,
{
    /// One batch: as many letters as may be under way at a time.
    ///
    /// # Errors
    /// The store could not lease.
    pub async fn run_once(&mut self) -> Result<Progress, StoreError> {
        self.start().run(Until::Once, pending()).await
    }

    /// Goes on until nothing is due, or each named letter was tried. A letter that fails is not
    /// waited for.
    ///
    /// # Errors
    /// The store could not lease. What was under way is finished.
    pub async fn drain(&mut self) -> Result<Progress, StoreError> {
        self.start().run(Until::Drained, pending()).await
    }

    /// The same, but stops when `shutdown` says so.
    ///
    /// # Errors
    /// The store could not lease. What was under way is finished.
    pub async fn drain_until(
        &mut self,
        shutdown: impl Future<Output = ()>,
    ) -> Result<Progress, StoreError> {
        self.start().run(Until::Drained, shutdown).await
    }

    /// Works until `shutdown` says so: waits for letters and until they are due, and sees to
    /// retention. A store that fails is asked again, after up to 30 s.
    ///
    /// When told to stop it gives back what it has not begun, finishes what it has (each within the
    /// call's time limit), and returns.
    pub async fn run(&mut self, shutdown: impl Future<Output = ()>) -> Progress {
        let stopped = self.start().run(Until::Stopped, shutdown).await;
        // It ends when told to, and not with an error.
        stopped.unwrap_or_default()
    }

    fn start(&self) -> Run<Req, S, R> {
        let shared = Arc::new(self.shared.clone());
        Run::new(shared, self.service.clone(), self.which.clone(), self.watch.clone())
    }
}

impl<Req, S, R> fmt::Debug for Redrive<Req, S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redrive")
            .field("store", &self.shared.store)
            .field("policy", &self.shared.policy)
            .field("which", &self.which)
            .finish_non_exhaustive()
    }
}
