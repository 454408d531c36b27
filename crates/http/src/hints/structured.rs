//! The part of Structured Fields (RFC 9651) that the `RateLimit` field is made of: lists of items
//! with parameters.

/// One item of a list, as far as a rate limit needs it: its integer parameters `r` and `t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Item {
    /// What remains.
    pub(crate) r: Option<i64>,
    /// Seconds until more is there.
    pub(crate) t: Option<i64>,
}

/// Reads a list and gives each item to `visit`; inner lists are checked and passed over. `None` if
/// the field is malformed: then what was visited must be ignored too.
pub(crate) fn list(text: &str, visit: impl FnMut(Item)) -> Option<()> {
    Cursor { rest: text.as_bytes() }.list(visit)
}

struct Cursor<'a> {
    rest: &'a [u8],
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    fn skip(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or_default();
    }

    /// Takes the next byte if it is `byte`.
    fn eat(&mut self, byte: u8) -> Option<()> {
        (self.peek() == Some(byte)).then(|| self.skip(1))
    }

    fn skip_while(&mut self, wanted: impl Fn(u8) -> bool) -> usize {
        let count = self.rest.iter().take_while(|byte| wanted(**byte)).count();
        self.skip(count);
        count
    }

    fn spaces(&mut self) {
        self.skip_while(|byte| byte == b' ');
    }

    fn optional_whitespace(&mut self) {
        self.skip_while(|byte| matches!(byte, b' ' | b'\t'));
    }

    fn list(&mut self, mut visit: impl FnMut(Item)) -> Option<()> {
        self.spaces();
        if self.peek().is_none() {
            return Some(());
        }
        loop {
            if self.peek() == Some(b'(') {
                self.inner_list()?;
            } else {
                visit(self.item()?);
            }
            self.optional_whitespace();
            if self.peek().is_none() {
                return Some(());
            }
            self.eat(b',')?;
            self.optional_whitespace();
            // A comma at the end finds no item here.
        }
    }

    fn inner_list(&mut self) -> Option<()> {
        self.eat(b'(')?;
        loop {
            self.spaces();
            if self.eat(b')').is_some() {
                self.parameters()?;
                return Some(());
            }
            self.item()?;
            if !matches!(self.peek(), Some(b' ' | b')')) {
                return None;
            }
        }
    }

    fn item(&mut self) -> Option<Item> {
        self.bare_item()?;
        self.parameters()
    }

    /// The last parameter of a name wins.
    fn parameters(&mut self) -> Option<Item> {
        let mut item = Item::default();
        while self.eat(b';').is_some() {
            self.spaces();
            let start = self.rest;
            if !matches!(self.peek(), Some(b'a'..=b'z' | b'*')) {
                return None;
            }
            let length = self.skip_while(
                |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*'),
            );
            let value = if self.eat(b'=').is_some() { self.bare_item()? } else { None };
            match &start[..length] {
                b"r" => item.r = value,
                b"t" => item.t = value,
                _ => {}
            }
        }
        Some(item)
    }

    /// The value of an integer; every other kind is checked and passed over.
    fn bare_item(&mut self) -> Option<Option<i64>> {
        match self.peek()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string().map(|()| None),
            b'*' | b'a'..=b'z' | b'A'..=b'Z' => {
                self.skip_while(is_token);
                Some(None)
            }
            b':' => {
                self.skip(1);
                self.skip_while(|byte| {
                    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
                });
                self.eat(b':').map(|()| None)
            }
            b'?' => {
                self.skip(1);
                matches!(self.peek(), Some(b'0' | b'1')).then(|| self.skip(1)).map(|()| None)
            }
            b'@' => {
                self.skip(1);
                // A date is an integer behind an at sign.
                self.number()?.map(|_| None)
            }
            _ => None,
        }
    }

    /// An integer of at most 15 digits, or a decimal of at most 12 and 3.
    fn number(&mut self) -> Option<Option<i64>> {
        let negative = self.eat(b'-').is_some();
        let digits = self.rest;
        let whole = self.skip_while(|byte| byte.is_ascii_digit());
        if whole == 0 || whole > 15 {
            return None;
        }
        if self.eat(b'.').is_some() {
            let behind_point = self.skip_while(|byte| byte.is_ascii_digit());
            return (whole <= 12 && (1..=3).contains(&behind_point)).then_some(None);
        }
        let value = digits[..whole].iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
        Some(Some(if negative { -value } else { value }))
    }

    fn string(&mut self) -> Option<()> {
        self.eat(b'"')?;
        loop {
            let byte = self.peek()?;
            self.skip(1);
            match byte {
                b'"' => return Some(()),
                b'\\' if matches!(self.peek(), Some(b'"' | b'\\')) => self.skip(1),
                b'\\' => return None,
                0x20..=0x7e => {}
                _ => return None,
            }
        }
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn items(text: &str) -> Option<Vec<Item>> {
        let mut items = Vec::new();
        list(text, |item| items.push(item)).map(|()| items)
    }

    #[test]
    fn reads_items_of_every_kind() {
        let item = |r, t| Item { r, t };
        assert_eq!(items("\"default\";r=0;t=30"), Some(vec![item(Some(0), Some(30))]));
        assert_eq!(
            items("a;r=1;t=2 ,\t\"b\\\"\\\\\"; r=0;q=?1;pk=:QQ==:, 5, ?0, @7, 1.5;t=1.5"),
            Some(vec![
                item(Some(1), Some(2)),
                item(Some(0), None),
                item(None, None),
                item(None, None),
                item(None, None),
                item(None, None)
            ])
        );
        assert_eq!(items("(a \"b\";r=0);r=0;t=9, c;t=1;t=2"), Some(vec![item(None, Some(2))]));
        assert_eq!(items(""), Some(vec![]));
    }

    #[test]
    fn a_malformed_field_is_none() {
        for bad in [
            "a,",
            ",a",
            "a;",
            "a;R=0",
            "a;r=",
            "\"a",
            "\"a\\n\"",
            "(a",
            "(a\"b\")",
            "a b",
            "limit=10, remaining=0",
            "a;r=0000000000000000",
            "1.2345",
            "1234567890123.5",
            ":a",
            "?2",
            "@1.5",
            "é",
        ] {
            assert_eq!(items(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[ \\t,;=()\"\\\\?@:.a-tR0-9é-]*") {
            let _ = items(&text);
        }
    }
}
