//! `triage list`

use tower_triage_escalate::store::LetterState;

use crate::args::Which;
use crate::commands::Desk;
use crate::exit::Exit;
use crate::letters::PAGE;
use crate::{out, table};

/// Letters that somebody has to deal with.
pub(super) const UNSETTLED: [LetterState; 2] = [LetterState::Open, LetterState::Parked];
/// How many fit a screen.
const SCREEN: u32 = 50;

pub(super) async fn run(
    desk: &Desk,
    which: &Which,
    limit: Option<u32>,
    mut after: Option<u64>,
) -> Result<(), Exit> {
    let filter = which.filter(&UNSETTLED).map_err(Exit::Usage)?;
    let mut left = limit.unwrap_or(if desk.json { u32::MAX } else { SCREEN });
    let mut letters = Vec::new();
    while left > 0 {
        let page = desk.store.list(filter.clone(), after, left.min(PAGE)).await?;
        left -= page.letters.len() as u32;
        if desk.json {
            for letter in &page.letters {
                out::json(&out::letter(letter, false)?)?;
            }
        } else {
            letters.extend(page.letters);
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    if desk.json {
        return Ok(());
    }
    if letters.is_empty() {
        eprintln!("no letters");
        return Ok(());
    }
    out::line(&table::letters(&letters, table::now()).trim_fmt())?;
    if let Some(seq) = after {
        eprintln!("there are more: --after {seq}");
    }
    Ok(())
}
