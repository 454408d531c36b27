//! A store that ends with its process: for tests, and to begin with.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tower_triage_core::incident::IncidentId;

use crate::escalation::Escalation;
use crate::store::{
    Change, Dropped, Filter, LeaseRequest, Letter, Page, Pending, Put, Retention, Stats, Store,
    StoreError,
};
use crate::wall_clock::WallClock;

/// Keeps letters in memory. For tests and to begin with: what is in it ends with the process.
#[derive(Debug, Default)]
pub struct MemoryStore {
    clock: WallClock,
    letters: Mutex<Letters>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Letters {
    by_seq: BTreeMap<u64, Letter>,
    seq_of: HashMap<IncidentId, u64>,
    last: u64,
    dropped: u64,
}

impl Letters {
    fn find(&mut self, id: IncidentId) -> Option<&mut Letter> {
        self.by_seq.get_mut(self.seq_of.get(&id)?)
    }

    fn remove(&mut self, seq: u64) -> Option<Letter> {
        let letter = self.by_seq.remove(&seq)?;
        self.seq_of.remove(&letter.id());
        Some(letter)
    }
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// With a clock of your own.
    #[must_use]
    pub fn clock(mut self, clock: WallClock) -> Self {
        self.clock = clock;
        self
    }

    fn lock(&self) -> MutexGuard<'_, Letters> {
        // Nothing foreign runs under the lock.
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An answer that is there at once.
fn now<T: Send + 'static>(answer: Result<T, StoreError>) -> Pending<'static, T> {
    Box::pin(std::future::ready(answer))
}

impl Store for MemoryStore {
    fn put(&self, escalation: Escalation) -> Pending<'_, Put> {
        let at = self.clock.now();
        let mut letters = self.lock();
        let put = match letters.find(escalation.id) {
            Some(letter) => letter.put_again(escalation, at),
            None => {
                letters.last += 1;
                let seq = letters.last;
                let letter = Letter { seq, ..Letter::new(escalation, at) };
                letters.seq_of.insert(letter.id(), seq);
                letters.by_seq.insert(seq, letter);
                Put::New
            }
        };
        drop(letters);
        self.changed.notify_waiters();
        now(Ok(put))
    }

    fn get(&self, id: IncidentId) -> Pending<'_, Option<Letter>> {
        now(Ok(self.lock().find(id).map(|letter| letter.clone())))
    }

    fn list(&self, filter: Filter, after: Option<u64>, limit: u32) -> Pending<'_, Page> {
        let (at, limit) = (self.clock.now(), limit as usize);
        let letters = self.lock();
        let from = after.map_or(0, |seq| seq.saturating_add(1));
        let matching = letters.by_seq.range(from..).map(|(_, letter)| letter);
        let mut found = matching.filter(|letter| filter.matches(letter, at)).take(limit + 1);
        let page: Vec<_> = found.by_ref().take(limit).cloned().collect();
        let more = found.next().is_some();
        let next = page.last().filter(|_| more).map(|letter| letter.seq);
        now(Ok(Page::new(page, next)))
    }

    fn lease(&self, request: LeaseRequest) -> Pending<'_, Vec<Letter>> {
        let at = self.clock.now();
        let mut leased = Vec::new();
        for letter in self.lock().by_seq.values_mut() {
            if leased.len() >= request.limit as usize {
                break;
            }
            if letter.is_leasable(&request, at) && letter.lease(&request, at) {
                leased.push(letter.clone());
            }
        }
        now(Ok(leased))
    }

    fn change(&self, id: IncidentId, change: Change) -> Pending<'_, Letter> {
        let at = self.clock.now();
        let changed = match self.lock().find(id) {
            None => Err(StoreError::NotFound(id)),
            Some(letter) => match letter.apply(change, at) {
                Ok(()) => Ok(letter.clone()),
                Err(refused) => Err(StoreError::Refused(id, refused)),
            },
        };
        self.changed.notify_waiters();
        now(changed)
    }

    fn stats(&self) -> Pending<'_, Stats> {
        let at = self.clock.now();
        let letters = self.lock();
        let mut stats = Stats { dropped: letters.dropped, ..Stats::default() };
        letters.by_seq.values().for_each(|letter| stats.add(letter, at));
        now(Ok(stats))
    }

    fn retain(&self, retention: Retention) -> Pending<'_, Dropped> {
        let at = self.clock.now();
        let mut letters = self.lock();
        let old = letters.by_seq.values().filter(|letter| retention.outlived(letter, at));
        let mut victims: Vec<u64> = old.map(|letter| letter.seq).collect();
        let kept = letters.by_seq.len() - victims.len();
        let beyond = kept.saturating_sub(usize::try_from(retention.most).unwrap_or(usize::MAX));
        if beyond > 0 {
            let rest = letters.by_seq.values().filter(|letter| !retention.outlived(letter, at));
            let mut ranks: Vec<_> = rest
                .filter(|letter| Retention::may_drop(letter, at))
                .map(Retention::rank)
                .collect();
            ranks.sort_unstable();
            victims.extend(ranks.into_iter().take(beyond).map(|(_, seq)| seq));
        }
        let mut dropped = Dropped::default();
        for seq in victims {
            letters.remove(seq).iter().for_each(|letter| dropped.add(letter));
        }
        letters.dropped += dropped.open;
        dropped.log();
        now(Ok(dropped))
    }

    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let notified = self.changed.notified();
        Box::pin(async move {
            _ = tokio::time::timeout(std::time::Duration::from_secs(1), notified).await;
        })
    }
}
