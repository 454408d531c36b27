//! Error codes in a response's body or type header, which say more than its status.

use http::HeaderMap;
use tower_triage_core::{ErrorClass, Failure};

/// How much of a body is looked at.
const LIMIT: usize = 16 * 1024;

/// What AWS's error code says, if there is one that we know: from `x-amzn-errortype`, the `__type`
/// or `code` of a JSON object, or the `<Code>` of an XML `<Error>`. `body` may be a part.
pub(crate) fn aws_failure(headers: &HeaderMap, body: &[u8]) -> Option<Failure> {
    let body = &body[..body.len().min(LIMIT)];
    headers
        .get("x-amzn-errortype")
        .and_then(|value| value.to_str().ok())
        .and_then(aws_code)
        .or_else(|| json_member(body, b"__type").and_then(aws_code))
        .or_else(|| json_member(body, b"code").and_then(aws_code))
        .or_else(|| xml_code(body).and_then(aws_code))
}

/// What an error code of AWS says, in any of its forms (`namespace#Code:http://link`), if it is one
/// that says more than the status: throttling, a timeout, a quota.
#[must_use]
pub fn aws_code(code: &str) -> Option<Failure> {
    let code = code.trim().rsplit('#').next()?;
    let code = code.split(':').next()?;
    let failure = match code {
        "Throttling"
        | "ThrottlingException"
        | "ThrottledException"
        | "RequestThrottled"
        | "RequestThrottledException"
        | "TooManyRequestsException"
        | "ProvisionedThroughputExceededException"
        | "TransactionInProgressException"
        | "RequestLimitExceeded"
        | "BandwidthLimitExceeded"
        | "LimitExceededException"
        | "SlowDown"
        | "PriorRequestNotComplete"
        | "EC2ThrottledException" => Failure::new(ErrorClass::Throttled).reason("aws_throttling"),
        "RequestTimeout" | "RequestTimeoutException" => {
            Failure::new(ErrorClass::Timeout).reason("aws_request_timeout")
        }
        _ if code.starts_with("ServiceQuotaExceeded") => {
            Failure::new(ErrorClass::Quota).reason("aws_service_quota")
        }
        _ => return None,
    };
    Some(failure)
}

/// The text member `name` of the outermost object. What lies deeper, and text inside of text, does
/// not count; the object may be cut off behind the member.
fn json_member<'a>(body: &'a [u8], name: &[u8]) -> Option<&'a str> {
    let mut rest = body.trim_ascii_start().strip_prefix(b"{")?;
    let mut depth = 1_u32;
    let mut key: Option<&[u8]> = None;
    while let Some((first, behind)) = rest.split_first() {
        match first {
            b'"' => {
                let end = end_of_text(behind)?;
                let text = &behind[..end];
                rest = &behind[end + 1..];
                if depth > 1 {
                    continue;
                }
                match key {
                    // A name, if a colon follows; a value is taken with its name.
                    None => key = Some(text),
                    Some(known) if known == name => return std::str::from_utf8(text).ok(),
                    Some(_) => {}
                }
                continue;
            }
            b'{' | b'[' => depth = depth.saturating_add(1),
            b'}' | b']' => depth = depth.checked_sub(1).filter(|depth| *depth > 0)?,
            b',' if depth == 1 => key = None,
            _ => {}
        }
        rest = behind;
    }
    None
}

/// Where the text ends whose opening quote has been passed.
fn end_of_text(text: &[u8]) -> Option<usize> {
    let mut escaped = false;
    text.iter().position(|byte| {
        let ends = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        ends
    })
}

