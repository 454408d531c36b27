//! What is done about a task that failed, a function for each way. The layers say when.

use std::time::Duration;

use serde_json::Value;
use tower_triage::escalate;
use tower_triage::fallback::Failed;
use tower_triage::report::{Choice, ErrorReport, Risk};
use tower_triage::retry::Attempt;
use tower_triage::{AnyError, ErrorClass};

use crate::crew::task::{Report, Task};
use crate::crew::worker::Unfinished;

type Outcome = Result<Report, AnyError>;

/// What may be done for money.
const PAY: &str = "pay for the page";

/// The same again, but from where the last attempt came to an end, and with what is wrong about it
/// put right. `false` if there is nothing to change.
pub(crate) fn nudge(task: &mut Task, next: &Attempt, _: Result<&Report, &AnyError>) -> bool {
    let resumed = task.resume();
    let Some(failure) = next.previous else { return resumed };
    match failure.class {
        ErrorClass::Unknown => task.complain = true,
        // Less may fit. To find out takes a long time: once.
        ErrorClass::Timeout => task.brief = next.number == 2,
        ErrorClass::Declined => task.brief = failure.reason == "llm_context_length",
        _ => return resumed,
    }
    task.complain || task.brief
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

/// The pages that were read, with an explanation. Where money helps somebody is asked instead.
pub(crate) fn what_there_is(failed: escalate::Failed<'_, Report, AnyError>) -> Option<Report> {
    if failed.failure.class == ErrorClass::Quota {
        return None;
    }
    let unfinished = failed.outcome.err().and_then(AnyError::find::<Unfinished>);
    let read = unfinished.map(|work| work.read.join(" ")).unwrap_or_default();
    let text = format!("{read} (incomplete: {})", failed.failure.class);
    Some(Report { text, ..Report::default() })
}

/// What somebody who is asked may choose from, and how sure it is to help.
pub(crate) fn ways_out(report: ErrorReport) -> ErrorReport {
    if report.class != ErrorClass::Quota {
        return report;
    }
    let expected = Duration::from_secs(1);
    let pay = Choice { action: PAY.to_owned(), confidence: 0.6, expected, risk: Risk::Medium };
    report.option(pay)
}

/// As somebody chose.
pub(crate) fn pay(mut task: Task, chosen: &Value) -> Option<Task> {
    task.resume();
    (chosen == PAY).then_some(Task { paid: true, ..task })
}
