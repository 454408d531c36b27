use proptest::prelude::*;

use super::*;

fn read(format: Format, limit: usize, chunks: &[&[u8]]) -> (BodyFacts, Option<BodyFacts>) {
    let mut reader = BodyReader::new(format, limit);
    for chunk in chunks {
        reader.feed(chunk);
    }
    let said = reader.finish();
    (said, reader.take_later())
}

fn event(data: &str) -> Event {
    let (mut reader, mut facts) = (json::Reader::new(), Facts::default());
    reader.feed(data.as_bytes(), &mut facts);
    facts.event()
}

fn error(body: &str) -> ErrorFacts {
    match BodyFacts::read(body.as_bytes()).said {
        Said::Error(error) => error,
        other => panic!("{body}: {other:?}"),
    }
}

#[test]
fn greetings_pings_and_roles_are_no_output() {
    for data in [
        r#"{"type":"message_start","message":{"id":"m","content":[],"stop_reason":null}}"#,
        r#"{"type": "ping"}"#,
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#,
        r#"{"type":"response.created","response":{"status":"in_progress","error":null}}"#,
        r#"{"type":"response.output_item.added","item":{"type":"message","content":[]}}"#,
        r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#,
        r#"{"choices":[],"prompt_filter_results":[{"prompt_index":0}]}"#,
        r#"{"candidates":[{"content":{"role":"model"}}],"usageMetadata":{"promptTokenCount":3}}"#,
    ] {
        assert_eq!(event(data), Event::Preamble, "{data}");
    }
}

#[test]
fn tokens_ends_and_what_is_not_understood_are_output() {
    for data in [
        r#"{"type":"content_block_delta","delta":{"type":"text_delta","text":"Hel"}}"#,
        r#"{"type":"response.output_text.delta","delta":"Hel"}"#,
        r#"{"choices":[{"delta":{"content":"Hel"}}]}"#,
        r#"{"choices":[{"delta":{"reasoning_content":"Hm"}}]}"#,
        r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f"}}]}}]}"#,
        r#"{"choices":[{"text":"Hel"}]}"#,
        r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"Hel"}]}}]}"#,
        r#"{"candidates":[{"finishReason":"MAX_TOKENS"}]}"#,
        r#"{"type":"something.new"}"#,
        r#"{"message":{"content":"Hel"},"done":false}"#,
    ] {
        assert_eq!(event(data), Event::Output, "{data}");
    }
}

