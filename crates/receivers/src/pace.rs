//! One after the other, and not too fast.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// Lets one pass per gap, first come, first served. Clones share it.
///
/// Dropped while it waits, a turn is given back.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    gap: Duration,
    next: Arc<Mutex<Option<Instant>>>,
}

impl Pace {
    pub(crate) fn new(gap: Duration) -> Self {
        // A format may ask for any gap; one that nobody lives to see is no moment.
        let gap = gap.min(Duration::from_secs(30 * 365 * 24 * 3600));
        Self { gap, next: Arc::default() }
    }

    pub(crate) async fn turn(&self) {
        if self.gap.is_zero() {
            return;
        }
        let mut next = self.next.lock().await;
        if let Some(next) = *next {
            tokio::time::sleep_until(next).await;
        }
        *next = Some(Instant::now() + self.gap);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_a_second_in_order_and_who_leaves_holds_up_nobody() {
        let pace = Pace::new(Duration::from_secs(1));
        let began = Instant::now();
        let others = pace.clone();
        others.turn().await;
        assert_eq!(began.elapsed(), Duration::ZERO);
        let gone = tokio::time::timeout(Duration::from_millis(500), pace.turn());
        assert!(gone.await.is_err());
        pace.turn().await;
        assert_eq!(began.elapsed().as_secs(), 1, "the place of who left is free");
        others.turn().await;
        assert_eq!(began.elapsed().as_secs(), 2);
        tokio::time::sleep(Duration::from_secs(10)).await;
        pace.turn().await;
        assert_eq!(began.elapsed().as_secs(), 12, "idle time makes no one wait, nor a burst");
    }

    #[tokio::test(start_paused = true)]
    async fn a_gap_without_end_lets_one_pass() {
        let pace = Pace::new(Duration::MAX);
        pace.turn().await;
        let second = tokio::time::timeout(Duration::from_secs(3600), pace.turn());
        assert!(second.await.is_err());
    }

    #[tokio::test]
    async fn without_a_gap_nobody_waits() {
        let pace = Pace::new(Duration::ZERO);
        pace.turn().await;
        pace.turn().await;
        assert!(pace.next.lock().await.is_none());
    }
}
