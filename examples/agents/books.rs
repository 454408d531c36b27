//! Two books that know nothing of each other must say the same: the incidents that the layers made of
//! the calls, and what the world and the human saw.

use std::fmt;

use tower_triage::{Incident, Resolution, StepKind};

use crate::crew::{Human, step};
use crate::job::End;
use crate::world::{CUE, Entry, Fate, Said};

/// What solved a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    /// There was nothing to solve.
    AtOnce,
    Retry,
    /// Another attempt, told what was wrong or where to go on.
    Nudge,
    Replan,
    Decomposition,
    /// Another model.
    Fallback,
    Human,
    ForcedFinish,
    /// Nothing did.
    Lost,
}

impl Way {
    /// Each of them has to solve something.
    pub(crate) const WAYS: [Self; 7] = [
        Self::Retry,
        Self::Nudge,
        Self::Replan,
        Self::Decomposition,
        Self::Fallback,
        Self::Human,
        Self::ForcedFinish,
    ];

    /// As the layers tell it.
    pub(crate) fn of_incident(incident: Option<&Incident>) -> Self {
        let Some(incident) = incident else { return Self::AtOnce };
        let steps = || incident.steps.iter().filter(|step| !step.nested).map(|step| &step.kind);
        match incident.resolution {
            Resolution::Succeeded => Self::AtOnce,
            Resolution::RecoveredByRetry => steps().fold(Self::Retry, |way, step| match step {
                StepKind::Decided { .. } => Self::Human,
                StepKind::Nudged { .. } if way == Self::Retry => Self::Nudge,
                _ => way,
            }),
            Resolution::AnsweredByFallback => steps().fold(Self::Lost, |way, step| match step {
                StepKind::FallbackAnswered { step: step::BY_HEART, .. } => Self::Replan,
                StepKind::FallbackAnswered { step: step::IN_PARTS, .. } => Self::Decomposition,
                StepKind::FallbackAnswered { step: step::OTHER_MODEL, .. } => Self::Fallback,
                _ => way,
            }),
            Resolution::ForcedFinish => Self::ForcedFinish,
            Resolution::Open
            | Resolution::Escalated
            | Resolution::Failed
            | Resolution::Abandoned => Self::Lost,
        }
    }

    /// As the world saw it, from what it was asked for the task; `decided` by the human or not.
    pub(crate) fn of_world(entries: &[&Entry], decided: bool) -> Self {
        let models = || entries.iter().filter(|entry| entry.who != "archive");
        let Some(last) = models().rfind(|entry| entry.said == Said::Yes) else {
            return Self::ForcedFinish;
        };
        let was_told = [CUE.complaint, CUE.brief].iter().any(|cue| last.what.contains(cue));
        // It came back for the rest, not for everything.
        let went_on = entries.iter().any(|entry| entry.said == Said::Reset)
            && entries.iter().filter(|entry| entry.what == "history").count() == 1;
        match last {
            _ if last.part.is_some() => Self::Decomposition,
            _ if last.who == "small" => Self::Fallback,
            _ if decided => Self::Human,
            _ if last.what.contains(CUE.by_heart) => Self::Replan,
            _ if was_told || went_on => Self::Nudge,
            _ if models().count() > 1 => Self::Retry,
            _ => Self::AtOnce,
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::AtOnce => "",
            Self::Retry => "retry",
            Self::Nudge => "nudge",
            Self::Replan => "replan",
            Self::Decomposition => "decomposition",
            Self::Fallback => "fallback",
            Self::Human => "human decision",
            Self::ForcedFinish => "forced finish",
            Self::Lost => "NOTHING",
        })
    }
}

/// What became of one task, by both books.
pub(crate) struct Row<'a> {
    task: &'a str,
    /// Requests to the models and the archive.
    requests: usize,
    pub(crate) layers: Way,
    pub(crate) world: Way,
}

impl<'a> Row<'a> {
    pub(crate) const HEAD: &'static str =
        "task               what happens to it  requests  the layers say  the world says";

    pub(crate) fn new(end: &'a End, entries: &[Entry], human: &Human) -> Self {
        let entries: Vec<_> = entries.iter().filter(|entry| entry.task == end.task).collect();
        Self {
            task: &end.task,
            requests: entries.len(),
            layers: Way::of_incident(end.incident()),
            world: Way::of_world(&entries, human.decided(&end.task)),
        }
    }
}

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, requests, layers, world } = self;
        let fate = Fate::of(task).name();
        write!(f, "{task:<18} {fate:<18} {requests:>8}  {layers:<15} {world}")
    }
}
