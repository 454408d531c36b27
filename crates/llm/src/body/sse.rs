//! The framing of server-sent events (WHATWG HTML, section 9.2.6), fed byte by byte: it passes on the
//! data of each event as it comes, and keeps nothing but the name of the field that it reads.

/// Hears the stream.
pub(crate) trait Events {
    /// A piece of the event's data; between two `data` lines comes a line feed.
    fn data(&mut self, piece: &[u8]);

    /// The event is over; `name` is its `event` field, as far as it fits 16 bytes.
    fn end(&mut self, name: &[u8]);
}

/// Names of fields and events that matter are shorter.
const MAX_WORD: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The first three bytes may be a byte order mark.
    Start,
    /// A line begins.
    Line,
    Field,
    /// Behind the colon, where one space does not count.
    Value,
    /// In the value of a field that matters, or of one that does not.
    Data,
    EventName,
    Skip,
}

/// The framing's state; see the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Framing {
    state: State,
    /// The last byte was a carriage return: a line feed belongs to it.
    after_return: bool,
    field: Word,
    event: Word,
    /// The event has data, so the next `data` line begins with a line feed.
    has_data: bool,
}

/// The first bytes of a word; longer ones are none that we know.
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    bytes: [u8; MAX_WORD],
    length: usize,
}

