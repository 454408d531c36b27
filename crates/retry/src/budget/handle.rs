//! The handle that layers hold.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tower_triage_core::{ConfigError, Failure, ServerWord, Verdict};

use super::bucket::{Bucket, BucketSettings};
use super::fixed::{ONE, ceil_share, units};
use super::in_flight::{InFlight, InFlightSettings};
use super::spending::{Held, Place, Spending};
use super::throttle::{Throttle, ThrottleSettings};
use super::token_cost::{TokenCost, TokenCostSettings};
use super::window::{Window, WindowSettings};

/// How many retries there may be: a cheap handle. Its clones share one state, so several layers
/// (or several clients of one dependency) can draw on one budget.
///
/// The default is a bucket that gains 0.1 retries per request, holds at most 20 and starts with
/// 10. A budget is asked last, when everything else allows the retry, and checks and subtracts in
/// one step, so racing requests never get more than there is.
///
/// ```
/// use std::time::Duration;
/// use tower_triage_core::{ErrorClass, Failure, Verdict};
/// use tower_triage_retry::budget::{BucketSettings, Budget, Denied};
///
/// # fn main() -> Result<(), tower_triage_core::ConfigError> {
/// // One retry for every two requests, and none to begin with.
/// let budget = Budget::bucket(BucketSettings { gain: 0.5, capacity: 10, initial: 0 })?;
/// let failure = Failure::new(ErrorClass::Transient);
/// let now = Duration::ZERO; // a bucket needs no clock
///
/// let mut first = budget.begin(now);
/// budget.observe(&mut first, &Verdict::Failure(failure), true);
/// assert_eq!(budget.ask(&mut first, &failure, now), Err(Denied::UsedUp));
///
/// let mut second = budget.begin(now);
/// budget.observe(&mut second, &Verdict::Failure(failure), true);
/// assert_eq!(budget.ask(&mut second, &failure, now), Ok(()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Budget {
    kind: Kind,
    /// The share of the balance that one request may take, in units.
    per_request: Option<u64>,
}

#[derive(Clone)]
enum Kind {
    Unlimited,
    Bucket(Arc<Bucket>),
    Window(Arc<Window>),
    TokenCost(Arc<TokenCost>),
    FailureThrottle(Arc<Throttle>),
    InFlight(Arc<InFlight>),
}

/// Why a retry was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Denied {
    /// The budget is used up.
    UsedUp,
    /// The request has had the share of the budget that one request may take.
    RequestLimit,
}

// === impl Budget ===

impl Budget {
    /// A capped bucket, filled per request; see [`BucketSettings`].
    ///
    /// # Errors
    /// Names the setting that is out of its range; so do the other constructors.
    pub fn bucket(settings: BucketSettings) -> Result<Self, ConfigError> {
        Ok(Self::of(Kind::Bucket(Arc::new(Bucket::new(&settings)?))))
    }

    /// A share of the requests of the last while, and a reserve; see [`WindowSettings`].
    pub fn window(settings: WindowSettings) -> Result<Self, ConfigError> {
        Ok(Self::of(Kind::Window(Arc::new(Window::new(&settings)?))))
    }

    /// Tokens with a price per kind of failure; see [`TokenCostSettings`].
    pub fn token_cost(settings: TokenCostSettings) -> Result<Self, ConfigError> {
        Ok(Self::of(Kind::TokenCost(Arc::new(TokenCost::new(settings)?))))
    }

    /// gRPC's retry throttling; see [`ThrottleSettings`].
    pub fn failure_throttle(settings: ThrottleSettings) -> Result<Self, ConfigError> {
        Ok(Self::of(Kind::FailureThrottle(Arc::new(Throttle::new(&settings)?))))
    }

    /// A share of the calls in flight; see [`InFlightSettings`].
    pub fn in_flight(settings: InFlightSettings) -> Result<Self, ConfigError> {
        Ok(Self::of(Kind::InFlight(Arc::new(InFlight::new(&settings)?))))
    }

    /// Every retry is granted.
    #[must_use]
    pub const fn unlimited() -> Self {
        Self::of(Kind::Unlimited)
    }

    const fn of(kind: Kind) -> Self {
        Self { kind, per_request: None }
    }

    /// No request takes more than `fraction` of the balance that its first retry finds, rounded up
    /// to whole retries. It belongs to this handle and to the clones made of it, not to the state:
    /// layers that share a budget may differ in it.
    ///
    /// # Errors
    /// If `fraction` is not above 0 and at most 1.
    pub fn per_request_fraction(mut self, fraction: f64) -> Result<Self, ConfigError> {
        const FIELD: &str = "per_request_fraction";
        const PROBLEM: &str = "a share, above 0 and at most 1";
        let share = units(FIELD, fraction, 1.0, PROBLEM)?;
        if share == 0 {
            return Err(ConfigError::new(FIELD, fraction, PROBLEM));
        }
        self.per_request = Some(share);
        Ok(self)
    }

    /// Must the `now` of the other methods be the time? If not, it may be anything.
    #[must_use]
    pub fn needs_clock(&self) -> bool {
        match self.kind {
            Kind::Window(_) => true,
            Kind::TokenCost(ref tokens) => tokens.refills(),
            Kind::Unlimited | Kind::Bucket(_) | Kind::FailureThrottle(_) | Kind::InFlight(_) => {
                false
            }
        }
    }

