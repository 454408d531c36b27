//! Rows of `classification.json`: an outcome in, a verdict and the retry decision out.

mod grpc;
mod llm;
mod local_errors;
mod sqlstate;

use std::fmt::Debug;
use std::io;
use std::time::{Duration, SystemTime};

use http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Uri};
use serde_json::Value;
use tower_triage_core::{
    BoxError, CircuitOpen, ErrorClass, EscalateWhen, Failure, Label, Phase, RetryAfter, Verdict,
    Vote, io_failure,
};
use tower_triage_http::{
    Http2Fact, Http2Frame, HttpFacts, RequestHead, TransportFact, hints, transport_failure,
};
use tower_triage_retry::{Facts, RetryPolicy};

use super::Outcome;

/// Runs one row.
pub(super) fn run(row: &Value) -> Outcome {
    let judged = match row["kind"].as_str() {
        Some("http") => http(row),
        Some("io") => io(&row["input"]),
        Some("grpc") => grpc::judge(row),
        Some("llm") => llm::judge(row),
        Some("sqlstate") => sqlstate::judge(&row["input"]),
        _ => Err(format!("unknown kind {}", row["kind"])),
    };
    match judged {
        Ok(judged) => compare(&row["expect"], &judged, &policy(&row["input"])),
        Err(problem) => Outcome::fail("a row that can be run", problem),
    }
}

/// A verdict, and what the retry layer knows besides.
struct Judged {
    verdict: Verdict,
    facts: Facts,
}

fn policy(input: &Value) -> RetryPolicy {
    let policy = RetryPolicy::default();
    match input["retry_after_cap_ms"].as_u64() {
        Some(cap) => policy.hint_cap(Duration::from_millis(cap)),
        None => policy,
    }
}

fn facts(input: &Value, repeatable: bool, unit_of_work: bool) -> Facts {
    let time_left = input["deadline_remaining_ms"].as_u64().map(Duration::from_millis);
    Facts { repeatable, unit_of_work, time_left, ..Facts::default() }
}

// === Kind http ===

fn http(row: &Value) -> Result<Judged, String> {
    let input = &row["input"];
    let headers = header_map(&input["headers"])?;
    let request_headers = header_map(&input["request_headers"])?;
    let method = input["method"].as_str().ok_or("no method")?;
    let method = Method::from_bytes(method.as_bytes()).map_err(|error| error.to_string())?;
    let head = RequestHead {
        method: &method,
        uri: &Uri::from_static("http://example.com/"),
        headers: &request_headers,
        extensions: &Extensions::new(),
    };
    let status = input["status"].as_u64().ok_or("no status")?;
    let response = HttpFacts {
        status: u16::try_from(status).map_err(|error| error.to_string())?,
        headers: &headers,
        body_prefix: input["body_snippet"].as_str().unwrap_or_default().as_bytes(),
        now: now(row)?,
    };
    Ok(Judged {
        verdict: response.verdict(),
        facts: facts(input, head.repeatable(), head.unit_of_work()),
    })
}

/// A value that is a list means several lines of the field.
fn header_map(headers: &Value) -> Result<HeaderMap, String> {
    let mut map = HeaderMap::new();
    for (name, value) in headers.as_object().into_iter().flatten() {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| error.to_string())?;
        let one = std::slice::from_ref(value);
        for line in value.as_array().map_or(one, Vec::as_slice) {
            let line = line.as_str().ok_or_else(|| format!("header {name} is not text"))?;
            let line =
                HeaderValue::from_bytes(line.as_bytes()).map_err(|error| error.to_string())?;
            map.append(name.clone(), line);
        }
    }
    Ok(map)
}

fn now(row: &Value) -> Result<SystemTime, String> {
    let text = row["now"].as_str().ok_or("no `now`")?;
    hints::until_rfc3339(text, SystemTime::UNIX_EPOCH)
        .map(|since_epoch| SystemTime::UNIX_EPOCH + since_epoch)
        .ok_or_else(|| format!("`now` is {text}"))
}

// === Kind io ===

fn io(input: &Value) -> Result<Judged, String> {
    let repeatable = input["idempotent"].as_bool().unwrap_or(false);
    let unit_of_work = input["unit_of_work"].as_bool().unwrap_or(false);
    Ok(Judged { verdict: error(input)?.into(), facts: facts(input, repeatable, unit_of_work) })
}

