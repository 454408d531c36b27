//! What happens after `call`: an answer, a signal, the end.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep};
use tower_triage_core::incident::Scope;
use tower_triage_core::{
    Classify, Counted, Elapsed, LayerKind, Note, Operation, Sharing, StepKind, Verdict,
};

use crate::layer::Core;
use crate::reject::Reject;
use crate::soft::SoftLimit;

pin_project! {
    /// The future of a call through a [`Timeout`](crate::Timeout).
    ///
    /// Needs a tokio runtime with its timer, unless the answer is there when it is first polled.
    ///
    /// # Cancel safety
    /// Dropped, it drops the inner call and its timer. That is neither success nor failure.
    ///
    /// # Panics
    /// If it is polled after it was ready.
    pub struct ResponseFuture<F, R, J, T, M = Counted>
    where
        M: Sharing<Core<R, J, T>>,
    {
        #[pin]
        state: State<F>,
        core: M::Held,
        scope: Scope,
        operation: Operation,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F> {
        Calling { #[pin] future: F, #[pin] alarm: Alarm, timing: Timing },
        /// The deadline had passed before the call.
        Late,
        Done,
    }
}

/// The moments of one attempt.
pub(crate) struct Timing {
    pub(crate) begun: Instant,
    pub(crate) deadline: Option<Instant>,
    pub(crate) limit: SoftLimit,
}

impl Timing {
    /// Without a grace there is no time to act on a signal.
    fn has_grace(&self) -> bool {
        self.limit.soft_at() != self.limit.hard_at()
    }

    /// The hard limit is reached: why, and after how long.
    fn elapsed(&self) -> Elapsed {
        let now = Instant::now();
        let after = now.saturating_duration_since(self.begun);
        match self.deadline {
            Some(deadline) if now >= deadline => Elapsed::deadline(after),
            _ => Elapsed::limit(after),
        }
    }
}

pin_project! {
    /// Wakes the call at its next limit. There is no timer until the inner call is pending.
    struct Alarm {
        #[pin]
        sleep: Option<Sleep>,
        next: Next,
    }
}

/// The limit that comes next.
#[derive(Clone, Copy)]
enum Next {
    Soft,
    Hard,
}

impl Alarm {
    const fn new(next: Next) -> Self {
        Self { sleep: None, next }
    }

    /// Has this call been pending before?
    const fn is_set(&self) -> bool {
        self.sleep.is_some()
    }

    /// If the next limit is reached, it is given, and the one after it is the next.
    fn take_due(self: Pin<&mut Self>, limit: &SoftLimit) -> Option<Next> {
        let this = self.project();
        let due = *this.next;
        // By the clock: a timer is not told apart from a task that must yield (tokio's budget), and
        // an attempt that never yields would never be cut off.
        (Instant::now() >= due.at(limit)?).then(|| {
            *this.next = Next::Hard;
            due
        })
    }

    /// Ready when the next limit is reached.
    fn poll(self: Pin<&mut Self>, limit: &SoftLimit, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let Some(at) = this.next.at(limit) else { return Poll::Pending };
        if this.sleep.is_none() {
            this.sleep.set(Some(tokio::time::sleep_until(at)));
        }
        let Some(mut sleep) = this.sleep.as_pin_mut() else { return Poll::Pending };
        if sleep.deadline() != at {
            sleep.as_mut().reset(at);
        }
        sleep.poll(cx)
    }
}

impl Next {
    const fn at(self, limit: &SoftLimit) -> Option<Instant> {
        match self {
            Self::Soft => limit.soft_at(),
            Self::Hard => limit.hard_at(),
        }
    }
}

impl<F, R, J, T, M: Sharing<Core<R, J, T>>> ResponseFuture<F, R, J, T, M> {
    pub(crate) fn calling(
        future: F,
        timing: Timing,
        core: M::Held,
        scope: Scope,
        operation: Operation,
    ) -> Self {
        let alarm = Alarm::new(if timing.has_grace() { Next::Soft } else { Next::Hard });
        Self { state: State::Calling { future, alarm, timing }, core, scope, operation }
    }

    pub(crate) const fn late(core: M::Held, scope: Scope, operation: Operation) -> Self {
        Self { state: State::Late, core, scope, operation }
    }
}

impl<F, Res, E, R, J, T, M> Future for ResponseFuture<F, R, J, T, M>
where
    M: Sharing<Core<R, J, T>>,
    F: Future<Output = Result<Res, E>>,
    R: Classify<Res, E>,
    J: Reject<Res, E>,
{
    type Output = Result<Res, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let (core, operation) = (&**this.core, &*this.operation);
        let entered = this.scope.enter();
        let (success, mut outcome) = match this.state.as_mut().project() {
            StateProj::Calling { mut future, mut alarm, timing } => {
                // An attempt that is told answers in this very poll, maybe.
                let mut due = match alarm.is_set() {
                    true => alarm.as_mut().take_due(&timing.limit),
                    false => None,
                };
                loop {
                    if let Some(Next::Soft) = due {
                        core.told(operation, timing.begun.elapsed());
                    }
                    // Whatever the time is: an answer that is there counts.
                    let polled = timing.limit.seen_by(|| future.as_mut().poll(cx));
                    if let Poll::Ready(outcome) = polled {
                        break core.answered(operation, outcome);
                    }
                    if let Some(Next::Hard) = due {
                        let elapsed = timing.elapsed();
                        // Inside the scope: what the layers below say at their end belongs to it.
                        this.state.set(State::Done);
                        break (false, core.cut_off(operation, elapsed));
                    }
                    due = alarm.as_mut().take_due(&timing.limit);
                    if due.is_none() && alarm.as_mut().poll(&timing.limit, cx).is_pending() {
                        return Poll::Pending;
                    }
                }
            }
            StateProj::Late => (false, core.too_late(operation)),
            StateProj::Done => panic!("`ResponseFuture` polled after it was ready"),
        };
        this.state.set(State::Done);
        core.classifier.finish(entered, success, &mut outcome);
        Poll::Ready(outcome)
    }
}

impl<R, J, T> Core<R, J, T> {
    /// Writes down an outcome of the inner service; says whether it is a success.
    fn answered<Res, E>(
        &self,
        operation: &Operation,
        outcome: Result<Res, E>,
    ) -> (bool, Result<Res, E>)
    where
        R: Classify<Res, E>,
    {
        let verdict = self.classifier.judge(operation, outcome.as_ref());
        match verdict {
            Verdict::Success => self.classifier.note_success(operation, LayerKind::Timeout),
            Verdict::Failure(failure) => {
                self.classifier.note_failure(
                    operation,
                    LayerKind::Timeout,
                    failure,
                    outcome.as_ref(),
                );
            }
        }
        (verdict.is_success(), outcome)
    }

    /// The attempt sees that its time is up.
    #[cold]
    fn told(&self, operation: &Operation, after: Duration) {
        self.step(operation, true, after);
    }

    /// The attempt was dropped: what its caller gets instead of an answer.
    #[cold]
    fn cut_off<Res, E>(&self, operation: &Operation, elapsed: Elapsed) -> Result<Res, E>
    where
        R: Classify<Res, E>,
        J: Reject<Res, E>,
    {
        self.step(operation, false, elapsed.after());
        let outcome = self.rejected(elapsed);
        let failure = match self.classifier.judge(operation, outcome.as_ref()) {
            Verdict::Failure(failure) => failure,
            // A response of ours that cannot carry its stamp.
            Verdict::Success => elapsed.failure(),
        };
        self.classifier.note_failure(operation, LayerKind::Timeout, failure, outcome.as_ref());
        outcome
    }

    /// Nobody waits for the answer any more: what the caller gets without an attempt.
    #[cold]
    fn too_late<Res, E>(&self, operation: &Operation) -> Result<Res, E>
    where
        R: Classify<Res, E>,
        J: Reject<Res, E>,
    {
        let elapsed = Elapsed::not_sent();
        self.step(operation, false, elapsed.after());
        let outcome = self.rejected(elapsed);
        let class = match self.classifier.judge(operation, outcome.as_ref()) {
            Verdict::Failure(failure) => failure.class,
            Verdict::Success => elapsed.failure().class,
        };
        self.classifier.count_unnoted(class);
        outcome
    }

    fn step(&self, operation: &Operation, soft: bool, after: Duration) {
        self.classifier.step(operation, LayerKind::Timeout, StepKind::TimedOut { soft, after });
    }

    fn rejected<Res, E>(&self, elapsed: Elapsed) -> Result<Res, E>
    where
        R: Classify<Res, E>,
        J: Reject<Res, E>,
    {
        let mut outcome = self.reject.reject(elapsed);
        if outcome.is_ok() {
            // A 504 of ours must not pass for one of the dependency's.
            let verdict = Verdict::Failure(elapsed.failure());
            self.classifier.annotate(&mut outcome, &Note::Verdict(verdict));
        }
        outcome
    }
}

impl<F, R, J, T, M: Sharing<Core<R, J, T>>> fmt::Debug for ResponseFuture<F, R, J, T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Calling { .. } => "calling",
            State::Late => "late",
            State::Done => "done",
        };
        f.debug_struct("ResponseFuture").field("state", &state).finish_non_exhaustive()
    }
}
