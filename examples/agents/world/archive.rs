//! The tool: an archive of pages, which breaks, has corrupt pages, and takes money for some.

use std::io;
use std::time::Duration;

use tokio::time::sleep;
use tower_triage::{AnyError, ErrorClass};

use crate::crew::{Task, Trouble};
use crate::world::{Book, Entry, Fate, Said};

/// Clones are one.
#[derive(Clone)]
pub(crate) struct Archive {
    book: Book,
}

impl Archive {
    pub(crate) const fn new(book: Book) -> Self {
        Self { book }
    }

    /// Reads one page.
    pub(crate) async fn read(&self, task: &Task, page: &str) -> Result<String, AnyError> {
        let fate = Fate::of(&task.name);
        let entry = Entry {
            task: task.name.clone(),
            part: task.part,
            who: "archive",
            what: page.to_owned(),
            said: Said::Yes,
        };
        let said = self.book.enter(entry, |_, before| match (page, fate) {
            ("diary", _) => Said::NotThere,
            // Two pages before it, so this is the first time.
            ("keepers", Fate::Breaks) if before == 2 => Said::Reset,
            ("keepers", Fate::Corrupt) => Said::Corrupt,
            ("keepers", Fate::Fee) if !task.paid => Said::Fee,
            _ => Said::Yes,
        });
        sleep(Duration::from_millis(1)).await;
        match said {
            Said::NotThere => Err(io::Error::from(io::ErrorKind::NotFound).into()),
            Said::Reset => Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
            Said::Corrupt => Err(io::Error::from(io::ErrorKind::InvalidData).into()),
            Said::Fee => {
                Err(Trouble::new(ErrorClass::Quota, "the archive wants money for this page").into())
            }
            _ if fate == Fate::TooLong => {
                Ok(format!("{page} of {} {}", task.name, "and ".repeat(50)))
            }
            _ => Ok(format!("{page} of {}", task.name)),
        }
    }
}
