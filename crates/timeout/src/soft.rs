//! What an attempt can see of its time.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

thread_local! {
    /// The limits of the attempt that this thread calls or polls.
    static CURRENT: Cell<Option<SoftLimit>> = const { Cell::new(None) };
}

/// The time that an attempt has, as the attempt can see it: until the soft limit, when it should
/// come to an end (save its checkpoint, answer with what it has), and until the hard one, when it is
/// dropped.
///
/// It is two moments and nothing else: copy it into whatever you spawn. From [`soft_limit`], or from
/// the layer's [`tell`](crate::TimeoutLayer::tell).
///
/// Under a paused tokio clock it follows that clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftLimit {
    /// `None`: too far away for a clock to tell.
    soft: Option<Instant>,
    hard: Option<Instant>,
}

impl SoftLimit {
    pub(crate) fn new(begun: Instant, (soft, hard): (Duration, Duration)) -> Self {
        Self { soft: begun.checked_add(soft), hard: begun.checked_add(hard) }
    }

    /// Is it time to come to an end?
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.soft.is_some_and(|soft| Instant::now() >= soft)
    }

    /// Until it is time to come to an end.
    ///
    /// Needs a tokio runtime with its timer.
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing behind; a further call waits for the same moment.
    pub async fn due(&self) {
        match self.soft {
            Some(soft) => tokio::time::sleep_until(soft).await,
            None => std::future::pending().await,
        }
    }

    /// Time until it is due; zero if it is, [`Duration::MAX`] if no clock can tell.
    #[must_use]
    pub fn time_left(&self) -> Duration {
        until(self.soft)
    }

    /// Time until the attempt is dropped, the grace included: what a deadline header should say.
    /// [`Duration::MAX`] if no clock can tell.
    #[must_use]
    pub fn time_until_dropped(&self) -> Duration {
        until(self.hard)
    }

    /// When it is due; `None` if no clock can tell.
    #[must_use]
    pub const fn soft_at(&self) -> Option<Instant> {
        self.soft
    }

    /// When the attempt is dropped; `None` if no clock can tell.
    #[must_use]
    pub const fn hard_at(&self) -> Option<Instant> {
        self.hard
    }

    /// Of both limits the earlier ones.
    fn and(self, other: Self) -> Self {
        Self { soft: earlier(self.soft, other.soft), hard: earlier(self.hard, other.hard) }
    }

    /// What an attempt with these limits sees when it is called here: those of a limit around it
    /// too.
    pub(crate) fn within_current(self) -> Self {
        soft_limit().map_or(self, |outer| self.and(outer))
    }

    /// Runs `f`, which sees these limits, or those of a limit around it if they are earlier.
    #[inline]
    pub(crate) fn seen_by<T>(self, f: impl FnOnce() -> T) -> T {
        struct Restore(Option<SoftLimit>);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.set(self.0);
            }
        }
        let _restore = Restore(CURRENT.replace(Some(self.within_current())));
        f()
    }
}

fn until(moment: Option<Instant>) -> Duration {
    moment.map_or(Duration::MAX, |moment| moment.saturating_duration_since(Instant::now()))
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The limits of the attempt that is being called or polled: of several time limits around it the
/// earlier moments. `None` outside.
///
/// It is known in the task that polls the attempt. For what an attempt spawns, or what runs behind a
/// `buffer`, take it before and pass it on; for a request that leaves the process, put it into the
/// request ([`TimeoutLayer::tell`](crate::TimeoutLayer::tell)).
///
/// ```
/// use std::time::Duration;
/// use tower::{ServiceBuilder, ServiceExt, service_fn};
/// use tower_triage_core::{AnyError, AnyOk, Chain, Classifier, Halves};
/// use tower_triage_timeout::{TimeoutLayer, soft_limit};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), AnyError> {
/// // Counts until it is told to come to an end, and answers with what it has.
/// let count = service_fn(async |_: ()| {
///     let mut counted = 0;
///     while !soft_limit().is_some_and(|limit| limit.is_due()) {
///         tokio::time::sleep(Duration::from_millis(300)).await;
///         counted += 1;
///     }
///     Ok::<_, AnyError>(counted)
/// });
/// let classifier = Classifier::new(Halves { response: AnyOk, error: Chain });
/// let limit = TimeoutLayer::new(classifier, Duration::from_secs(3))?;
/// let counted = ServiceBuilder::new().layer(limit).service(count).oneshot(()).await?;
/// assert_eq!(counted, 10);
/// # Ok(()) }
/// ```
#[must_use]
pub fn soft_limit() -> Option<SoftLimit> {
    CURRENT.get()
}
