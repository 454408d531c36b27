//! An axum server in front of a database that fails: a breaker, stale answers, a time limit, and
//! records for somebody who can act, around routes whose errors are impossible.
//!
//! Some hundred callers ask for orders (a stale one will do), customers (it will not) and reports
//! (which take as long as they take, and whose readers lose patience), each over a connection of its
//! own. At the end the callers' books and the server's must agree, or the exit code says so.

mod callers;
mod server;

use std::error::Error;
use std::process::ExitCode;

use crate::callers::Told;
use crate::server::{Health, Server};

/// How the database is, and for how many calls.
const STORY: [(Health, u64); 4] =
    [(Health::Fine, 70), (Health::Hangs, 100), (Health::Fails, 100), (Health::Fine, 70)];

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut server = Server::start().await?;
    println!("the server is at http://{}", server.address);
    println!(
        "trace > escalate > fallback (orders) > breaker > time limit (not reports) > routes\n"
    );
    println!(
        "each mark is a call: . answered  s stale  f failed  t too late  o refused  x hung up"
    );

    let mut told = Told::default();
    for (health, calls) in STORY {
        server.until_probe_is_due().await;
        server.database.is(health);
        let of_phase = callers::call(&server, told.all(), calls).await?;
        println!("database {:<6} {}", health.name(), of_phase.marks());
        told.add(&of_phase);
    }
    server.settle(told.hung_up).await;

    let counts = server.breaker.counts();
    let letters = server.letters();
    println!("\nthe callers were told");
    println!("  {:>4} answers, and {} stale ones", told.answered, told.stale);
    println!("  {:>4} failures, {} of them too late (504)", told.failed + told.late, told.late);
    println!("  {:>4} refusals with the time to wait (503)", told.refused);
    println!("  {:>4} nothing: they had hung up", told.hung_up);
    println!("the one breaker counted, over {} connections and three routes", told.all());
    println!("  {:>4} calls that worked, {} that failed", counts.successes, counts.failures);
    println!("  {:>4} refused, {} abandoned", counts.rejected, counts.abandoned);
    println!(
        "{} handlers ran; {} records for the people on call",
        server.database.asked(),
        letters.len()
    );
    if let Some(letter) = letters.first() {
        println!("the first: {}", letter.summary);
    }

    let differences = server.differences(&told, counts, &letters);
    if differences.is_empty() {
        println!("the books agree: each of {} calls is accounted for exactly once", told.all());
        return Ok(ExitCode::SUCCESS);
    }
    for difference in differences {
        eprintln!("the books DISAGREE: {difference}");
    }
    Ok(ExitCode::FAILURE)
}
