//! What one JSON document says: an answer, an error, or one event of a stream.

use tower_triage_core::RetryAfter;
use tower_triage_http::hints;

use super::json::{Listen, Token};
use super::words::{Code, Finish, Word, finish, status_number, word};

/// Members that matter. Everything else is `Other`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Name {
    #[default]
    Other,
    AtType,
    BlockReason,
    Candidates,
    Choices,
    Code,
    Content,
    Delta,
    Details,
    Error,
    ErrorCode,
    Finish,
    IncompleteDetails,
    InnerError,
    Message,
    Object,
    Parts,
    PromptFeedback,
    QuotaId,
    Reason,
    Response,
    RetryDelay,
    Role,
    Status,
    Text,
    Type,
    UsageMetadata,
    Violations,
}

/// What an error says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ErrorFacts {
    pub(crate) code: Option<Code>,
    /// The status that it names or stands for.
    pub(crate) status: Option<u16>,
    pub(crate) quota_failure: bool,
    /// The limit that is used up is one per day.
    pub(crate) per_day: bool,
    /// The delay of a `google.rpc.RetryInfo`.
    pub(crate) retry_delay: Option<RetryAfter>,
    /// It has a code, a type or a status, known or not.
    pub(crate) named: bool,
}

/// What a document says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Said {
    /// Nothing that matters, or nothing that we understand.
    #[default]
    Nothing,
    /// An error.
    Error(ErrorFacts),
    /// The model or its guard refused.
    Refused,
    /// It ended before it had said anything for the caller.
    CutOff,
}

/// How one event of a stream counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// It says nothing for the caller yet: a greeting, a ping, a role.
    Preamble,
    /// Something of the answer, or something that we do not understand.
    Output,
    /// A failure.
    Failed,
}

/// Where a word stood: the smaller the more it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    DetailsErrorCode,
    Code,
    InnerCode,
    Reason,
    Type,
    Status,
}

/// Collects what a document says while it is read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    error: ErrorFacts,
    code_from: Option<Place>,
    status_from: Option<Place>,
    /// There is an `error` that is not null.
    has_error: bool,
    /// The document itself is one: `"type": "error"`, `"status": "failed"`.
    is_error: bool,
    /// `code` and `type` of a document that may be an error itself.
    own_code: Option<Word>,
    own_type: Option<Word>,
    refused: bool,
    answered: bool,
    /// A kind of document that carries answers piece by piece.
    is_chunk: bool,
    is_greeting: bool,
    has_output: bool,
    /// An object that lives on by itself, such as a batch or a job: how that fares is not how the call
    /// fared that asked for it.
    is_record: bool,
    /// There was anything at all.
    begun: bool,
}

impl Facts {
    /// What the document says, as far as it was read.
    pub(crate) fn said(&self) -> Said {
        if self.is_record {
            return Said::Nothing;
        }
        let of_aws = matches!(self.own_code, Some(Word::Code(Code::Aws(_))));
        if self.has_error || self.is_error || of_aws {
            let mut facts = *self;
            if !self.has_error {
                facts.error.named |= self.own_code.is_some() || self.own_type.is_some();
                facts.note(Place::Code, self.own_code);
                facts.note(Place::Type, self.own_type);
            }
            return Said::Error(facts.error);
        }
        // One of several choices that was refused leaves the others.
        if self.refused && !self.answered { Said::Refused } else { Said::Nothing }
    }

    /// How it counts as one event of a stream.
    pub(crate) fn event(&self) -> Event {
        if self.said() != Said::Nothing {
            return Event::Failed;
        }
        let silent = self.is_chunk && !self.has_output && !self.answered;
        if silent || self.is_greeting || !self.begun { Event::Preamble } else { Event::Output }
    }

    /// An event that is named `error` is one, whatever its data look like.
    pub(crate) fn name_error(&mut self) {
        self.is_error = true;
    }

    fn note(&mut self, place: Place, word: Option<Word>) {
        // The first of its place, and the better place, counts.
        let better = |from: Option<Place>| from.is_none_or(|from| place < from);
        match word {
            None => {}
            Some(Word::Code(code)) if better(self.code_from) => {
                (self.error.code, self.code_from) = (Some(code), Some(place));
            }
            Some(Word::Status(status)) if better(self.status_from) => {
                (self.error.status, self.status_from) = (Some(status), Some(place));
            }
            Some(_) => {}
        }
    }

    fn kind(&mut self, text: &[u8]) {
        match text {
            b"error" | b"response.failed" => self.is_error = true,
            b"message_start"
            | b"content_block_start"
            | b"ping"
            | b"keepalive"
            | b"response.created"
            | b"response.queued"
            | b"response.in_progress"
            | b"response.output_item.added"
            | b"response.content_part.added" => self.is_greeting = true,
            _ => self.own_type = word(text),
        }
    }

    fn finished(&mut self, text: &[u8]) {
        match finish(text) {
            Finish::Refused => self.refused = true,
            Finish::Answered => self.answered = true,
        }
    }

