//! Lines and tables within the width of a view.

use std::fmt::{self, Write};

use crate::text::{columns, cut, visible};
use crate::view::View;

/// What can be shown in a view.
pub(crate) trait Draw {
    fn draw(&self, page: &mut Page<'_, '_>) -> fmt::Result;
}

/// What a text says, where there is colour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Tone {
    Plain,
    Head,
    Good,
    Doubtful,
    Bad,
}

impl Tone {
    const fn code(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Head => Some("1"),
            Self::Good => Some("32"),
            Self::Doubtful => Some("33"),
            Self::Bad => Some("31"),
        }
    }
}

/// One cell of a table.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
    right: bool,
}

impl Cell {
    pub(crate) fn new(text: impl AsRef<str>) -> Self {
        Self { text: visible(text.as_ref()), tone: Tone::Plain, right: false }
    }

    /// Numbers stand below each other.
    pub(crate) fn number(text: impl fmt::Display) -> Self {
        Self { right: true, ..Self::new(text.to_string()) }
    }

    pub(crate) fn tone(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }
}

pub(crate) struct Page<'a, 'f> {
    out: &'a mut fmt::Formatter<'f>,
    view: View,
}

/// Between two columns of a table.
const GAP: usize = 2;

impl<'a, 'f> Page<'a, 'f> {
    pub(crate) const fn new(out: &'a mut fmt::Formatter<'f>, view: View) -> Self {
        Self { out, view }
    }

    pub(crate) const fn width(&self) -> usize {
        self.view.width
    }

    /// One line, cut where it is too long.
    pub(crate) fn line(&mut self, tone: Tone, text: impl AsRef<str>) -> fmt::Result {
        let text = cut(&visible(text.as_ref()), self.view.width);
        self.toned(tone, &text)?;
        self.out.write_char('\n')
    }

    /// A table: its widest columns are cut until it fits, and where not even one column of each has
    /// room, the last ones are left out. An empty one is not drawn.
    pub(crate) fn table<const N: usize>(
        &mut self,
        heads: [&str; N],
        rows: &[[Cell; N]],
    ) -> fmt::Result {
        self.table_with(heads, rows, 0, |_, _| String::new())
    }

    /// A table with a bar in each row, which takes what the cells leave, but at most `most` columns;
    /// cells leave it half of that, or a third of the page. `bar` draws that of a row.
    pub(crate) fn table_with<const N: usize>(
        &mut self,
        heads: [&str; N],
        rows: &[[Cell; N]],
        most: usize,
        bar: impl Fn(usize, usize) -> String,
    ) -> fmt::Result {
        if rows.is_empty() {
            return Ok(());
        }
        let heads: [Cell; N] = std::array::from_fn(|at| Cell {
            right: rows[0][at].right,
            ..Cell::new(heads[at]).tone(Tone::Head)
        });
        let mut widths: [usize; N] = std::array::from_fn(|at| {
            let cells = rows.iter().map(|row| &row[at]).chain([&heads[at]]);
            cells.map(|cell| columns(&cell.text)).max().unwrap_or(0)
        });
        let reserved = if most > 0 { GAP + (most / 2).min(self.view.width / 3) } else { 0 };
        let room = self.view.width.saturating_sub(reserved + GAP * (N - 1));
        while widths.iter().sum::<usize>() > room {
            let Some(widest) = widths.iter_mut().max().filter(|widest| **widest > 1) else { break };
            *widest -= 1;
        }
        let used = widths.iter().sum::<usize>() + GAP * N;
        let bar_width = self.view.width.saturating_sub(used).min(most);
        self.row(&heads, &widths, "")?;
        for (number, row) in rows.iter().enumerate() {
            self.row(row, &widths, &bar(number, bar_width))?;
        }
        Ok(())
    }

    fn row(&mut self, cells: &[Cell], widths: &[usize], bar: &str) -> fmt::Result {
        let bar = Cell::new(bar);
        let bar_width = columns(&bar.text);
        let cells = cells.iter().zip(widths.iter().copied()).chain([(&bar, bar_width)]);
        // Spaces are written once something follows: none is at the end of a line.
        let (mut used, mut owed) = (0, 0);
        for (at, (cell, width)) in cells.enumerate() {
            let gap = if at == 0 { 0 } else { GAP };
            if used + gap + width > self.view.width {
                break;
            }
            used += gap + width;
            let text = cut(&cell.text, width);
            let space = width - columns(&text);
            let (before, after) = if cell.right { (space, 0) } else { (0, space) };
            owed += gap + before;
            if !text.is_empty() {
                write!(self.out, "{:owed$}", "")?;
                self.toned(cell.tone, &text)?;
                owed = 0;
            }
            owed += after;
        }
        self.out.write_char('\n')
    }

    fn toned(&mut self, tone: Tone, text: &str) -> fmt::Result {
        match tone.code().filter(|_| self.view.colour && !text.is_empty()) {
            Some(code) => write!(self.out, "\x1b[{code}m{text}\x1b[0m"),
            None => self.out.write_str(text),
        }
    }
}
