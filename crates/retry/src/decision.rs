//! Again, or not: the decision as a pure function.

use std::time::Duration;

use tower_triage_core::{
    Backoff, Delays, Disposition, Elapsed, ErrorClass, Failure, HintMode, Jitter, Refusal,
    RetryAfter, RetryRule, ServerWord, Vote,
};

use crate::policy::{ClassRule, RetryPolicy};

/// What is known of the request and of the outcome, besides the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// May the request be sent again although the peer may have worked on it (it is idempotent)?
    pub repeatable: bool,
    /// Is the request the complete unit of work?
    pub unit_of_work: bool,
    /// Time until the overall deadline; `None` without one.
    pub time_left: Option<Duration>,
    /// Can the request be sent again at all? The text says why not.
    pub replayable: Result<(), &'static str>,
    /// Has response data reached the caller already?
    pub committed: bool,
    /// Did a retry below give up on this very call?
    pub exhausted_below: bool,
    /// For how long nothing will pass, if this failure opened a breaker below.
    pub blocked_below: Option<Duration>,
    /// Can new credentials be obtained?
    pub can_refresh: bool,
}

/// A request that may be repeated, without a deadline.
impl Default for Facts {
    fn default() -> Self {
        Self {
            repeatable: true,
            unit_of_work: true,
            time_left: None,
            replayable: Ok(()),
            committed: false,
            exhausted_below: false,
            blocked_below: None,
            can_refresh: false,
        }
    }
}

/// Where one request stands: its failed attempts, in total and per class, and its delays.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    attempts: u32,
    by_class: [u32; ErrorClass::ALL.len()],
    delays: [Delays; ErrorClass::ALL.len()],
    refreshed: bool,
    /// How often it was sent again because nothing had seen it.
    resent: u32,
    /// Was it once because the peer had refused it?
    refused: bool,
}

impl Progress {
    /// Attempts that have failed so far.
    #[must_use]
    pub const fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Attempts that have failed with `class` so far.
    #[must_use]
    pub const fn attempts_of(&self, class: ErrorClass) -> u32 {
        self.by_class[class.index()]
    }

    const fn count(&mut self, class: ErrorClass) {
        self.attempts = self.attempts.saturating_add(1);
        let of_class = &mut self.by_class[class.index()];
        *of_class = of_class.saturating_add(1);
    }
}

/// What to do after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Decision {
    /// Send the request again, if the budget allows.
    Again {
        /// After this time.
        wait: Duration,
        /// The server asked for this wait; without it ours would be shorter.
        hinted: bool,
        /// Only after new credentials were obtained.
        refresh: bool,
    },
    /// Send it again at once, and keep the failed outcome until there is an answer: this failure
    /// opened a breaker below, which would refuse after the wait as well. (Unless there is another
    /// way: a fallback below for refusals, another key, another endpoint.)
    Ask,
    /// Send it again, as if this attempt had not been: nothing saw it, and the policy
    /// [resends](RetryPolicy::resend_unseen) such requests. Neither attempts nor budget are asked.
    Resend {
        /// After this time: at once, unless that has just been done.
        wait: Duration,
    },
    /// Return the failure.
    Stop(Refusal),
}

impl RetryPolicy {
    /// Decides after an attempt that ended in `failure`, which is counted in `progress` first; `u`
    /// is uniform in [0, 1) and jitters the wait.
    ///
    /// The order of the questions is fixed, and the first one that says no gives the reason: class,
    /// the server's word, committed, replayable, safe to repeat (disposition and idempotency, or
    /// unit of work), attempts left, hint within the cap, deadline not passed, wait within the
    /// deadline. The budget comes last and is asked by the layer.
    pub fn decide(
        &self,
        facts: &Facts,
        progress: &mut Progress,
        failure: &Failure,
        u: f64,
    ) -> Decision {
        if let Some(wait) = self.resend(facts, progress, failure, u) {
            return Decision::Resend { wait };
        }
        progress.count(failure.class);
        self.again(facts, progress, failure, u).unwrap_or_else(Decision::Stop)
    }

