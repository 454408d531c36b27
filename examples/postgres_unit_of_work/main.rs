//! A bank on a real PostgreSQL survives what databases go through.
//!
//! Tellers move money between accounts while sessions are ended, rows are locked, and the server is
//! restarted and crashes. What cannot be booked in time is put into a queue, and booked at the end.
//! Then every transfer must be in the books exactly once, and no cent may be missing, or the exit
//! code says so.

mod bank;
mod books;
mod trouble;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tower::ServiceExt;
use tower_triage::postgres::{PostgresRulesExt, Unit, postgres};
use tower_triage::{BoxError, Classifier, ErrorClass, Incident, Observer, Resolution};
use tower_triage_test_support::postgres::PostgresServer;

use crate::bank::{Booked, Overdrawn, Queue, Transfer, TransferStack};
use crate::books::{Books, Fate};
use crate::trouble::Trouble;

/// What happens, and for how long.
const STORY: [(Trouble, Duration); 6] = [
    (Trouble::None, Duration::from_millis(1200)),
    (Trouble::EndedSessions, Duration::from_millis(1500)),
    (Trouble::LockedRow, Duration::from_millis(1200)),
    (Trouble::Restart, Duration::from_millis(1200)),
    (Trouble::Crash, Duration::from_millis(1200)),
    (Trouble::None, Duration::from_millis(1200)),
];

const TELLERS: usize = 6;

/// One transfer of one teller.
const PACE: Duration = Duration::from_millis(25);

#[tokio::main]
async fn main() -> Result<ExitCode, BoxError> {
    let server = match tokio::task::spawn_blocking(|| PostgresServer::start(&[])).await? {
        Ok(server) => server,
        Err(problem) => {
            eprintln!("{problem}");
            return Ok(ExitCode::FAILURE);
        }
    };
    let config = server.config().parse::<tokio_postgres::Config>()?;
    let mut side = trouble::connect(&config).await?;
    bank::found(&side).await?;
    println!("{}, for this story only", bank::version(&side).await?);
    println!("{TELLERS} tellers move money between {} accounts\n", bank::ACCOUNTS);

    let classifier =
        Classifier::new(postgres().own_error(|_: &Overdrawn| ErrorClass::Permanent.into()));
    let incidents = Incidents::default();
    classifier.observe(incidents.clone());
    let queue = Queue::default();
    let stack = bank::stack(&classifier, config.clone(), queue.clone())?;

    let mut books = Books::default();
    let (next, open) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicBool::new(true)));
    let mut tellers: JoinSet<Vec<(i64, Fate)>> = JoinSet::new();
    for _ in 0..TELLERS {
        tellers.spawn(serve(stack.clone(), Arc::clone(&next), Arc::clone(&open)));
    }
    let mut server = Some(server);
    for (trouble, length) in STORY {
        let before = Counts::now(&classifier, &next, &queue);
        let until = Instant::now() + length;
        trouble::make(trouble, &mut server, &config, &mut side, until).await?;
        sleep(until.saturating_duration_since(Instant::now())).await;
        println!("{trouble:<22} {}", Counts::now(&classifier, &next, &queue).since(&before));
    }
    open.store(false, Ordering::SeqCst);
    while let Some(told) = tellers.join_next().await {
        books.enter(told?);
    }

    let waiting = queue.take();
    println!(
        "\nthe bank closes; {} transfers wait in the queue, and are booked now",
        waiting.len()
    );
    for unit in waiting {
        let id = unit.work().id;
        let fate = Fate::of(&stack.clone().oneshot(unit).await);
        books.settle(id, fate);
    }

    println!("\n{books}");
    println!("the longest incidents of two kinds:");
    let incidents = incidents.all();
    for resolution in [Resolution::RecoveredByRetry, Resolution::AnsweredByFallback] {
        let kind = incidents.iter().filter(|incident| incident.resolution == resolution);
        if let Some(incident) = kind.max_by_key(|incident| (incident.steps.len(), incident.elapsed))
        {
            println!("{}", incident.timeline(30));
        }
    }

    let differences = books.compare(next.load(Ordering::SeqCst), &side).await?;
    // Its folder goes with it.
    tokio::task::spawn_blocking(move || drop(server)).await?;
    if differences.is_empty() {
        println!("the books agree: each transfer once, and not a cent is missing");
        return Ok(ExitCode::SUCCESS);
    }
    println!("THE BOOKS DISAGREE");
    for difference in differences {
        println!("  {difference}");
    }
    Ok(ExitCode::FAILURE)
}

/// One teller: one transfer after the other, until the bank closes.
async fn serve(
    stack: TransferStack,
    next: Arc<AtomicI64>,
    open: Arc<AtomicBool>,
) -> Vec<(i64, Fate)> {
    let mut told = Vec::new();
    while open.load(Ordering::SeqCst) {
        let id = next.fetch_add(1, Ordering::SeqCst);
        // It carries its own id into a unique column, so twice is as good as once.
        let unit = Unit::new("transfer", Transfer::number(id)).idempotent(true);
        told.push((id, Fate::of(&stack.clone().oneshot(unit).await)));
        sleep(PACE).await;
    }
    told
}

/// The incidents that the observers of the shared classifier were told.
#[derive(Clone, Default)]
struct Incidents(Arc<Mutex<Vec<Incident>>>);

impl Incidents {
    fn all(&self) -> Vec<Incident> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Observer for Incidents {
    fn incident(&self, incident: &Incident) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(incident.clone());
    }
}

/// How far things have come.
struct Counts {
    transfers: i64,
    queued: usize,
    classes: BTreeMap<ErrorClass, u64>,
}

impl Counts {
    fn now<R>(classifier: &Classifier<R>, next: &AtomicI64, queue: &Queue) -> Self {
        Self {
            transfers: next.load(Ordering::SeqCst),
            queued: queue.len(),
            classes: ErrorClass::ALL.map(|class| (class, classifier.count(class))).into(),
        }
    }

    fn since(&self, before: &Self) -> String {
        let mut text = format!("{:>4} transfers", self.transfers - before.transfers);
        for (class, count) in &self.classes {
            match count - before.classes[class] {
                0 => {}
                more => text.push_str(&format!(", {more} {class}")),
            }
        }
        match self.queued - before.queued {
            0 => text,
            more => format!("{text}; {more} queued"),
        }
    }
}

impl Booked {
    /// Did it get into the books, and not into the queue?
    fn is_done(&self) -> bool {
        matches!(self, Self::Done)
    }
}
