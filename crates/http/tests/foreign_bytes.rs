//! Whatever a peer sends: no parser panics, and each costs a bounded time and memory. The parsers'
//! own modules have property tests of their grammar; here everything goes through the public API.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::prelude::*;
use serde_json::Value;
use tokio::time::Instant;
use tower_triage_core::{ErrorClass, RetryAfter, ServerWord};
use tower_triage_http::{HttpFacts, RequestHead, aws_code, hints};

/// Every response header that is read.
const FIELDS: [&str; 16] = [
    "retry-after-ms",
    "x-ms-retry-after-ms",
    "retry-after",
    "x-amz-retry-after",
    "ratelimit",
    "x-ratelimit-reset-requests",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-reset-tokens",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset",
    "x-ratelimit-remaining",
    "anthropic-ratelimit-tokens-reset",
    "anthropic-ratelimit-tokens-remaining",
    "x-should-retry",
    "x-amzn-errortype",
    "x-envoy-overloaded",
];

const NOW: SystemTime = UNIX_EPOCH;

fn facts<'a>(status: u16, headers: &'a HeaderMap, body: &'a [u8]) -> HttpFacts<'a> {
    HttpFacts { status, headers, body_prefix: body, now: NOW }
}

fn now() -> SystemTime {
    NOW + Duration::from_secs(1_772_452_800)
}

/// Values as bytes, and such as nearly fit a field's grammar.
fn value() -> impl Strategy<Value = HeaderValue> {
    let near = proptest::sample::select(vec![
        "0",
        "-1",
        "1e9",
        "3.5",
        "99999999999999999999",
        "true",
        "false",
        "6m0s",
        "1h2m3.5s",
        "s",
        "\"default\";r=0;t=30",
        "a;r=0;t=-1, b;r=0;t=999999999999999",
        "a;r=0;t=1, ;",
        "(a b);r=0",
        "2026-03-02T12:00:10Z",
        "9999-12-31T23:59:59.999999999999-23:59",
        "2026-02-30T12:00:10Z",
        "Mon, 02 Mar 2026 12:00:05 GMT",
        "Monday, 02-Mar-76 12:00:05 GMT",
        "Sun Nov  6 08:49:37 1994",
        "ThrottlingException:http://x/",
        "#",
        ":",
        "a#b#ServiceQuotaExceededException",
    ]);
    prop_oneof![
        near.prop_map(HeaderValue::from_static),
        proptest::collection::vec(prop_oneof![Just(b'\t'), 0x20..=0x7e_u8, 0x80..=0xff_u8], 0..60)
            .prop_map(|bytes| HeaderValue::from_bytes(&bytes).unwrap()),
    ]
}

fn headers() -> impl Strategy<Value = HeaderMap> {
    proptest::collection::vec((proptest::sample::select(FIELDS.to_vec()), value()), 0..8).prop_map(
        |lines| {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(HeaderName::from_static(name), value);
            }
            headers
        },
    )
}

/// JSON whose outermost object may have the members that are looked for.
fn document() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        Just("ThrottlingException".to_owned()),
        Just("SlowDown".to_owned()),
        Just("__type".to_owned()),
        Just("code".to_owned()),
        "[a-z\"\\\\{}\\[\\]:, ]{0,12}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i32>().prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    let name = proptest::sample::select(vec!["__type", "code", "a", "b\"", "c\\", ""]);
    leaf.prop_recursive(4, 30, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(name.clone().prop_map(str::to_owned), inner, 0..4)
                .prop_map(|members| members.into_iter().collect()),
        ]
    })
}

/// Is it one of the codes that the documents may contain?
fn is_throttling(value: &Value) -> bool {
    value.as_str().is_some_and(|text| matches!(text, "ThrottlingException" | "SlowDown"))
}

