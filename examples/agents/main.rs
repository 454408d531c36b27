//! A crew of agents writes a guide to lighthouses, in a world that fails in every way it can.
//!
//! A planner asks a large model for a plan: some twenty tasks, in four waves. Three workers carry them
//! out, with the large model, a small one in reserve, and an archive of pages. The models limit their
//! rate, hang, refuse, are down, go in circles, talk where JSON was asked for, and fail in a way that
//! nobody has heard of; pages are corrupt, cost money, or are too many for one prompt. The preset
//! `orchestrator` around the workers sees every task through: by a retry, a nudge, another plan,
//! in parts, with the other model, as a person decides, or with what there is.
//!
//! What solved each task is read from its incident, and must agree with what the world saw; so must
//! the sums. Otherwise the exit code says so.
//!
//! Everything goes ten times as fast as the preset has it: waits, time limits, open breakers.

mod books;
mod crew;
mod job;
mod office;
mod sums;
mod world;

use std::error::Error;
use std::process::ExitCode;

use tower_triage::report::{BreakerTable, View};

use crate::books::Row;
use crate::crew::PACE;
use crate::office::Office;
use crate::sums::Sums;

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let office = Office::open().await?;
    println!("the models are at http://{} and http://{}", office.large, office.small);
    println!("the times are those of the preset `orchestrator`, divided by {PACE}\n");

    let ends = job::run(&office.stack.service, &office.wave).await?;
    office.desk.idle().await;

    let view = View::stdout();
    println!("{}", office.wave.chart().show(view));
    println!("{}", BreakerTable::of(&office.stack.breakers).show(view));
    println!("{}", office.wave.summary().show(view));
    println!("{}", office.log.report().show(view));

    let entries = office.book.entries();
    let rows: Vec<_> = ends.iter().map(|end| Row::new(end, &entries, &office.human)).collect();
    println!("{}", Row::HEAD);
    rows.iter().for_each(|row| println!("{row}"));
    let sums = Sums::of(&office, &ends, &rows).await?;
    println!("\n{sums}");
    match sums.agree() {
        true => {
            println!("the books agree: {} tasks, and none is lost", rows.len());
            Ok(ExitCode::SUCCESS)
        }
        false => {
            println!("the books DISAGREE");
            Ok(ExitCode::FAILURE)
        }
    }
}
