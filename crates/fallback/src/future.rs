//! The future of one call: the primary, then step after step until one answers.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Sleep, sleep};
use tower_service::Service;
use tower_triage_core::incident::{self, Branch, LayerKind, Scope, StepKind};
use tower_triage_core::{
    Classify, Counted, ErrorClass, Failure, Fingerprint, Note, Operation, Sharing, Verdict,
};

use crate::chain::{About, Call, Steps};
use crate::failed::Failed;
use crate::keep::Keep;
use crate::layer::Core;

pin_project! {
    /// The future of [`Fallback`](crate::Fallback).
    ///
    /// # Cancel safety
    /// Dropped, it drops the primary call or the step that is running; nothing of it goes on. If
    /// the call had met a failure, its incident ends as abandoned.
    pub struct ResponseFuture<S, Req, R, T, K, M = Counted>
    where
        S: Service<Req>,
        K: Keep<S, Req>,
        T: Steps<S, Req, K>,
        M: Sharing<Core<R, T, K>>,
    {
        core: M::Held,
        scope: Scope,
        operation: Operation,
        kept: K::Kept,
        #[pin]
        state: State<S::Future, T::Future, S::Response, S::Error>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, G, Res, E> {
        /// The primary was not ready; its error is the outcome.
        Held { error: Option<E> },
        Primary { #[pin] future: F },
        Step { trying: Option<Box<Trying<Res, E>>>, #[pin] future: G },
        Done,
    }
}

/// A step that runs, and the failure that it stands in for. Boxed: the happy path's future has no
/// room for it.
struct Trying<Res, E> {
    index: usize,
    about: About,
    /// Boxed: only a step with a limit that is not ready at once has it.
    limit: Option<Pin<Box<Sleep>>>,
    failure: Failure,
    outcome: Result<Res, E>,
    /// What layers below say of the step's outcome.
    branch: Branch,
}

/// What follows an outcome.
enum Next<G, Res, E> {
    Try(Box<Trying<Res, E>>, G),
    Return { success: bool, outcome: Result<Res, E> },
}

const LAYER: LayerKind = LayerKind::Fallback;

type Outcome<S, Req> = Result<<S as Service<Req>>::Response, <S as Service<Req>>::Error>;

type StateOf<S, Req, T, K> = State<
    <S as Service<Req>>::Future,
    <T as Steps<S, Req, K>>::Future,
    <S as Service<Req>>::Response,
    <S as Service<Req>>::Error,
>;

impl<S, Req, R, T, K, M> ResponseFuture<S, Req, R, T, K, M>
where
    S: Service<Req>,
    K: Keep<S, Req>,
    T: Steps<S, Req, K>,
    M: Sharing<Core<R, T, K>>,
{
    pub(crate) const fn sent(
        core: M::Held,
        scope: Scope,
        operation: Operation,
        kept: K::Kept,
        future: S::Future,
    ) -> Self {
        Self { core, scope, operation, kept, state: State::Primary { future } }
    }

    pub(crate) const fn held(
        core: M::Held,
        scope: Scope,
        operation: Operation,
        kept: K::Kept,
        error: S::Error,
    ) -> Self {
        Self { core, scope, operation, kept, state: State::Held { error: Some(error) } }
    }
}

impl<S, Req, R, T, K, M> Future for ResponseFuture<S, Req, R, T, K, M>
where
    S: Service<Req>,
    R: Classify<S::Response, S::Error>,
    K: Keep<S, Req>,
    T: Steps<S, Req, K>,
    M: Sharing<Core<R, T, K>>,
{
    type Output = Result<S::Response, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let (core, mut state): (&Core<R, T, K>, _) = (this.core, this.state);
        let entered = this.scope.enter();
        let call = Call { operation: &*this.operation, keep: &core.keep, kept: &*this.kept };
        let mut ended = None;
        if let StateProj::Primary { future } = state.as_mut().project() {
            // Looked at where it is, not moved out and back.
            let mut polled = future.poll(cx);
            let Poll::Ready(outcome) = &mut polled else { return Poll::Pending };
            match core.classifier.judge(call.operation, outcome.as_ref()) {
                Verdict::Success => {
                    core.succeeded(&call, outcome);
                    state.set(State::Done);
                    core.classifier.finish(entered, true, outcome);
                    return polled;
                }
                Verdict::Failure(failure) => ended = Some((failure, ready!(polled))),
            }
        }
        let (success, mut outcome) = ready!(core.drive(&call, state, ended, cx));
        core.classifier.finish(entered, success, &mut outcome);
        Poll::Ready(outcome)
    }
}

impl<R, T, K> Core<R, T, K> {
    /// Everything that comes after a failure: from that of the primary, if it has just `ended`, to
    /// the outcome to return and whether it is a success.
    #[inline(never)]
    fn drive<S, Req>(
        &self,
        call: &Call<'_, S, Req, K>,
        mut state: Pin<&mut StateOf<S, Req, T, K>>,
        ended: Option<(Failure, Outcome<S, Req>)>,
        cx: &mut Context<'_>,
    ) -> Poll<(bool, Outcome<S, Req>)>
    where
        S: Service<Req>,
        R: Classify<S::Response, S::Error>,
        K: Keep<S, Req>,
        T: Steps<S, Req, K>,
    {
        let mut next = ended.map(|(failure, outcome)| self.failed(call, failure, outcome));
        loop {
            match next.take() {
                None => {}
                Some(Next::Try(trying, future)) => {
                    state.set(State::Step { trying: Some(trying), future });
                }
                Some(Next::Return { success, outcome }) => {
                    state.set(State::Done);
                    return Poll::Ready((success, outcome));
                }
            }
            next = Some(match state.as_mut().project() {
                StateProj::Held { error } => {
                    self.held(call, error.take().expect("polled after it was ready"))
                }
                StateProj::Step { trying, future } => {
                    let running = trying.as_mut().expect("polled after it was ready");
                    let answer = match running.branch.run(|| future.poll(cx)) {
                        Poll::Ready(answer) => Some(answer),
                        Poll::Pending => {
                            ready!(running.poll_limit(cx));
                            None
                        }
                    };
                    match trying.take() {
                        Some(trying) => self.tried(call, *trying, answer),
                        None => unreachable!("looked at above"),
                    }
                }
                StateProj::Primary { .. } | StateProj::Done => panic!("polled after it was ready"),
            });
        }
    }

    /// The primary has an answer.
    #[inline]
    pub(crate) fn succeeded<S, Req>(
        &self,
        call: &Call<'_, S, Req, K>,
        answer: &Result<S::Response, S::Error>,
    ) where
        S: Service<Req>,
        K: Keep<S, Req>,
        T: Steps<S, Req, K>,
    {
        if let Ok(response) = answer {
            self.steps.learn(call, response);
        }
        self.classifier.note_success(call.operation, LAYER);
    }

    /// The primary could not be called: its readiness error is the outcome.
    #[cold]
    fn held<S, Req>(
        &self,
        call: &Call<'_, S, Req, K>,
        error: S::Error,
    ) -> Next<T::Future, S::Response, S::Error>
    where
        S: Service<Req>,
        R: Classify<S::Response, S::Error>,
        K: Keep<S, Req>,
        T: Steps<S, Req, K>,
    {
        let outcome = Err(error);
        match self.classifier.judge(call.operation, outcome.as_ref()) {
            Verdict::Success => {
                self.succeeded(call, &outcome);
                Next::Return { success: true, outcome }
            }
            Verdict::Failure(failure) => self.failed(call, failure, outcome),
        }
    }

    /// The primary has failed.
    #[cold]
    fn failed<S, Req>(
        &self,
        call: &Call<'_, S, Req, K>,
        failure: Failure,
        outcome: Result<S::Response, S::Error>,
    ) -> Next<T::Future, S::Response, S::Error>
    where
        S: Service<Req>,
        R: Classify<S::Response, S::Error>,
        K: Keep<S, Req>,
        T: Steps<S, Req, K>,
    {
        self.classifier.note_failure(call.operation, LAYER, failure, outcome.as_ref());
        self.try_from(0, call, failure, outcome)
    }

    /// Starts the first step from `first` on that is for this failure and can be tried.
    #[cold]
    fn try_from<S, Req>(
        &self,
        first: usize,
        call: &Call<'_, S, Req, K>,
        failure: Failure,
        outcome: Result<S::Response, S::Error>,
    ) -> Next<T::Future, S::Response, S::Error>
    where
        S: Service<Req>,
        R: Classify<S::Response, S::Error>,
        K: Keep<S, Req>,
        T: Steps<S, Req, K>,
    {
        let mut index = first;
        let mut concerned = first > 0;
        while let Some(about) = self.steps.about(index) {
            if about.classes.contains(failure.class) {
                concerned = true;
                let failed = Failed { failure, outcome: outcome.as_ref() };
                let started = match self.often_enough(about.failures, call.operation, failed) {
                    true => self.steps.start(index, call, failed),
                    false => Err("it has not failed so often in this way"),
                };
                match started {
                    Ok(future) => {
                        let branch = Branch::default();
                        let trying = Trying { index, about, limit: None, failure, outcome, branch };
                        return Next::Try(Box::new(trying), future);
                    }
                    Err(why) => {
                        let (step, by) = (position(index), about.kind);
                        let skipped = StepKind::FallbackSkipped { step, by, why };
                        self.classifier.step(call.operation, LAYER, skipped);
                    }
                }
            }
            index += 1;
        }
        if concerned {
            self.handle.count(failure.class, false);
        }
        Next::Return { success: false, outcome }
    }

    /// Have so many attempts of this call failed as the primary did?
    fn often_enough<Res, E>(
        &self,
        failures: u32,
        operation: &Operation,
        failed: Failed<'_, Res, E>,
    ) -> bool
    where
        R: Classify<Res, E>,
    {
        if failures <= 1 {
            return true;
        }
        let Some(incident) = incident::snapshot() else { return false };
        let kind = |failure: &Failure, text: &str| Fingerprint::of(operation, failure, text);
        let text = self.classifier.explain(failed.outcome);
        let primary = kind(&failed.failure, text.as_str());
        let known = incident.steps.iter().filter_map(|step| match &step.kind {
            StepKind::Failed { attempt, failure, detail } if !step.nested => {
                Some((*attempt, kind(failure, detail.as_str()) == primary))
            }
            _ => None,
        });
        // Calls that were made for this one, above all, may leave no room for its first attempts.
        let forgotten = match incident.collapsed {
            0 => 0,
            _ => known.clone().next().map_or(0, |(attempt, _)| attempt.saturating_sub(1)),
        };
        let alike = known.filter(|(_, alike)| *alike).count();
        alike.saturating_add(forgotten as usize) >= failures as usize
    }

    /// A step has an answer, or `None`: it had none in time.
    #[cold]
    fn tried<S, Req>(
        &self,
        call: &Call<'_, S, Req, K>,
        trying: Trying<S::Response, S::Error>,
        answer: Option<Result<S::Response, S::Error>>,
    ) -> Next<T::Future, S::Response, S::Error>
    where
        S: Service<Req>,
        R: Classify<S::Response, S::Error>,
        K: Keep<S, Req>,
        T: Steps<S, Req, K>,
    {
        let Trying { index, about, failure, outcome, mut branch, .. } = trying;
        let (step, by, covers) = (position(index), about.kind, failure.class);
        let (failed, detail) = match answer {
            None => (
                Failure::new(ErrorClass::Timeout).reason("fallback_time_limit"),
                format!("no answer within {:?}", about.limit.unwrap_or_default()).into(),
            ),
            Some(mut answer) => match self.classifier.judge(call.operation, answer.as_ref()) {
                Verdict::Success => {
                    let detail = self.classifier.explain(outcome.as_ref());
                    let answered = StepKind::FallbackAnswered { step, by, covers, detail };
                    self.classifier.step(call.operation, LAYER, answered);
                    self.classifier.annotate(&mut answer, &Note::Fallback(covers));
                    branch.answered();
                    self.handle.count(covers, true);
                    return Next::Return { success: true, outcome: answer };
                }
                Verdict::Failure(failed) => (failed, self.classifier.explain(answer.as_ref())),
            },
        };
        branch.run(|| self.classifier.count_unnoted(failed.class));
        let kind = StepKind::FallbackFailed { step, by, failure: failed, detail };
        self.classifier.step(call.operation, LAYER, kind);
        self.try_from(index + 1, call, failure, outcome)
    }
}

impl<Res, E> Trying<Res, E> {
    /// Ready when the step's time is up; never without a limit.
    fn poll_limit(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(limit) = self.about.limit else { return Poll::Pending };
        if limit == Duration::ZERO {
            return Poll::Ready(());
        }
        self.limit.get_or_insert_with(|| Box::pin(sleep(limit))).as_mut().poll(cx)
    }
}

/// As people count.
fn position(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX).saturating_add(1)
}

impl<S, Req, R, T, K, M> fmt::Debug for ResponseFuture<S, Req, R, T, K, M>
where
    S: Service<Req>,
    K: Keep<S, Req>,
    T: Steps<S, Req, K>,
    M: Sharing<Core<R, T, K>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
