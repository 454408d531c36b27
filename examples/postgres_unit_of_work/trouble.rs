//! What databases go through.

use std::fmt;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_postgres::{Client, Config, NoTls};
use tower_triage::BoxError;
use tower_triage_test_support::postgres::PostgresServer;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Trouble {
    None,
    EndedSessions,
    LockedRow,
    Restart,
    Crash,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "all is well",
            Self::EndedSessions => "sessions are ended",
            Self::LockedRow => "account 0 is locked",
            Self::Restart => "the server restarts",
            Self::Crash => "the server crashes",
        })
    }
}

pub(crate) async fn connect(config: &Config) -> Result<Client, tokio_postgres::Error> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

/// Makes it; when it has passed, or at the latest at `until`, returns. `side` is connected then.
pub(crate) async fn make(
    trouble: Trouble,
    server: &mut Option<PostgresServer>,
    config: &Config,
    side: &mut Client,
    until: Instant,
) -> Result<(), BoxError> {
    match trouble {
        Trouble::None => {}
        Trouble::EndedSessions => {
            let one = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                WHERE application_name = 'teller' ORDER BY random() LIMIT 1";
            while Instant::now() < until {
                side.batch_execute(one).await?;
                sleep(Duration::from_millis(20)).await;
            }
        }
        Trouble::LockedRow => {
            side.batch_execute("BEGIN; SELECT 1 FROM account WHERE id = 0 FOR UPDATE").await?;
            sleep(until.saturating_duration_since(Instant::now())).await;
            side.batch_execute("ROLLBACK").await?;
        }
        Trouble::Restart | Trouble::Crash => {
            let crash = matches!(trouble, Trouble::Crash);
            let mut stopped = server.take().ok_or("the server is there")?;
            let restarted = tokio::task::spawn_blocking(move || {
                stopped.stop(crash);
                stopped.resume().map(|()| stopped)
            });
            *server = Some(restarted.await??);
            *side = connect(config).await?;
        }
    }
    Ok(())
}
