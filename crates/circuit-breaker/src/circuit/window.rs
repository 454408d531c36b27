//! What the recent calls were: over a number of calls, or over a time.

use std::collections::VecDeque;
use std::time::Duration;

use crate::policy::Span;
use crate::state::Sample;

/// A recorded call that is not a plain success.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blot {
    pub(crate) failure: bool,
    pub(crate) slow: bool,
}

/// The recent calls. Plain successes come in numbers, so that they can be counted elsewhere and
/// handed in when the window is looked at.
#[derive(Debug)]
pub(crate) enum Window {
    /// No rule needs one.
    None,
    Calls(CallWindow),
    Time(TimeWindow),
}

impl Window {
    pub(crate) fn new(span: Option<Span>) -> Self {
        match span {
            None => Self::None,
            Some(Span::Calls(length)) => Self::Calls(CallWindow::new(length.into())),
            Some(Span::Time(length)) => Self::Time(TimeWindow::new(length)),
        }
    }

    /// `n` plain successes came since the last look.
    pub(crate) fn earlier_successes(&mut self, n: u64, now: Duration) {
        match self {
            Self::None => {}
            Self::Calls(window) => window.add_successes(n),
            Self::Time(window) => window.add_earlier_successes(n, now),
        }
    }

    /// One call ended now; `None` is a plain success.
    pub(crate) fn record(&mut self, blot: Option<Blot>, now: Duration) {
        match (self, blot) {
            (Self::None, _) => {}
            (Self::Calls(window), None) => window.add_successes(1),
            (Self::Calls(window), Some(blot)) => window.add_blot(blot),
            (Self::Time(window), blot) => window.record(blot, now),
        }
    }

    /// What it holds now.
    pub(crate) fn sample(&mut self, now: Duration) -> Sample {
        match self {
            Self::None => Sample::default(),
            Self::Calls(window) => window.sample(),
            Self::Time(window) => window.sample(now),
        }
    }

    /// Until when plain successes can only make the sample better, if they all come in before.
    pub(crate) fn good_until(&self) -> Duration {
        match self {
            Self::None | Self::Calls(_) => Duration::MAX,
            Self::Time(window) => window.good_until(),
        }
    }

    pub(crate) fn clear(&mut self) {
        match self {
            Self::None => {}
            Self::Calls(window) => *window = CallWindow::new(window.length),
            Self::Time(window) => {
                window.slices.clear();
                window.sum = Sample::default();
            }
        }
    }
}

/// The last N recorded calls, exactly. Successes need no place of their own: each other call notes
/// how many were recorded up to it.
#[derive(Debug)]
pub(crate) struct CallWindow {
    length: u64,
    recorded: u64,
    blots: VecDeque<(u64, Blot)>,
    failures: u64,
    slow: u64,
}

impl CallWindow {
    fn new(length: u64) -> Self {
        Self { length, recorded: 0, blots: VecDeque::new(), failures: 0, slow: 0 }
    }

    fn add_successes(&mut self, n: u64) {
        self.recorded = self.recorded.saturating_add(n);
        while let Some((position, blot)) = self.blots.front() {
            if self.recorded - position < self.length {
                break;
            }
            self.failures -= u64::from(blot.failure);
            self.slow -= u64::from(blot.slow);
            self.blots.pop_front();
        }
    }

    fn add_blot(&mut self, blot: Blot) {
        self.add_successes(1);
        self.blots.push_back((self.recorded, blot));
        self.failures += u64::from(blot.failure);
        self.slow += u64::from(blot.slow);
    }

    fn sample(&self) -> Sample {
        let recorded = self.recorded.min(self.length);
        Sample { recorded, failures: self.failures, slow: self.slow }
    }
}

/// The last T in ten slices. A slice starts with its first call and is gone when that call is as
/// old as the window, so a call counts for at least nine tenths of the window and at most all of it.
#[derive(Debug)]
pub(crate) struct TimeWindow {
    length: Duration,
    slices: VecDeque<Slice>,
    sum: Sample,
}

#[derive(Debug)]
struct Slice {
    start: Duration,
    sample: Sample,
}

impl TimeWindow {
    const SLICES: u32 = 10;

    fn new(length: Duration) -> Self {
        // Room for all of them at once, one more where the length has no tenth: successes begin
        // slices too, and do not allocate.
        let slices = VecDeque::with_capacity(Self::SLICES as usize + 1);
        Self { length, slices, sum: Sample::default() }
    }

