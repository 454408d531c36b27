//! Those who call the server, and what they were told.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::server::{Database, Health, STALE, Server};

/// What one caller got.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Got {
    Answer,
    Stale,
    Failed,
    Late,
    Refused,
    HungUp,
}

/// The callers' books.
#[derive(Default)]
pub(crate) struct Told {
    pub(crate) answered: u64,
    pub(crate) stale: u64,
    pub(crate) failed: u64,
    pub(crate) late: u64,
    pub(crate) refused: u64,
    pub(crate) hung_up: u64,
    marks: String,
}

impl Told {
    pub(crate) fn all(&self) -> u64 {
        self.answered + self.stale + self.failed + self.late + self.refused + self.hung_up
    }

    pub(crate) fn marks(&self) -> &str {
        &self.marks
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.answered += other.answered;
        self.stale += other.stale;
        self.failed += other.failed;
        self.late += other.late;
        self.refused += other.refused;
        self.hung_up += other.hung_up;
    }

    fn note(&mut self, got: Got) {
        let (count, mark) = match got {
            Got::Answer => (&mut self.answered, '.'),
            Got::Stale => (&mut self.stale, 's'),
            Got::Failed => (&mut self.failed, 'f'),
            Got::Late => (&mut self.late, 't'),
            Got::Refused => (&mut self.refused, 'o'),
            Got::HungUp => (&mut self.hung_up, 'x'),
        };
        *count += 1;
        self.marks.push(mark);
    }
}

/// So many calls, four at a time, numbered on from `first`.
pub(crate) async fn call(server: &Server, first: u64, calls: u64) -> Result<Told, Box<dyn Error>> {
    let mut told = Told::default();
    let mut running = JoinSet::new();
    for call in first..first + calls {
        while running.len() >= 4 {
            if let Some(got) = running.join_next().await {
                told.note(got??);
            }
        }
        running.spawn(one(server.address, server.database.clone(), call));
    }
    while let Some(got) = running.join_next().await {
        told.note(got??);
    }
    Ok(told)
}

/// One call over a connection of its own. Nobody waits for a report from a database that hangs, once
/// the server is at work on it.
async fn one(address: SocketAddr, database: Database, call: u64) -> io::Result<Got> {
    let mut stream = TcpStream::connect(address).await?;
    let what = match call % 10 {
        0 => "reports",
        1..=4 => "customers",
        _ => "orders",
    };
    let head =
        format!("GET /{what}/{call} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    if what == "reports" && database.health() == Health::Hangs {
        tokio::select! {
            () = database.asked_by(call) => return Ok(Got::HungUp),
            // Refused.
            ready = stream.readable() => ready?,
        }
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    match answer.split(' ').nth(1) {
        Some("200") if answer.contains(STALE.as_str()) => Ok(Got::Stale),
        Some("200") => Ok(Got::Answer),
        Some("502") => Ok(Got::Failed),
        Some("504") => Ok(Got::Late),
        Some("503") if answer.contains("retry-after") => {
            // It was asked to wait; a bit of it will do here.
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok(Got::Refused)
        }
        _ => Err(io::Error::other(format!("unexpected answer: {answer}"))),
    }
}
