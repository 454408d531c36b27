//! Finds letters: by the beginning of an id, or by a filter.

use tower_triage_core::incident::IncidentId;
use tower_triage_escalate::store::{Filter, Letter, LetterState, Store};

use crate::args::Which;
use crate::exit::Exit;

/// How many letters are read at a time.
pub(crate) const PAGE: u32 = 500;
/// Fewer digits could be anybody.
const LEAST: usize = 4;

/// The letter whose id is or begins with `text`.
pub(crate) async fn find(store: &dyn Store, text: &str) -> Result<Letter, Exit> {
    if let Ok(id) = text.parse::<IncidentId>() {
        let letter = store.get(id).await?;
        return letter.ok_or_else(|| Exit::NoLetter(format!("there is no letter {id}")));
    }
    let digits: String = text.to_lowercase().chars().filter(|c| *c != '-').collect();
    if digits.len() < LEAST || digits.len() > 32 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        let problem =
            format!("`{text}` is neither an id nor the beginning of one ({LEAST} digits at least)");
        return Err(Exit::NoLetter(problem));
    }
    let mut found: Vec<Letter> = Vec::new();
    let mut after = None;
    loop {
        let page = store.list(Filter::any(), after, PAGE).await?;
        let begins =
            |letter: &Letter| letter.id().to_string().replace('-', "").starts_with(&digits);
        found.extend(page.letters.into_iter().filter(begins));
        match page.next {
            Some(next) if found.len() < 2 => after = Some(next),
            _ => break,
        }
    }
    match (found.len(), found.pop()) {
        (1, Some(letter)) => Ok(letter),
        (0, _) => Err(Exit::NoLetter(format!("there is no letter whose id begins with {text}"))),
        _ => Err(Exit::NoLetter(format!("more than one letter's id begins with {text}"))),
    }
}

/// All letters that match.
pub(crate) async fn all(store: &dyn Store, filter: &Filter) -> Result<Vec<Letter>, Exit> {
    let (mut letters, mut after) = (Vec::new(), None);
    loop {
        let page = store.list(filter.clone(), after, PAGE).await?;
        letters.extend(page.letters);
        after = page.next;
        if after.is_none() {
            return Ok(letters);
        }
    }
}

/// The letters that a command is about: those named, or those that match. It has to say which.
pub(crate) async fn chosen(
    store: &dyn Store,
    ids: &[String],
    which: &Which,
    states: &[LetterState],
) -> Result<Vec<Letter>, Exit> {
    let usage = |text: &str| Exit::Usage(text.to_owned());
    match (ids.is_empty(), which.is_any()) {
        (true, false) => Err(usage("which letters? Give ids, or a filter such as --state open")),
        (false, true) => Err(usage("give either ids or a filter")),
        (true, true) => all(store, &which.filter(states).map_err(Exit::Usage)?).await,
        (false, false) => {
            let mut letters: Vec<Letter> = Vec::new();
            for id in ids {
                let letter = find(store, id).await?;
                if letters.iter().all(|known| known.id() != letter.id()) {
                    letters.push(letter);
                }
            }
            Ok(letters)
        }
    }
}
