//! Rows of kind `grpc`: status, metadata and details in, a verdict out.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use prost::Message;
use serde_json::Value;
use tonic::Status;
use tower_triage_core::{BoxError, CircuitOpen, ErrorClass, Failure, Label};
use tower_triage_grpc::{GrpcFacts, grpc_failure};
use tower_triage_http::{Http2Fact, Http2Frame, TransportFact};

use super::{Judged, facts, header_map, now, reason_named};

pub(super) fn judge(row: &Value) -> Result<Judged, String> {
    let input = &row["input"];
    let flag = |key: &str| input[key].as_bool().unwrap_or(false);
    let shape = input["response_shape"].as_str().unwrap_or("trailers_only");
    let mut facts = facts(input, flag("idempotent"), flag("unit_of_work"));
    facts.committed = match shape {
        "trailers_only" | "headers_then_trailers" => false,
        "headers_data_trailers" => true,
        other => return Err(format!("unknown shape {other}")),
    };
    if flag("caller_cancelled") {
        let failure = Failure::new(ErrorClass::Cancelled);
        return Ok(Judged { verdict: failure.into(), facts });
    }
    if let Some(transport) = input.get("transport").filter(|value| !value.is_null()) {
        return Ok(Judged { verdict: transport_failure(transport)?.into(), facts });
    }
    if let Some(source) = input["source"].as_str() {
        return Ok(Judged { verdict: caused_by(source, input)?.into(), facts });
    }

    let mut metadata = header_map(&input["metadata"])?;
    if let Some(status) = input["grpc_status"].as_str() {
        metadata.insert("grpc-status", header(status)?);
    }
    if let Some(details) = input["status_details"].as_array() {
        let details = STANDARD_NO_PAD.encode(encode(details)?);
        metadata.insert("grpc-status-details-bin", header(&details)?);
    }
    let http_status = input["http_status"].as_u64().unwrap_or(200);
    let mut answer = GrpcFacts::new(now(row)?);
    answer.http_status = u16::try_from(http_status).map_err(|error| error.to_string())?;
    answer.message_too_large = flag("message_size_limit");
    answer.deadline_passed = input["deadline_remaining_ms"] == 0;
    match shape {
        "trailers_only" => answer.headers = &metadata,
        _ => answer.trailers = Some(&metadata),
    }
    Ok(Judged { verdict: answer.verdict(), facts })
}

fn header(text: &str) -> Result<http::HeaderValue, String> {
    http::HeaderValue::from_str(text).map_err(|error| error.to_string())
}

/// What a status came from that tonic made of a broken connection.
fn transport_failure(transport: &Value) -> Result<Failure, String> {
    if let Some(error) = transport["error"].as_str() {
        return match error {
            "connect" => Ok(TransportFact::Connect { inside: None }.failure()),
            other => Err(format!("unknown transport error {other}")),
        };
    }
    let ids = transport["stream_id"].as_u64().zip(transport["last_stream_id"].as_u64());
    let above_last_id = ids.is_some_and(|(id, last)| id > last);
    let (frame, usual) = match transport["frame"].as_str() {
        // A graceful one is never seen by a stream that the peer goes on with.
        Some("GOAWAY") => (Http2Frame::GoAway { above_last_id }, "INTERNAL_ERROR"),
        Some("RST_STREAM") => (Http2Frame::RstStream, "REFUSED_STREAM"),
        _ => return Err(format!("unknown transport {transport}")),
    };
    let reason = reason_named(transport["reason"].as_str().unwrap_or(usual))?;
    let remote = match transport["initiator"].as_str() {
        Some("remote") | None => true,
        Some(_) => false,
    };
    Ok(TransportFact::Http2(Http2Fact { frame, reason, remote }).failure())
}

/// A status whose source is of the type that a row names, as tonic makes it.
fn caused_by(source: &str, input: &Value) -> Result<Failure, String> {
    let source: BoxError = match source {
        "local::CircuitOpen" => CircuitOpen::new(Label::new("row"), Duration::ZERO).into(),
        "tonic::TimeoutExpired" | "TimeoutExpired" => tonic::TimeoutExpired(()).into(),
        "tonic::ConnectError" | "ConnectError" => {
            tonic::ConnectError(std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into())
                .into()
        }
        "tower::timeout::error::Elapsed" => tower::timeout::error::Elapsed::new().into(),
        "tokio::time::error::Elapsed" => super::local_errors::tokio_elapsed().into(),
        other => return Err(format!("unknown source {other}")),
    };
    let code = input["grpc_status"].as_str().and_then(|code| code.parse::<i32>().ok());
    let mut status = Status::new(code.unwrap_or(2).into(), "made by the client");
    status.set_source(Arc::from(source));
    Ok(grpc_failure(&status))
}

// === Details, encoded by prost ===

#[derive(Message)]
struct RpcStatus {
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

#[derive(Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Message)]
struct RetryInfo {
    #[prost(message, optional, tag = "1")]
    retry_delay: Option<ProtoDuration>,
}

#[derive(Message)]
struct ProtoDuration {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

#[derive(Message)]
struct QuotaFailure {
    #[prost(message, repeated, tag = "1")]
    violations: Vec<Violation>,
}

#[derive(Message)]
struct Violation {
    #[prost(string, tag = "1")]
    subject: String,
}

fn encode(details: &[Value]) -> Result<Vec<u8>, String> {
    let details = details.iter().map(any).collect::<Result<_, _>>()?;
    Ok(RpcStatus { details }.encode_to_vec())
}

fn any(message: &Value) -> Result<Any, String> {
    let name = message["type"].as_str().ok_or("a detail without a type")?;
    let value = match name.rsplit('.').next() {
        Some("RetryInfo") => {
            let retry_delay = message["retry_delay"].as_str().map(proto_duration).transpose()?;
            RetryInfo { retry_delay }.encode_to_vec()
        }
        Some("QuotaFailure") => {
            let violations = message["violations"].as_array().map_or(1, Vec::len);
            let violation = || Violation { subject: "project:shop".to_owned() };
            let violations = std::iter::repeat_with(violation).take(violations).collect();
            QuotaFailure { violations }.encode_to_vec()
        }
        // Others say nothing about repeating.
        _ => Vec::new(),
    };
    Ok(Any { type_url: format!("type.googleapis.com/{name}"), value })
}

/// "1.5s", also below zero.
fn proto_duration(text: &str) -> Result<ProtoDuration, String> {
    let wrong = || format!("`{text}` is no duration");
    let number = text.strip_suffix('s').ok_or_else(wrong)?;
    let (negative, number) = match number.strip_prefix('-') {
        Some(number) => (true, number),
        None => (false, number),
    };
    let delay = number.parse::<f64>().ok().and_then(|secs| Duration::try_from_secs_f64(secs).ok());
    let delay = delay.ok_or_else(wrong)?;
    let sign = if negative { -1 } else { 1 };
    Ok(ProtoDuration {
        seconds: sign * i64::try_from(delay.as_secs()).map_err(|error| error.to_string())?,
        nanos: sign as i32 * delay.subsec_nanos().cast_signed(),
    })
}