    fn hear_error(&mut self, path: &[Name], token: Token<'_>) {
        use Name as N;
        let names = matches!(path, [N::Code | N::Type | N::Status] | [N::Details, N::ErrorCode]);
        self.error.named |= names && token != Token::Null;
        match (path, token) {
            (_, Token::Null) => {}
            ([], _) => self.has_error = true,
            ([N::Code], token) => self.note(Place::Code, word_of(token)),
            ([N::Type], token) => self.note(Place::Type, word_of(token)),
            ([N::Status], token) => self.note(Place::Status, word_of(token)),
            ([N::InnerError, N::Code], token) => self.note(Place::InnerCode, word_of(token)),
            ([N::Details, N::ErrorCode], token) => {
                self.note(Place::DetailsErrorCode, word_of(token));
            }
            ([N::Details, N::Reason], token) => self.note(Place::Reason, word_of(token)),
            ([N::Details, N::AtType], Token::Text(text)) if text.ends_with(b".QuotaFailure") => {
                self.error.quota_failure = true;
            }
            ([N::Details, N::Violations, N::QuotaId], Token::Text(id)) => {
                self.error.quota_failure = true;
                self.error.per_day |= id.windows(6).any(|part| part == b"PerDay");
            }
            ([N::Details, N::RetryDelay], Token::Text(text)) => {
                let delay = std::str::from_utf8(text).ok().and_then(hints::proto_duration);
                self.error.retry_delay = self.error.retry_delay.or(delay);
            }
            _ => {}
        }
    }
}

/// Kinds of OpenAI's objects that are no answers.
fn is_record(kind: &[u8]) -> bool {
    let kinds: [&[u8]; 8] = [
        b"batch",
        b"upload",
        b"file",
        b"video",
        b"thread",
        b"vector_store",
        b"fine_tuning",
        b"eval",
    ];
    kinds.iter().any(|record| kind.starts_with(record))
}

fn word_of(token: Token<'_>) -> Option<Word> {
    match token {
        Token::Text(text) => word(text),
        Token::Number(number) => status_number(number).map(Word::Status),
        _ => None,
    }
}

impl Listen for Facts {
    type Name = Name;

    fn name(text: &[u8]) -> Name {
        match text {
            b"@type" => Name::AtType,
            b"blockReason" => Name::BlockReason,
            b"candidates" => Name::Candidates,
            b"choices" => Name::Choices,
            b"code" | b"__type" => Name::Code,
            b"content" => Name::Content,
            b"delta" => Name::Delta,
            b"details" => Name::Details,
            b"error" => Name::Error,
            b"error_code" => Name::ErrorCode,
            b"finish_reason" | b"finishReason" | b"stop_reason" | b"stopReason" => Name::Finish,
            b"incomplete_details" => Name::IncompleteDetails,
            b"innererror" | b"inner_error" => Name::InnerError,
            b"message" => Name::Message,
            b"object" => Name::Object,
            b"parts" => Name::Parts,
            b"promptFeedback" => Name::PromptFeedback,
            b"quotaId" => Name::QuotaId,
            b"reason" => Name::Reason,
            b"response" => Name::Response,
            b"retryDelay" => Name::RetryDelay,
            b"role" => Name::Role,
            b"status" => Name::Status,
            b"text" => Name::Text,
            b"type" => Name::Type,
            b"usageMetadata" => Name::UsageMetadata,
            b"violations" => Name::Violations,
            _ => Name::Other,
        }
    }

    fn hear(&mut self, path: &[Name], token: Token<'_>) {
        use Name as N;
        if token == Token::End {
            return;
        }
        self.begun |= !path.is_empty();
        self.is_chunk |= matches!(
            path.first(),
            Some(N::Choices | N::Candidates | N::PromptFeedback | N::UsageMetadata)
        );
        let something = match token {
            Token::Text(text) => !text.is_empty(),
            Token::LongText | Token::Number(_) | Token::Bool => true,
            Token::Null | Token::Open | Token::End => false,
        };
        match (path, token) {
            (
                [N::Error, inside @ ..] | [N::Response | N::Choices, N::Error, inside @ ..],
                token,
            ) => {
                self.hear_error(inside, token);
            }
            ([N::Type], Token::Text(text)) => self.kind(text),
            ([N::Object], Token::Text(b"error")) => self.is_error = true,
            ([N::Object], Token::Text(kind)) => self.is_record = is_record(kind),
            ([N::Code], token) => self.own_code = word_of(token),
            ([N::Status] | [N::Response, N::Status], Token::Text(b"failed")) => {
                self.is_error = true;
            }
            (
                [N::IncompleteDetails, N::Reason] | [N::Response, N::IncompleteDetails, N::Reason],
                Token::Text(text),
            ) => self.finished(text),
            ([N::PromptFeedback, N::BlockReason], Token::Text(text)) => {
                self.refused |= text != b"BLOCK_REASON_UNSPECIFIED";
            }
            (
                [N::Finish] | [N::Choices | N::Candidates | N::Delta | N::Message, N::Finish],
                Token::Text(text),
            ) => self.finished(text),
            ([N::Choices, N::Delta | N::Message, what, ..], _) if *what != N::Role => {
                self.has_output |= something;
            }
            ([N::Choices, N::Text] | [N::Candidates, N::Content, N::Parts, ..], _) => {
                self.has_output |= something;
            }
            _ => {}
        }
    }
}
