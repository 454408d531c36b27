//! `triage tail`

use std::collections::VecDeque;

use tower_triage_escalate::store::{Filter, Letter};

use crate::args::Which;
use crate::commands::Desk;
use crate::exit::Exit;
use crate::letters::PAGE;
use crate::{out, table};

pub(super) async fn run(desk: &Desk, which: &Which, lines: u32) -> Result<(), Exit> {
    let filter = which.filter(&[]).map_err(Exit::Usage)?;
    tokio::select! {
        _ = tokio::signal::ctrl_c() => Ok(()),
        ended = follow(desk, filter, lines as usize) => ended,
    }
}

async fn follow(desk: &Desk, filter: Filter, lines: usize) -> Result<(), Exit> {
    let mut seen = None;
    let mut last = VecDeque::new();
    loop {
        let page = desk.store.list(filter.clone(), seen, PAGE).await?;
        seen = page.letters.last().map(|letter| letter.seq).or(seen);
        last.extend(page.letters);
        last.drain(..last.len().saturating_sub(lines));
        if page.next.is_none() {
            break;
        }
    }
    for letter in &last {
        print(desk, letter)?;
    }
    loop {
        // Before the look, so that what comes after it is not missed.
        let changed = desk.store.changed();
        loop {
            let page = desk.store.list(filter.clone(), seen, PAGE).await?;
            for letter in &page.letters {
                print(desk, letter)?;
                seen = Some(letter.seq);
            }
            if page.next.is_none() {
                break;
            }
        }
        changed.await;
    }
}

fn print(desk: &Desk, letter: &Letter) -> Result<(), Exit> {
    if desk.json {
        return out::json(&out::letter(letter, false)?);
    }
    // The width of later lines is not known, so the columns are fixed.
    let now = table::now();
    let [id, _, state, class, operation, _, summary] = table::cells(letter, now);
    let line = format!("{} {id} {state:<8} {class:<10} {operation}: {summary}", letter.stored);
    out::line(&out::one_line(&line))
}
