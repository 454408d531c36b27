//! The loop: leases, begins calls at their pace, and hears of what came of them.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, sleep_until};
use tower_service::Service;
use tower_triage_core::Classify;
use tower_triage_core::incident::IncidentId;

use crate::later::later;
use crate::redrive::drive::{Done, Shared};
use crate::redrive::pace::Pace;
use crate::redrive::progress::{Driven, Fate, Progress};
use crate::store::{Filter, LeaseRequest, Letter, StoreError};

/// The longest wait for a store that failed.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Which letters.
#[derive(Clone, Debug)]
pub(super) enum Which {
    /// Those that are due and match.
    Filter(Filter),
    /// These, due or not, parked or not.
    Ids(VecDeque<IncidentId>),
}

/// When to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// After one batch.
    Once,
    /// When there is nothing more to be had.
    Drained,
    /// When told to.
    Stopped,
}

/// Hears of each letter.
pub(super) type Watch = Arc<dyn Fn(&Driven, &Progress) + Send + Sync>;

/// One run of a worker.
pub(super) struct Run<Req, S, R> {
    pub(super) shared: Arc<Shared<Req, R>>,
    pub(super) service: S,
    pub(super) which: Which,
    pub(super) watch: Option<Watch>,
    pub(super) progress: Progress,
    /// Leased, and not begun.
    waiting: VecDeque<Letter>,
    /// Dropping it ends the calls that are under way; their leases end by themselves.
    calls: JoinSet<Done>,
    pace: Pace,
    /// How often the store has failed in a row.
    store_failed: u32,
}

