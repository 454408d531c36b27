//! The decision by SQLSTATE, without a server.

use proptest::prelude::*;
use tower_triage_core::{Disposition, ErrorClass, ServerWord, Verdict, Vote};
use tower_triage_postgres::{SqlFacts, WorkUnit};
use tower_triage_retry::{Facts, RetryPolicy};

fn class(sqlstate: &str) -> Option<ErrorClass> {
    SqlFacts::new(sqlstate).verdict().failure().map(|failure| failure.class)
}

#[test]
fn codes_have_the_classes_of_the_table() {
    use ErrorClass as C;
    let table: [(C, &[&str]); 9] = [
        (C::Contention, &["40001", "40P01", "40000", "55P03", "55006", "72000"]),
        (C::Transient, &["40003", "08007", "08000", "08006", "57P01", "57P02", "08001", "08003"]),
        (C::Transient, &["08004", "57P03", "57P05", "25P03", "HV00N"]),
        (C::Throttled, &["53000", "53200", "53300"]),
        (C::Quota, &["53100", "53400"]),
        (C::Auth, &["28000", "28P01"]),
        (C::Declined, &["25006"]),
        (
            C::Internal,
            &["58000", "58030", "58P01", "XX000", "XX001", "XX002", "F0000", "P0004", "08P01"],
        ),
        (
            C::Unknown,
            &["ZZ999", "XX003", "08S01", "53500", "57000", "03000", "38000", "HV000", "40999"],
        ),
    ];
    for (expected, codes) in table {
        for code in codes {
            assert_eq!(class(code), Some(expected), "{code}");
        }
    }
    for code in [
        "0A000", "21000", "22P02", "23505", "23P01", "24000", "25000", "25P02", "26000", "3D000",
        "42601", "44000", "54000", "55000", "57P04", "40002", "P0001", "P0002",
    ] {
        assert_eq!(class(code), Some(C::Permanent), "{code}");
    }
    for code in ["00000", "01000", "01P01", "02000"] {
        assert_eq!(class(code), None, "{code}");
    }
}

#[test]
fn only_five_digits_and_capital_letters_are_a_code() {
    for text in [
        "2350",
        "235055",
        "23é5",
        "23-05",
        "",
        "4000",
        "400011",
        "40p01",
        " 4001",
        "40001\0",
        "４０００１",
        "4000é",
        "\u{0}\u{0}\u{0}\u{0}\u{0}",
    ] {
        assert_eq!(class(text), Some(ErrorClass::Unknown), "{text:?}");
    }
}

#[test]
fn a_time_limit_of_the_server_and_our_own_cancellation_have_one_code() {
    let limit = SqlFacts::new("57014").verdict().failure().unwrap();
    assert_eq!((limit.class, limit.vote), (ErrorClass::Timeout, Vote::Failure));
    assert_eq!(limit.disposition, Disposition::NotProcessed);
    let ours = SqlFacts { caller_cancelled: true, ..SqlFacts::new("57014") };
    let ours = ours.verdict().failure().unwrap();
    assert_eq!((ours.class, ours.vote), (ErrorClass::Cancelled, Vote::Ignore));
    // With any other code it changes nothing.
    let other = SqlFacts { caller_cancelled: true, ..SqlFacts::new("40001") };
    assert_eq!(other.verdict().failure().unwrap().class, ErrorClass::Contention);
}

#[test]
fn a_lost_session_leaves_the_outcome_open_only_with_a_commit_in_flight() {
    for code in ["08000", "08006", "57P01", "57P02"] {
        let facts = SqlFacts::new(code);
        let open = facts.verdict().failure().unwrap();
        assert_eq!(open.disposition, Disposition::MaybeProcessed, "{code}");
        let facts = SqlFacts { commit_in_flight: false, ..facts };
        let known = facts.verdict().failure().unwrap();
        assert_eq!(known.disposition, Disposition::NotProcessed, "{code}");
    }
    for code in ["40003", "08007"] {
        let facts = SqlFacts { commit_in_flight: false, ..SqlFacts::new(code) };
        let said = facts.verdict().failure().unwrap();
        assert_eq!(said.disposition, Disposition::MaybeProcessed, "the server said so: {code}");
    }
}

/// Would the retry layer repeat it, asked as the classes alone allow?
fn repeated(facts: &SqlFacts<'_>, idempotent: bool) -> bool {
    let asked = Facts {
        repeatable: idempotent,
        unit_of_work: facts.unit == WorkUnit::Transaction,
        ..Facts::default()
    };
    match facts.verdict() {
        Verdict::Success => false,
        Verdict::Failure(failure) => RetryPolicy::default().would_retry(&failure, &asked),
    }
}

#[test]
fn a_session_that_ends_under_a_commit_leaves_the_outcome_open() {
    let fatal = SqlFacts { session_ended: true, ..SqlFacts::new("53200") };
    assert!(!repeated(&fatal, false));
    assert!(repeated(&fatal, true));
    assert!(repeated(&SqlFacts { commit_in_flight: false, ..fatal }, false));
    assert!(repeated(&SqlFacts { session_ended: false, ..fatal }, false));
    // At the door, and of a session that did nothing.
    for code in ["53300", "57P03", "08004", "57P05", "25P03"] {
        assert!(repeated(&SqlFacts { sqlstate: code, ..fatal }, false), "{code}");
    }
}

fn any_facts() -> impl Strategy<Value = (String, [bool; 4])> {
    let text = prop_oneof![
        "[0-9A-Z]{5}",
        any::<[u8; 5]>().prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        any::<String>(),
        "(08|25|40|53|55|57|58|72|F0|HV|P0|XX)[0-9A-Z]{3}",
    ];
    (text, any::<[bool; 4]>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn any_text_has_a_verdict(
        (text, [whole, commit_in_flight, session_ended, caller_cancelled]) in any_facts(),
        idempotent: bool,
    ) {
        let unit = if whole { WorkUnit::Transaction } else { WorkUnit::Statement };
        let facts =
            SqlFacts { sqlstate: &text, unit, commit_in_flight, session_ended, caller_cancelled };
        let repeat = repeated(&facts, idempotent);
        let Some(failure) = facts.verdict().failure() else {
            prop_assert!(["00", "01", "02"].iter().any(|group| text.starts_with(group)));
            return Ok(());
        };
        // What may be done is repeated only if that does no harm.
        prop_assert!(!repeat || idempotent || !failure.disposition.may_be_processed());
        // A part of an open transaction never.
        let part = unit == WorkUnit::Statement && !commit_in_flight;
        prop_assert!(!(part && repeat));
        prop_assert_eq!(failure.server == ServerWord::Forbidden, part);
        // Knowing that no commit was in flight never makes it less safe.
        if whole {
            let before = SqlFacts { commit_in_flight: false, ..facts };
            prop_assert!(!repeat || repeated(&before, idempotent));
        }
        prop_assert!(failure.retry_after.is_none());
        // The reason is a metric label: from a fixed set, not from the text.
        prop_assert!(failure.reason.len() < 32 && failure.reason.is_ascii());
    }
}