/// The failure behind the Rust type that a row names. Types that can be made are made and go
/// through the walk along the chain; of hyper's and h2's, the facts are judged that the walk reads.
fn error(input: &Value) -> Result<Failure, String> {
    let walked = |error: BoxError| Ok(transport_failure(&*error, Phase::Unknown));
    let kind = input["error_type"].as_str().ok_or("no error type")?;
    let flag = input["is"].as_str().unwrap_or_default();
    match kind {
        // Around another error it is a wrapper.
        "std::io::Error" if input["error_kind"] == "Other" && input.get("wraps").is_some() => {
            wrapped(input).ok_or("wraps nothing")?
        }
        "std::io::Error" => io_error(input),
        "h2::Error" if flag == "user" => Ok(TransportFact::User.failure()),
        "h2::Error" if input.get("reason").is_none() => wrapped(input).ok_or("wraps nothing")?,
        "h2::Error" => http2(input).map(|fact| TransportFact::Http2(fact).failure()),
        "hyper::Error" => hyper(flag, input),
        "hyper::client::conn::TrySendError" | "hyper::client::dispatch::TrySendError" => {
            Ok(TransportFact::Canceled.failure())
        }
        "hyper_util::client::legacy::Error" | "hyper_util::client::legacy::client::Error" => {
            match flag {
                "connect" => {
                    let inside = wrapped(input).transpose()?;
                    Ok(TransportFact::Connect { inside }.failure())
                }
                "" => wrapped(input).ok_or("wraps nothing")?,
                other => Err(format!("unknown predicate {other}")),
            }
        }
        // Transparent: they have the class of their source.
        "tower::buffer::error::ServiceError" => {
            transparent(&local_errors::buffer_service_error())?;
            wrapped(input).ok_or("wraps nothing")?
        }
        "boxed" | "alloc::boxed::Box<dyn Error>" | "tower::ready_cache::error::Failed" => {
            wrapped(input).ok_or("wraps nothing")?
        }
        "tower::timeout::error::Elapsed" => walked(tower::timeout::error::Elapsed::new().into()),
        "tokio::time::error::Elapsed" => walked(local_errors::tokio_elapsed().into()),
        "tower::load_shed::error::Overloaded" => {
            walked(tower::load_shed::error::Overloaded::new().into())
        }
        "tower::buffer::error::Closed" => walked(local_errors::buffer_closed()),
        "tower::balance::error::Discover" => walked(local_errors::balance_discover()),
        "tokio::task::JoinError" => match flag {
            "panic" => walked(local_errors::join_error(true).into()),
            "cancelled" => walked(local_errors::join_error(false).into()),
            other => Err(format!("unknown predicate {other}")),
        },
        "local::CircuitOpen" => walked(CircuitOpen::new(Label::new("row"), Duration::ZERO).into()),
        // Limits of ours that have no error type: the class is all there is.
        _ if kind.starts_with("local::") => Ok(Failure::new(ErrorClass::Rejected)),
        _ => Err(format!("unknown error type {kind}")),
    }
}

/// The failure behind the error that a row finds further down the chain.
fn wrapped(input: &Value) -> Option<Result<Failure, String>> {
    input.get("wraps").map(error)
}

/// Does the walk go through a wrapper around a refused connection?
fn transparent(wrapper: &BoxError) -> Result<(), String> {
    let (failure, refused) =
        (transport_failure(&**wrapper, Phase::Unknown), io::ErrorKind::ConnectionRefused);
    if failure == io_failure(refused, None, Phase::Unknown) {
        return Ok(());
    }
    Err(format!("the wrapper hides its source: {failure:?}"))
}

fn io_error(input: &Value) -> Result<Failure, String> {
    let name = input["error_kind"].as_str().ok_or("no error kind")?;
    let os = input["raw_os_error"].as_i64().and_then(|os| i32::try_from(os).ok());
    let phase = match input["phase"].as_str() {
        Some("dns") => Phase::Dns,
        Some("connect") => Phase::Connect,
        Some("tls") => Phase::Tls,
        Some("write") => Phase::Write,
        Some("read") => Phase::Read,
        Some("file") => Phase::File,
        None => Phase::Unknown,
        Some(other) => return Err(format!("unknown phase {other}")),
    };
    Ok(io_failure(error_kind(name)?, os, phase))
}

fn error_kind(name: &str) -> Result<io::ErrorKind, String> {
    // Kinds that no error number of the system has.
    let made_by_libraries = [
        io::ErrorKind::InvalidData,
        io::ErrorKind::WriteZero,
        io::ErrorKind::UnexpectedEof,
        io::ErrorKind::OutOfMemory,
        io::ErrorKind::Unsupported,
        io::ErrorKind::Other,
    ];
    let of_the_system = (1..=140).map(|number| io::Error::from_raw_os_error(number).kind());
    made_by_libraries
        .into_iter()
        .chain(of_the_system)
        .find(|kind| format!("{kind:?}") == name)
        .ok_or_else(|| format!("unknown error kind {name}"))
}

