//! `triage discard` and `triage reopen`

use tower_triage_escalate::store::{self, LetterState};

use crate::args::Change;
use crate::commands::Desk;
use crate::commands::list::UNSETTLED;
use crate::exit::Exit;
use crate::letters::chosen;
use crate::out;

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Discard,
    Reopen,
}

pub(super) async fn run(desk: &Desk, args: Change, kind: Kind) -> Result<(), Exit> {
    let Change { ids, which, why, yes } = args;
    let (verb, done, states) = match kind {
        Kind::Discard => ("Discard", "is discarded", &UNSETTLED[..]),
        Kind::Reopen => ("Reopen", "is open", &[LetterState::Parked][..]),
    };
    let letters = chosen(&*desk.store, &ids, &which, states).await?;
    out::confirm(&format!("{verb} {} letters?", letters.len()), letters.len(), yes)?;
    let mut failed = 0;
    for letter in &letters {
        let (by, why) = (desk.by.clone(), why.clone());
        let change = match kind {
            Kind::Discard => store::Change::Discarded { by, why },
            Kind::Reopen => store::Change::Reopened { by, why },
        };
        match desk.store.change(letter.id(), change).await {
            Ok(letter) if desk.json => out::json(&out::letter(&letter, false)?)?,
            Ok(letter) => out::line(&format!("{} {done}", letter.id()))?,
            Err(error) if letters.len() == 1 => return Err(error.into()),
            Err(error) => {
                eprintln!("triage: {}", out::plain(&error.to_string()));
                failed += 1;
            }
        }
    }
    match failed {
        0 => Ok(()),
        failed => Err(Exit::Some { failed, of: letters.len() as u64 }),
    }
}
