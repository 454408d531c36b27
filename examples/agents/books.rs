//! What solved each task, by two books that know nothing of each other: the incident that the layers
//! made, and what the world and the human saw. They must say the same, and their sums too.

use std::fmt;

use tower_triage::{Incident, Resolution, StepKind};

use crate::crew::step;
use crate::world::{CUE, Entry, Said};

/// What solved a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// There was nothing to solve.
    AtOnce,
    Retry,
    /// Another attempt, told what was wrong, or where to go on.
    Nudge,
    Replan,
    /// Another model.
    Fallback,
    Decomposition,
    Human,
    ForcedFinish,
    /// Nothing did.
    Lost,
}

impl Way {
    /// Each of them must solve something.
    pub(crate) const ALL: [Self; 7] = [
        Self::Retry,
        Self::Nudge,
        Self::Replan,
        Self::Fallback,
        Self::Decomposition,
        Self::Human,
        Self::ForcedFinish,
    ];

    /// By the story of the call.
    pub(crate) fn of_incident(incident: Option<&Incident>) -> Self {
        let Some(incident) = incident else { return Self::AtOnce };
        let own = || incident.steps.iter().filter(|step| !step.nested).map(|step| &step.kind);
        match incident.resolution {
            Resolution::Succeeded => Self::AtOnce,
            Resolution::RecoveredByRetry
                if own().any(|step| matches!(step, StepKind::Decided { .. })) =>
            {
                Self::Human
            }
            Resolution::RecoveredByRetry
                if own().any(|step| matches!(step, StepKind::Nudged { .. })) =>
            {
                Self::Nudge
            }
            Resolution::RecoveredByRetry => Self::Retry,
            Resolution::AnsweredByFallback => {
                let answered = own().find_map(|step| match step {
                    StepKind::FallbackAnswered { step, .. } => Some(*step),
                    _ => None,
                });
                match answered {
                    Some(step::BY_HEART) => Self::Replan,
                    Some(step::SMALL_MODEL) => Self::Fallback,
                    Some(step::IN_PARTS) => Self::Decomposition,
                    _ => Self::Lost,
                }
            }
            Resolution::ForcedFinish => Self::ForcedFinish,
            Resolution::Open
            | Resolution::Escalated
            | Resolution::Failed
            | Resolution::Abandoned => Self::Lost,
        }
    }

    /// By what the world was asked for the task, and what it said.
    pub(crate) fn of_world(entries: &[&Entry], decided: bool) -> Self {
        let said = |what| entries.iter().filter(move |entry| entry.said == what);
        let models = || entries.iter().filter(|entry| entry.who != "archive");
        let Some(last) = models().rfind(|entry| entry.said == Said::Yes) else {
            return Self::ForcedFinish;
        };
        let goes_on = said(Said::Reset).count() > 0;
        match last {
            _ if last.part.is_some() => Self::Decomposition,
            _ if last.who == "small" => Self::Fallback,
            _ if decided => Self::Human,
            _ if last.what.contains(CUE.by_heart) => Self::Replan,
            _ if last.what.contains(CUE.complaint) || goes_on => Self::Nudge,
            _ if models().count() > 1 => Self::Retry,
            _ => Self::AtOnce,
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::AtOnce => "-",
            Self::Retry => "retry",
            Self::Nudge => "nudge",
            Self::Replan => "replan",
            Self::Fallback => "fallback",
            Self::Decomposition => "decomposition",
            Self::Human => "human decision",
            Self::ForcedFinish => "forced finish",
            Self::Lost => "NOTHING",
        })
    }
}