impl Word {
    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.length) {
            *place = byte;
        }
        self.length = self.length.saturating_add(1);
    }

    /// Empty if it is longer than what is kept.
    fn get(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

impl Framing {
    pub(crate) fn new() -> Self {
        Self {
            state: State::Start,
            after_return: false,
            field: Word::default(),
            event: Word::default(),
            has_data: false,
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8], events: &mut impl Events) {
        let mut rest = bytes;
        while let Some((byte, behind)) = rest.split_first() {
            if matches!(self.state, State::Data | State::Skip) {
                let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
                let (piece, behind) = rest.split_at(end.unwrap_or(rest.len()));
                if self.state == State::Data && !piece.is_empty() {
                    events.data(piece);
                }
                if !piece.is_empty() {
                    self.after_return = false;
                    rest = behind;
                    continue;
                }
            }
            rest = behind;
            self.step(*byte, events);
        }
    }

    /// The stream ended. The standard drops an event whose blank line is missing; servers that fail
    /// leave it out, and what they said last is what matters.
    pub(crate) fn finish(&mut self, events: &mut impl Events) {
        if self.has_data {
            self.dispatch(events);
        }
    }

    fn step(&mut self, byte: u8, events: &mut impl Events) {
        let after_return = std::mem::replace(&mut self.after_return, byte == b'\r');
        match (self.state, byte) {
            (_, b'\n') if after_return => {}
            (State::Start, 0xef | 0xbb | 0xbf) => {}
            (State::Start | State::Line, b'\r' | b'\n') => {
                self.state = State::Line;
                self.dispatch(events);
            }
            (State::Start | State::Line, b':') => self.state = State::Skip,
            (State::Start | State::Line, byte) => {
                self.field = Word::default();
                self.field.push(byte);
                self.state = State::Field;
            }
            (State::Field, b':') => self.state = State::Value,
            (State::Field, b'\r' | b'\n') => {
                // A field without a value.
                self.begin_value(events);
                self.state = State::Line;
            }
            (State::Field, byte) => self.field.push(byte),
            (State::Value, byte) => {
                self.begin_value(events);
                match byte {
                    b' ' => {}
                    b'\r' | b'\n' => self.state = State::Line,
                    byte if self.state == State::Data => events.data(&[byte]),
                    byte if self.state == State::EventName => self.event.push(byte),
                    _ => {}
                }
            }
            (State::Data | State::EventName | State::Skip, b'\r' | b'\n') => {
                self.state = State::Line;
            }
            (State::EventName, byte) => self.event.push(byte),
            // Taken in one piece by `feed`.
            (State::Data | State::Skip, _) => {}
        }
    }

    fn begin_value(&mut self, events: &mut impl Events) {
        self.state = match self.field.get() {
            b"data" => {
                if self.has_data {
                    events.data(b"\n");
                }
                self.has_data = true;
                State::Data
            }
            b"event" => {
                self.event = Word::default();
                State::EventName
            }
            _ => State::Skip,
        };
    }

    fn dispatch(&mut self, events: &mut impl Events) {
        if self.has_data {
            events.end(self.event.get());
        }
        self.has_data = false;
        self.event = Word::default();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Default)]
    struct Heard {
        events: Vec<(String, Vec<u8>)>,
        data: Vec<u8>,
    }

    impl Events for Heard {
        fn data(&mut self, piece: &[u8]) {
            self.data.extend(piece);
        }

        fn end(&mut self, name: &[u8]) {
            let name = String::from_utf8_lossy(name).into_owned();
            self.events.push((name, std::mem::take(&mut self.data)));
        }
    }

    fn read(chunks: &[&[u8]]) -> Vec<(String, Vec<u8>)> {
        let (mut framing, mut heard) = (Framing::new(), Heard::default());
        for chunk in chunks {
            framing.feed(chunk, &mut heard);
        }
        framing.finish(&mut heard);
        heard.events
    }

    fn event(name: &str, data: &str) -> (String, Vec<u8>) {
        (name.to_owned(), data.as_bytes().to_vec())
    }

    #[test]
    fn reads_what_the_standard_shows() {
        assert_eq!(
            read(&[b"\xef\xbb\xbf: a comment\n\ndata: a\ndata:b\ndata:  c\nid: 7\n\n"]),
            [event("", "a\nb\n c")]
        );
        assert_eq!(
            read(&[b"event: error\r\ndata: {}\r\n\r\nevent\rdata\rdata\r\r"]),
            [event("error", "{}"), event("", "\n")]
        );
        assert_eq!(read(&[b"event: ping\n\nretry: 3\n\n:\n\ndatas: x\n\n"]), []);
        assert_eq!(read(&[b"event: error\ndata: {\"cut\":"]), [event("error", "{\"cut\":")]);
        assert_eq!(read(&[b"event: an_event_with_a_long_name\ndata:\n\n"]), [event("", "")]);
    }

    /// Line by line over the whole text, as the standard says it.
    fn by_the_book(text: &str) -> Vec<(String, Vec<u8>)> {
        let text = text.replace("\r\n", "\n").replace('\r', "\n");
        let mut events = Vec::new();
        let (mut name, mut data): (&str, Option<String>) = ("", None);
        for line in text.split('\n').chain([""]) {
            if line.is_empty() {
                if let Some(data) = data.take() {
                    let name = if name.len() > MAX_WORD { "" } else { name };
                    events.push(event(name, &data));
                }
                name = "";
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "data" => {
                    data = Some(data.map_or_else(|| value.to_owned(), |data| data + "\n" + value));
                }
                "event" => name = value,
                _ => {}
            }
        }
        events
    }

    proptest! {
        #[test]
        fn equals_the_book_however_it_is_cut(
            text in "((data: |data:|data|event: |id: |:)[a-z:{}\" ]{0,9}(\n|\r|\r\n|\n\n|\r\r|\r\n\r\n)){0,12}",
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
            cuts.push(text.len());
            cuts.sort_unstable();
            let mut begin = 0;
            let chunks: Vec<&[u8]> = cuts
                .iter()
                .map(|end| &text.as_bytes()[std::mem::replace(&mut begin, *end)..*end])
                .collect();
            let expected = by_the_book(&text);
            let single: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
            prop_assert_eq!(&read(&single), &expected);
            prop_assert_eq!(read(&chunks), expected);
        }

        #[test]
        fn any_bytes_in_any_chunks_tell_the_same(bytes: Vec<u8>, cut: prop::sample::Index) {
            let (front, back) = bytes.split_at(cut.index(bytes.len() + 1));
            prop_assert_eq!(read(&[&bytes]), read(&[front, back]));
        }
    }
}
