//! `triage stats`

use crate::commands::Desk;
use crate::exit::Exit;
use crate::{out, table};

pub(super) async fn run(desk: &Desk) -> Result<(), Exit> {
    let stats = desk.store.stats().await?;
    if desk.json {
        return out::json(&stats);
    }
    let mut table = table::table(&["", "LETTERS"]);
    let mut add =
        |name: String, count: u64| _ = table.add_row(table::row([name, count.to_string()]));
    add("all".to_owned(), stats.total);
    for (state, count) in &stats.by_state {
        add(state.to_string(), *count);
    }
    add("that ask something".to_owned(), stats.asking);
    add("that somebody works on".to_owned(), stats.leased);
    add("dropped before they were settled".to_owned(), stats.dropped);
    for (class, count) in &stats.by_class {
        add(format!("unsettled, {class}"), *count);
    }
    for (operation, count) in &stats.by_operation {
        add(format!("unsettled, of {operation}"), *count);
    }
    out::line(&table.trim_fmt())?;
    if let Some(oldest) = stats.oldest_open {
        let age = table::age(table::now().since(oldest));
        out::line(&format!("the oldest open one was stored {age} ago, at {oldest}"))?;
    }
    Ok(())
}