    /// Is a request that nothing has seen sent again, uncounted (gRPC A6, transparent retries), and
    /// after which wait? So it is under a policy with [`resend_unseen`](Self::resend_unseen), if the
    /// failure says nothing of the peer either: where the request never left us; and once, before
    /// any other failure, where the peer vouches that it was refused unseen.
    ///
    /// The first time comes at once. Then there is a wait, which doubles from 10 ms to a second, and
    /// after a hundred times an end: a peer that drops each connection is not to be stormed.
    pub fn resend(
        &self,
        facts: &Facts,
        progress: &mut Progress,
        failure: &Failure,
        u: f64,
    ) -> Option<Duration> {
        const MOST: u32 = 100;
        const BASE: Duration = Duration::from_millis(10);
        const CAP: Duration = Duration::from_secs(1);

        let often_enough = match failure.disposition {
            Disposition::NotSent => progress.resent >= MOST,
            Disposition::NotProcessed => progress.attempts > 0 || progress.refused,
            Disposition::MaybeProcessed | Disposition::Processed => true,
        };
        let unseen = self.resends_unseen()
            && failure.class == ErrorClass::Transient
            && failure.vote == Vote::Ignore
            && failure.server != ServerWord::Forbidden
            && facts.replayable.is_ok()
            && !facts.committed;
        if often_enough || !unseen {
            return None;
        }
        let backoff =
            Backoff::exponential(BASE, 2.0).cap(CAP).jitter(Jitter::Equal).first_immediate();
        let wait = backoff.next(&mut Delays::at(u64::from(progress.resent) + 1), u);
        if facts.time_left.is_some_and(|left| left.is_zero() || wait > left) {
            return None;
        }
        progress.resent += 1;
        progress.refused |= failure.disposition == Disposition::NotProcessed;
        Some(wait)
    }

    /// Would the very same request be sent again after `failure`, with attempts and budget left?
    ///
    /// ```
    /// use tower_triage_core::{Disposition, ErrorClass, Failure};
    /// use tower_triage_retry::{Facts, RetryPolicy};
    ///
    /// let policy = RetryPolicy::default();
    /// let post = Facts { repeatable: false, ..Facts::default() };
    /// let reset = Failure::new(ErrorClass::Transient);
    /// assert!(!policy.would_retry(&reset, &post));
    /// assert!(policy.would_retry(&reset.disposition(Disposition::NotSent), &post));
    /// ```
    #[must_use]
    pub fn would_retry(&self, failure: &Failure, facts: &Facts) -> bool {
        match self.decide(facts, &mut Progress::default(), failure, 0.0) {
            Decision::Again { refresh: false, .. } | Decision::Ask => !self.needs_change(failure),
            Decision::Resend { .. } => true,
            Decision::Again { refresh: true, .. } | Decision::Stop(_) => false,
        }
    }

    /// Is the request repeated after `failure` only if the nudge changes it
    /// ([`ClassRule::if_changed`]), as the server does not demand the very same?
    #[must_use]
    pub fn needs_change(&self, failure: &Failure) -> bool {
        failure.server != ServerWord::Demanded
            && self.rule(failure.class).is_some_and(ClassRule::needs_change)
    }

    /// Is a failure like this one repeated at all, by its class or the server's word alone?
    #[must_use]
    pub fn repeats(&self, failure: &Failure) -> bool {
        match failure.server {
            ServerWord::Forbidden => false,
            ServerWord::Demanded => true,
            ServerWord::Silent => self.rule(failure.class).is_some(),
        }
    }