impl<Req, S, R> Run<Req, S, R>
where
    Req: Send + 'static,
    S: Service<Req> + Clone + Send + 'static,
    S::Response: Send,
    S::Error: Send,
    S::Future: Send,
    R: Classify<S::Response, S::Error> + Send + Sync + 'static,
{
    pub(super) fn new(
        shared: Arc<Shared<Req, R>>,
        service: S,
        which: Which,
        watch: Option<Watch>,
    ) -> Self {
        let pace = Pace::new(shared.policy.rate);
        Self {
            shared,
            service,
            which,
            watch,
            progress: Progress::default(),
            waiting: VecDeque::new(),
            calls: JoinSet::new(),
            pace,
            store_failed: 0,
        }
    }

    /// Goes on until then. What is under way is finished first in any case, also after an error.
    pub(super) async fn run(
        mut self,
        until: Until,
        shutdown: impl Future<Output = ()>,
    ) -> Result<Progress, StoreError> {
        let store = Arc::clone(&self.shared.store);
        let mut shutdown = pin!(shutdown);
        let mut idle: Option<Pin<Box<dyn Future<Output = ()> + Send + '_>>> = None;
        let mut retain_at = Instant::now();
        let mut may_lease = true;
        let mut failed = None;
        self.count_left();
        loop {
            let retains = until == Until::Stopped && self.shared.policy.retention.is_some();
            let now = Instant::now();
            // A letter must not wait for its turn until its lease is over.
            let paused = self.pace.next(now) > later(now, self.turn());
            if paused {
                self.give_back("the service refuses calls for now").await;
            }
            if may_lease && idle.is_none() && !paused && self.has_room() {
                match self.lease().await {
                    Ok(true) => may_lease = until != Until::Once,
                    Ok(false) if until == Until::Stopped => idle = Some(store.changed()),
                    Ok(false) => may_lease = false,
                    Err(error) if until == Until::Stopped => {
                        idle = Some(Box::pin(sleep(self.store_wait(&error))));
                    }
                    Err(error) => (failed, may_lease) = (Some(error), false),
                }
            }
            if !may_lease && self.waiting.is_empty() && self.calls.is_empty() {
                return failed.map_or(Ok(self.progress), Err);
            }
            let begins = !self.waiting.is_empty() || paused;
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(done) = self.calls.join_next() => {
                    self.hear_joined(done);
                    // A letter may have come back.
                    may_lease |= until == Until::Drained && failed.is_none();
                }
                () = sleep_until(self.pace.next(now)), if begins => self.begin(),
                () = async { if let Some(idle) = &mut idle { idle.await } }, if idle.is_some() => {
                    idle = None;
                }
                () = sleep_until(retain_at), if retains => {
                    self.retain().await;
                    retain_at = later(Instant::now(), self.shared.policy.retain_every);
                }
            }
        }
        self.stop().await;
        Ok(self.progress)
    }

    /// Gives back what was not begun, and finishes what was.
    async fn stop(&mut self) {
        self.give_back("the worker was stopped").await;
        while let Some(done) = self.calls.join_next().await {
            self.hear_joined(done);
        }
    }

    async fn give_back(&mut self, why: &str) {
        while let Some(letter) = self.waiting.pop_front() {
            let done = self.shared.release(&letter, why).await;
            self.hear(done);
        }
    }

    fn hear_joined(&mut self, done: Result<Done, JoinError>) {
        match done {
            Ok(done) => self.hear(done),
            // A call's own panic is caught: the store panicked. The lease ends by itself.
            Err(error) => tracing::error!(%error, "a redriven letter is not settled"),
        }
    }

    /// How long a leased letter may wait for its turn.
    fn turn(&self) -> Duration {
        self.shared.policy.lease / 4
    }

    fn has_room(&self) -> bool {
        self.waiting.is_empty() && self.calls.len() < self.shared.policy.concurrency
    }

    /// Leases as many as there is room for; false if there are none.
    async fn lease(&mut self) -> Result<bool, StoreError> {
        let policy = &self.shared.policy;
        let free = policy.concurrency - self.calls.len();
        // What would wait too long for its turn is left to others.
        let most = free.min(self.pace.within(self.turn()));
        let request = LeaseRequest::new(&*policy.owner, u32::try_from(most).unwrap_or(u32::MAX))
            .time(policy.lease)
            .park_after(policy.park_after);
        let (request, named) = match &self.which {
            Which::Filter(filter) => (request.filter(filter.clone()), Vec::new()),
            Which::Ids(ids) if ids.is_empty() => return Ok(false),
            Which::Ids(ids) => {
                let named: Vec<_> = ids.iter().take(most).copied().collect();
                (request.ids(named.iter().copied()), named)
            }
        };
        let letters = self.shared.store.lease(request).await?;
        self.store_failed = 0;
        let any = !letters.is_empty() || !named.is_empty();
        let is_leased = |id: &IncidentId| letters.iter().any(|letter| letter.id() == *id);
        let skipped: Vec<_> = named.iter().copied().filter(|id| !is_leased(id)).collect();
        self.waiting.extend(letters);
        if let Which::Ids(ids) = &mut self.which {
            ids.drain(..named.len() - skipped.len());
        }
        for id in skipped {
            if let Which::Ids(ids) = &mut self.which {
                ids.pop_front();
            }
            self.hear(Done { id, fate: Fate::Skipped, pause: None });
        }
        self.count_left();
        Ok(any)
    }

    fn begin(&mut self) {
        if let Some(letter) = self.waiting.pop_front() {
            self.pace.begin(Instant::now());
            let shared = Arc::clone(&self.shared);
            self.calls.spawn(shared.drive(self.service.clone(), letter));
        }
    }

    fn hear(&mut self, Done { id, fate, pause }: Done) {
        if let Some(pause) = pause {
            self.pace.pause(later(Instant::now(), pause));
        }
        self.progress.add(&fate);
        self.count_left();
        tracing::debug!(%id, ?fate, "a letter was driven again");
        if let Some(watch) = &self.watch {
            watch(&Driven { id, fate }, &self.progress);
        }
    }

    fn count_left(&mut self) {
        let named = match &self.which {
            Which::Filter(_) => 0,
            Which::Ids(ids) => ids.len(),
        };
        self.progress.left = (self.waiting.len() + self.calls.len() + named) as u64;
    }

    /// The wait after the store has failed once more.
    fn store_wait(&mut self, error: &StoreError) -> Duration {
        tracing::warn!(%error, "the store of a re-drive worker failed");
        self.store_failed = self.store_failed.saturating_add(1);
        let doubled = 2_u32.saturating_pow(self.store_failed.saturating_sub(1).min(10));
        (Duration::from_secs(1) * doubled).min(LONGEST_WAIT)
    }

    async fn retain(&mut self) {
        let Some(retention) = self.shared.policy.retention else { return };
        if let Err(error) = self.shared.store.retain(retention).await {
            tracing::warn!(%error, "the store forgets nothing this time");
        }
    }
}
