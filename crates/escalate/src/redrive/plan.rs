//! What would be sent.

use std::fmt;

use crate::store::Letter;

/// What a worker would send: one page of it. Nothing is leased.
#[derive(Debug)]
#[non_exhaustive]
pub struct Plan<Req> {
    /// The letters, in the order of storing.
    pub letters: Vec<Planned<Req>>,
    /// Where the next page begins. `None` if there is none.
    pub next: Option<u64>,
}

/// One letter and what would be sent.
#[non_exhaustive]
pub struct Planned<Req> {
    /// The letter.
    pub letter: Letter,
    /// Its request, or why it would be parked.
    pub request: Result<Req, String>,
}

/// Without the request.
impl<Req> fmt::Debug for Planned<Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let request = self.request.as_ref().map(|_| "..");
        f.debug_struct("Planned").field("letter", &self.letter).field("request", &request).finish()
    }
}
