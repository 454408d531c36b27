//! What `triage` can do, one file each.

mod change;
mod decide;
mod list;
mod redrive;
mod show;
mod stats;
mod tail;

use std::sync::Arc;

use tower_triage_escalate::store::Store;

use crate::args::{Args, Command};
use crate::exit::Exit;
use crate::store;

/// What every command needs.
pub(crate) struct Desk {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) json: bool,
    pub(crate) by: String,
}

pub(crate) async fn run(args: Args) -> Result<(), Exit> {
    let Args { store, json, by, command } = args;
    // The environment may say so too.
    let by = if by.is_empty() { "somebody".to_owned() } else { by };
    let desk = Desk { store: store::open(store.as_deref()).await?, json, by };
    match command {
        Command::List { which, limit, after } => list::run(&desk, &which, limit, after).await,
        Command::Show { id, request } => show::run(&desk, &id, request).await,
        Command::Stats => stats::run(&desk).await,
        Command::Decide(decide) => decide::run(&desk, decide).await,
        Command::Redrive(redrive) => redrive::run(&desk, redrive).await,
        Command::Discard(change) => change::run(&desk, change, change::Kind::Discard).await,
        Command::Reopen(change) => change::run(&desk, change, change::Kind::Reopen).await,
        Command::Tail { which, lines } => tail::run(&desk, &which, lines).await,
    }
}
