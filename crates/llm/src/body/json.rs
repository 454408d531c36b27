//! A JSON reader that is fed byte by byte, keeps nothing but the place where it is, and tells what
//! it passes. However the bytes are cut into chunks, it tells the same.

/// Deeper than this nothing is followed; serde_json's limit.
const MAX_DEPTH: usize = 128;
/// Members further inside are passed over: nothing that we read lies so deep.
const MAX_PATH: usize = 6;
/// Longer texts are no codes: of those it is told only that they are there.
const MAX_TEXT: usize = 128;

/// What was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// A text, escapes resolved.
    Text(&'a [u8]),
    /// A text of more than 128 bytes.
    LongText,
    /// A number as it is written; empty if it is longer than any number worth reading.
    Number(&'a [u8]),
    /// `true` or `false`.
    Bool,
    /// `null`.
    Null,
    /// An object or an array begins.
    Open,
    /// A value that stands for itself ended: the outermost one, or an element of an outermost array.
    End,
}

/// Hears what the reader passes. `path` are the names of the members that lead there; arrays are
/// transparent, and an outermost array too.
pub(crate) trait Listen {
    /// A name, reduced to those that matter.
    type Name: Copy + Default;

    /// Which name this is.
    fn name(text: &[u8]) -> Self::Name;

    fn hear(&mut self, path: &[Self::Name], token: Token<'_>);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A value begins.
    Value,
    /// Behind `[`: a value, or the end.
    FirstElement,
    /// Behind `{`: a name, or the end.
    FirstName,
    /// Behind a comma in an object.
    Name,
    Colon,
    /// Behind a value.
    After,
    Text {
        is_name: bool,
        escape: Escape,
    },
    Number,
    Word,
    /// What comes is no JSON; nothing is told any more.
    Broken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escape {
    No,
    Begun,
    /// `\u` and the digits so far.
    Unicode {
        digits: u8,
        value: u16,
    },
}

/// The reader; see the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Reader<N> {
    state: State,
    /// How deep we are, and for each level whether it is an object.
    depth: usize,
    objects: u128,
    /// How many of the levels are objects, and the names of their current members.
    names: usize,
    path: [N; MAX_PATH],
    text: [u8; MAX_TEXT],
    length: usize,
    long: bool,
}

impl<N: Copy + Default> Reader<N> {
    pub(crate) fn new() -> Self {
        Self {
            state: State::Value,
            depth: 0,
            objects: 0,
            names: 0,
            path: [N::default(); MAX_PATH],
            text: [0; MAX_TEXT],
            length: 0,
            long: false,
        }
    }

    /// Is it certain that this is no JSON?
    pub(crate) fn is_broken(&self) -> bool {
        self.state == State::Broken
    }

    /// Is a value begun that has not ended?
    pub(crate) const fn is_inside(&self) -> bool {
        self.depth > 0 || matches!(self.state, State::Text { .. })
    }

    /// Reads on. After an outermost value another may follow.
    pub(crate) fn feed(&mut self, bytes: &[u8], listener: &mut impl Listen<Name = N>) {
        let mut rest = bytes;
        while let Some((byte, behind)) = rest.split_first() {
            if let State::Text { is_name, escape: Escape::No } = self.state {
                // Most of a body is text.
                let end = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'));
                let (text, behind) = rest.split_at(end.unwrap_or(rest.len()));
                self.push(text);
                rest = behind;
                match rest.split_first() {
                    None => return,
                    Some((b'"', behind)) => {
                        rest = behind;
                        self.text_ended(is_name, listener);
                    }
                    Some((_, behind)) => {
                        rest = behind;
                        self.state = State::Text { is_name, escape: Escape::Begun };
                    }
                }
                continue;
            }
            rest = behind;
            self.step(*byte, listener);
            if self.state == State::Broken {
                return;
            }
        }
    }

    fn step(&mut self, byte: u8, listener: &mut impl Listen<Name = N>) {
        match self.state {
            State::Text { is_name, escape } => self.escaped(byte, is_name, escape),
            State::Number if matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E') => {
                self.push(&[byte]);
            }
            State::Word if byte.is_ascii_lowercase() => self.push(&[byte]),
            State::Number | State::Word => {
                self.bare_ended(listener);
                // This byte ended it, and stands for itself.
                if self.state != State::Broken {
                    self.step(byte, listener);
                }
            }
            _ if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') => {}
            State::Value | State::FirstElement => match byte {
                b']' if self.state == State::FirstElement => self.close(false, listener),
                _ => self.begin(byte, listener),
            },
            State::FirstName | State::Name => match byte {
                b'"' => self.begin_text(true),
                b'}' if self.state == State::FirstName => self.close(true, listener),
                _ => self.state = State::Broken,
            },
            State::Colon if byte == b':' => self.state = State::Value,
            State::After => match byte {
                b',' if self.depth > 0 => {
                    self.state = if self.in_object() { State::Name } else { State::Value };
                }
                b'}' => self.close(true, listener),
                b']' => self.close(false, listener),
                _ => self.state = State::Broken,
            },
            State::Colon | State::Broken => self.state = State::Broken,
        }
    }

    fn begin(&mut self, byte: u8, listener: &mut impl Listen<Name = N>) {
        match byte {
            b'{' | b'[' if self.depth == MAX_DEPTH => self.state = State::Broken,
            b'{' | b'[' => {
                listener.hear(self.path(), Token::Open);
                let is_object = byte == b'{';
                let bit = 1 << self.depth;
                self.objects = if is_object { self.objects | bit } else { self.objects & !bit };
                self.depth += 1;
                if is_object {
                    self.names += 1;
                    self.set_name(N::default());
                }
                self.state = if is_object { State::FirstName } else { State::FirstElement };
            }
            b'"' => self.begin_text(false),
            b'-' | b'0'..=b'9' => self.begin_bare(byte, State::Number),
            b't' | b'f' | b'n' => self.begin_bare(byte, State::Word),
            _ => self.state = State::Broken,
        }
    }

    fn begin_text(&mut self, is_name: bool) {
        (self.length, self.long) = (0, false);
        self.state = State::Text { is_name, escape: Escape::No };
    }

    fn begin_bare(&mut self, byte: u8, state: State) {
        (self.length, self.long) = (0, false);
        self.push(&[byte]);
        self.state = state;
    }

    fn push(&mut self, bytes: &[u8]) {
        match self.text.get_mut(self.length..self.length + bytes.len()) {
            Some(room) if !self.long => {
                room.copy_from_slice(bytes);
                self.length += bytes.len();
            }
            _ => self.long = true,
        }
    }

    fn escaped(&mut self, byte: u8, is_name: bool, escape: Escape) {
        let mut next = Escape::No;
        match escape {
            Escape::No => self.push(&[byte]),
            Escape::Begun => match byte {
                b'u' => next = Escape::Unicode { digits: 0, value: 0 },
                b'n' => self.push(b"\n"),
                b't' => self.push(b"\t"),
                b'r' => self.push(b"\r"),
                b'b' => self.push(&[8]),
                b'f' => self.push(&[12]),
                other => self.push(&[other]),
            },
            Escape::Unicode { digits, value } => {
                let Some(digit) = char::from(byte).to_digit(16) else {
                    self.state = State::Broken;
                    return;
                };
                let value = value << 4 | digit as u16;
                match digits {
                    0..=2 => next = Escape::Unicode { digits: digits + 1, value },
                    // Codes are ASCII: with anything else it is none.
                    _ => {
                        self.push(&[u8::try_from(value).ok().filter(u8::is_ascii).unwrap_or(0xff)])
                    }
                }
            }
        }
        self.state = State::Text { is_name, escape: next };
    }

    fn text_ended<L: Listen<Name = N>>(&mut self, is_name: bool, listener: &mut L) {
        let text = &self.text[..self.length];
        if is_name {
            let name = if self.long { N::default() } else { L::name(text) };
            self.set_name(name);
            self.state = State::Colon;
            return;
        }
        let token = if self.long { Token::LongText } else { Token::Text(text) };
        listener.hear(self.path(), token);
        self.value_ended(listener);
    }

    fn bare_ended(&mut self, listener: &mut impl Listen<Name = N>) {
        let text = if self.long { &[][..] } else { &self.text[..self.length] };
        let token = match (self.state, text) {
            (State::Number, number) => Token::Number(number),
            (_, b"true" | b"false") => Token::Bool,
            (_, b"null") => Token::Null,
            _ => {
                self.state = State::Broken;
                return;
            }
        };
        listener.hear(self.path(), token);
        self.value_ended(listener);
    }

    fn close(&mut self, object: bool, listener: &mut impl Listen<Name = N>) {
        if self.depth == 0 || self.in_object() != object {
            self.state = State::Broken;
            return;
        }
        self.depth -= 1;
        if object {
            self.names -= 1;
        }
        self.value_ended(listener);
    }

    fn value_ended(&mut self, listener: &mut impl Listen<Name = N>) {
        self.state = if self.depth == 0 { State::Value } else { State::After };
        // The outermost value, or an element of an outermost array.
        if self.depth == 0 || self.depth == 1 && !self.in_object() {
            listener.hear(&[], Token::End);
        }
    }

    const fn in_object(&self) -> bool {
        self.depth > 0 && self.objects >> (self.depth - 1) & 1 == 1
    }

    fn set_name(&mut self, name: N) {
        if let Some(place) = self.names.checked_sub(1).and_then(|at| self.path.get_mut(at)) {
            *place = name;
        }
    }

    /// Empty where it would be too long.
    fn path(&self) -> &[N] {
        self.path.get(..self.names).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// Writes down everything, names by their hash.
    #[derive(Default, PartialEq, Debug)]
    struct Notes(Vec<String>);

    fn hash(text: &[u8]) -> u64 {
        text.iter().fold(7, |hash, byte| hash * 31 % 1_000_003 + u64::from(*byte) + 1)
    }

    impl Listen for Notes {
        type Name = u64;

        fn name(text: &[u8]) -> u64 {
            hash(text)
        }

        fn hear(&mut self, path: &[u64], token: Token<'_>) {
            self.0.push(format!("{path:?} {token:?}"));
        }
    }

    fn read(chunks: &[&[u8]]) -> (Notes, bool) {
        let (mut reader, mut notes) = (Reader::new(), Notes::default());
        for chunk in chunks {
            reader.feed(chunk, &mut notes);
        }
        (notes, reader.is_broken())
    }

    /// What a parser that holds the whole document would tell.
    fn told(value: &Value, path: &mut Vec<u64>, depth: usize, notes: &mut Notes) {
        let in_reach =
            |path: &[u64]| if path.len() > MAX_PATH { Vec::new() } else { path.to_vec() };
        let here = in_reach(path);
        match value {
            Value::Null => notes.hear(&here, Token::Null),
            Value::Bool(_) => notes.hear(&here, Token::Bool),
            Value::Number(number) => {
                notes.hear(&here, Token::Number(number.to_string().as_bytes()))
            }
            Value::String(text) => {
                // Of a character that is no ASCII the reader keeps the bytes, or one that fits none.
                let token = match text.len() {
                    0..=MAX_TEXT => Token::Text(text.as_bytes()),
                    _ => Token::LongText,
                };
                notes.hear(&here, token);
            }
            Value::Array(elements) => {
                notes.hear(&here, Token::Open);
                for element in elements {
                    told(element, path, depth + 1, notes);
                    if depth == 0 {
                        notes.hear(&[], Token::End);
                    }
                }
            }
            Value::Object(members) => {
                notes.hear(&here, Token::Open);
                for (name, member) in members {
                    path.push(if name.len() > MAX_TEXT { 0 } else { hash(name.as_bytes()) });
                    told(member, path, depth + 1, notes);
                    path.pop();
                }
            }
        }
        if depth == 0 {
            notes.hear(&[], Token::End);
        }
    }

    /// Documents of every shape; texts in ASCII, so that escapes are written plainly.
    fn document() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[ -~]{0,20}|x{120,140}|[\"\\\\\n\t/]{1,4}".prop_map(Value::from),
        ];
        leaf.prop_recursive(9, 60, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                proptest::collection::btree_map("[a-z]{0,3}|\\PC{0,2}", inner, 0..5)
                    .prop_map(|members| members.into_iter().collect()),
            ]
        })
    }

    #[test]
    fn escapes_are_resolved_and_what_is_no_ascii_fits_nothing() {
        let notes = read(&[br#""\u0041\/\n\u00e9""#]).0;
        assert_eq!(notes.0[0], format!("[] {:?}", Token::Text(b"A/\n\xff")));
    }

    #[test]
    fn what_is_no_json_is_found_out() {
        for text in
            ["<html>", "{]", "[}", "{\"a\"}", "{,}", "[1,]", "nul ", "{\"a\":1 2}", "]", "x"]
        {
            assert!(read(&[text.as_bytes()]).1, "{text}");
        }
        assert!(read(&[&[b'['; MAX_DEPTH + 1]]).1, "too deep");
        assert!(!read(&[&[b'['; MAX_DEPTH]]).1);
        assert!(!read(&[b"{\"a\":[1,{}],\"b\":nul"]).1, "cut off is not broken");
    }

    proptest! {
        #[test]
        fn it_tells_what_a_parser_of_the_whole_document_tells(
            value in document(),
            cuts in proptest::collection::vec(1_usize..40, 0..20),
            pretty: bool,
        ) {
            let text = if pretty { format!("{value:#} ") } else { format!("{value} ") };
            let mut chunks = Vec::new();
            let mut rest = text.as_bytes();
            for cut in cuts {
                let (chunk, behind) = rest.split_at(cut.min(rest.len()));
                chunks.push(chunk);
                rest = behind;
            }
            chunks.push(rest);
            let mut expected = Notes::default();
            told(&value, &mut Vec::new(), 0, &mut expected);
            prop_assert_eq!(read(&chunks), (expected, false));
        }

        #[test]
        fn any_bytes_in_any_chunks_tell_the_same(bytes: Vec<u8>, cut: prop::sample::Index) {
            let (front, back) = bytes.split_at(cut.index(bytes.len() + 1));
            prop_assert_eq!(read(&[&bytes]), read(&[front, back]));
        }

        #[test]
        fn anything_that_looks_like_json_too(
            text in "[\\[{][\"{}\\[\\]:,0-9a-ntu.\\\\e -]{0,80}",
            cut: prop::sample::Index,
        ) {
            let (front, back) = text.as_bytes().split_at(cut.index(text.len() + 1));
            prop_assert_eq!(read(&[text.as_bytes()]), read(&[front, back]));
        }
    }
}
