//! `grpc-status-details-bin`: a `google.rpc.Status` in base64, with messages that say more.

use std::time::Duration;

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use http::HeaderMap;
use tonic::Code;
use tower_triage_core::RetryAfter;

use crate::wire::{Fields, put_bytes, put_varint};

/// The header.
pub(crate) const DETAILS: &str = "grpc-status-details-bin";

/// Longer details are not looked at: servers that fit an answer into a header stay far below.
const MAX_TEXT: usize = 16 * 1024;

/// Binary headers come with and without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

const RETRY_INFO: &str = "google.rpc.RetryInfo";
const QUOTA_FAILURE: &str = "google.rpc.QuotaFailure";

/// What a status's details say about repeating.
///
/// Read from foreign bytes: what cannot be read is passed over, and never an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StatusDetails {
    /// `google.rpc.RetryInfo.retry_delay`: a lower bound. Zero, if a `RetryInfo` names none.
    pub retry_delay: Option<RetryAfter>,
    /// Is there a `google.rpc.QuotaFailure`?
    pub quota_failure: bool,
}

impl StatusDetails {
    /// Reads the `grpc-status-details-bin` of headers or trailers; at most 16 KiB of it.
    #[must_use]
    pub fn of_headers(headers: &HeaderMap) -> Self {
        let text = headers.get(DETAILS).map(|value| value.as_bytes()).unwrap_or_default();
        if text.len() > MAX_TEXT {
            return Self::default();
        }
        BASE64.decode(text).map(|message| Self::of_message(&message)).unwrap_or_default()
    }

    /// Reads an encoded `google.rpc.Status`, such as
    /// [`Status::details`](tonic::Status::details) gives.
    #[must_use]
    pub fn of_message(status: &[u8]) -> Self {
        const DETAILS: u64 = 3;
        const TYPE_URL: u64 = 1;
        const VALUE: u64 = 2;

        let mut details = Self::default();
        for any in Fields::of(status).messages(DETAILS) {
            let url = Fields::of(any).messages(TYPE_URL).last().unwrap_or_default();
            let name = url.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            let value = Fields::of(any).messages(VALUE).last().unwrap_or_default();
            if name == RETRY_INFO.as_bytes() {
                details.retry_delay = details.retry_delay.or_else(|| retry_delay(value));
            }
            details.quota_failure |= name == QUOTA_FAILURE.as_bytes();
        }
        details
    }
}

/// The delay of a `RetryInfo`: not below zero, and with less than a second of nanoseconds.
fn retry_delay(retry_info: &[u8]) -> Option<RetryAfter> {
    const RETRY_DELAY: u64 = 1;
    const SECONDS: u64 = 1;
    const NANOS: u64 = 2;

    let delay = Fields::of(retry_info).messages(RETRY_DELAY).last().unwrap_or_default();
    let part = |number| Fields::of(delay).varint(number).unwrap_or(0);
    // Negative numbers are written as 64 bits with the first one set.
    let seconds = u64::try_from(part(SECONDS).cast_signed()).ok()?;
    let nanos = u32::try_from(part(NANOS)).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    Some(RetryAfter::AtLeast(Duration::new(seconds, nanos)))
}

/// An encoded `google.rpc.Status` with a `RetryInfo`.
pub(crate) fn with_retry_info(code: Code, message: &str, delay: Duration) -> Vec<u8> {
    let mut duration = Vec::new();
    put_varint(&mut duration, 1, delay.as_secs());
    put_varint(&mut duration, 2, delay.subsec_nanos().into());
    let mut retry_info = Vec::new();
    put_bytes(&mut retry_info, 1, &duration);
    let mut any = Vec::new();
    put_bytes(&mut any, 1, format!("type.googleapis.com/{RETRY_INFO}").as_bytes());
    put_bytes(&mut any, 2, &retry_info);
    let mut status = Vec::new();
    put_varint(&mut status, 1, code as u64);
    put_bytes(&mut status, 2, message.as_bytes());
    put_bytes(&mut status, 3, &any);
    status
}