    /// A logical request begins: the deposit, once, however many attempts follow.
    #[inline]
    pub fn begin(&self, now: Duration) -> Spending {
        Spending::new(match &self.kind {
            Kind::Unlimited | Kind::FailureThrottle(_) => Held::Nothing,
            Kind::Bucket(bucket) => {
                bucket.deposit();
                Held::Nothing
            }
            Kind::Window(window) => {
                window.deposit(now);
                Held::Nothing
            }
            Kind::TokenCost(_) => Held::Cost(None),
            Kind::InFlight(in_flight) => Held::Place(Place::first(in_flight)),
        })
    }

    /// An attempt has ended with `verdict`; call it after every attempt, before [`ask`](Self::ask).
    ///
    /// `retryable`: would the policy repeat this failure, attempts, deadline and budget aside? Only
    /// such failures, and those that the server forbade to repeat, count for a throttle.
    #[inline]
    pub fn observe(&self, spending: &mut Spending, verdict: &Verdict, retryable: bool) {
        match (&self.kind, &mut spending.held) {
            (Kind::FailureThrottle(throttle), _) => match verdict {
                Verdict::Success => throttle.success(),
                Verdict::Failure(failure)
                    if retryable || failure.server == ServerWord::Forbidden =>
                {
                    throttle.failure();
                }
                Verdict::Failure(_) => {}
            },
            (Kind::TokenCost(tokens), Held::Cost(last_cost)) if verdict.is_success() => {
                tokens.refund(last_cost.take());
            }
            (_, Held::Place(place)) => place.end(),
            _ => {}
        }
    }

    /// May the request try again after `failure`? If so, the retry is paid for: checking and
    /// subtracting are one step.
    ///
    /// # Errors
    /// Why not; then nothing was taken.
    pub fn ask(
        &self,
        spending: &mut Spending,
        failure: &Failure,
        now: Duration,
    ) -> Result<(), Denied> {
        if let Some(share) = self.per_request {
            let left = spending.limit_left.get_or_insert_with(|| {
                u32::try_from(ceil_share(share, self.balance(now))).unwrap_or(u32::MAX)
            });
            if *left == 0 {
                return Err(Denied::RequestLimit);
            }
        }
        let granted = match (&self.kind, &mut spending.held) {
            (Kind::Unlimited, _) => true,
            (Kind::Bucket(bucket), _) => bucket.withdraw(),
            (Kind::Window(window), _) => window.withdraw(now),
            (Kind::TokenCost(tokens), Held::Cost(last_cost)) => {
                let paid = tokens.pay(failure.class, now);
                *last_cost = paid.or(*last_cost);
                paid.is_some()
            }
            (Kind::FailureThrottle(throttle), _) => throttle.allows(),
            (Kind::InFlight(_), Held::Place(place)) => place.retry(),
            // A spending that another kind of budget began: nothing says that it may.
            (Kind::TokenCost(_) | Kind::InFlight(_), _) => false,
        };
        if !granted {
            return Err(Denied::UsedUp);
        }
        if let Some(left) = &mut spending.limit_left {
            *left -= 1;
        }
        Ok(())
    }

    /// Whole retries that would be granted now, one after the other. Tokens with prices reckon
    /// with the ordinary price, a throttle with each retry failing.
    #[must_use]
    pub fn balance(&self, now: Duration) -> u64 {
        match &self.kind {
            Kind::Unlimited => u64::MAX,
            Kind::Bucket(bucket) => bucket.units() / ONE,
            Kind::Window(window) => window.units(now) / ONE,
            Kind::TokenCost(tokens) => tokens.balance(now),
            Kind::FailureThrottle(throttle) => throttle.balance(),
            Kind::InFlight(in_flight) => in_flight.balance(),
        }
    }

    /// What is left in the budget's own unit, for a gauge: retries with their fraction, or tokens;
    /// infinite without a limit.
    #[must_use]
    pub fn level(&self, now: Duration) -> f64 {
        match &self.kind {
            Kind::Unlimited => f64::INFINITY,
            Kind::Bucket(bucket) => bucket.units() as f64 / ONE as f64,
            Kind::Window(window) => window.units(now) as f64 / ONE as f64,
            Kind::TokenCost(tokens) => tokens.units(now) as f64 / ONE as f64,
            Kind::FailureThrottle(throttle) => throttle.level(),
            Kind::InFlight(in_flight) => in_flight.balance() as f64,
        }
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::of(Kind::Bucket(Arc::default()))
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state: &dyn fmt::Debug = match &self.kind {
            Kind::Unlimited => &"Unlimited",
            Kind::Bucket(bucket) => bucket,
            Kind::Window(window) => window,
            Kind::TokenCost(tokens) => tokens,
            Kind::FailureThrottle(throttle) => throttle,
            Kind::InFlight(in_flight) => in_flight,
        };
        let mut debug = f.debug_struct("Budget");
        debug.field("state", state);
        if let Some(share) = self.per_request {
            debug.field("per_request_fraction", &(share as f64 / ONE as f64));
        }
        debug.finish()
    }
}

// === impl Denied ===

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UsedUp => "the retry budget is used up",
            Self::RequestLimit => "the request has had its share of the retry budget",
        })
    }
}
