//! What a body says: read as it comes, in any chunks, without keeping it.

mod facts;
mod json;
mod sse;
mod words;

use self::facts::{Event, Facts, Name};
use self::json::{Listen, Token};
use self::sse::{Events, Framing};

pub(crate) use self::facts::{ErrorFacts, Said};
pub(crate) use self::words::{Code, inside_success};

/// How much of a body is looked at before it is passed on as it is, unless a limit is given.
pub(crate) const DEFAULT_LIMIT: usize = 64 * 1024;

/// What a body says of its answer: nothing, an error in a provider's words, or that the model
/// refused. Small and `Copy`; [`PeekLayer`](crate::PeekLayer) leaves it as a response extension, and
/// the [rules](crate::llm) read it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BodyFacts {
    pub(crate) said: Said,
}

impl BodyFacts {
    /// Reads a body, or as much of it as is known: a JSON answer or error, one event's data, or a
    /// stream of server-sent events, of which the first decides that is no preamble. At most 64 KiB
    /// are looked at; bytes that are none of it say nothing.
    ///
    /// ```
    /// use tower_triage_llm::BodyFacts;
    ///
    /// let refused = BodyFacts::read(br#"{"stop_reason":"refusal"}"#);
    /// assert!(!refused.is_silent());
    /// assert!(BodyFacts::read(br#"{"stop_reason":"max_tokens"}"#).is_silent());
    /// assert_eq!(refused, BodyFacts::read(
    ///     b"event: message_delta\ndata: {\"delta\":{\"stop_reason\":\"refusal\"}}\n\n",
    /// ));
    /// ```
    #[must_use]
    pub fn read(body: &[u8]) -> Self {
        let body = &body[..body.len().min(DEFAULT_LIMIT)];
        let mut reader = BodyReader::new(Format::Events, DEFAULT_LIMIT);
        reader.feed(body);
        match reader.finish().said {
            // A part is no body that ended.
            Said::CutOff => Self::default(),
            said => Self { said },
        }
    }

    /// A body that ended, or failed, before it had said anything for the caller.
    pub(crate) const CUT_OFF: Self = Self { said: Said::CutOff };

    /// Does it say nothing that matters?
    #[must_use]
    pub fn is_silent(self) -> bool {
        self.said == Said::Nothing
    }
}

/// What a body is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// JSON documents: one, an array of them, or one after the other.
    Json,
    /// Server-sent events with JSON data; or JSON, which some send under their name: no line of
    /// events begins like it.
    Events,
}

/// Reads a body as it passes, and judges it by the first event that is no preamble.
#[derive(Clone, Debug)]
pub(crate) struct BodyReader {
    /// `None` for JSON.
    framing: Option<Framing>,
    /// Nothing but white space has come yet.
    blank: bool,
    document: Document,
    judge: Judge,
    /// Bytes that are looked at before the first decision.
    left: usize,
}

impl BodyReader {
    pub(crate) fn new(format: Format, limit: usize) -> Self {
        Self {
            framing: (format == Format::Events).then(Framing::new),
            blank: true,
            document: Document { reader: json::Reader::new(), facts: Facts::default() },
            judge: Judge { first: None, later: None },
            left: limit,
        }
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        let (within, beyond) = bytes.split_at(bytes.len().min(self.left));
        self.left -= within.len();
        self.read(within);
        if !beyond.is_empty() {
            self.release();
            self.read(beyond);
        }
    }

    /// No longer waits for a decision: what was said so far counts.
    pub(crate) fn release(&mut self) {
        self.left = 0;
        self.judge.first = Some(self.said_so_far().said);
    }

    fn read(&mut self, bytes: &[u8]) {
        let bytes = if self.blank { bytes.trim_ascii_start() } else { bytes };
        let Some(first) = bytes.first() else { return };
        if std::mem::replace(&mut self.blank, false) && matches!(first, b'{' | b'[') {
            self.framing = None;
        }
        let Self { framing, document, judge, .. } = self;
        match framing {
            Some(framing) => framing.feed(bytes, &mut EventStream { document, judge }),
            None => {
                let Document { reader, facts } = document;
                reader.feed(bytes, &mut Documents { facts, judge });
                if reader.is_broken() {
                    // What is no JSON says nothing; nor does what looked like it before.
                    judge.first.get_or_insert(Said::Nothing);
                    *facts = Facts::default();
                }
            }
        }
    }