proptest! {
    #[test]
    fn any_headers_and_any_body_get_a_verdict(
        status: u16,
        headers in headers(),
        body: Vec<u8>,
        seconds in 0_u64..1 << 40,
    ) {
        let facts =
            HttpFacts { now: NOW + Duration::from_secs(seconds), ..facts(status, &headers, &body) };
        if let Some(failure) = facts.verdict().failure() {
            let reads_waits = matches!(
                failure.class,
                ErrorClass::Transient
                    | ErrorClass::Timeout
                    | ErrorClass::Throttled
                    | ErrorClass::Contention
                    | ErrorClass::Quota
            );
            prop_assert!(reads_waits || failure.retry_after.is_none());
            if headers.get("x-should-retry").is_none() && status != 423 {
                prop_assert_eq!(failure.server, ServerWord::Silent);
            }
        } else {
            prop_assert!((100..400).contains(&status));
        }
    }

    /// The earlier hint counts, whatever comes in the later fields.
    #[test]
    fn a_valid_hint_is_not_overruled_by_a_later_field(mut headers in headers(), millis: u32) {
        headers.insert("retry-after-ms", millis.to_string().parse().unwrap());
        let asked = RetryAfter::AtLeast(Duration::from_millis(millis.into()));
        prop_assert_eq!(hints::wait(&headers, NOW), Some(asked));
        prop_assert_eq!(hints::wait_with(&headers, NOW, Some(RetryAfter::Never)), Some(asked));
    }

    /// What is written by the grammar of RFC 9651 is read by it.
    #[test]
    fn a_rate_limit_asks_for_the_longest_of_its_exhausted_items(
        items in proptest::collection::vec((0_i64..3, proptest::option::of(0_i64..100_000)), 0..6),
        quoted: bool,
        spaces in " {0,2}",
    ) {
        let item = |(at, (r, t)): (usize, &(i64, Option<i64>))| {
            let name = if quoted { format!("\"limit; {at}\"") } else { format!("limit{at}") };
            let t = t.map_or_else(String::new, |t| format!(";{spaces}t={t}"));
            format!("{name};q=100{t};pk=:QQ==:;r={r}")
        };
        let line: Vec<String> = items.iter().enumerate().map(item).collect();
        let mut headers = HeaderMap::new();
        headers.insert("ratelimit", line.join(&format!("{spaces},\t")).parse().unwrap());
        let longest = items.iter().filter(|(r, _)| *r == 0).filter_map(|(_, t)| *t).max();
        let expected = longest.map(|t| RetryAfter::AtLeast(Duration::from_secs(t as u64)));
        prop_assert_eq!(hints::wait(&headers, NOW), expected);
    }

    #[test]
    fn a_reset_is_as_far_ahead_as_it_is(seconds in 0_u64..1_000_000, millis in 0_u32..1000) {
        let at = now() + Duration::new(seconds, millis * 1_000_000);
        let since_midnight = 12 * 3600 + seconds;
        // Within the day of `now`, written by hand.
        if since_midnight < 86_400 {
            let (h, m, s) = (since_midnight / 3600, since_midnight / 60 % 60, since_midnight % 60);
            let text = format!("2026-03-02T{h:02}:{m:02}:{s:02}.{millis:03}Z");
            let ahead = at.duration_since(now()).unwrap();
            prop_assert_eq!(hints::until_rfc3339(&text, now()), Some(ahead));
        }
        let date = httpdate::fmt_http_date(at);
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", date.parse().unwrap());
        let asked = RetryAfter::AtLeast(Duration::from_secs(seconds));
        prop_assert_eq!(hints::wait(&headers, now()), Some(asked));
    }

    #[test]
    fn durations_of_protobuf_are_read_or_refused(text in "[0-9.s eE+-]{0,12}|.{0,12}", whole: u32, nanos in 0_u32..1_000_000_000) {
        let _ = hints::proto_duration(&text);
        let read = hints::proto_duration(&format!("{whole}.{nanos:09}s"));
        prop_assert_eq!(read, Some(RetryAfter::AtLeast(Duration::new(whole.into(), nanos))));
        prop_assert_eq!(hints::proto_duration(&format!("-{whole}s")), None);
    }

    /// The reader that takes parts of bodies against one that takes whole ones.
    #[test]
    fn error_codes_are_found_where_a_whole_parser_finds_them(value in document(), pretty: bool) {
        let text = if pretty { format!("{value:#}") } else { value.to_string() };
        let headers = HeaderMap::new();
        let class = facts(400, &headers, text.as_bytes()).verdict().failure().unwrap().class;
        let found = is_throttling(&value["__type"]) || is_throttling(&value["code"]);
        prop_assert_eq!(class == ErrorClass::Throttled, found, "{}", text);
        // Cut off anywhere, it finds no other.
        for end in 0..text.len() {
            let class = facts(400, &headers, &text.as_bytes()[..end]).verdict().failure().unwrap().class;
            prop_assert!(found || class != ErrorClass::Throttled, "{}", &text[..end]);
        }
    }

    #[test]
    fn any_text_is_a_code_or_none(text in ".*") {
        let _ = aws_code(&text);
    }

    /// What a client sends a server of ours.
    #[test]
    fn any_request_head_is_described(
        value in value(),
        path in "/[a-z0-9%/;=@.-]{0,40}",
        name in proptest::sample::select(vec!["host", "x-request-id", "traceparent", "idempotency-key"]),
    ) {
        let request = http::Request::get(path).header(name, value).body(()).unwrap();
        let head = RequestHead::from(&request);
        let _ = (head.repeatable(), head.host_key(), head.operation(), head.target(), head.label(name));
    }
}

