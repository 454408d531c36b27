//! How hard a desk tries, and how much it holds.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tower_triage_core::{Backoff, ConfigError, Jitter, duration_text};

/// How hard a [`Desk`](crate::Desk) tries, and how much it holds. Plain data; in a file the spans
/// are text (`"30s"`).
///
/// | setting | default | refused |
/// |---|---|---|
/// | [`tries`](Self::tries) | 3 | 0 |
/// | [`backoff`](Self::backoff) | 100 ms, doubling up to 5 s, full jitter | what [`Backoff`] refuses |
/// | [`sink_timeout`](Self::sink_timeout) | 30 s | 0 |
/// | [`window`](Self::window) | 60 s | 0 |
/// | [`resolve_after`](Self::resolve_after) | 5 min | 0 |
/// | [`fingerprints`](Self::fingerprints) | 1024 | 0 |
/// | [`queue`](Self::queue) | 1024 | 0 |
/// | [`workers`](Self::workers) | 16 | 0 |
/// | [`overflow`](Self::overflow) | drop newest | |
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeskPolicy {
    pub(crate) tries: u32,
    pub(crate) backoff: Backoff,
    #[serde(with = "duration_text")]
    pub(crate) sink_timeout: Duration,
    #[serde(with = "duration_text")]
    pub(crate) window: Duration,
    #[serde(with = "maybe_duration_text")]
    pub(crate) resolve_after: Option<Duration>,
    pub(crate) fingerprints: usize,
    pub(crate) queue: usize,
    pub(crate) workers: usize,
    pub(crate) overflow: Overflow,
}

/// Who loses when the queue is full. What is lost is counted ([`DeskCounts::dropped`](crate::DeskCounts::dropped)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// What comes last: the beginning of a trouble is what explains it.
    #[default]
    DropNewest,
    /// What has waited longest: what is going on now matters more.
    DropOldest,
    /// The caller's time: it waits for a place, at most as long as [`EscalatePolicy::wait`](crate::EscalatePolicy::wait)
    /// says, and loses its escalation then. What comes from where nobody can wait (a dropped call, a
    /// layer below another) is dropped if it is the newest.
    Wait,
}

impl Default for DeskPolicy {
    fn default() -> Self {
        Self {
            tries: 3,
            backoff: Backoff::exponential(Duration::from_millis(100), 2.0)
                .cap(Duration::from_secs(5))
                .jitter(Jitter::Full),
            sink_timeout: Duration::from_secs(30),
            window: Duration::from_secs(60),
            resolve_after: Some(Duration::from_secs(5 * 60)),
            fingerprints: 1024,
            queue: 1024,
            workers: 16,
            overflow: Overflow::DropNewest,
        }
    }
}

impl DeskPolicy {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// How often one sink is tried before the next one is, the first time included.
    #[must_use]
    pub const fn tries(mut self, tries: u32) -> Self {
        self.tries = tries;
        self
    }

    /// The waits between the tries of one sink.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// How long one try may take. A sink that hangs must not hold a worker for ever.
    #[must_use]
    pub const fn sink_timeout(mut self, limit: Duration) -> Self {
        self.sink_timeout = limit;
        self
    }

    /// Within this time there is one notification per fingerprint and receiver.
    #[must_use]
    pub const fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    /// When no failure of a fingerprint has come for this long, the receivers that were notified
    /// of it are told that it is over ([`Escalation::resolved`](crate::Escalation::resolved)), with
    /// the count of what they were not told yet. Never before the window is over. `None`: they are
    /// not told. In a file a span (`"5m"`) or `null`.
    #[must_use]
    pub const fn resolve_after(mut self, quiet: Option<Duration>) -> Self {
        self.resolve_after = quiet;
        self
    }

    /// How many fingerprints storm control remembers per receiver. For one more the fingerprint
    /// notified longest ago is forgotten: it is notified again at once, and its end is not told.
    #[must_use]
    pub const fn fingerprints(mut self, most: usize) -> Self {
        self.fingerprints = most;
        self
    }

    /// How many deliveries may wait in the queue.
    #[must_use]
    pub const fn queue(mut self, most: usize) -> Self {
        self.queue = most;
        self
    }

    /// How many deliveries from the queue may be under way at a time.
    #[must_use]
    pub const fn workers(mut self, most: usize) -> Self {
        self.workers = most;
        self
    }

    /// Who loses when the queue is full.
    #[must_use]
    pub const fn overflow(mut self, overflow: Overflow) -> Self {
        self.overflow = overflow;
        self
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let zero = [
            ("tries", self.tries == 0),
            ("sink_timeout", self.sink_timeout.is_zero()),
            ("window", self.window.is_zero()),
            ("resolve_after", self.resolve_after.is_some_and(|quiet| quiet.is_zero())),
            ("fingerprints", self.fingerprints == 0),
            ("queue", self.queue == 0),
            ("workers", self.workers == 0),
        ];
        match zero.into_iter().find(|(_, is_zero)| *is_zero) {
            Some((field, _)) => Err(ConfigError::new(field, 0, "it must be more than nothing")),
            None => self.backoff.check("backoff"),
        }
    }
}

/// A span as text, or nothing.
mod maybe_duration_text {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use tower_triage_core::duration_text;

    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    struct Text(#[serde(with = "duration_text")] Duration);

    pub(super) fn serialize<S: Serializer>(
        span: &Option<Duration>,
        out: S,
    ) -> Result<S::Ok, S::Error> {
        span.map(Text).serialize(out)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<Text>::deserialize(from)?.map(|Text(span)| span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_plain_data_and_a_misspelt_field_is_an_error() {
        let text = r#"{"tries":5,"window":"2m","overflow":"drop_oldest"}"#;
        let policy: DeskPolicy = serde_json::from_str(text).unwrap();
        let expected = DeskPolicy::new().tries(5).window(Duration::from_secs(120));
        assert_eq!(policy, expected.overflow(Overflow::DropOldest));
        let again = serde_json::to_string(&policy).unwrap();
        assert_eq!(serde_json::from_str::<DeskPolicy>(&again).unwrap(), policy);
        assert!(serde_json::from_str::<DeskPolicy>(r#"{"trys":5}"#).is_err());
        for (text, quiet) in [("null", None), (r#""90s""#, Some(Duration::from_secs(90)))] {
            let policy: DeskPolicy =
                serde_json::from_str(&format!(r#"{{"resolve_after":{text}}}"#)).unwrap();
            assert_eq!(policy, DeskPolicy::new().resolve_after(quiet));
        }
    }
}