    /// What decided, if something did.
    pub(crate) fn decided(&self) -> Option<BodyFacts> {
        self.judge.first.map(|said| BodyFacts { said })
    }

    /// A failure that came after the body had been taken for an answer; told once.
    pub(crate) fn take_later(&mut self) -> Option<BodyFacts> {
        self.judge.later.take().map(|said| BodyFacts { said })
    }

    /// The body is over. Of a part of a body, take what it [says so far](Self::said_so_far).
    pub(crate) fn finish(&mut self) -> BodyFacts {
        let Self { framing, document, judge, .. } = self;
        match framing {
            Some(framing) => framing.finish(&mut EventStream { document, judge }),
            None => {
                // Cut off: what was said before counts.
                let cut_off = !document.reader.is_broken() && document.reader.is_inside();
                match document.said() {
                    Said::Nothing if cut_off => judge.decide(Said::CutOff),
                    Said::Nothing => {}
                    said => judge.decide(said),
                }
            }
        }
        let never_began = if framing.is_some() { Said::CutOff } else { Said::Nothing };
        BodyFacts { said: judge.first.unwrap_or(never_began) }
    }

    /// What decided, or what an unfinished document says.
    pub(crate) fn said_so_far(&self) -> BodyFacts {
        let unfinished = || match self.framing {
            // An event that is not complete says nothing yet.
            Some(_) => Said::Nothing,
            None => self.document.said(),
        };
        BodyFacts { said: self.judge.first.unwrap_or_else(unfinished) }
    }
}

/// One JSON document that is being read.
#[derive(Clone, Debug)]
struct Document {
    reader: json::Reader<Name>,
    facts: Facts,
}

impl Document {
    fn said(&self) -> Said {
        if self.reader.is_broken() { Said::Nothing } else { self.facts.said() }
    }
}

/// What decided first, and a failure that came afterwards.
#[derive(Clone, Copy, Debug)]
struct Judge {
    first: Option<Said>,
    later: Option<Said>,
}

impl Judge {
    fn decide(&mut self, said: Said) {
        match self.first {
            None => self.first = Some(said),
            Some(_) if said != Said::Nothing => _ = self.later.get_or_insert(said),
            Some(_) => {}
        }
    }

    fn event(&mut self, facts: &Facts) {
        match facts.event() {
            Event::Preamble => {}
            Event::Output => self.decide(Said::Nothing),
            Event::Failed => self.decide(facts.said()),
        }
    }
}

/// Each document is an event of its own.
struct Documents<'a> {
    facts: &'a mut Facts,
    judge: &'a mut Judge,
}

impl Listen for Documents<'_> {
    type Name = Name;

    fn name(text: &[u8]) -> Name {
        Facts::name(text)
    }

    fn hear(&mut self, path: &[Name], token: Token<'_>) {
        if token == Token::End {
            self.judge.event(self.facts);
            *self.facts = Facts::default();
        } else {
            self.facts.hear(path, token);
        }
    }
}

/// The data of each event is a document.
struct EventStream<'a> {
    document: &'a mut Document,
    judge: &'a mut Judge,
}

impl Events for EventStream<'_> {
    fn data(&mut self, piece: &[u8]) {
        let Document { reader, facts } = &mut *self.document;
        reader.feed(piece, facts);
    }

    fn end(&mut self, name: &[u8]) {
        let broken = self.document.reader.is_broken();
        if name == b"error" {
            if broken {
                self.document.facts = Facts::default();
            }
            self.document.facts.name_error();
            self.judge.event(&self.document.facts);
        } else if broken {
            // `[DONE]`, or something that we do not understand.
            self.judge.decide(Said::Nothing);
        } else {
            self.judge.event(&self.document.facts);
        }
        *self.document = Document { reader: json::Reader::new(), facts: Facts::default() };
    }
}

#[cfg(test)]
mod tests;
