//! What happens after `call`: attempts, decisions, waits.

use std::fmt;
use std::future::Future;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::Instant;
use tower_service::Service;
use tower_triage_core::incident::{self, Aside, Scope};
use tower_triage_core::{
    CircuitOpen, Classify, Counted, Failure, LayerKind, Operation, Refusal, Sharing, StepKind,
    Verdict,
};

use crate::begin::About;
use crate::budget::Spending;
use crate::decision::{Decision, Facts, Progress};
use crate::layer::Core;
use crate::nudge::Nudge;
use crate::pause::Pause;
use crate::policy::RetryPlan;
use crate::refresh::Refresh;
use crate::replay::{Attempt, Release, Replay};
use crate::request_policy::RequestPolicy;
use crate::service::Stock;
use crate::span::AttemptSpan;

pin_project! {
    /// The future of [`Retry`](crate::Retry).
    ///
    /// # Cancel safety
    /// Dropped, it drops the attempt or the wait; no task and no timer stays.
    pub struct ResponseFuture<S, Req, R, P, N, F, M = Counted>
    where
        S: Service<Req>,
        P: Replay<Req>,
        P: Release<S::Response>,
        F: Refresh,
        M: Sharing<Stock<S, R, P, N, F>>,
    {
        #[pin]
        state: State<S::Future>,
        call: Call<S, Req, R, P, N, F, M>,
        scope: Scope,
    }

    impl<S, Req, R, P, N, F, M> PinnedDrop for ResponseFuture<S, Req, R, P, N, F, M>
    where
        S: Service<Req>,
        P: Replay<Req>,
        P: Release<S::Response>,
        F: Refresh,
        M: Sharing<Stock<S, R, P, N, F>>,
    {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            if !matches!(*this.state, State::Done) {
                // What a cancelled attempt says on its way out belongs to its span.
                let _entered = this.call.span.enter();
                this.state.set(State::Done);
            }
        }
    }
}

/// Why a failure that an identical repeat does not heal is returned.
const UNCHANGED: &str = "nothing has changed the request";

/// Attempts in one poll, without a wait and with every answer at once, before others get a turn.
const YIELD_AFTER: u32 = 32;