/// Takes details away that are no base64: tonic's client (0.14.9) panics on them.
pub(crate) fn remove_unreadable(headers: &mut HeaderMap) {
    let readable = |value: &http::HeaderValue| BASE64.decode(value.as_bytes()).is_ok();
    if !headers.get_all(DETAILS).iter().all(readable) {
        headers.remove(DETAILS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn headers(text: &[u8]) -> HeaderMap {
        let value = HeaderValue::from_bytes(text).unwrap();
        HeaderMap::from_iter([(DETAILS.parse().unwrap(), value)])
    }

    fn secs(seconds: f64) -> Option<RetryAfter> {
        Some(RetryAfter::AtLeast(Duration::from_secs_f64(seconds)))
    }

    /// As another encoder writes it, byte by byte.
    #[test]
    fn reads_what_others_write() {
        let mut any = vec![0x0a, 40];
        any.extend_from_slice(b"type.googleapis.com/google.rpc.RetryInfo");
        any.extend_from_slice(&[0x12, 10, 0x0a, 8, 0x08, 1, 0x10, 0x80, 0xca, 0xb5, 0xee, 0x01]);
        let mut status = vec![0x08, 14, 0x12, 2, b'n', b'o', 0x1a, any.len() as u8];
        status.extend_from_slice(&any);
        assert_eq!(StatusDetails::of_message(&status).retry_delay, secs(1.5));
        assert_eq!(status, with_retry_info(Code::Unavailable, "no", Duration::from_millis(1500)),);
        for padding in ["", "=", "=="] {
            let text = BASE64.encode(&status) + padding;
            let read = StatusDetails::of_headers(&headers(text.as_bytes()));
            if text.len() % 4 == 0 || padding.is_empty() {
                assert_eq!(read.retry_delay, secs(1.5));
            }
        }
    }

    #[test]
    fn what_is_no_delay_is_none() {
        let info = |seconds: u64, nanos: u64| {
            let (mut duration, mut info) = (Vec::new(), Vec::new());
            put_varint(&mut duration, 1, seconds);
            put_varint(&mut duration, 2, nanos);
            put_bytes(&mut info, 1, &duration);
            info
        };
        assert_eq!(retry_delay(&info(5, 0)), secs(5.0));
        assert_eq!(retry_delay(&info(0, 0)), secs(0.0));
        assert_eq!(retry_delay(&[]), secs(0.0));
        assert_eq!(retry_delay(&info((-1_i64).cast_unsigned(), 0)), None);
        assert_eq!(retry_delay(&info(0, 1_000_000_000)), None);
        assert_eq!(retry_delay(&info(1, (-1_i64).cast_unsigned())), None);
    }

    #[test]
    fn only_unreadable_details_are_taken_away() {
        for (text, stays) in [("", true), ("CA4", true), ("CA4=", true), ("?", false), ("C", false)]
        {
            let mut headers = headers(text.as_bytes());
            remove_unreadable(&mut headers);
            assert_eq!(headers.contains_key(DETAILS), stays, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn any_message_is_read(bytes: Vec<u8>) {
            let _ = StatusDetails::of_message(&bytes);
        }

        #[test]
        fn any_header_is_read_and_what_stays_does_not_bring_tonic_down(
            text in proptest::collection::vec(prop_oneof![0x20u8..0x7f, 0x80u8..=0xff], 0..64),
        ) {
            let mut headers = headers(&text);
            headers.insert("grpc-status", HeaderValue::from_static("14"));
            let _ = StatusDetails::of_headers(&headers);
            remove_unreadable(&mut headers);
            prop_assert!(tonic::Status::from_header_map(&headers).is_some());
        }

        #[test]
        fn every_delay_survives(seconds in 0..=i64::MAX as u64, nanos in 0u32..1_000_000_000) {
            let delay = Duration::new(seconds, nanos);
            let status = with_retry_info(Code::Unavailable, "busy", delay);
            let read = StatusDetails::of_message(&status).retry_delay;
            prop_assert_eq!(read, Some(RetryAfter::AtLeast(delay)));
        }
    }

    #[test]
    fn long_details_are_not_looked_at() {
        let mut status = with_retry_info(Code::Unavailable, "", Duration::from_secs(1));
        put_bytes(&mut status, 2, &[b'x'; MAX_TEXT]);
        let read = StatusDetails::of_headers(&headers(BASE64.encode(&status).as_bytes()));
        assert_eq!(read, StatusDetails::default());
    }
}