#[test]
fn errors_are_found_wherever_a_provider_puts_them() {
    for (body, code) in [
        (r#"{"error":{"type":"requests","code":"rate_limit_exceeded"}}"#, Code::RateLimit),
        // The code says more than the type, in any order, and the details more than both.
        (r#"{"error":{"type":"insufficient_quota","code":"slow_down"}}"#, Code::RateLimit),
        (r#"{"error":{"code":"slow_down","type":"insufficient_quota"}}"#, Code::RateLimit),
        (r#"{"error":{"type":"insufficient_quota","code":null}}"#, Code::Quota),
        (
            r#"{"type":"error","error":{"type":"rate_limit_error","details":{"error_code":"enforced_spend_limit_reached"}}}"#,
            Code::Quota,
        ),
        (r#"{"type":"error","code":"rate_limit_exceeded","message":"slow"}"#, Code::RateLimit),
        (
            r#"{"type":"response.failed","response":{"error":{"code":"slow_down"}}}"#,
            Code::RateLimit,
        ),
        (r#"[{"error":{"code":"model_not_found"}}]"#, Code::Model),
        (r#"{"choices":[{"error":{"code":"content_filter"}}]}"#, Code::ContentPolicy),
        (
            r#"{"error":{"code":"new","innererror":{"code":"ResponsibleAIPolicyViolation"}}}"#,
            Code::ContentPolicy,
        ),
        (r#"{"error":{"code":400,"details":[{"reason":"API_KEY_INVALID"}]}}"#, Code::Credentials),
    ] {
        assert_eq!(error(body).code, Some(code), "{body}");
    }
    for (body, status) in [
        (r#"{"error":{"code":503,"status":"UNAVAILABLE"}}"#, 503),
        (r#"{"error":{"status":"INTERNAL"}}"#, 500),
        (r#"{"error":{"code":"429"}}"#, 429),
        (r#"{"status":"failed","error":{"code":"invalid_image_url"}}"#, 400),
        (r#"{"object":"error","type":"BadRequestError","code":400}"#, 400),
        ("event: error\ndata: {\"type\":\"api_error\"}\n\n", 500),
        // Under the name of an event stream.
        ("\r\n {\"error\":{\"code\":500}}", 500),
    ] {
        assert_eq!(error(body).status, Some(status), "{body}");
    }
    assert_eq!(error(r#"{"error":"no such model"}"#), ErrorFacts::default());
    assert_eq!(error("event: error\ndata: it broke\n\n"), ErrorFacts::default());
    let unnamed = r#"{"error":{"message":"?","type":null,"code":null}}"#;
    assert_eq!(error(unnamed), ErrorFacts::default());
    let named = r#"{"error":{"message":"?","type":"new_error"}}"#;
    assert_eq!(error(named), ErrorFacts { named: true, ..ErrorFacts::default() });
}

#[test]
fn text_that_only_mentions_an_error_is_none() {
    for body in [
        "",
        r#"{"error":null,"status":"completed"}"#,
        r#"{"content":[{"type":"text","text":"{\"error\":{\"code\":\"slow_down\"}}"}]}"#,
        r#"{"content":[{"type":"tool_use","input":{"error":{"code":"slow_down"}}}]}"#,
        r#"{"choices":[{"message":{"content":"x","error":"no"},"finish_reason":"stop"}]}"#,
        r#"{"choices":[{"finish_reason":"content_filter"},{"finish_reason":"stop"}]}"#,
        r#"{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}"#,
        r#"{"object":"fine_tuning.job","status":"failed","error":{"code":"insufficient_quota"}}"#,
        r#"{"status":"failed","error":{"code":"server_error"},"object":"batch"}"#,
        "<html>{\"error\":{}}</html>",
        "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"error\":{}}\n\n",
        "{\"error\"",
    ] {
        assert!(BodyFacts::read(body.as_bytes()).is_silent(), "{body}");
    }
}

#[test]
fn the_first_event_that_is_no_preamble_decides_and_later_failures_are_told() {
    let preamble = "event: message_start\ndata: {\"type\":\"message_start\"}\n\n: ping\n\n";
    let token = "data: {\"type\":\"content_block_delta\"}\n\n";
    let overloaded = "data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n";
    let all = [preamble, overloaded].concat();
    let (said, later) = read(Format::Events, 1000, &[all.as_bytes()]);
    assert_eq!((said.said != Said::Nothing, later), (true, None));
    let all = [preamble, token, overloaded, overloaded, "data: [DONE]\n\n"].concat();
    let (early, later) = read(Format::Events, 1000, &[all.as_bytes()]);
    assert!(early.is_silent());
    assert_eq!(later, Some(said));
}

#[test]
fn a_body_that_ends_before_it_said_anything_is_cut_off() {
    for body in ["", ": ping\n\n", "data: {\"type\":\"message_start\"}\n\n", "data: {\"ty"] {
        assert_eq!(read(Format::Events, 1000, &[body.as_bytes()]).0, BodyFacts::CUT_OFF, "{body}");
    }
    for body in ["{\"choices\":[", "[{}", "\"a"] {
        assert_eq!(read(Format::Json, 1000, &[body.as_bytes()]).0, BodyFacts::CUT_OFF, "{body}");
    }
    for body in ["", "{}", "<html>", "[]"] {
        assert!(read(Format::Json, 1000, &[body.as_bytes()]).0.is_silent(), "{body}");
    }
}

#[test]
fn beyond_the_limit_nothing_decides_any_more() {
    let refusal = format!("{{\"content\":\"{}\",\"stop_reason\":\"refusal\"}}", "x".repeat(100));
    let refused = BodyFacts { said: Said::Refused };
    assert_eq!(read(Format::Json, 1000, &[refusal.as_bytes()]), (refused, None));
    let (early, later) = read(Format::Json, 50, &[refusal.as_bytes()]);
    assert!(early.is_silent());
    assert_eq!(later, Some(refused));
    // What was said within it counts.
    let long = format!("{{\"error\":{{\"code\":\"slow_down\",\"m\":\"{}\"}}}}", "x".repeat(100));
    let (said, _) = read(Format::Json, 50, &[long.as_bytes()]);
    assert!(matches!(said.said, Said::Error(ErrorFacts { code: Some(Code::RateLimit), .. })));
}

/// Pieces of bodies as providers send them, and of what looks like one.
fn pieces() -> impl Strategy<Value = String> {
    let piece = proptest::sample::select(vec![
        "data: ",
        "event: error\n",
        "event: ping\n",
        ": comment\n",
        "\n\n",
        "\r\n\r\n",
        "\n",
        "[DONE]",
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\\",
        "null",
        "429",
        " ",
        "\"error\":",
        "\"code\":",
        "\"slow_down\"",
        "\"insufficient_quota\"",
        "{\"type\":\"ping\"}",
        "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}",
        "{\"choices\":[{\"delta\":{\"content\":\"a\"}}]}",
        "{\"choices\":[{\"finish_reason\":\"content_filter\"}]}",
        "{\"error\":{\"code\":429,\"details\":[{\"@type\":\"x.QuotaFailure\"},{\"retryDelay\":\"4s\"}]}}",
        "\u{e9}",
    ]);
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

fn cut<'a>(bytes: &'a [u8], cuts: &[prop::sample::Index]) -> Vec<&'a [u8]> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
    ends.push(bytes.len());
    ends.sort_unstable();
    let mut begin = 0;
    ends.iter().map(|end| &bytes[std::mem::replace(&mut begin, *end)..*end]).collect()
}

proptest! {
    #[test]
    fn any_chunking_gives_the_same_verdict(
        body in pieces(),
        limit in 1_usize..400,
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
        events: bool,
    ) {
        let format = if events { Format::Events } else { Format::Json };
        let whole = read(format, limit, &[body.as_bytes()]);
        prop_assert_eq!(read(format, limit, &cut(body.as_bytes(), &cuts)), whole);
        let single: Vec<&[u8]> = body.as_bytes().chunks(1).collect();
        prop_assert_eq!(read(format, limit, &single), whole);
    }

    #[test]
    fn any_bytes_are_read_or_passed_over(
        body: Vec<u8>,
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let _ = BodyFacts::read(&body);
        for format in [Format::Events, Format::Json] {
            prop_assert_eq!(read(format, 100, &cut(&body, &cuts)), read(format, 100, &[&body]));
        }
    }
}