pin_project! {
    #[project = StateProj]
    enum State<F> {
        /// An attempt is under way.
        Calling { #[pin] future: F },
        /// Between two attempts: letting go, refreshing, sleeping.
        Waiting,
        /// The next attempt waits for the service to be ready.
        Readying,
        /// The outcome was returned.
        Done,
    }
}

type Outcome<S, T> = Result<<S as Service<T>>::Response, <S as Service<T>>::Error>;

/// Goes on with `C`, or ends with the outcome to return.
type Flow<S, T, C = ()> = ControlFlow<Outcome<S, T>, C>;

type LaterOf<S, Req, P, F> = Later<
    S,
    Req,
    Outcome<S, Req>,
    <P as Release<<S as Service<Req>>::Response>>::Future,
    <F as Refresh>::Future,
>;

/// What one logical request owns.
pub(crate) struct Call<S, Req, R, P, N, F, M>
where
    S: Service<Req>,
    P: Replay<Req> + Release<S::Response>,
    F: Refresh,
    M: Sharing<Stock<S, R, P, N, F>>,
{
    stock: M::Held,
    operation: Operation,
    about: About,
    spending: Spending,
    /// What further requests are made of, or why there is nothing.
    kept: Result<P::Kept, &'static str>,
    span: AttemptSpan,
    later: Option<Box<LaterOf<S, Req, P, F>>>,
}

/// What only a request that has failed needs: off the happy path's future.
struct Later<S, T, O, L, A> {
    progress: Progress,
    /// Serves further attempts; polled ready before each.
    service: Option<S>,
    /// The next attempt and its request.
    next: Option<(Attempt, T)>,
    /// The last outcome of the service, kept until the next one: returned if that one is a
    /// rejection of our own, or if there is no next one.
    last: Option<(Failure, O)>,
    /// A response is kept too: the next attempt is likely to be refused.
    keeps: bool,
    /// What layers said of `last`, once a new attempt has begun.
    aside: Option<Aside>,
    pause: Pause<L, A>,
}

impl<S, T, O, L, A> Default for Later<S, T, O, L, A> {
    fn default() -> Self {
        let (progress, pause) = (Progress::default(), Pause::default());
        Self { progress, service: None, next: None, last: None, keeps: false, aside: None, pause }
    }
}

impl<S, Req, R, P, N, F, M> ResponseFuture<S, Req, R, P, N, F, M>
where
    S: Service<Req>,
    P: Replay<Req> + Release<S::Response>,
    F: Refresh,
    M: Sharing<Stock<S, R, P, N, F>>,
{
    #[inline]
    pub(crate) const fn new(
        future: S::Future,
        call: Call<S, Req, R, P, N, F, M>,
        scope: Scope,
    ) -> Self {
        Self { state: State::Calling { future }, call, scope }
    }
}

impl<S, Req, R, P, N, F, M> Future for ResponseFuture<S, Req, R, P, N, F, M>
where
    M: Sharing<Stock<S, R, P, N, F>>,
    S: Service<Req> + Clone,
    P: Replay<Req> + Release<S::Response>,
    R: Classify<S::Response, S::Error>,
    N: Nudge<Req, S::Response, S::Error>,
    F: Refresh,
{
    type Output = Result<S::Response, S::Error>;

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "thin: what is not on the happy path is outlined")]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let (call, mut state) = (this.call, this.state);
        let entered = this.scope.enter();
        let mut ended = None;
        if let StateProj::Calling { future } = state.as_mut().project() {
            // Looked at where it is, not moved out and back.
            let mut polled = call.poll_attempt(future, cx);
            let Poll::Ready(outcome) = &mut polled else { return Poll::Pending };
            let verdict = call.judge(outcome);
            if verdict.is_success() && !incident::has_begun() {
                call.budget_sees_success();
                state.set(State::Done);
                call.span.close();
                call.core().classifier.finish(entered, true, outcome);
                return polled;
            }
            ended = Some((verdict, ready!(polled)));
        }
        let (success, mut outcome) = ready!(call.drive(state, ended, cx));
        call.core().classifier.finish(entered, success, &mut outcome);
        Poll::Ready(outcome)
    }
}

