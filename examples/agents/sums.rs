//! The sums of both sides, which have to be equal.

use std::fmt;

use tower_triage::escalate::store::{Filter, StoreError};
use tower_triage::report::BreakerTable;
use tower_triage::{ErrorClass, StepKind};

use crate::books::{Row, Way};
use crate::crew::CIRCLES;
use crate::job::End;
use crate::office::Office;
use crate::world::{Entry, PLAN, Said};

/// Pairs of numbers.
pub(crate) struct Sums(Vec<(String, u64, u64)>);

impl Sums {
    pub(crate) async fn of(
        office: &Office,
        ends: &[End],
        rows: &[Row<'_>],
    ) -> Result<Self, StoreError> {
        let mut sums = Self(Vec::new());
        sums.ways(rows);
        sums.nothing_is_lost(office, ends);
        let entries = office.book.entries();
        sums.requests(office, &entries);
        sums.failures(office, &entries, ends);
        sums.desk(office, ends).await?;
        Ok(sums)
    }

    /// Do all of them agree?
    pub(crate) fn agree(&self) -> bool {
        self.0.iter().all(|(_, one, other)| one == other)
    }

    fn expect(&mut self, what: impl Into<String>, one: u64, other: u64) {
        self.0.push((what.into(), one, other));
    }

    /// What solved each task is told alike by both books, and each way has solved something.
    fn ways(&mut self, rows: &[Row<'_>]) {
        for way in Way::WAYS {
            let here = count(rows, |row| row.layers == way);
            let there = count(rows, |row| row.world == way);
            // No task at all would be too few.
            self.expect(format!("solved by {way}"), here, there.max(1));
        }
        let alike = count(rows, |row| row.layers == row.world);
        self.expect("tasks that both tell alike", alike, rows.len() as u64);
    }

    /// Each task of the plan, and the plan itself, has come to one end, with a report.
    fn nothing_is_lost(&mut self, office: &Office, ends: &[End]) {
        let mut tasks: Vec<_> = PLAN.concat().iter().map(|(task, _)| *task).collect();
        tasks.push("plan");
        let planned = tasks.len() as u64;
        let reports = |task: &&&str| {
            let of_task = ends.iter().filter(|end| end.task == **task);
            of_task.map(|end| end.outcome.is_ok()).eq([true])
        };
        self.expect("tasks planned, and those with one report", planned, count(&tasks, reports));
        self.expect("calls that the wave saw end well", office.wave.summary().succeeded, planned);
    }

    /// What was sent has arrived, and each attempt came to something or failed as the classifier saw
    /// it.
    fn requests(&mut self, office: &Office, entries: &[Entry]) {
        for (who, sent) in [("large", office.large.asked()), ("small", office.small.asked())] {
            let arrived = count(entries, |entry| entry.who == who);
            self.expect(format!("requests to the {who} model"), sent, arrived);
        }
        let ((begun, done), spare) = (office.crew.attempts(), office.spare.attempts());
        let failed = begun + spare.0 - done - spare.1;
        let seen = ErrorClass::ALL.map(|class| office.classifier.count(class)).iter().sum::<u64>();
        let refused = office.classifier.count(ErrorClass::Rejected);
        self.expect("attempts of the workers that failed", failed, seen - refused);
        let circuits = BreakerTable::of(&office.stack.breakers).breakers;
        let rejected = circuits.iter().map(|circuit| circuit.rejected).sum();
        self.expect("calls that breakers refused", rejected, refused);
    }

    /// The failures by class: as the world made them, and as the report tells them.
    fn failures(&mut self, office: &Office, entries: &[Entry], ends: &[End]) {
        let said = |what: &[Said]| count(entries, |entry| what.contains(&entry.said));
        // What nobody understands is `Unknown`, until experience knows better.
        let learned = count(
            steps(ends),
            |step| matches!(step, StepKind::Failed { failure, .. } if failure.is_learned()),
        );
        self.expect("failures treated by experience", learned, 1);
        let report = office.log.report();
        for class in ErrorClass::ALL {
            let made = match class {
                ErrorClass::Transient => said(&[Said::Unavailable, Said::Reset]),
                ErrorClass::Timeout => said(&[Said::Hung]),
                ErrorClass::Throttled => said(&[Said::RateLimited]),
                ErrorClass::Quota => said(&[Said::Fee]),
                ErrorClass::Internal => said(&[Said::Corrupt]),
                ErrorClass::Permanent => said(&[Said::NotThere]) / CIRCLES as u64,
                ErrorClass::Declined => said(&[Said::TooLong, Said::Refused]) + learned,
                ErrorClass::Unknown => said(&[Said::Prose, Said::Mystery]) - learned,
                // Not the world's, but the breakers'.
                ErrorClass::Rejected => continue,
                ErrorClass::Contention | ErrorClass::Auth | ErrorClass::Cancelled => 0,
            };
            let told = report.by_class.iter().find(|(told, _)| *told == class);
            let told = told.map_or(0, |(_, failures)| *failures);
            if told + made > 0 {
                self.expect(format!("failures of class {class}"), told, made);
            }
        }
    }

    /// Whatever the desk was told is in the store.
    async fn desk(&mut self, office: &Office, ends: &[End]) -> Result<(), StoreError> {
        let told = count(steps(ends), |step| matches!(step, StepKind::Escalated { .. }));
        let letters = office.store.list(Filter::any(), None, u32::MAX).await?.letters;
        self.expect("times that somebody was told", told, letters.len() as u64);
        let lost = office.desk.counts();
        self.expect("letters that got lost", lost.not_recorded + lost.dropped, 0);
        Ok(())
    }
}

/// All steps of all calls, those of parts included.
fn steps(ends: &[End]) -> impl Iterator<Item = &StepKind> {
    let incidents = ends.iter().filter_map(End::incident);
    incidents.flat_map(|incident| &incident.steps).map(|step| &step.kind)
}

fn count<T>(all: impl IntoIterator<Item = T>, is: impl FnMut(&T) -> bool) -> u64 {
    all.into_iter().filter(is).count() as u64
}

impl fmt::Display for Sums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, one, other) in &self.0 {
            let mark = if one == other { "" } else { "  DIFFERENCE" };
            writeln!(f, "{what:<42} {one:>4} {other:>4}{mark}")?;
        }
        Ok(())
    }
}
