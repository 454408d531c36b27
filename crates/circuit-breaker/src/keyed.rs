//! Many circuits by key, in bounded room.
//!
//! Known keys are found in a map that is only read, without a lock. New ones go to a second map
//! under a lock; once that has been asked about as often as both are long, they are merged into a
//! new map for readers. So each step costs the same on average, however many keys there are.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tower_triage_core::{ConfigError, Key};

use crate::breaker::{Breaker, nanos};
use crate::circuit::Chance;
use crate::settings::Settings;
use crate::state::State;

/// How a keyed breaker is bounded: by default to 1024 circuits, each forgotten after 10 minutes
/// without use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "Unchecked"))]
pub struct KeyedSettings {
    capacity: NonZeroUsize,
    idle: Duration,
}

impl KeyedSettings {
    /// At most `capacity` circuits, the least recently used go first; one that was not used for
    /// `idle` is forgotten.
    ///
    /// # Errors
    /// A capacity of zero; an idle time below 1 ms, for a circuit that is forgotten between two
    /// calls never opens.
    pub fn new(capacity: usize, idle: Duration) -> Result<Self, ConfigError> {
        let capacity = NonZeroUsize::new(capacity)
            .ok_or_else(|| ConfigError::new("capacity", 0, "must be at least 1"))?;
        if idle < Duration::from_millis(1) {
            return Err(ConfigError::new("idle", format!("{idle:?}"), "must be at least 1 ms"));
        }
        Ok(Self { capacity, idle })
    }

    /// Circuits at most.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity.get()
    }

    /// A circuit that was not used for so long is forgotten. It is used when a call of it ends or is
    /// dropped, is refused, or is let in as a probe.
    #[must_use]
    pub const fn idle(&self) -> Duration {
        self.idle
    }
}

impl Default for KeyedSettings {
    fn default() -> Self {
        const CAPACITY: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
        Self { capacity: CAPACITY, idle: Duration::from_secs(600) }
    }
}

/// [`KeyedSettings`] as a file has them.
#[cfg(feature = "serde")]
#[derive(serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Unchecked {
    capacity: usize,
    idle: Duration,
}

#[cfg(feature = "serde")]
impl Default for Unchecked {
    fn default() -> Self {
        let KeyedSettings { capacity, idle } = KeyedSettings::default();
        Self { capacity: capacity.get(), idle }
    }
}

#[cfg(feature = "serde")]
impl TryFrom<Unchecked> for KeyedSettings {
    type Error = ConfigError;

    fn try_from(Unchecked { capacity, idle }: Unchecked) -> Result<Self, ConfigError> {
        Self::new(capacity, idle)
    }
}

/// The circuit of one key.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) breaker: Breaker,
    /// When it was made, or a call of it last ended, was dropped, was refused or was let in as a probe,
    /// in nanoseconds.
    used: AtomicU64,
    /// It is the key's circuit no more: who remembers it has to ask again.
    forgotten: AtomicBool,
}

/// The circuit that a service instance asked for last: most call one key again and again.
#[derive(Debug, Default)]
pub(crate) struct Latest(Option<Arc<Entry>>);

/// Hashed fast: keys are short, and come from a small set. The seed is of this process.
type Map = HashMap<Key, Arc<Entry>, foldhash::fast::RandomState>;

#[derive(Debug)]
pub(crate) struct Keyed {
    limits: KeyedSettings,
    known: ArcSwap<Map>,
    rest: Mutex<Rest>,
    overflowed: AtomicU64,
}

/// What is not yet known to readers.
#[derive(Debug, Default)]
struct Rest {
    map: Map,
    /// Questions since the last merge.
    asked: usize,
    /// Unknown keys since the last sweep.
    unknown: usize,
    sweep_at: Duration,
}

impl Entry {
    fn new(key: Key, settings: &Settings, now: Duration) -> Arc<Self> {
        let breaker = Breaker::one_of_many(key, settings);
        let forgotten = AtomicBool::new(false);
        Arc::new(Self { breaker, used: AtomicU64::new(nanos(now)), forgotten })
    }

    /// It is used now.
    pub(crate) fn touch(&self, now: Duration) {
        self.used.store(nanos(now), Ordering::Relaxed);
    }

    fn is(&self, key: &Key) -> bool {
        self.breaker.is_named(key) && !self.forgotten.load(Ordering::Relaxed)
    }

    fn forget(&self) {
        self.forgotten.store(true, Ordering::Relaxed);
    }

    fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// May it be forgotten? Not while it is open or probed, nor if somebody forced its state.
    fn is_dispensable(&self, settings: &Settings) -> bool {
        match self.breaker.state() {
            State::Closed => true,
            State::Open => self.breaker.chance(settings) == Chance::Now,
            State::HalfOpen | State::ForcedOpen | State::ForcedClosed | State::Disabled => false,
        }
    }

    /// Was it not used for so long that it is forgotten?
    fn has_expired(&self, settings: &Settings, idle: Duration, now: Duration) -> bool {
        let unused = nanos(now).saturating_sub(self.used()) >= nanos(idle);
        let probed = self.breaker.state() == State::HalfOpen;
        unused && (probed || self.is_dispensable(settings))
    }
}

