//! What one incident teaches.

use tower_triage_core::{ErrorClass, Failure, Fingerprint, Incident, Label, Resolution, StepKind};

use crate::policy::LearnPlan;
use crate::remedy::Remedy;

/// What was seen: on a failure of this kind something was tried, and it solved the call or did not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Lesson {
    pub(crate) kind: Fingerprint,
    pub(crate) tried: Tried,
    pub(crate) worked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Tried {
    Remedy(Remedy),
    /// It was treated as of this class, and nothing that this led to helped.
    As(ErrorClass),
}

impl Tried {
    pub(crate) const fn remedy(self) -> Option<Remedy> {
        match self {
            Self::Remedy(remedy) => Some(remedy),
            Self::As(_) => None,
        }
    }
}

/// What `incident` teaches about unknown failures, and about those that were treated as something
/// by experience: whether another attempt solved it, a changed one, or a step of the fallback.
pub(crate) fn lessons(incident: &Incident, plan: &LearnPlan) -> Vec<Lesson> {
    let mut reader =
        Reader { incident, plan, lessons: Vec::new(), last: None, given_up: None, again: None };
    for step in incident.steps.iter().filter(|step| !step.nested) {
        reader.step(&step.kind);
    }
    reader.end();
    reader.lessons
}

/// A failed attempt.
#[derive(Clone, Copy)]
struct Seen {
    failure: Failure,
    /// `None` for one that the rules know: there is nothing to learn.
    kind: Option<Fingerprint>,
}

struct Reader<'a> {
    incident: &'a Incident,
    plan: &'a LearnPlan,
    lessons: Vec<Lesson>,
    /// The last failed attempt.
    last: Option<Seen>,
    /// The one that a retry gave up on: fallbacks answer for it, whatever fails in them.
    given_up: Option<Seen>,
    /// Another attempt follows: changed, or the same.
    again: Option<&'static str>,
}

const RETRY: &str = "retry";
const NUDGE: &str = "nudge";

impl Reader<'_> {
    fn step(&mut self, step: &StepKind) {
        match step {
            StepKind::Failed { failure, detail, .. } => {
                if let Some(name) = self.again.take() {
                    self.tried(self.last, name, false);
                } else if self.given_up.is_none() {
                    // It does not follow on the one before, so it happened in a fallback.
                    self.given_up = self.last;
                }
                let learns = failure.class == ErrorClass::Unknown || failure.is_learned();
                let kind = || Fingerprint::of(&self.incident.operation, failure, detail.as_str());
                self.last = Some(Seen { failure: *failure, kind: learns.then(kind) });
            }
            StepKind::Nudged { .. } => self.again = Some(NUDGE),
            StepKind::Waiting { .. } => self.again = self.again.or(Some(RETRY)),
            StepKind::Succeeded { .. } => {
                if let Some(name) = self.again.take() {
                    self.tried(self.last, name, true);
                }
            }
            // Nothing was tried after all.
            StepKind::NotRetried { .. } => {
                self.again = None;
                self.given_up = self.given_up.or(self.last);
            }
            StepKind::Rejected { .. } => self.again = None,
            StepKind::FallbackAnswered { by, .. } => self.bypassed(by, true),
            StepKind::FallbackFailed { by, .. } => self.bypassed(by, false),
            // What a person decided is theirs.
            StepKind::Decided { .. } => (self.last, self.given_up, self.again) = (None, None, None),
            _ => {}
        }
    }

    /// A step of the fallback has ended.
    fn bypassed(&mut self, by: &str, worked: bool) {
        self.again = None;
        self.given_up = self.given_up.or(self.last);
        let name = Label::<31>::from_parts(&["fallback/", by]);
        self.tried(self.given_up, name.as_str(), worked);
    }

    /// The call is over. A treatment that did not solve it is no remedy, whatever was tried.
    fn end(&mut self) {
        if !matches!(self.incident.resolution, Resolution::Failed | Resolution::Escalated) {
            return;
        }
        let Some(Seen { failure, kind: Some(kind) }) = self.given_up.or(self.last) else { return };
        if failure.is_learned() {
            self.lessons.push(Lesson { kind, tried: Tried::As(failure.class), worked: false });
        }
    }

    fn tried(&mut self, on: Option<Seen>, name: &str, worked: bool) {
        let Some(Seen { failure, kind: Some(kind) }) = on else { return };
        let tried = Tried::Remedy(self.remedy(&failure, name));
        // One lesson a call: that the first of two retries failed says nothing against the second.
        let known = |lesson: &&mut Lesson| lesson.kind == kind && lesson.tried == tried;
        match self.lessons.iter_mut().find(known) {
            Some(lesson) => lesson.worked |= worked,
            None => self.lessons.push(Lesson { kind, tried, worked }),
        }
    }

    /// What it was that was tried under this name. What a failure's class leads to goes by the
    /// remedy of that class; anything else by its own name.
    fn remedy(&self, failure: &Failure, name: &str) -> Remedy {
        let repeated = matches!(name, RETRY | NUDGE);
        let declared = &self.plan.remedies;
        if failure.is_learned() && Remedy::repeats(failure.class) == repeated {
            let named = declared.iter().find(|remedy| remedy.class == failure.class);
            return named.copied().unwrap_or_else(|| Remedy::new(name, failure.class));
        }
        let class = if repeated { ErrorClass::Transient } else { ErrorClass::Unknown };
        let named = declared.iter().find(|remedy| remedy.name == name);
        named.copied().unwrap_or_else(|| Remedy::new(name, class))
    }
}
