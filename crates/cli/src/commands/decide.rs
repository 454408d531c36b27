//! `triage decide`

use serde_json::Value;
use tower_triage_escalate::Decision;
use tower_triage_escalate::store::{Change, Letter};

use crate::args::{Answer, Decide};
use crate::commands::Desk;
use crate::exit::Exit;
use crate::letters::find;
use crate::out;

pub(super) async fn run(desk: &Desk, decide: Decide) -> Result<(), Exit> {
    let letter = find(&*desk.store, &decide.id).await?;
    let decision = decision(&letter, decide.decision, decide.value.as_deref())?;
    let name = decision.to_string();
    let answer = Change::Answered { decision, by: desk.by.clone(), why: decide.why };
    let letter = desk.store.change(letter.id(), answer).await?;
    match desk.json {
        true => out::json(&out::letter(&letter, false)?),
        false => out::line(&format!("{} is answered: {name}", letter.id())),
    }
}

fn decision(letter: &Letter, answer: Answer, value: Option<&str>) -> Result<Decision, Exit> {
    let usage = |text: String| Exit::Usage(text);
    let json = || -> Result<Value, Exit> {
        let text = value.ok_or_else(|| usage("the decision needs a value: JSON".to_owned()))?;
        serde_json::from_str(text).map_err(|error| usage(format!("the value is not JSON: {error}")))
    };
    let bare = |decision: Decision| match value {
        None => Ok(decision),
        Some(_) => Err(usage(format!("`{decision}` takes no value"))),
    };
    match answer {
        Answer::Retry => bare(Decision::Retry),
        Answer::Abort => bare(Decision::Abort),
        Answer::RetryWith => json().map(Decision::RetryWith),
        Answer::Respond => json().map(Decision::Respond),
        Answer::Choose => {
            let options = letter.escalation.question.iter().flat_map(|question| &question.options);
            let number = value.and_then(|value| value.parse::<usize>().ok());
            let choice = number
                .and_then(|number| number.checked_sub(1))
                .and_then(|at| options.clone().nth(at));
            match choice {
                Some(choice) => Ok(choice.decision.clone()),
                None => Err(usage(format!("choose a number from 1 to {}", options.count()))),
            }
        }
    }
}