impl Keyed {
    pub(crate) fn new(limits: KeyedSettings) -> Self {
        Self {
            limits,
            known: ArcSwap::default(),
            rest: Mutex::default(),
            overflowed: AtomicU64::new(0),
        }
    }

    /// How often there was no room for a key.
    pub(crate) fn overflowed(&self) -> u64 {
        self.overflowed.load(Ordering::Relaxed)
    }

    /// The circuit of `key`, made if there is none; `None` if there is no room for it.
    pub(crate) fn entry(
        &self,
        key: &Key,
        latest: &mut Latest,
        settings: &Settings,
    ) -> Option<Arc<Entry>> {
        match &latest.0 {
            Some(entry) if entry.is(key) => Some(Arc::clone(entry)),
            _ => {
                latest.0 = self.find(key, settings);
                latest.0.clone()
            }
        }
    }

    #[inline(never)]
    fn find(&self, key: &Key, settings: &Settings) -> Option<Arc<Entry>> {
        match self.known.load().get(key) {
            Some(entry) => Some(Arc::clone(entry)),
            None => self.entry_cold(key, settings),
        }
    }

    #[cold]
    fn entry_cold(&self, key: &Key, settings: &Settings) -> Option<Arc<Entry>> {
        let now = settings.clock.now();
        let mut rest = self.lock();
        rest.asked += 1;
        let known = self.known.load();
        if let Some(entry) = known.get(key).or_else(|| rest.map.get(key)) {
            let entry = Arc::clone(entry);
            if rest.asked >= known.len() + rest.map.len() {
                self.merge(&mut rest);
            }
            return Some(entry);
        }
        let capacity = self.limits.capacity.get();
        rest.unknown += 1;
        // A sweep in vain is not repeated for each key of a flood.
        let full = known.len() + rest.map.len() >= capacity;
        if now >= rest.sweep_at || (full && rest.unknown >= capacity / 8) {
            self.sweep(&mut rest, settings, now);
        }
        if self.known.load().len() + rest.map.len() >= capacity {
            self.overflowed.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let entry = Entry::new(*key, settings, now);
        rest.map.insert(*key, Arc::clone(&entry));
        Some(entry)
    }

    /// The circuit of `key`, if there is one.
    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        let rest = self.lock();
        self.known.load().get(key).or_else(|| rest.map.get(key)).cloned()
    }

    /// All circuits that are not yet to be forgotten.
    pub(crate) fn entries(&self, settings: &Settings) -> Vec<Arc<Entry>> {
        let mut rest = self.lock();
        self.sweep(&mut rest, settings, settings.clock.now());
        self.known.load().values().cloned().collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Rest> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes all keys known to readers.
    fn merge(&self, rest: &mut Rest) {
        let mut map = Map::clone(&self.known.load());
        map.extend(rest.map.drain());
        rest.asked = 0;
        self.known.store(Arc::new(map));
    }

    /// Forgets what has expired, and at capacity an eighth of the rest, the least recently used.
    fn sweep(&self, rest: &mut Rest, settings: &Settings, now: Duration) {
        let mut map = Map::clone(&self.known.load());
        map.extend(rest.map.drain());
        map.retain(|_, entry| {
            let expired = entry.has_expired(settings, self.limits.idle, now);
            if expired {
                entry.forget();
            }
            !expired
        });
        let capacity = self.limits.capacity.get();
        if map.len() >= capacity {
            let mut by_age: Vec<(u64, Key)> = map
                .iter()
                .filter(|(_, entry)| entry.is_dispensable(settings))
                .map(|(key, entry)| (entry.used(), *key))
                .collect();
            by_age.sort_unstable_by_key(|(used, _)| *used);
            let surplus = map.len() - capacity + (capacity / 8).max(1);
            for (_, key) in by_age.into_iter().take(surplus) {
                if let Some(entry) = map.remove(&key) {
                    entry.forget();
                }
            }
        }
        rest.asked = 0;
        rest.unknown = 0;
        rest.sweep_at = now.saturating_add(self.limits.idle);
        self.known.store(Arc::new(map));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_cannot_work_name_their_field() {
        let field = |capacity, idle| KeyedSettings::new(capacity, idle).unwrap_err().field();
        assert_eq!(field(0, Duration::from_secs(1)), "capacity");
        assert_eq!(field(8, Duration::ZERO), "idle");
        let settings = KeyedSettings::new(8, Duration::from_secs(1)).unwrap();
        assert_eq!((settings.capacity(), settings.idle()), (8, Duration::from_secs(1)));
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_file_is_checked_too() {
        let read = |json: &str| serde_json::from_str::<KeyedSettings>(json);
        let zero = r#"{"idle":{"secs":0,"nanos":0}}"#;
        assert!(read(zero).unwrap_err().to_string().contains("idle"));
        assert!(read(r#"{"capacity":0}"#).unwrap_err().to_string().contains("capacity"));
        assert!(read(r#"{"capacities":8}"#).is_err());
        let settings = read(r#"{"capacity":8}"#).unwrap();
        assert_eq!((settings.capacity(), settings.idle()), (8, Duration::from_secs(600)));
        assert_eq!(read(&serde_json::to_string(&settings).unwrap()).unwrap(), settings);
    }
}
