//! Counters that each thread keeps for itself.

use std::fmt;
use std::sync::OnceLock;

use super::Apart;
use super::numbers::Numbers;
use super::thread;

/// One `C` per thread, made when the thread first asks for it: what a thread writes there, no other
/// writes, so that it is a plain load and store of its own line. Whoever needs the sum reads them
/// all.
///
/// 1 KiB, and 128 bytes per thread that used it (as much as `C` needs beyond that).
pub struct Cells<C> {
    cells: Box<[OnceLock<Box<Apart<C>>>; Numbers::COUNT]>,
}

impl<C: Default> Cells<C> {
    /// No thread has been here.
    #[must_use]
    pub fn new() -> Self {
        Self { cells: Box::new([const { OnceLock::new() }; Numbers::COUNT]) }
    }

    /// This thread's own: nobody else writes to it until the thread has ended. `None` if there are
    /// more than 64 threads and this one has none.
    #[inline]
    #[must_use]
    pub fn own(&self) -> Option<&C> {
        let cell = self.cells.get(thread::number())?;
        match cell.get() {
            Some(own) => Some(&own.0),
            None => Some(first(cell)),
        }
    }

    /// Those of all threads that were here.
    pub fn iter(&self) -> impl Iterator<Item = &C> {
        self.cells[..thread::end()].iter().filter_map(|cell| cell.get().map(|own| &own.0))
    }
}

#[cold]
fn first<C: Default>(cell: &OnceLock<Box<Apart<C>>>) -> &C {
    &cell.get_or_init(Box::default).0
}

impl<C: Default> Default for Cells<C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: fmt::Debug + Default> fmt::Debug for Cells<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