/// The text of the first `<Code>` directly inside of an `<Error>`.
fn xml_code(body: &[u8]) -> Option<&str> {
    let text = match std::str::from_utf8(body) {
        Ok(text) => text,
        // Cut off within a character, or not text from there on.
        Err(error) => std::str::from_utf8(&body[..error.valid_up_to()]).ok()?,
    };
    let mut rest = text.trim_start_matches('\u{feff}').trim_start();
    // How deep inside of an `<Error>` we are.
    let mut inside: Option<u32> = None;
    if !rest.starts_with('<') {
        return None;
    }
    while let Some(at) = rest.find('<') {
        rest = &rest[at..];
        if let Some(comment) = rest.strip_prefix("<!--") {
            rest = &comment[comment.find("-->")?..];
            continue;
        }
        if let Some(data) = rest.strip_prefix("<![CDATA[") {
            rest = &data[data.find("]]>")?..];
            continue;
        }
        let (tag, behind) = rest[1..].split_once('>')?;
        let name = tag.split([' ', '\t', '\r', '\n', '/']).next()?;
        if name == "Code" && inside == Some(0) {
            return behind.split_once("</").map(|(code, _)| code);
        }
        let (opens, closes) = (!tag.starts_with(['/', '?', '!']), tag.starts_with('/'));
        inside = match inside {
            None if opens && name == "Error" => Some(0),
            Some(depth) if opens && !tag.ends_with('/') => Some(depth.saturating_add(1)),
            Some(depth) if closes => depth.checked_sub(1),
            unchanged => unchanged,
        };
        rest = behind;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn class(body: &str) -> Option<ErrorClass> {
        aws_failure(&HeaderMap::new(), body.as_bytes()).map(|failure| failure.class)
    }

    #[test]
    fn codes_are_found_where_aws_puts_them() {
        let throttled = Some(ErrorClass::Throttled);
        assert_eq!(
            class(r#"{"__type":"com.amazon.coral#ThrottlingException","m":"x"}"#),
            throttled
        );
        assert_eq!(
            class(r#" {"message" : "a \"b\" {", "a":[{"b":1}], "code":"SlowDown""#),
            throttled
        );
        assert_eq!(class("<Error><Code>SlowDown</Code></Error>"), throttled);
        assert_eq!(
            class(
                "<?xml version=\"1.0\"?>\n<ErrorResponse xmlns=\"x\"><!-- > --><Error>\
                 <Empty/><Type>Sender</Type><Code>RequestTimeout</Code></Error>"
            ),
            Some(ErrorClass::Timeout)
        );
        assert_eq!(class(r#"{"__type":"ServiceQuotaExceededException"}"#), Some(ErrorClass::Quota));
        let mut headers = HeaderMap::new();
        headers.insert(
            "x-amzn-errortype",
            "ThrottledException:http://internal.amazon.com/x/".parse().unwrap(),
        );
        assert_eq!(aws_failure(&headers, b"").unwrap().class, ErrorClass::Throttled);
    }

    #[test]
    fn text_that_only_mentions_a_code_is_not_one() {
        for body in [
            "",
            "SlowDown",
            r#"{"message":"__type\":\"ThrottlingException"}"#,
            r#"{"message":"\"__type\":\"Throttling\""}"#,
            r#"{"cause":{"__type":"ThrottlingException"}}"#,
            r#"{"a":"__type","b":"ThrottlingException"}"#,
            r#"{"x":1} {"__type":"ThrottlingException"}"#,
            r#"[{"__type":"ThrottlingException"}]"#,
            r#"{"__type":"Throttl"#,
            r#"{"__type":"ValidationException"}"#,
            "<Code>SlowDown</Code>",
            "<Error><!-- <Code>SlowDown</Code> --></Error>",
            "<Error><Message><![CDATA[<Code>SlowDown</Code>]]></Message></Error>",
            "<Error><Detail><Code>SlowDown</Code></Detail></Error>",
            "<Error></Error><Code>SlowDown</Code>",
            "it says <Error><Code>SlowDown</Code></Error>",
        ] {
            assert_eq!(class(body), None, "{body}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_passed_over(body: Vec<u8>) {
            let _ = aws_failure(&HeaderMap::new(), &body);
        }

        #[test]
        fn anything_that_looks_like_it_too(body in "[{<][\"{}\\[\\]:,<>/!\\-a-c\\\\_é ]{0,60}") {
            let _ = aws_failure(&HeaderMap::new(), body.as_bytes());
        }
    }
}
