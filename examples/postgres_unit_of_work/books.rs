//! Accounts for each transfer: what the tellers were told, against what the database holds.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use tokio_postgres::Client;
use tower_triage::{AnyError, Resolution};

use crate::bank::{ACCOUNTS, Booked, CENTS_EACH, Overdrawn};

/// What became of a transfer, as its teller saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    Done,
    Queued,
    Overdrawn,
    Failed,
}

impl Fate {
    pub(crate) fn of(outcome: &Result<Booked, AnyError>) -> Self {
        match outcome {
            Ok(booked) if booked.is_done() => Self::Done,
            Ok(_) => Self::Queued,
            Err(error) if error.find::<Overdrawn>().is_some() => Self::Overdrawn,
            Err(error) => {
                let ending = error.incident().map(|incident| incident.resolution);
                println!("FAILED ({:?}): {error:#}", ending.unwrap_or(Resolution::Failed));
                Self::Failed
            }
        }
    }
}

/// The tellers' book.
#[derive(Default)]
pub(crate) struct Books {
    told: BTreeMap<i64, Fate>,
    late: usize,
}

impl Books {
    pub(crate) fn enter(&mut self, told: Vec<(i64, Fate)>) {
        self.told.extend(told);
    }

    /// A transfer from the queue has been done after all, or has not.
    pub(crate) fn settle(&mut self, id: i64, fate: Fate) {
        self.late += usize::from(fate == Fate::Done);
        self.told.insert(id, fate);
    }

    fn with(&self, fate: Fate) -> BTreeSet<i64> {
        self.told.iter().filter(|(_, told)| **told == fate).map(|(id, _)| *id).collect()
    }

    /// Where this book and the database's differ.
    pub(crate) async fn compare(
        &self,
        transfers: i64,
        database: &Client,
    ) -> Result<Vec<String>, tokio_postgres::Error> {
        let mut booked = BTreeSet::new();
        let mut expected: BTreeMap<i64, i64> = (0..ACCOUNTS).map(|id| (id, CENTS_EACH)).collect();
        for row in database.query("SELECT id, source, target, cents FROM book", &[]).await? {
            let (id, from, to, cents): (i64, i64, i64, i64) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
            booked.insert(id);
            *expected.entry(from).or_default() -= cents;
            *expected.entry(to).or_default() += cents;
        }
        let mut held = BTreeMap::new();
        for row in database.query("SELECT id, cents FROM account", &[]).await? {
            held.insert(row.try_get::<_, i64>(0)?, row.try_get::<_, i64>(1)?);
        }

        let mut differences = Vec::new();
        let mut check = |what: &str, holds: bool| {
            if !holds {
                differences.push(what.to_owned());
            }
        };
        check("a transfer was not told of", self.told.len() as i64 == transfers);
        check("done and booked are not the same transfers", self.with(Fate::Done) == booked);
        check("a transfer is still in the queue", self.with(Fate::Queued).is_empty());
        check("a transfer failed", self.with(Fate::Failed).is_empty());
        check("the balances do not follow from the book", held == expected);
        check("money was made or lost", held.values().sum::<i64>() == ACCOUNTS * CENTS_EACH);
        check("nobody was overdrawn", held.values().all(|cents| *cents >= 0));
        check("nothing waited in the queue: the story had no trouble", self.late > 0);
        Ok(differences)
    }
}

impl fmt::Display for Books {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = self.with(Fate::Done).len();
        writeln!(f, "{:>5} transfers", self.told.len())?;
        writeln!(f, "{:>5} done, {} of them from the queue", done, self.late)?;
        writeln!(
            f,
            "{:>5} refused by the bank, the account held too little",
            self.with(Fate::Overdrawn).len()
        )
    }
}
