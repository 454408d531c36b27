//! Core's `share`, as far as threads share something in it, over threads that loom runs.

#[path = "../../../../crates/core/src/share/apart.rs"]
mod apart;
#[path = "../../../../crates/core/src/share/cells.rs"]
mod cells;
#[path = "../../../../crates/core/src/share/counted.rs"]
mod counted;
#[path = "../../../../crates/core/src/share/numbers.rs"]
mod numbers;
pub(crate) mod thread;

use self::apart::Apart;
pub(crate) use self::cells::Cells;
pub(crate) use self::counted::{Held, PerThread};
pub(crate) use self::numbers::Numbers;