/// What tries a parser: nesting, escapes, long names and numbers.
fn hostile_bodies() -> Vec<(&'static str, Vec<u8>)> {
    let many = |unit: &str| unit.repeat((4 << 20) / unit.len()).into_bytes();
    vec![
        ("arrays", many("[")),
        ("objects", many("{\"a\":")),
        ("quotes", many("\"")),
        ("escapes", [b"{\"".to_vec(), many("\\\\")].concat()),
        ("members", [b"{".to_vec(), many("\"__type\":1,")].concat()),
        ("angles", many("<")),
        ("tags", many("<Error>")),
        ("comments", [b"<!--".to_vec(), many("<!-")].concat()),
        ("cdata", many("<![CDATA[]]>")),
        ("no end", [b"<Error><Code>".to_vec(), many("x")].concat()),
        ("no text", vec![0xff; 4 << 20]),
    ]
}

/// Fields of a megabyte, and fields without number.
fn hostile_headers() -> Vec<(&'static str, HeaderMap)> {
    let long = |unit: &str| HeaderValue::from_str(&unit.repeat((1 << 20) / unit.len())).unwrap();
    let one =
        |name: &'static str, value| HeaderMap::from_iter([(HeaderName::from_static(name), value)]);
    let mut many = HeaderMap::new();
    for number in 0..10_000 {
        for (what, value) in [("reset", "2026-03-02T12:00:10Z"), ("remaining", "0")] {
            let name =
                format!("anthropic-ratelimit-{number}-{what}").parse::<HeaderName>().unwrap();
            many.insert(name, HeaderValue::from_static(value));
        }
    }
    let mut lines = HeaderMap::new();
    for _ in 0..10_000 {
        lines.append("ratelimit", HeaderValue::from_static("a;r=0;t=1, b;r=0;t=2"));
        lines.append("retry-after", HeaderValue::from_static("soon"));
    }
    let mut reset = one("x-ratelimit-reset-requests", long("1h"));
    reset.insert("x-ratelimit-remaining-requests", HeaderValue::from_static("0"));
    vec![
        ("digits", one("retry-after", long("9"))),
        (
            "fraction",
            one(
                "retry-after-ms",
                HeaderValue::from_str(&format!("1.{}", "9".repeat(1 << 20))).unwrap(),
            ),
        ),
        ("date", one("retry-after", long("Mon, 02 Mar 2026 "))),
        ("items", one("ratelimit", long("a;r=0;t=1,"))),
        ("inner list", one("ratelimit", long("(a "))),
        ("parameters", one("ratelimit", long(";a=1"))),
        ("text", one("ratelimit", long("\"\\\\"))),
        ("code", one("x-amzn-errortype", long("a#:"))),
        ("clock", reset),
        ("limits", many),
        ("lines", lines),
    ]
}

#[test]
fn nothing_that_a_peer_sends_costs_more_than_a_bounded_time_and_memory() {
    let none = HeaderMap::new();
    for (name, body) in hostile_bodies() {
        bounded(name, &facts(503, &none, &body), 0);
    }
    for (name, headers) in hostile_headers() {
        // The name of a limit's other half is made up, one at a time.
        bounded(name, &facts(503, &headers, b""), 4 << 10);
    }
}

fn bounded(name: &str, facts: &HttpFacts<'_>, bytes: u64) {
    let begun = Instant::now();
    let used = allocation_counter::measure(|| _ = facts.verdict());
    // In a build without optimisation, on a machine that does other things too.
    assert!(begun.elapsed() < Duration::from_secs(10), "{name}: {:?}", begun.elapsed());
    assert!(used.bytes_max <= bytes, "{name}: {} bytes", used.bytes_max);
}