impl<S, Req, R, P, N, F, M> Call<S, Req, R, P, N, F, M>
where
    M: Sharing<Stock<S, R, P, N, F>>,
    S: Service<Req>,
    P: Replay<Req> + Release<S::Response>,
    F: Refresh,
{
    #[inline]
    pub(crate) const fn new(
        stock: M::Held,
        operation: Operation,
        about: About,
        spending: Spending,
        kept: Result<P::Kept, &'static str>,
        span: AttemptSpan,
    ) -> Self {
        Self { stock, operation, about, spending, kept, span, later: None }
    }

    #[inline]
    fn core(&self) -> &Core<R, P, N, F> {
        &self.stock.core
    }

    /// The request's own policy, if it has one.
    fn own_policy(&self) -> Option<&dyn RequestPolicy> {
        self.core().replay.policy_at(self.about.policy?)
    }

    fn plan(&self) -> &RetryPlan {
        self.own_policy().map_or(&self.core().plan, RequestPolicy::plan)
    }

    /// The failure as the request's policy sees it.
    fn regard(&self, failure: Failure, outcome: Result<&S::Response, &S::Error>) -> Failure {
        let Some(policy) = self.own_policy() else { return failure };
        let mut regarded = policy.regard(failure);
        let hint = || self.core().replay.hint(outcome.ok()?);
        regarded.retry_after = regarded.retry_after.or_else(hint);
        regarded
    }

    fn time_left(&self) -> Option<Duration> {
        self.about.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    fn facts(&self) -> Facts {
        Facts {
            repeatable: self.about.repeatable,
            unit_of_work: self.about.unit_of_work,
            time_left: self.time_left(),
            replayable: match &self.kept {
                Ok(kept) => self.core().replay.ready(kept),
                // One attempt was asked for: that is the reason to give.
                Err(_) if self.plan().max_attempts() == Some(1) => Ok(()),
                Err(why) => Err(why),
            },
            // An outcome is judged here before anything of it reaches the caller.
            committed: false,
            exhausted_below: incident::exhausted_below(),
            blocked_below: incident::blocked_below(),
            can_refresh: F::GIVEN,
        }
    }
}

impl<S, Req, R, P, N, F, M> Call<S, Req, R, P, N, F, M>
where
    M: Sharing<Stock<S, R, P, N, F>>,
    S: Service<Req> + Clone,
    P: Replay<Req> + Release<S::Response>,
    R: Classify<S::Response, S::Error>,
    F: Refresh,
{
    #[inline]
    fn poll_attempt(
        &self,
        future: Pin<&mut S::Future>,
        cx: &mut Context<'_>,
    ) -> Poll<Outcome<S, Req>> {
        let _attempt = self.span.enter();
        future.poll(cx)
    }

    #[inline]
    fn judge(&self, outcome: &Outcome<S, Req>) -> Verdict {
        self.core().classifier.judge(&self.operation, outcome.as_ref())
    }

    #[inline]
    fn budget_sees_success(&mut self) {
        self.stock.core.budget.observe(&mut self.spending, &Verdict::Success, false);
    }

    /// Everything that comes after a failure: from the end of an attempt, if one has just `ended`, to
    /// the outcome to return and whether it is a success.
    #[inline(never)]
    fn drive(
        &mut self,
        mut state: Pin<&mut State<S::Future>>,
        mut ended: Option<(Verdict, Outcome<S, Req>)>,
        cx: &mut Context<'_>,
    ) -> Poll<(bool, Outcome<S, Req>)>
    where
        N: Nudge<Req, S::Response, S::Error>,
    {
        let mut at_once = 0;
        let returned = loop {
            match ended.take() {
                None => {}
                Some((Verdict::Success, outcome)) => {
                    let classifier = &self.core().classifier;
                    classifier.note_success(&self.operation, LayerKind::Retry);
                    self.budget_sees_success();
                    break (true, outcome);
                }
                Some((Verdict::Failure(failure), outcome)) => match self.failed(failure, outcome) {
                    ControlFlow::Continue(()) => state.set(State::Waiting),
                    ControlFlow::Break(outcome) => break (false, outcome),
                },
            }
            match state.as_mut().project() {
                StateProj::Calling { future } => {
                    let outcome = ready!(self.poll_attempt(future, cx));
                    ended = Some((self.judge(&outcome), outcome));
                }
                StateProj::Waiting => match ready!(self.poll_pause(cx)) {
                    ControlFlow::Continue(()) => state.set(State::Readying),
                    ControlFlow::Break(outcome) => break (false, outcome),
                },
                StateProj::Readying => match ready!(self.poll_next(cx)) {
                    ControlFlow::Continue(future) => {
                        state.set(State::Calling { future });
                        at_once += 1;
                        if at_once == YIELD_AFTER {
                            cx.waker().wake_by_ref();
                            return Poll::Pending;
                        }
                    }
                    ControlFlow::Break(outcome) => break (false, outcome),
                },
                StateProj::Done => panic!("`ResponseFuture` polled after it was ready"),
            }
        };
        state.set(State::Done);
        // With a service in it that may be ready for nothing, and hold what others wait for.
        self.later = None;
        self.span.close();
        Poll::Ready(returned)
    }

    #[cold]
    fn step(&self, kind: StepKind) {
        self.core().classifier.step(&self.operation, LayerKind::Retry, kind);
    }

    /// Records and judges a failed attempt: a pause before the next one, or the outcome to return.
    #[cold]
    fn failed(&mut self, failure: Failure, outcome: Outcome<S, Req>) -> Flow<S, Req>
    where
        N: Nudge<Req, S::Response, S::Error>,
    {
        // However the caller's error type says it: this is no word of the service.
        let failure = match incident::rejected_below() {
            true => failure.reason(CircuitOpen::REASON),
            false => failure,
        };
        self.note(failure, outcome.as_ref());
        let facts = self.facts();
        let regarded = self.regard(failure, outcome.as_ref());
        let u = self.core().random.unit();
        let mut later = self.later.take().unwrap_or_default();
        let decision = match self.plan().resend(&facts, &mut later.progress, &failure, u) {
            Some(wait) => Decision::Resend { wait },
            None => self.plan().decide(&facts, &mut later.progress, &regarded, u),
        };
        later.keeps = decision == Decision::Ask;
        self.later = Some(later);
        if !matches!(decision, Decision::Resend { .. }) {
            let (verdict, repeats) = (Verdict::Failure(regarded), self.plan().repeats(&regarded));
            self.stock.core.budget.observe(&mut self.spending, &verdict, repeats);
        }
        let needs_change = self.plan().needs_change(&regarded);
        match self.prepare(decision, failure, needs_change, outcome.as_ref()) {
            Ok((attempt, hinted)) => {
                self.set_aside(failure, outcome);
                if decision != Decision::Ask {
                    self.step(StepKind::Waiting { delay: attempt.wait, hinted });
                }
                self.warn(failure, attempt);
                ControlFlow::Continue(())
            }
            Err(why) => {
                let outcome = self.give_up(why, failure, outcome);
                match decision {
                    Decision::Again { wait, hinted, .. }
                        if why == Refusal::BudgetExhausted && self.plan().waits_when_denied() =>
                    {
                        self.give_up_after(wait, hinted, failure, outcome);
                        ControlFlow::Continue(())
                    }
                    _ => ControlFlow::Break(outcome),
                }
            }
        }
    }

    /// Keeps the outcome to be returned after the wait; no attempt follows.
    fn give_up_after(
        &mut self,
        wait: Duration,
        hinted: bool,
        failure: Failure,
        outcome: Outcome<S, Req>,
    ) {
        let later = self.later.get_or_insert_default();
        (later.last, later.next, later.keeps) = (Some((failure, outcome)), None, true);
        later.pause = Pause::new(wait, self.stock.core.shutdown.as_ref());
        self.step(StepKind::Waiting { delay: wait, hinted });
    }

    /// Closes the attempt's span and records its failure.
    fn note(&mut self, failure: Failure, outcome: Result<&S::Response, &S::Error>) {
        self.span.failed(failure.class);
        self.core().classifier.note_failure(&self.operation, LayerKind::Retry, failure, outcome);
    }

    /// Makes the next attempt's request while the failed outcome still exists, and begins the pause;
    /// gives the attempt, and whether the server asked for its wait.
    fn prepare(
        &mut self,
        decision: Decision,
        failure: Failure,
        needs_change: bool,
        outcome: Result<&S::Response, &S::Error>,
    ) -> Result<(Attempt, bool), Refusal>
    where
        N: Nudge<Req, S::Response, S::Error>,
    {
        let core = &self.stock.core;
        let (wait, hinted, refresh) = match decision {
            Decision::Again { wait, hinted, refresh } => (wait, hinted, refresh),
            Decision::Resend { wait } => (wait, false, false),
            Decision::Ask => (Duration::ZERO, false, false),
            Decision::Stop(why) => return Err(why),
        };
        if core.is_shut_down() {
            return Err(Refusal::Shutdown);
        }
        let kept = self.kept.as_mut().map_err(|why| Refusal::NotReplayable(why))?;
        let later = self.later.get_or_insert_default();
        let attempt = Attempt {
            number: later.progress.attempts().saturating_add(1),
            previous: Some(failure),
            wait,
            deadline: self.about.deadline,
        };
        let mut request = core.replay.again(kept, &attempt).map_err(Refusal::NotReplayable)?;
        let nudged = core.nudge.nudge(&mut request, &attempt, outcome);
        if !matches!(decision, Decision::Resend { .. }) {
            if needs_change && !nudged && !refresh {
                return Err(Refusal::NotReplayable(UNCHANGED));
            }
            // Last: what it grants is spent.
            core.budget
                .ask(&mut self.spending, &failure, core.budget_now())
                .map_err(|_| Refusal::BudgetExhausted)?;
        }
        later.next = Some((attempt, request));
        later.pause = Pause::new(wait, core.shutdown.as_ref());
        if refresh {
            later.pause.refresh(incident::run_detached(|| core.refresh.refresh(failure)));
        }
        if nudged {
            self.step(StepKind::Nudged { attempt: attempt.number });
        }
        Ok((attempt, hinted))
    }

    /// One warning per retry, for whoever reads the log.
    fn warn(&self, failure: Failure, attempt: Attempt) {
        let Failure { class, reason, .. } = failure;
        let Attempt { number, wait, .. } = attempt;
        tracing::warn!(
            action = "retry",
            operation = self.operation.as_str(),
            attempt = number,
            max_attempts = self.plan().max_attempts(),
            wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            error.r#type = class.as_str(),
            reason,
            "{class} ({reason}): attempt {number} follows in {wait:?}",
        );
    }

    /// Keeps the failed outcome, or lets it go.
    fn set_aside(&mut self, failure: Failure, outcome: Outcome<S, Req>) {
        let later = self.later.get_or_insert_default();
        if !outlives(later.last.as_ref().map(|(last, _)| last), &failure) {
            (later.last, later.aside) = (Some((failure, outcome)), None);
        }
        // A refresh that fails ends the call with this outcome.
        if !later.pause.is_refreshing() {
            self.let_go();
        }
    }

    /// Releases a failed response, unless it may yet be returned. Says whether it did.
    fn let_go(&mut self) -> bool {
        let Some(later) = &mut self.later else { return false };
        match later.last.take() {
            Some((Failure { class, .. }, Ok(response)))
                if self.stock.core.shutdown.is_none() && !later.keeps =>
            {
                let release = || self.stock.core.replay.release(response);
                later.pause.release(incident::run_detached(release));
                self.step(StepKind::Released { class });
                true
            }
            last => {
                later.last = last;
                false
            }
        }
    }

    /// What comes up next is a new outcome. What was said of the last one stays with it.
    fn begin_anew(&mut self) {
        let aside = incident::next_attempt();
        let later = self.later.get_or_insert_default();
        if later.last.is_some() {
            later.aside.get_or_insert(aside);
        }
    }

    /// The outcome that was kept is returned: what was said of it is said again.
    fn take_last(&mut self) -> Option<Outcome<S, Req>> {
        let later = self.later.as_mut()?;
        let (_, last) = later.last.take()?;
        if let Some(aside) = later.aside.take() {
            aside.restore();
        }
        Some(last)
    }

    /// Says why there is no further attempt, and gives the outcome to return.
    fn give_up(
        &mut self,
        why: Refusal,
        failure: Failure,
        outcome: Outcome<S, Req>,
    ) -> Outcome<S, Req> {
        self.step(StepKind::NotRetried { why });
        let before = self.later.as_ref().and_then(|later| later.last.as_ref());
        // What is returned could be repeated, but the way to it is closed.
        let kept = match outlives(before.map(|(before, _)| before), &failure) {
            true => self.take_last(),
            false => None,
        };
        if kept.is_some() || used_up(why) {
            incident::mark_exhausted();
        }
        kept.unwrap_or(outcome)
    }

    /// Gives the last outcome, if it still exists: no further attempt is made.
    fn break_off(&mut self, why: Refusal) -> Option<Outcome<S, Req>> {
        let last = self.take_last()?;
        self.step(StepKind::NotRetried { why });
        if used_up(why) {
            incident::mark_exhausted();
        }
        Some(last)
    }

    /// Until the pause is over, or broken off with the last outcome.
    fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<Flow<S, Req>> {
        loop {
            let later = self.later.get_or_insert_default();
            if let Err(why) = ready!(later.pause.poll(self.about.deadline, cx)) {
                if let Some(last) = self.break_off(why) {
                    return Poll::Ready(ControlFlow::Break(last));
                }
            }
            // After a refresh there may be a response left to let go.
            if !self.let_go() {
                break;
            }
        }
        match self.later.as_ref().and_then(|later| later.next.as_ref()) {
            Some((attempt, _)) => self.span.next(attempt),
            // The wait was the caller's: what is kept is returned.
            None => {
                if let Some(last) = self.take_last() {
                    return Poll::Ready(ControlFlow::Break(last));
                }
            }
        }
        Poll::Ready(ControlFlow::Continue(()))
    }

    /// Until the service is ready and called again, or there is an outcome to return.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Flow<S, Req, S::Future>> {
        let later = self.later.get_or_insert_default();
        let service = later.service.get_or_insert_with(|| self.stock.service());
        let entered = self.span.enter();
        let ready = service.poll_ready(cx);
        drop(entered);

        // Not past the deadline, and not after a shutdown, as long as there is something to return.
        let deadline = self.about.deadline;
        let broken_off = match ready {
            _ if later.last.is_none() => Poll::Pending,
            Poll::Pending => later.pause.poll_broken_off(deadline, cx),
            Poll::Ready(Ok(())) => later.pause.poll_late(deadline, cx),
            Poll::Ready(Err(_)) => Poll::Pending,
        };
        if let Poll::Ready(why) = broken_off {
            if let Some(last) = self.break_off(why) {
                return Poll::Ready(ControlFlow::Break(last));
            }
        }
        // What comes up next is a new outcome.
        match ready!(ready) {
            Ok(()) => self.begin_anew(),
            Err(error) => {
                self.begin_anew();
                let outcome = Err(error);
                let verdict = self.core().classifier.judge(&self.operation, outcome.as_ref());
                if let Verdict::Failure(failure) = verdict {
                    self.note(failure, outcome.as_ref());
                }
                return Poll::Ready(ControlFlow::Break(outcome));
            }
        }
        let later = self.later.get_or_insert_default();
        let (Some((_, request)), Some(service)) = (later.next.take(), &mut later.service) else {
            unreachable!("prepared before the pause, and polled ready above")
        };
        later.pause = Pause::default();
        let _entered = self.span.enter();
        let future = incident::call(service, request);
        Poll::Ready(ControlFlow::Continue(future))
    }
}

