//! How wide, and in colour or not.

use std::fmt;
use std::io::IsTerminal;

use crate::page::{Draw, Page};

/// How a report is shown. Without one (`println!("{report}")`) it is plain and 80 columns wide, or as
/// wide as the format asks (`{report:120}`).
///
/// No line is wider than the view, whatever is in it: columns are cut, wide characters count as the
/// two columns that they take, and what is invisible or turns the direction of text is escaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    pub(crate) width: usize,
    pub(crate) colour: bool,
}

impl View {
    /// So many columns where nothing says how many there are.
    pub const DEFAULT_WIDTH: usize = 80;

    /// `width` columns without colour.
    #[must_use]
    pub const fn plain(width: usize) -> Self {
        Self { width, colour: false }
    }

    /// `width` columns in colour (ANSI escapes), wherever it goes.
    #[must_use]
    pub const fn coloured(width: usize) -> Self {
        Self { width, colour: true }
    }

    /// For standard output: as wide as the terminal, and in colour only if it is one and the
    /// environment has no `NO_COLOR`. Where the terminal does not tell its width, `COLUMNS` counts.
    #[must_use]
    pub fn stdout() -> Self {
        let stdout = std::io::stdout();
        Self::of(stdout.is_terminal(), columns(&stdout))
    }

    /// The same for standard error.
    #[must_use]
    pub fn stderr() -> Self {
        let stderr = std::io::stderr();
        Self::of(stderr.is_terminal(), columns(&stderr))
    }

    fn of(terminal: bool, columns: Option<usize>) -> Self {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let asked = || set("COLUMNS").and_then(|value| value.parse().ok());
        Self {
            width: columns.or_else(asked).unwrap_or(Self::DEFAULT_WIDTH),
            colour: terminal && set("NO_COLOR").is_none(),
        }
    }
}

#[cfg(unix)]
fn columns(stream: &impl std::os::fd::AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

#[cfg(not(unix))]
fn columns<T>(_: &T) -> Option<usize> {
    None
}

/// A report as it is shown in a [`View`].
#[derive(Clone, Copy)]
pub struct Shown<'a> {
    report: &'a dyn Draw,
    view: View,
}

impl<'a> Shown<'a> {
    pub(crate) const fn new(report: &'a dyn Draw, view: View) -> Self {
        Self { report, view }
    }

    /// By itself: plain, and as wide as the format asks.
    pub(crate) fn plain(report: &'a dyn Draw, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let view = View::plain(f.width().unwrap_or(View::DEFAULT_WIDTH));
        fmt::Display::fmt(&Self { report, view }, f)
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report.draw(&mut Page::new(f, self.view))
    }
}

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown").field("view", &self.view).finish_non_exhaustive()
    }
}
