//! Text in columns, which cannot hold U+0000.

use std::borrow::Cow;

/// U+0000 becomes U+0001 0, U+0001 becomes U+0001 1. What begins, ends with or holds other text does
/// so afterwards too, so a search in columns finds at least what it should.
pub(crate) fn encode(text: &str) -> Cow<'_, str> {
    match text.contains(['\0', '\u{1}']) {
        true => text.replace('\u{1}', "\u{1}1").replace('\0', "\u{1}0").into(),
        false => text.into(),
    }
}

pub(crate) fn decode(column: &str) -> String {
    column.replace("\u{1}0", "\0").replace("\u{1}1", "\u{1}")
}

/// A pattern with stars, for LIKE. May match more than it should; see [`encode`].
pub(crate) fn like(pattern: &str) -> String {
    let mut like = String::with_capacity(pattern.len());
    for c in encode(pattern).chars() {
        match c {
            '*' => like.push('%'),
            '%' | '_' | '\\' => like.extend(['\\', c]),
            c => like.push(c),
        }
    }
    like
}

/// Names, such that each can be looked for by [`name`].
pub(crate) fn names(names: &[String]) -> String {
    let names = names.iter().map(|name| encode(name)).collect::<Vec<_>>();
    format!("\n{}\n", names.join("\n"))
}

/// What [`names`] holds if this is one of them.
pub(crate) fn name(name: &str) -> String {
    format!("\n{}\n", encode(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn patterns_are_quoted() {
        for (pattern, expected) in
            [("*", "%"), ("a*b", "a%b"), ("100%_\\", "100\\%\\_\\\\"), ("", ""), ("\0", "\u{1}0")]
        {
            assert_eq!(like(pattern), expected);
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(text in "[\0\u{1}\u{2}01a]{0,12}") {
            let column = encode(&text);
            prop_assert!(!column.contains('\0'));
            prop_assert_eq!(decode(&column), text);
        }

        #[test]
        fn who_is_among_the_names_is_found(all in prop::collection::vec("[\0\u{1}\n1a]{0,3}", 1..4)) {
            for one in &all {
                prop_assert!(names(&all).contains(&name(one)));
            }
        }
    }
}
