//! What is done about a task that failed, each way as a function: the layers say when.

use serde_json::Value;
use tower_triage::escalate;
use tower_triage::fallback::Failed;
use tower_triage::retry::Attempt;
use tower_triage::{AnyError, ErrorClass};

use crate::crew::task::{Report, Task};
use crate::crew::worker::Unfinished;

type Outcome = Result<Report, AnyError>;

/// The same again, but from where the last attempt came to an end, and told what was wrong with it.
pub(crate) fn nudge(task: &mut Task, next: &Attempt, _: Result<&Report, &AnyError>) -> bool {
    task.complain = next.previous.is_some_and(|failure| failure.class == ErrorClass::Unknown);
    task.resume() || task.complain
}

/// Another approach: without the pages that lead nowhere.
pub(crate) fn by_heart(task: Task, _: Failed<'_, Report, AnyError>) -> Task {
    Task { by_heart: true, ..task }
}

/// The same for another model; where time was the trouble, a short answer will do.
pub(crate) fn reduced(task: Task, failed: Failed<'_, Report, AnyError>) -> Task {
    Task { brief: failed.failure.class == ErrorClass::Timeout, ..task }
}

/// One report of those on the parts.
pub(crate) fn merge(parts: Vec<Outcome>) -> Outcome {
    let texts = parts.into_iter().map(|part| part.map(|report| report.text));
    Ok(Report { text: texts.collect::<Result<Vec<_>, _>>()?.join(" "), ..Report::default() })
}

/// The pages that were read, with an explanation. Who may be asked for money is asked first.
pub(crate) fn what_there_is(failed: escalate::Failed<'_, Report, AnyError>) -> Option<Report> {
    if failed.failure.class == ErrorClass::Quota {
        return None;
    }
    let unfinished = failed.outcome.err().and_then(AnyError::find::<Unfinished>);
    let read = unfinished.map(|work| work.read.join(" ")).unwrap_or_default();
    let text = format!("{read} (incomplete: {})", failed.failure.class);
    Some(Report { text, ..Report::default() })
}

/// As somebody decided: with money.
pub(crate) fn pay(mut task: Task, decided: &Value) -> Option<Task> {
    task.budget = decided["budget"].as_u64()?;
    task.resume();
    Some(task)
}
