//! The words by which providers name what went wrong, from a fixed set each.

use tower_triage_core::{Disposition, ErrorClass, Failure, Vote};

/// What a word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// What happened, whatever the status.
    Code(Code),
    /// The same as an HTTP status: counts only where there is no better one, inside a success.
    Status(u16),
}

/// Codes that say more than a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// The account's rate is too high; time heals it.
    RateLimit,
    /// Money or a hard limit is used up; time does not heal it.
    Quota,
    /// The service as a whole is overloaded.
    Overloaded,
    /// The prompt is too long for this model.
    ContextLength,
    /// The content is refused by this provider's policy.
    ContentPolicy,
    /// There is no such model here, or not for this account.
    Model,
    /// Not served in this place.
    Region,
    /// The key was refused, whatever the status says.
    Credentials,
    /// A code of AWS, in front of a model of another provider (Bedrock).
    Aws(Failure),
}

impl Code {
    pub(crate) const fn failure(self) -> Failure {
        use ErrorClass as C;
        match self {
            Self::RateLimit => Failure::new(C::Throttled).reason("llm_rate_limit"),
            Self::Quota => Failure::new(C::Quota).reason("llm_quota"),
            Self::Overloaded => {
                Failure::new(C::Throttled).vote(Vote::Failure).reason("llm_overloaded")
            }
            Self::ContextLength => Failure::new(C::Declined).reason("llm_context_length"),
            Self::ContentPolicy => Failure::new(C::Declined).reason("llm_content_policy"),
            Self::Model => Failure::new(C::Declined).reason("llm_model"),
            Self::Region => Failure::new(C::Declined).reason("llm_region"),
            Self::Credentials => Failure::new(C::Auth).reason("llm_credentials"),
            Self::Aws(failure) => failure,
        }
    }
}

/// A failure inside a success: the peer began to work, whatever it says.
pub(crate) const fn inside_success(failure: Failure) -> Failure {
    match failure.disposition {
        Disposition::NotSent | Disposition::NotProcessed => {
            failure.disposition(Disposition::MaybeProcessed)
        }
        Disposition::MaybeProcessed | Disposition::Processed => failure,
    }
}

/// The word of an `error.code`, `error.type`, `error.details.error_code` or the like. Texts for
/// people are never looked at.
pub(crate) fn word(text: &[u8]) -> Option<Word> {
    let text = std::str::from_utf8(text).ok()?;
    Some(match text {
        "rate_limit_exceeded" | "rate_limit_error" | "slow_down" | "too_many_requests" => {
            Word::Code(Code::RateLimit)
        }
        "insufficient_quota"
        | "billing_error"
        | "billing_hard_limit_reached"
        | "billing_not_active" => Word::Code(Code::Quota),
        "overloaded_error" | "server_is_overloaded" => Word::Code(Code::Overloaded),
        "context_length_exceeded" => Word::Code(Code::ContextLength),
        "content_filter" | "moderation_blocked" | "ResponsibleAIPolicyViolation" => {
            Word::Code(Code::ContentPolicy)
        }
        "model_not_found" => Word::Code(Code::Model),
        "unsupported_country_region_territory" => Word::Code(Code::Region),
        // Gemini says 400 to a bad key; the reason is that of `google.rpc.ErrorInfo`.
        "API_KEY_INVALID" => Word::Code(Code::Credentials),

        "invalid_request_error"
        | "invalid_prompt"
        | "failed_to_download_image"
        | "INVALID_ARGUMENT"
        | "FAILED_PRECONDITION"
        | "OUT_OF_RANGE" => Word::Status(400),
        "authentication_error" | "invalid_api_key" | "UNAUTHENTICATED" => Word::Status(401),
        "permission_error" | "PERMISSION_DENIED" => Word::Status(403),
        "not_found_error" | "NOT_FOUND" => Word::Status(404),
        "ABORTED" | "ALREADY_EXISTS" => Word::Status(409),
        "request_too_large" => Word::Status(413),
        "RESOURCE_EXHAUSTED" => Word::Status(429),
        "CANCELLED" => Word::Status(499),
        "server_error"
        | "api_error"
        | "internal_server_error"
        | "INTERNAL"
        | "UNKNOWN"
        | "DATA_LOSS" => Word::Status(500),
        "UNIMPLEMENTED" => Word::Status(501),
        "service_unavailable_error" | "UNAVAILABLE" => Word::Status(503),
        "timeout_error" | "vector_store_timeout" | "DEADLINE_EXCEEDED" => Word::Status(504),

        _ => return family(text),
    })
}

/// Words that come in families.
fn family(text: &str) -> Option<Word> {
    let ends = |with: &[&str]| with.iter().any(|end| text.ends_with(end));
    let starts = |with: &[&str]| with.iter().any(|start| text.starts_with(start));
    if ends(&["_policy_violation"]) {
        return Some(Word::Code(Code::ContentPolicy));
    }
    let used_up = ["_limit_exceeded", "_limit_reached"];
    let is_spent = ends(&used_up) && ["spend", "usage"].iter().any(|what| text.contains(what));
    if is_spent || starts(&["credit_balance_"]) {
        return Some(Word::Code(Code::Quota));
    }
    if let Some(failure) = tower_triage_http::aws_code(text) {
        return Some(Word::Code(Code::Aws(failure)));
    }
    if let Some(status) = status_number(text.as_bytes()) {
        return Some(Word::Status(status));
    }
    // What is wrong with an image, a file, a parameter.
    starts(&["invalid_", "image_", "unsupported_", "empty_"]).then_some(Word::Status(400))
}

/// A number that is the status of a failure.
pub(crate) fn status_number(text: &[u8]) -> Option<u16> {
    let status = std::str::from_utf8(text).ok()?.parse().ok()?;
    (400..600).contains(&status).then_some(status)
}

/// What a `finish_reason`, `stop_reason` or `finishReason` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    /// The model or its guard refused to go on.
    Refused,
    /// It ended: an answer, also where it is cut off at a length.
    Answered,
}

/// Reads a reason for which a model stopped.
pub(crate) fn finish(text: &[u8]) -> Finish {
    match text {
        // OpenAI and Azure; Anthropic; Bedrock.
        b"content_filter" | b"refusal" | b"content_filtered" | b"guardrail_intervened"
        // Gemini.
        | b"SAFETY" | b"RECITATION" | b"LANGUAGE" | b"BLOCKLIST" | b"PROHIBITED_CONTENT" | b"SPII"
        | b"IMAGE_SAFETY" | b"IMAGE_PROHIBITED_CONTENT" | b"IMAGE_RECITATION"
        // Cohere.
        | b"ERROR_TOXIC" => Finish::Refused,
        _ => Finish::Answered,
    }
}