fn hyper(flag: &str, input: &Value) -> Result<Failure, String> {
    let fact = match flag {
        "canceled" => TransportFact::Canceled,
        "closed" => TransportFact::Closed,
        "incomplete_message" => TransportFact::IncompleteMessage,
        "timeout" => TransportFact::TimedOut,
        "parse" => TransportFact::Parse,
        "user" => TransportFact::User,
        "body_write_aborted" => TransportFact::BodyWriteAborted,
        // No flag of its own: the source decides.
        "" | "io" | "shutdown" | "body" | "body_write" | "http2" => {
            return wrapped(input).ok_or("wraps nothing")?;
        }
        other => return Err(format!("unknown predicate {other}")),
    };
    Ok(fact.failure())
}

fn http2(input: &Value) -> Result<Http2Fact, String> {
    let frame = match input["frame"].as_str() {
        Some("GOAWAY") => {
            let ids = input["stream_id"].as_u64().zip(input["last_stream_id"].as_u64());
            Http2Frame::GoAway { above_last_id: ids.is_some_and(|(id, last)| id > last) }
        }
        Some("RST_STREAM") | None => Http2Frame::RstStream,
        Some(other) => return Err(format!("unknown frame {other}")),
    };
    let reason = input["reason"].as_str().ok_or("no reason")?;
    let remote = match input["initiator"].as_str() {
        Some("remote") => true,
        Some("library" | "user" | "local") | None => false,
        Some(other) => return Err(format!("unknown initiator {other}")),
    };
    Ok(Http2Fact { frame, reason: reason_named(reason)?, remote })
}

fn reason_named(name: &str) -> Result<h2::Reason, String> {
    (0..=0xd)
        .map(h2::Reason::from)
        .find(|reason| format!("{reason:?}") == name)
        .or_else(|| name.starts_with("UNKNOWN").then(|| h2::Reason::from(0xff)))
        .or_else(|| {
            name.strip_prefix("0x")
                .and_then(|hex| u32::from_str_radix(hex, 16).ok())
                .map(Into::into)
        })
        .ok_or_else(|| format!("unknown HTTP/2 reason {name}"))
}

// === Expected and actual ===

fn compare(expect: &Value, judged: &Judged, policy: &RetryPolicy) -> Outcome {
    let mut differences = Differences(Vec::new());
    let Some(failure) = judged.verdict.failure() else {
        differences.check("class", &expect["class"], Value::Null);
        differences.check("retryable", &expect["retryable"], Value::Bool(false));
        return Outcome::from_differences(differences.0);
    };
    differences.check("class", &expect["class"], failure.class.as_str());
    let retryable = policy.would_retry(&failure, &judged.facts);
    differences.check("retryable", &expect["retryable"], retryable);

    let (millis, over_cap) = hint(failure.retry_after, policy);
    differences.check("retry_after_ms", &expect["retry_after_ms"], millis);
    let expected_over_cap = expect["retry_after_over_cap"].as_bool().unwrap_or(false);
    differences.check("retry_after_over_cap", &Value::Bool(expected_over_cap), over_cap);

    let processed = failure.disposition.may_be_processed();
    let key = "request_may_have_been_processed";
    differences.check(key, &expect[key], processed);
    differences.check("breaker", &expect["breaker"], vote_name(failure.vote));
    differences.check("fallback", &expect["fallback"], failure.class.fallback());
    differences.check("escalate", &expect["escalate"], escalate_name(failure.class.escalate()));
    Outcome::from_differences(differences.0)
}

/// The hint in milliseconds, fractions kept, and whether it is over the policy's cap.
fn hint(hint: Option<RetryAfter>, policy: &RetryPolicy) -> (Value, bool) {
    match hint {
        None => (Value::Null, false),
        Some(RetryAfter::Never) => (Value::Null, true),
        Some(hint) => {
            let wait = hint.duration();
            let millis = if wait.subsec_nanos() % 1_000_000 == 0 {
                u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).into()
            } else {
                (wait.as_secs_f64() * 1000.0).into()
            };
            (millis, wait > policy.max_hint())
        }
    }
}

struct Differences(Vec<String>);

impl Differences {
    fn check(&mut self, key: &str, expected: &Value, actual: impl Into<Value> + Debug) {
        let actual = actual.into();
        if *expected != actual {
            self.0.push(format!("{key}: expected {expected}, got {actual}"));
        }
    }
}

fn vote_name(vote: Vote) -> &'static str {
    match vote {
        Vote::Success => "success",
        Vote::Failure => "failure",
        Vote::Ignore => "ignore",
    }
}

fn escalate_name(when: EscalateWhen) -> &'static str {
    match when {
        EscalateWhen::Now => "now",
        EscalateWhen::OnExhaustion => "on_exhaustion",
        EscalateWhen::Never => "never",
    }
}