/// The last word of the service outlives a rejection by a breaker of ours, which is none.
fn outlives(last: Option<&Failure>, failure: &Failure) -> bool {
    let is_ours = |failure: &Failure| failure.reason == CircuitOpen::REASON;
    is_ours(failure) && last.is_some_and(|last| !is_ours(last))
}

/// Does the call end because what it had is used up? Then an outer retry must not begin anew.
const fn used_up(why: Refusal) -> bool {
    match why {
        Refusal::AttemptsUsedUp
        | Refusal::HintOverCap
        | Refusal::DeadlinePassed
        | Refusal::WaitOverDeadline
        | Refusal::BudgetExhausted
        | Refusal::ExhaustedBelow
        | Refusal::Shutdown => true,
        Refusal::ClassNotRetried
        | Refusal::ServerForbade
        | Refusal::Committed
        | Refusal::NotReplayable(_)
        | Refusal::NotIdempotent
        | Refusal::NotUnitOfWork
        | Refusal::RefreshFailed => false,
    }
}

impl<S, Req, R, P, N, F, M> fmt::Debug for ResponseFuture<S, Req, R, P, N, F, M>
where
    M: Sharing<Stock<S, R, P, N, F>>,
    S: Service<Req>,
    P: Replay<Req> + Release<S::Response>,
    F: Refresh,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture")
            .field("operation", &self.call.operation)
            .field("scope", &self.scope)
            .finish_non_exhaustive()
    }
}
