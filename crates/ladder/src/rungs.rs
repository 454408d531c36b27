//! The stack that a description makes.

use std::fmt;
use std::time::Duration;

use tower_layer::{Identity, Layer};
use tower_triage_core::{AnyError, ClassSet, Classifier, ConfigError};
use tower_triage_escalate::ending::Set;
use tower_triage_escalate::{Desk, Ending, EscalateLayer, Failed as Ended, KeepFailure};
use tower_triage_fallback::chain::Then;
use tower_triage_fallback::keep::Keeping;
use tower_triage_fallback::steps::{SameRequest, ServiceStep};
use tower_triage_fallback::{Failed, FallbackLayer};
use tower_triage_retry::RetryLayer;
use tower_triage_timeout::{TimeoutLayer, TimeoutPolicy};

use crate::action::{Action, Changed};
use crate::climb::Climb;
use crate::ladder::Ladder;
use crate::level::Level;

/// A ladder as one layer, from [`Ladder::build`].
///
/// It is made of our layers: a retry in a time limit (level 1), a chain of fallback steps (levels 2
/// to 4), an escalation (level 5). Levels 2 to 5 do nothing until they are given what to do.
///
/// Levels 2 to 4 are given from the bottom up. Otherwise it does not compile:
///
/// ```compile_fail
/// # use tower_triage_core::{AnyError, AnyOk, Chain, Classifier, Halves};
/// # use tower_triage_escalate::Desk;
/// # use tower_triage_ladder::{Ladder, Rungs};
/// # let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
/// let rungs: Rungs<_> = Ladder::default().build(classifier, Desk::log())?;
/// rungs
///     .replan::<u32, u32, _>(|request, _failed| request)
///     .nudge::<u32, u32, _>(|request, _failed| request); // error: `nudge` comes before `replan`
/// # Ok::<_, tower_triage_core::ConfigError>(())
/// ```
///
/// `C` are levels 2 to 4 as far as they were given, `F` is how a call ends that they did not help.
/// Clones share their state, as do all services made from one.
///
/// # Cancel safety
/// A call that is dropped drops whatever is in flight.
#[must_use]
pub struct Rungs<R, E = AnyError, C = Identity, F = KeepFailure> {
    ladder: Ladder,
    /// Which levels were given what to do, from the bottom up.
    given: [bool; 5],
    classifier: Classifier<R>,
    escalate: EscalateLayer<R, F, E>,
    climb: C,
    limit: TimeoutLayer<R>,
    retry: RetryLayer<R>,
}

/// The chain `C` with level 2 (a nudge) or 3 on top, which sends what `X` makes of the request.
pub type Again<R, E, C, X, const NUDGE: bool> = FallbackLayer<
    R,
    Then<<C as Climb<R, E>>::Steps, Changed<X, NUDGE>>,
    <<C as Climb<R, E>>::Keep as Keeping>::WithBoth,
>;

/// The chain `C` with level 4 on top, which sends the request to `B`.
pub type Elsewhere<R, E, C, B> = FallbackLayer<
    R,
    Then<<C as Climb<R, E>>::Steps, ServiceStep<B, SameRequest>>,
    <<C as Climb<R, E>>::Keep as Keeping>::WithRequest,
>;

impl Ladder {
    /// The ladder as a layer: level 1, and `desk` is told of what climbs to the top. Give it levels
    /// 2 to 5. `E`, the error type of the wrapped service, is inferred from it.
    ///
    /// # Errors
    /// What [`Ladder::check`] refuses, and waits that cannot work.
    pub fn build<R, E>(
        self,
        classifier: Classifier<R>,
        desk: Desk,
    ) -> Result<Rungs<R, E>, ConfigError> {
        self.check()?;
        let limit = self.limit(Level::Retry);
        // Without a grace: the next level starts when this one's time is over.
        let exact = TimeoutPolicy::new(limit).grace(Duration::ZERO).build()?;
        Ok(Rungs {
            escalate: EscalateLayer::new(classifier.clone(), desk).policy(self.escalates()),
            climb: Identity::new(),
            limit: TimeoutLayer::new(classifier.clone(), limit)?.policy(exact),
            retry: RetryLayer::new(classifier.clone()).policy(self.retries()?),
            classifier,
            given: [true, false, false, false, false],
            ladder: self,
        })
    }
}

impl<R, E, C, F> Rungs<R, E, C, F> {
    /// The description it was built from.
    pub const fn ladder(&self) -> &Ladder {
        &self.ladder
    }

    /// Adjusts the layer of level 1: another budget, a refresh of credentials.
    pub fn retry(mut self, adjust: impl FnOnce(RetryLayer<R>) -> RetryLayer<R>) -> Self {
        self.retry = adjust(self.retry);
        self
    }

