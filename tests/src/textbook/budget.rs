//! Budgets by the textbook: every request and every retry is kept, and everything is counted anew.

use tower_triage_core::ErrorClass;

/// A budget; `now` is in milliseconds, and a retry is a thousand.
pub(super) trait Budget {
    /// What a request keeps.
    type Request;

    fn begin(&mut self, now: u64) -> Self::Request;
    fn succeeded(&mut self, request: &mut Self::Request);
    /// Failed with something that may be repeated.
    fn failed(&mut self, request: &mut Self::Request);
    fn ask(&mut self, request: &mut Self::Request, class: ErrorClass, now: u64) -> bool;
    fn end(&mut self, request: Self::Request);
    /// Whole retries left.
    fn balance(&self, now: u64) -> u64;
    /// What is left in the budget's own unit, in thousandths.
    fn level(&self, now: u64) -> u64;
}

/// Gains with every request, up to a capacity.
pub(super) struct Bucket {
    pub(super) gain: u64,
    pub(super) capacity: u64,
    pub(super) left: u64,
}

impl Budget for Bucket {
    type Request = ();

    fn begin(&mut self, _: u64) {
        self.left = (self.left + self.gain).min(self.capacity);
    }

    fn succeeded(&mut self, (): &mut ()) {}

    fn failed(&mut self, (): &mut ()) {}

    fn ask(&mut self, (): &mut (), _: ErrorClass, _: u64) -> bool {
        let granted = self.left >= 1000;
        self.left -= if granted { 1000 } else { 0 };
        granted
    }

    fn end(&mut self, (): ()) {}

    fn balance(&self, _: u64) -> u64 {
        self.left / 1000
    }

    fn level(&self, _: u64) -> u64 {
        self.left
    }
}

/// A share of the requests of the last twenty slots, less the retries of these and one more.
pub(super) struct Window {
    pub(super) slot: u64,
    pub(super) ratio: u64,
    /// Over the whole window.
    pub(super) reserve: u64,
    pub(super) requests: Vec<u64>,
    pub(super) retries: Vec<u64>,
}

impl Window {
    fn left(&self, now: u64) -> u64 {
        let slot = now / self.slot;
        let count = |times: &[u64], slots: u64| {
            times.iter().rev().take_while(|time| *time / self.slot + slots > slot).count() as u64
        };
        let gained = count(&self.requests, 20) * self.ratio + self.reserve;
        gained.saturating_sub(count(&self.retries, 21) * 1000)
    }
}

impl Budget for Window {
    type Request = ();

    fn begin(&mut self, now: u64) {
        self.requests.push(now);
    }

    fn succeeded(&mut self, (): &mut ()) {}

    fn failed(&mut self, (): &mut ()) {}

    fn ask(&mut self, (): &mut (), _: ErrorClass, now: u64) -> bool {
        let granted = self.left(now) >= 1000;
        if granted {
            self.retries.push(now);
        }
        granted
    }

    fn end(&mut self, (): ()) {}

    fn balance(&self, now: u64) -> u64 {
        self.left(now) / 1000
    }

    fn level(&self, now: u64) -> u64 {
        self.left(now)
    }
}

/// Tokens that retries pay and successes give back.
pub(super) struct Tokens {
    pub(super) capacity: u32,
    pub(super) left: u32,
    pub(super) timeout: u32,
    pub(super) other: u32,
    pub(super) first_try: u32,
}

impl Budget for Tokens {
    /// What its last retry cost.
    type Request = Option<u32>;

    fn begin(&mut self, _: u64) -> Option<u32> {
        None
    }

    fn succeeded(&mut self, last_cost: &mut Option<u32>) {
        let refund = last_cost.take().unwrap_or(self.first_try);
        self.left = (self.left + refund).min(self.capacity);
    }

    fn failed(&mut self, _: &mut Option<u32>) {}

    fn ask(&mut self, last_cost: &mut Option<u32>, class: ErrorClass, _: u64) -> bool {
        let cost = if class == ErrorClass::Timeout { self.timeout } else { self.other };
        let granted = self.left >= cost;
        if granted {
            self.left -= cost;
            *last_cost = Some(cost);
        }
        granted
    }

    fn end(&mut self, _: Option<u32>) {}

    fn balance(&self, _: u64) -> u64 {
        u64::from(self.left / self.other)
    }

    fn level(&self, _: u64) -> u64 {
        u64::from(self.left) * 1000
    }
}

/// Tokens, in thousandths, that failures take and successes bring.
pub(super) struct Throttle {
    pub(super) max: u64,
    pub(super) ratio: u64,
    pub(super) left: u64,
}

impl Budget for Throttle {
    type Request = ();

    fn begin(&mut self, _: u64) {}

    fn succeeded(&mut self, (): &mut ()) {
        self.left = (self.left + self.ratio).min(self.max);
    }

    fn failed(&mut self, (): &mut ()) {
        self.left = self.left.saturating_sub(1000);
    }

    fn ask(&mut self, (): &mut (), _: ErrorClass, _: u64) -> bool {
        self.left * 2 > self.max
    }

    fn end(&mut self, (): ()) {}

    /// Failures until no retry is allowed.
    fn balance(&self, _: u64) -> u64 {
        (0..)
            .take_while(|failures| self.left.saturating_sub(failures * 1000) * 2 > self.max)
            .count() as u64
    }

    fn level(&self, _: u64) -> u64 {
        self.left
    }
}

/// What runs now: a share of it may be retries.
pub(super) struct InFlight {
    pub(super) percent: u64,
    pub(super) min: u64,
    pub(super) first: u64,
    pub(super) retries: u64,
}

/// What a request has running.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Running {
    First,
    Retry,
    Nothing,
}

impl InFlight {
    const fn allows(&self, retries: u64) -> bool {
        retries < self.min || retries * 100 <= self.percent * (self.first + retries)
    }

    fn ended(&mut self, running: &mut Running) {
        match std::mem::replace(running, Running::Nothing) {
            Running::First => self.first -= 1,
            Running::Retry => self.retries -= 1,
            Running::Nothing => {}
        }
    }
}

impl Budget for InFlight {
    type Request = Running;

    fn begin(&mut self, _: u64) -> Running {
        self.first += 1;
        Running::First
    }

    fn succeeded(&mut self, running: &mut Running) {
        self.ended(running);
    }

    fn failed(&mut self, running: &mut Running) {
        self.ended(running);
    }

    fn ask(&mut self, running: &mut Running, _: ErrorClass, _: u64) -> bool {
        self.ended(running);
        let granted = self.allows(self.retries);
        if granted {
            self.retries += 1;
            *running = Running::Retry;
        }
        granted
    }

    fn end(&mut self, mut running: Running) {
        self.ended(&mut running);
    }

    /// How many could start, one after the other.
    fn balance(&self, _: u64) -> u64 {
        (0..).take_while(|more| self.allows(self.retries + more)).count() as u64
    }

    fn level(&self, now: u64) -> u64 {
        self.balance(now) * 1000
    }
}
