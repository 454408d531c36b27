//! What is written: for people and for programs.

use std::io::{self, BufRead, IsTerminal, Write};

use serde::Serialize;
use serde_json::{Value, json};
use tower_triage_escalate::store::Letter;

use crate::exit::Exit;

/// One line of JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Exit> {
    let text = serde_json::to_string(value).map_err(io::Error::from)?;
    line(&text)
}

/// One line, or several, as they are.
pub(crate) fn line(text: &str) -> Result<(), Exit> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// A letter for programs: the stored document with its `id`. The captured request only if asked for;
/// never the proof that a lease's holder has.
pub(crate) fn letter(letter: &Letter, request: bool) -> Result<Value, Exit> {
    let mut value = serde_json::to_value(letter).map_err(io::Error::from)?;
    value["id"] = json!(letter.id());
    if let Some(lease) = value.get_mut("lease").and_then(Value::as_object_mut) {
        lease.remove("token");
    }
    if let (false, Some(captured)) = (request, &letter.request) {
        value["request"] = json!({ "codec": captured.codec, "redacted": captured.redacted });
    }
    Ok(value)
}

/// `text` without what a terminal would obey: it comes from whatever failed.
pub(crate) fn plain(text: &str) -> String {
    let harmless = |c: char| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c };
    text.chars().map(harmless).collect()
}

/// On one line.
pub(crate) fn one_line(text: &str) -> String {
    plain(text).replace(['\n', '\t'], " ")
}

/// Asks before something is done to more than one letter.
pub(crate) fn confirm(question: &str, letters: usize, yes: bool) -> Result<(), Exit> {
    if yes || letters <= 1 {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Exit::Usage(format!("{question} Say so with --yes")));
    }
    eprint!("{question} [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Exit::Usage("nothing was done".to_owned())),
    }
}
