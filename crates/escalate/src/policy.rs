//! When the layer acts, and how long it may hold the caller up.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tower_triage_core::{ClassSet, ErrorClass, EscalateWhen, Failure, Incident, duration_text};

use crate::escalation::Outcome;
use crate::write;

/// When an [`EscalateLayer`](crate::EscalateLayer) acts. Plain data; every value works. In a file
/// the classes are the lists `now` and `on_exhaustion`, and the wait is text (`"250ms"`).
///
/// | setting | default |
/// |---|---|
/// | [`when`](Self::when) | the class's own ([`ErrorClass::escalate`]) |
/// | [`record_recovered`](Self::record_recovered) | no |
/// | [`circuit_opened`](Self::circuit_opened) | yes |
/// | [`recording`](Self::recording) | [`Recording::Durable`] |
/// | [`wait`](Self::wait) | 250 ms |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EscalatePolicy {
    now: ClassSet,
    on_exhaustion: ClassSet,
    record_recovered: bool,
    circuit_opened: bool,
    pub(crate) recording: Recording,
    #[serde(with = "duration_text")]
    pub(crate) wait: Duration,
}

/// What has to be done before the caller gets its outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recording {
    /// The escalation is with its receivers: with a [store](crate::store) or a file as the first
    /// sink it is there even if the process is killed now. Waited for at most
    /// [`wait`](EscalatePolicy::wait); then nothing is claimed, and delivery goes on in the queue.
    #[default]
    Durable,
    /// The escalation has a place in the desk's queue. A process that is killed loses what is in
    /// it.
    Background,
}

impl Default for EscalatePolicy {
    fn default() -> Self {
        let classes = |when| ErrorClass::ALL.into_iter().filter(|c| c.escalate() == when).collect();
        Self {
            now: classes(EscalateWhen::Now),
            on_exhaustion: classes(EscalateWhen::OnExhaustion),
            record_recovered: false,
            circuit_opened: true,
            recording: Recording::Durable,
            wait: Duration::from_millis(250),
        }
    }
}

impl EscalatePolicy {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// When failures of the given classes reach somebody.
    #[must_use]
    pub fn when(mut self, classes: impl Into<ClassSet>, when: EscalateWhen) -> Self {
        for class in classes.into().iter() {
            (self.now, self.on_exhaustion) = match when {
                EscalateWhen::Now => (self.now.with(class), self.on_exhaustion.without(class)),
                EscalateWhen::OnExhaustion => {
                    (self.now.without(class), self.on_exhaustion.with(class))
                }
                EscalateWhen::Never => (self.now.without(class), self.on_exhaustion.without(class)),
            };
        }
        self
    }

    /// Are calls recorded that failed on the way and were rescued by a retry or a fallback? Without
    /// this only those that met a class which escalates at once.
    #[must_use]
    pub const fn record_recovered(mut self, yes: bool) -> Self {
        self.record_recovered = yes;
        self
    }

    /// Is it an escalation that a breaker opened during the call, whatever becomes of the call?
    #[must_use]
    pub const fn circuit_opened(mut self, yes: bool) -> Self {
        self.circuit_opened = yes;
        self
    }

    /// What has to be done before the caller gets its outcome.
    #[must_use]
    pub const fn recording(mut self, recording: Recording) -> Self {
        self.recording = recording;
        self
    }

    /// How long the caller's outcome may be held up so that the incident can say whether somebody
    /// was told. When it is over, delivery goes on in the desk's queue. Zero: never held up.
    ///
    /// If a sink fails or hangs, the next one gets its turn after `tries` times the desk's
    /// [`sink_timeout`](crate::DeskPolicy::sink_timeout) and the waits in between: for the spill file to be
    /// reached while the caller waits, this has to be longer.
    #[must_use]
    pub const fn wait(mut self, longest: Duration) -> Self {
        self.wait = longest;
        self
    }

    pub(crate) fn escalates(&self, class: ErrorClass) -> bool {
        self.now.contains(class) || self.on_exhaustion.contains(class)
    }

    /// The cheap question of every call: may there be something to do? `seen` is what the call met.
    pub(crate) fn concerns(&self, seen: ClassSet, circuit_opened: bool) -> bool {
        self.record_recovered && !seen.is_empty()
            || self.circuit_opened && circuit_opened
            || !seen.intersection(self.now).is_empty()
    }

    /// What has to be told of a call that ended, or goes on to end, with `outcome`: the failure
    /// that decides. `leaving` is the failure that leaves the layer, if one does.
    pub(crate) fn due(
        &self,
        incident: &Incident,
        leaving: Option<Failure>,
        outcome: Outcome,
    ) -> Option<Failure> {
        if let Some(failure) = leaving.filter(|failure| self.escalates(failure.class)) {
            return Some(failure);
        }
        let mut now = self.now;
        // "Now, if no refresh helps" (classification, section 1).
        if outcome == Outcome::Recovered && write::refreshed(incident) {
            now = now.without(ErrorClass::Auth);
        }
        if let Some(failure) = write::last_failure(incident, now) {
            return Some(failure);
        }
        let forgotten = incident.collapsed > 0 && incident.classes.iter().any(|c| now.contains(c));
        let rescued = self.record_recovered && outcome == Outcome::Recovered;
        if rescued || forgotten || self.circuit_opened && write::circuit_opened(incident) {
            return leaving.or(incident.failure);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_plain_data() {
        let policy = EscalatePolicy::new().when(ErrorClass::Quota, EscalateWhen::Never);
        let text = serde_json::to_string(&policy).unwrap();
        assert_eq!(serde_json::from_str::<EscalatePolicy>(&text).unwrap(), policy);
        let text = r#"{"now":["Auth"],"wait":"1s"}"#;
        let policy: EscalatePolicy = serde_json::from_str(text).unwrap();
        assert!(!policy.escalates(ErrorClass::Quota) && policy.escalates(ErrorClass::Auth));
        assert_eq!(policy.wait, Duration::from_secs(1));
    }
}
