//! Text in columns of a terminal.

use std::time::Duration;

use tower_triage_core::incident::is_invisible;
use unicode_width::UnicodeWidthChar;

/// How many columns a visible character takes.
fn columns_of(c: char) -> usize {
    c.width().unwrap_or(0)
}

/// How many columns [`visible`] text takes.
pub(crate) fn columns(text: &str) -> usize {
    text.chars().map(columns_of).sum()
}

/// `text` on one line, with what is invisible escaped.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_invisible(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

/// [`visible`] text within `width` columns; what is cut off ends in `…`.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut left = width.saturating_sub(1);
    for c in text.chars() {
        let Some(rest) = left.checked_sub(columns_of(c)) else { break };
        left = rest;
        kept.push(c);
    }
    if width > 0 {
        kept.push('…');
    }
    kept
}

/// At most so many bytes of what others wrote are kept.
const KEPT: usize = 200;

/// The begin of `text`, of bounded size.
pub(crate) fn bounded(text: &str) -> String {
    let end = (0..=KEPT.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text[..end.unwrap_or(0)].to_owned()
}

/// A duration as people say it: `250ms`, `2.5s`, `3m05s`.
pub(crate) fn brief(time: Duration) -> String {
    match time.as_secs() {
        0 => format!("{}ms", time.as_millis()),
        1..60 => format!("{:.1}s", time.as_millis() as f64 / 1e3),
        secs => format!("{}m{:02}s", secs / 60, secs % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_characters_count_twice_and_what_is_cut_says_so() {
        assert_eq!(columns("漢字ab"), 6);
        assert_eq!(cut("漢字ab", 6), "漢字ab");
        assert_eq!(cut("漢字ab", 5), "漢字…");
        assert_eq!(cut("漢字ab", 4), "漢…");
        assert_eq!(cut("漢字", 1), "…");
        assert_eq!(cut("漢字", 0), "");
    }

    #[test]
    fn what_is_kept_of_a_long_text_ends_between_characters() {
        assert_eq!(bounded("short"), "short");
        let long = "字".repeat(100);
        assert_eq!(bounded(&long).len(), 198);
    }

    #[test]
    fn durations_are_brief() {
        let cases = [(999, "999ms"), (2_500, "2.5s"), (59_999, "60.0s"), (185_000, "3m05s")];
        for (millis, text) in cases {
            assert_eq!(brief(Duration::from_millis(millis)), text);
        }
    }
}
