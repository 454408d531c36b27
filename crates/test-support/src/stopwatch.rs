//! Time that does not depend on who else is at work.

use std::time::Duration;

use tokio::time::Instant;

/// Measures what the present thread takes: real time, without that for which it was ready to run and
/// other threads had its core. Time in which it sleeps counts. Where the system does not tell (Linux
/// does) it is real time.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    begun: Instant,
    waited: Duration,
}

impl Stopwatch {
    /// Begins now.
    #[must_use]
    pub fn start() -> Self {
        Self { begun: Instant::now(), waited: waited() }
    }

    /// The time since then; to be asked in the same thread.
    #[must_use]
    pub fn time(&self) -> Duration {
        self.begun.elapsed().saturating_sub(waited().saturating_sub(self.waited))
    }
}

/// For how long this thread has waited for a core so far: the second number of the file.
fn waited() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let waited = told.split_whitespace().nth(1).and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(waited.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::Stopwatch;
    use std::time::Duration;

    #[test]
    fn sleep_counts() {
        let watch = Stopwatch::start();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(20)).await });
        assert!(watch.time() >= Duration::from_millis(20), "{:?}", watch.time());
    }
}
