//! Text that somebody else wrote comes back as it was.

use std::sync::Arc;

use serde_json::{Value, json};
use tower_triage_escalate::store::{Change, Filter};
use tower_triage_escalate::{Captured, Escalation};

use super::fixture::{escalation, id};
use super::world::each;

/// Text that breaks things elsewhere.
fn hostile() -> Vec<String> {
    vec![
        "\0".to_owned(),
        "a\0b\\u0000c".to_owned(),
        "\u{1}\u{1}0\u{0}1".to_owned(),
        "'; DROP TABLE letters; --".to_owned(),
        "%_\\*{}[](),\"'`$1".to_owned(),
        "line\nline\r\n\ttab \u{7f}\u{85}\u{2028}".to_owned(),
        "👩\u{200d}👩\u{200d}👧 é e\u{301} \u{202e}rtl \u{feff} \u{ffff} \u{10ffff}".to_owned(),
        "{\"id\":\"x\"}\n{\"half".to_owned(),
        " ".repeat(3),
        String::new(),
    ]
}

fn full_of(n: u32, text: &str) -> Escalation {
    let mut escalation = escalation(n);
    for field in [
        &mut escalation.task_type,
        &mut escalation.from,
        &mut escalation.operation,
        &mut escalation.reason,
        &mut escalation.summary,
        &mut escalation.detail,
        &mut escalation.impact,
        &mut escalation.suggestion,
    ] {
        text.clone_into(field);
    }
    escalation.to = vec![text.to_owned(), "ops".to_owned()];
    escalation.method = Some(text.to_owned());
    escalation.context.request_id = Some(text.to_owned());
    escalation.context.fields.insert(text.to_owned(), text.to_owned());
    let data = json!({ text: [text, 1, -0.25, u64::MAX, i64::MIN, null, true] });
    escalation.request = Some(Arc::new(Captured::new(text, data)));
    escalation
}

#[tokio::test]
async fn hostile_text_comes_back_as_it_was() {
    each(async |world| {
        for (n, text) in (1..).zip(hostile()) {
            let written = full_of(n, &text);
            _ = world.store.put(written.clone()).await.unwrap();
            let (by, why) = (text.clone(), text.clone());
            _ = world.change(n, Change::Discarded { by, why }).await;
            let letter = world.letter(n).await;
            let request = letter.request.as_ref().unwrap();
            assert_eq!(Some(request), written.request.as_deref(), "{text:?}");
            let mut expected = written;
            expected.request = None;
            assert_eq!(letter.escalation, expected, "{text:?}");
            let event = letter.history.last().unwrap();
            assert_eq!((&event.by, &event.note), (&text, &text));
            for filter in [
                Filter::any().receiver(&text),
                Filter::any().operation(text.replace('*', "**")),
                Filter::any().from(format!("*{text}")),
                Filter::any().from(format!("{text}*")),
            ] {
                let found = world.store.list(filter, None, 100).await.unwrap();
                assert!(found.letters.iter().any(|found| found.id() == id(n)), "{text:?}");
            }
        }
        assert_eq!(world.all().await.len(), hostile().len());
        assert_eq!(world.stats().await.total, hostile().len() as u64);
    })
    .await;
}

#[tokio::test]
async fn a_megabyte_comes_back_as_it_was() {
    each(async |world| {
        let detail = "détail \0 ".repeat(100_000);
        let puts = (1..=8).map(|n| {
            let (store, mut big) = (Arc::clone(&world.store), escalation(n));
            (big.detail, big.operation) = (detail.clone(), "x".repeat(20_000));
            tokio::spawn(async move { store.put(big).await.unwrap() })
        });
        for put in puts.collect::<Vec<_>>() {
            _ = put.await.unwrap();
        }
        for letter in world.all().await {
            assert_eq!(letter.escalation.detail, detail);
        }
    })
    .await;
}

/// serde_json writes what it cannot read again: then the letter must not be lost with its request.
#[tokio::test]
async fn a_request_comes_back_or_is_left_out_however_deep_it_is() {
    each(async |world| {
        let deep = |levels: u32| (0..levels).fold(Value::Null, |inner, _| json!([inner]));
        for n in [1, 64, 100, 101, 128, 1000] {
            let mut escalation = escalation(n);
            escalation.request = Some(Arc::new(Captured::new("json", deep(n))));
            _ = world.store.put(escalation).await.unwrap();
            let letter = world.letter(n).await;
            match letter.request {
                Some(request) => assert_eq!((request.data, n <= 100), (deep(n), true)),
                None => assert!(n > 100 && letter.history[0].note.contains("too deeply")),
            }
        }
    })
    .await;
}
