//! Is memory flat?

use std::fmt;
use std::time::Duration;

/// Resident memory, sampled; grown is what is more than a little above the first fifth's most.
#[derive(Debug)]
pub(super) struct Watch {
    settles: Duration,
    settled: u64,
    latest: u64,
    most: u64,
}

/// In KiB: what an allocator may keep or a scheduler may shift without a leak.
const SLACK: u64 = 16 * 1024;

impl Watch {
    pub(super) fn new(seconds: u64) -> Self {
        let settles = Duration::from_secs(seconds) / 5;
        Self { settles, settled: 0, latest: 0, most: 0 }
    }

    /// # Errors
    /// It has grown.
    pub(super) fn sample(&mut self, time: Duration) -> Result<(), String> {
        let Some(resident) = resident() else { return Ok(()) };
        self.latest = resident;
        self.most = self.most.max(resident);
        if time <= self.settles {
            self.settled = self.settled.max(resident);
        } else if self.settled == 0 {
            self.settled = resident;
        }
        let limit = self.settled + self.settled / 4 + SLACK;
        if resident > limit {
            return Err(format!("memory grew from {} to {resident} KiB", self.settled));
        }
        Ok(())
    }

    pub(super) fn mebibytes(&self) -> f64 {
        self.latest as f64 / 1024.0
    }
}

/// In KiB; `None` where the system does not tell.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

impl fmt::Display for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { settled, latest, most, .. } = self;
        write!(
            f,
            "memory: {settled} KiB after a fifth of the time, {latest} at the end, {most} at most"
        )
    }
}