    fn again(
        &self,
        facts: &Facts,
        progress: &mut Progress,
        failure: &Failure,
        u: f64,
    ) -> Result<Decision, Refusal> {
        let demanded = failure.server == ServerWord::Demanded;
        let refresh =
            facts.can_refresh && !progress.refreshed && failure.class.retry() == RetryRule::Refresh;
        let usual = ClassRule::default();
        let rule = match self.rule(failure.class) {
            Some(rule) => Some(rule),
            // The server lifts the class; how to wait, it leaves to us.
            None if demanded => Some(self.rule(ErrorClass::Transient).unwrap_or(&usual)),
            None if refresh => None,
            None => return Err(Refusal::ClassNotRetried),
        };
        if failure.server == ServerWord::Forbidden {
            return Err(match failure.reason {
                Elapsed::DEADLINE_REASON => Refusal::DeadlinePassed,
                _ => Refusal::ServerForbade,
            });
        }
        if facts.committed {
            return Err(Refusal::Committed);
        }
        facts.replayable.map_err(Refusal::NotReplayable)?;
        if !demanded {
            safe(facts, failure)?;
        }
        if facts.exhausted_below && self.honours_exhausted() {
            return Err(Refusal::ExhaustedBelow);
        }
        self.attempts_left(progress, failure.class, rule)?;
        let hint = self.hint(failure)?;
        if facts.time_left.is_some_and(|left| left.is_zero()) {
            return Err(Refusal::DeadlinePassed);
        }

        let retry = progress.attempts();
        let delays = &mut progress.delays[failure.class.index()];
        if self.counts_all_waits() {
            *delays = Delays::at(retry.into());
        }
        // With new credentials there is nothing of our own to wait for.
        let immediate = Backoff::immediate();
        let backoff = rule.filter(|_| !refresh).map_or(&immediate, ClassRule::backoff);
        let own = backoff.next(&mut { *delays }, u);
        // The upward jitter on a hint stays within what we are willing to wait.
        let longest = self.max_hint().max(own);
        let wait = backoff.next_hinted(delays, hint, self.hints(), u).min(longest);
        let hinted = hint.is_some() && wait != own;
        if facts.time_left.is_some_and(|left| wait > left) {
            return Err(Refusal::WaitOverDeadline);
        }
        progress.refreshed |= refresh;
        if facts.blocked_below.is_some_and(|time| wait < time) && !refresh {
            return Ok(Decision::Ask);
        }
        Ok(Decision::Again { wait, hinted, refresh })
    }

    fn attempts_left(
        &self,
        progress: &Progress,
        class: ErrorClass,
        rule: Option<&ClassRule>,
    ) -> Result<(), Refusal> {
        let used_up = |max: Option<u32>, made: u32| max.is_some_and(|max| made >= max);
        let of_class = rule.and_then(ClassRule::max_attempts);
        if used_up(self.max_attempts(), progress.attempts())
            || used_up(of_class, progress.attempts_of(class))
        {
            return Err(Refusal::AttemptsUsedUp);
        }
        Ok(())
    }

    /// The server's hint, as far as we follow it.
    fn hint(&self, failure: &Failure) -> Result<Option<RetryAfter>, Refusal> {
        let Some(hint) = failure.retry_after else { return Ok(None) };
        let within = hint != RetryAfter::Never && hint.duration() <= self.max_hint();
        if within || self.cuts_hints() {
            return Ok(Some(hint));
        }
        if self.retries_at_hint_cap() {
            return Ok(Some(RetryAfter::AtLeast(self.max_hint())));
        }
        Err(Refusal::HintOverCap)
    }

    /// Does the mode cut a long hint down by itself?
    const fn cuts_hints(&self) -> bool {
        match self.hints() {
            HintMode::Cap | HintMode::ClampToOwnPlus(_) => true,
            HintMode::AtLeast | HintMode::AsGiven | HintMode::ExactThenRestart => false,
        }
    }
}

/// Classification, section 2: the peer did nothing, or the request may be repeated.
fn safe(facts: &Facts, failure: &Failure) -> Result<(), Refusal> {
    match failure.class.retry() {
        RetryRule::Unit if !facts.unit_of_work => Err(Refusal::NotUnitOfWork),
        RetryRule::Unit => Ok(()),
        RetryRule::Safe | RetryRule::Refresh | RetryRule::Never => match failure.disposition {
            Disposition::NotSent | Disposition::NotProcessed => Ok(()),
            Disposition::MaybeProcessed | Disposition::Processed if facts.repeatable => Ok(()),
            Disposition::MaybeProcessed | Disposition::Processed => Err(Refusal::NotIdempotent),
        },
    }
}
