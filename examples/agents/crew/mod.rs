//! The crew: a planner and three workers, who ask models and read pages; and what sees their tasks
//! through.

mod human;
mod model;
mod rules;
mod stack;
mod task;
mod ways;
mod worker;

pub(crate) use self::human::Human;
pub(crate) use self::model::Model;
pub(crate) use self::rules::{Rules, Trouble, rules};
pub(crate) use self::stack::{PACE, Service, Stack, step};
pub(crate) use self::task::{Report, Task};
pub(crate) use self::worker::{CIRCLES, Crew};
