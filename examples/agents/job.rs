//! The job: ask for a plan, and see every task of it through, wave by wave.

use futures_util::{StreamExt, stream};
use tower::ServiceExt;
use tower_triage::report::Wave;
use tower_triage::{AnyError, Incident};

use crate::crew::{Report, Service, Task};

/// So many tasks are under way at a time.
const AT_ONCE: usize = 4;

/// How a task ended.
pub(crate) struct End {
    pub(crate) task: String,
    pub(crate) outcome: Result<Report, AnyError>,
}

impl End {
    /// The story of its call, if it met a failure.
    pub(crate) fn incident(&self) -> Option<&Incident> {
        match &self.outcome {
            Ok(report) => report.notes.incident.as_deref(),
            Err(error) => error.incident().map(|incident| &**incident),
        }
    }
}

/// Runs it; `wave` watches.
pub(crate) async fn run(crew: &Service, wave: &Wave) -> Result<Vec<End>, AnyError> {
    let see_through = async |name: &str| {
        let call = crew.clone().oneshot(Task::new(name));
        End { task: name.to_owned(), outcome: wave.watch(name, call).await }
    };
    let planned = see_through("plan").await;
    let plan = planned.outcome.as_ref().map_or("[]", |report| &report.text);
    let waves: Vec<Vec<String>> = serde_json::from_str(plan)?;
    let mut ends = vec![planned];
    for tasks in waves {
        let ended = stream::iter(&tasks).map(|task| see_through(task)).buffer_unordered(AT_ONCE);
        ends.extend(ended.collect::<Vec<_>>().await);
    }
    Ok(ends)
}