    /// Adjusts the layer at the top: who failed, what is added to the record, captured requests.
    pub fn escalate<F2>(
        self,
        adjust: impl FnOnce(EscalateLayer<R, F, E>) -> EscalateLayer<R, F2, E>,
    ) -> Rungs<R, E, C, F2> {
        let Self { ladder, given, classifier, escalate, climb, limit, retry } = self;
        Rungs { ladder, given, classifier, escalate: adjust(escalate), climb, limit, retry }
    }
}

impl<R, E, C: Climb<R, E>, F> Rungs<R, E, C, F> {
    /// Level 2: sends the request as `adjust` makes it: the same approach with other parameters. It
    /// has retries as in level 1, within the time of level 2.
    pub fn nudge<Req, Res, X>(mut self, adjust: X) -> Rungs<R, E, Again<R, E, C, X, true>, F>
    where
        X: Fn(Req, Failed<'_, Res, E>) -> Req,
    {
        const { assert!(C::TOP.is_below(Level::Nudge), "levels are given from the bottom up") }
        let (classes, limit) = self.rung(Level::Nudge);
        self.climb(|chain| chain.or_step(classes, Changed::new(adjust)).within(limit))
    }

    /// Level 3: sends another request for the same goal, made by `replan`. It has retries as in level
    /// 1, within the time of level 3.
    pub fn replan<Req, Res, X>(mut self, replan: X) -> Rungs<R, E, Again<R, E, C, X, false>, F>
    where
        X: Fn(Req, Failed<'_, Res, E>) -> Req,
    {
        const { assert!(C::TOP.is_below(Level::Replan), "levels are given from the bottom up") }
        let (classes, limit) = self.rung(Level::Replan);
        self.climb(|chain| chain.or_step(classes, Changed::new(replan)).within(limit))
    }

    /// Level 4: sends the request to somebody else, a service with the same response and error
    /// types.
    pub fn fallback<B>(mut self, backup: B) -> Rungs<R, E, Elsewhere<R, E, C, B>, F> {
        let (classes, limit) = self.rung(Level::Fallback);
        self.climb(|chain| chain.or_service(classes, backup).within(limit))
    }

    fn rung(&mut self, level: Level) -> (ClassSet, Duration) {
        self.given[level as usize] = true;
        (self.ladder.entry().reaching(level), self.ladder.limit(level))
    }

    fn climb<C2>(
        self,
        add: impl FnOnce(FallbackLayer<R, C::Steps, C::Keep>) -> C2,
    ) -> Rungs<R, E, C2, F> {
        let Self { ladder, given, classifier, escalate, climb, limit, retry } = self;
        let climb = add(climb.chain(&classifier));
        Rungs { ladder, given, classifier, escalate, climb, limit, retry }
    }
}

impl<R, E, C, F, A, K, G> Rungs<R, E, C, Ending<F, A, K, G>> {
    /// Level 5: the answer that the caller gets when nothing helped: what there is, with an
    /// explanation. It is marked as a forced finish, and somebody hears of it all the same.
    #[expect(clippy::type_complexity, reason = "a ladder is its type")]
    pub fn finish<Res, X>(
        mut self,
        finish: X,
    ) -> Rungs<R, E, C, Ending<Set<impl Fn(Ended<'_, Res, E>) -> Option<Res>>, A, K, G>>
    where
        X: Fn(Ended<'_, Res, E>) -> Res,
    {
        self.given[Level::Finish as usize] = true;
        self.escalate(|layer| {
            layer.finish_with(move |ended: Ended<'_, Res, E>| Some(finish(ended)))
        })
    }
}

impl<S, R, E, C, F, A> Layer<S> for Rungs<R, E, C, F>
where
    RetryLayer<R>: Layer<S, Service = A>,
    A: Clone,
    TimeoutLayer<R>: Layer<A>,
    C: Layer<Action<<TimeoutLayer<R> as Layer<A>>::Service, A>>,
    EscalateLayer<R, F, E>: Layer<C::Service>,
{
    type Service = <EscalateLayer<R, F, E> as Layer<C::Service>>::Service;

    fn layer(&self, inner: S) -> Self::Service {
        let repeated = self.retry.layer(inner);
        let action = Action::new(self.limit.layer(repeated.clone()), repeated);
        self.escalate.layer(self.climb.layer(action))
    }
}

// === impl Clone and Debug: without bounds on rules and errors ===

impl<R, E, C: Clone, F: Clone> Clone for Rungs<R, E, C, F> {
    fn clone(&self) -> Self {
        Self {
            ladder: self.ladder.clone(),
            given: self.given,
            classifier: self.classifier.clone(),
            escalate: self.escalate.clone(),
            climb: self.climb.clone(),
            limit: self.limit.clone(),
            retry: self.retry.clone(),
        }
    }
}

/// The table of its [`Ladder`], with what was not given.
impl<R, E, C, F> fmt::Display for Rungs<R, E, C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ladder.write(f, self.given)
    }
}

impl<R, E, C, F> fmt::Debug for Rungs<R, E, C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rungs").field("ladder", &self.ladder).finish_non_exhaustive()
    }
}