    fn slice_length(&self) -> Duration {
        self.length / Self::SLICES
    }

    /// Drops the slices that are too old.
    fn evict(&mut self, now: Duration) {
        while let Some(slice) = self.slices.front() {
            if now.saturating_sub(slice.start) < self.length {
                break;
            }
            self.sum.recorded -= slice.sample.recorded;
            self.sum.failures -= slice.sample.failures;
            self.sum.slow -= slice.sample.slow;
            self.slices.pop_front();
        }
    }

    /// They came while the latest slice was the current one (see [`TimeWindow::good_until`]).
    fn add_earlier_successes(&mut self, n: u64, now: Duration) {
        if n > 0 {
            if self.slices.is_empty() {
                self.slices.push_back(Slice { start: now, sample: Sample::default() });
            }
            self.add_to_last(Sample { recorded: n, failures: 0, slow: 0 });
        }
    }

    fn record(&mut self, blot: Option<Blot>, now: Duration) {
        self.evict(now);
        let width = self.slice_length();
        if self.slices.back().is_none_or(|last| now.saturating_sub(last.start) >= width) {
            self.slices.push_back(Slice { start: now, sample: Sample::default() });
        }
        let failures = blot.is_some_and(|blot| blot.failure).into();
        let slow = blot.is_some_and(|blot| blot.slow).into();
        self.add_to_last(Sample { recorded: 1, failures, slow });
    }

    fn add_to_last(&mut self, more: Sample) {
        let last = self.slices.back_mut().map(|slice| &mut slice.sample);
        for sample in [Some(&mut self.sum), last].into_iter().flatten() {
            sample.recorded += more.recorded;
            sample.failures += more.failures;
            sample.slow += more.slow;
        }
    }

    fn sample(&mut self, now: Duration) -> Sample {
        self.evict(now);
        self.sum
    }

    /// Up to here a success belongs to the latest slice, and no older slice leaves.
    fn good_until(&self) -> Duration {
        match (self.slices.front(), self.slices.back()) {
            (Some(first), Some(last)) => {
                let next_slice = last.start.saturating_add(self.slice_length());
                next_slice.min(first.start.saturating_add(self.length))
            }
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILURE: Option<Blot> = Some(Blot { failure: true, slow: false });

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn successes_in_a_lump_evict_what_they_would_one_by_one() {
        let mut window = Window::new(Some(Span::Calls(4)));
        window.record(FAILURE, ms(0));
        window.earlier_successes(3, ms(0));
        assert_eq!(window.sample(ms(0)).failures, 1);
        window.earlier_successes(1, ms(0));
        assert_eq!(window.sample(ms(0)), Sample { recorded: 4, failures: 0, slow: 0 });
        window.record(Some(Blot { failure: false, slow: true }), ms(0));
        assert_eq!(window.sample(ms(0)), Sample { recorded: 4, failures: 0, slow: 1 });
        window.earlier_successes(4, ms(0));
        assert_eq!(window.sample(ms(0)), Sample { recorded: 4, failures: 0, slow: 0 });
    }

    #[test]
    fn no_successes_begin_no_slice() {
        let mut window = Window::new(Some(Span::Time(ms(1000))));
        window.earlier_successes(0, ms(0));
        window.record(Some(Blot { failure: false, slow: true }), ms(50));
        assert_eq!(window.sample(ms(1049)), Sample { recorded: 1, failures: 0, slow: 1 });
        assert_eq!(window.sample(ms(1050)), Sample::default());
    }

    #[test]
    fn a_slice_starts_with_its_first_call_and_leaves_whole() {
        let mut window = Window::new(Some(Span::Time(ms(1000))));
        assert_eq!(window.good_until(), ms(0));
        window.record(FAILURE, ms(50));
        window.record(FAILURE, ms(149));
        assert_eq!(window.good_until(), ms(150));
        window.record(None, ms(150));
        assert_eq!(window.sample(ms(1049)).recorded, 3);
        assert_eq!(window.sample(ms(1050)), Sample { recorded: 1, failures: 0, slow: 0 });
    }

    #[test]
    fn the_number_of_slices_does_not_grow_with_traffic() {
        let mut window = TimeWindow::new(Duration::from_nanos(1_000_003));
        for now in 0..100_000 {
            window.record(None, Duration::from_nanos(now * 101));
            assert!(window.slices.len() <= 11);
        }
        assert_eq!(window.slices.capacity(), 11);
    }
}
