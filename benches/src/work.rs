//! The work that every case wraps.

use std::cell::Cell;
use std::fmt;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::task::{Context, Poll};

use tower_service::Service;

use crate::case::{Case, Expect};

/// The group of cases in which nothing fails.
pub const NOTHING_FAILS: &str = "nothing fails";
/// Each first attempt fails, each second succeeds; nobody waits.
pub const FIRST_FAILS: &str = "first fails, second succeeds";
/// Each call fails in a way that only a fallback can answer.
pub const FALLBACK: &str = "fallback used";
/// Each call is rejected.
pub const OPEN: &str = "open breaker";

/// Groups in which a share of the attempts fails, with that share in thousandths.
pub const SHARES: [(&str, u32); 4] =
    [("0.1 % fail", 1), ("1 % fail", 10), ("10 % fail", 100), ("50 % fail", 500)];

/// The service at the bottom of every case: ready at once, and answers at once, as its script says.
#[derive(Clone, Copy, Debug)]
pub struct Work(pub Script);

/// Which attempts fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// None.
    Succeeds,
    /// Every second one of a thread, beginning with the first.
    EverySecondFails,
    /// So many of a thousand, at random, the same ones in each process.
    ShareFails(u32),
    /// All but the last of so many.
    AllButOneFail(u64),
    /// All, in a way that a retry does not heal and a breaker does not count.
    Refuses,
    /// All, in the way a breaker counts.
    Down,
}

/// The error of [`Work`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkFailed {
    /// Worth another attempt; counts against the service.
    Transient,
    /// The service refused; another attempt would be refused as well.
    Refused,
    /// A breaker did not let the call through.
    Rejected,
}

thread_local! {
    /// What the scripts know of attempts before: own to each thread, so that none is slowed by it.
    static BEFORE: Cell<u64> = const { Cell::new(0) };
}

/// The answer of the work to `request`; also for peers that wrap functions.
#[inline]
pub fn answer(script: Script, request: u64) -> Ready<Result<u64, WorkFailed>> {
    ready(script.verdict().map(|()| request.wrapping_add(1)))
}

impl Script {
    #[inline]
    fn verdict(self) -> Result<(), WorkFailed> {
        match self {
            Self::Succeeds => Ok(()),
            Self::Refuses => Err(WorkFailed::Refused),
            Self::Down => Err(WorkFailed::Transient),
            Self::EverySecondFails => fail_if(count_up().is_multiple_of(2)),
            Self::AllButOneFail(attempts) => fail_if(count_up() % attempts != attempts - 1),
            Self::ShareFails(thousandths) => {
                let random = BEFORE.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                BEFORE.set(random);
                fail_if(((random >> 32) * 1000) >> 32 < u64::from(thousandths))
            }
        }
    }
}

fn count_up() -> u64 {
    let before = BEFORE.get();
    BEFORE.set(before + 1);
    before
}

/// The scripts begin anew; between cases, which would otherwise begin wherever the last one ended.
pub fn begin_anew() {
    BEFORE.set(0);
}

const fn fail_if(fails: bool) -> Result<(), WorkFailed> {
    if fails { Err(WorkFailed::Transient) } else { Ok(()) }
}

impl Service<u64> for Work {
    type Response = u64;
    type Error = WorkFailed;
    type Future = Ready<Result<u64, WorkFailed>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), WorkFailed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u64) -> Self::Future {
        answer(self.0, black_box(request))
    }
}

impl fmt::Display for WorkFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Transient => "the work failed",
            Self::Refused => "the service refused",
            Self::Rejected => "the circuit is open",
        })
    }
}

impl std::error::Error for WorkFailed {}

/// The case without any layer.
#[must_use]
pub fn bare() -> Case {
    Case::tower(NOTHING_FAILS, "no layer", Expect::Answer, || Work(Script::Succeeds)).one_thread()
}
