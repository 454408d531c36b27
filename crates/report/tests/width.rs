//! Whatever is in a report: no line is wider than asked, none is added by what others wrote, colour
//! changes no text, and what is read back is what was written.

use std::fmt::Display;

use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tower_triage_report::{
    BreakerTable, ErrorReport, FailureReport, Shown, View, Wave, WaveChart, WaveSummary,
};
use unicode_width::UnicodeWidthStr;

/// Words of any script, wide ones, marks that join what is before them, and what cannot be seen.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[漢字かなカナ한글🦀👩🚀🇩🇪ｗａa-z]{0,60}",
        "[a-z\u{300}-\u{36f}\u{200d}\u{fe0f}\u{202e}\n\t\u{1b}]{0,60}",
    ]
}

fn check(show: impl Fn(View) -> String, plain: &str, width: usize) -> Result<(), TestCaseError> {
    let shown = show(View::plain(width));
    prop_assert_eq!(plain, &shown);
    for line in shown.lines() {
        prop_assert!(line.width() <= width, "{} > {}: {:?}", line.width(), width, line);
        prop_assert!(!line.contains(['\u{1b}', '\u{202e}', '\t', '\r']), "{:?}", line);
    }
    let mut coloured = show(View::coloured(width));
    for code in ["0", "1", "31", "32", "33"] {
        coloured = coloured.replace(&format!("\u{1b}[{code}m"), "");
    }
    prop_assert_eq!(coloured, shown);
    Ok(())
}

fn read_back<T: Serialize + DeserializeOwned + Display>(report: &T) -> Result<(), TestCaseError> {
    let json = serde_json::to_string(report).expect("plain data");
    let back: T = serde_json::from_str(&json).expect("what was written");
    prop_assert_eq!(back.to_string(), report.to_string());
    Ok(())
}

fn shown(shown: Shown<'_>) -> String {
    shown.to_string()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_failure_report(name in text(), count: u64, hour: u64, width in 0_usize..140) {
        let report: FailureReport = serde_json::from_value(json!({
            "failures": count, "calls": 3, "by_class": [["Transient", count], ["Timeout", 1]],
            "by_operation": [[name, count], ["", 1]], "other_operations": 1,
            "by_hour": [[hour, count], [0, 0]], "resolutions": [["failed", 2], ["abandoned", 1]],
        })).unwrap();
        check(|view| shown(report.show(view)), &format!("{report:width$}"), width)?;
        let lines = 1 + 3 + 3 + 4 + 3;
        prop_assert_eq!(report.to_string().lines().count(), lines);
        read_back(&report)?;
    }

    #[test]
    fn a_breaker_table(names in prop::collection::vec(text(), 1..4), count: u64, width in 0_usize..140) {
        let breakers: Vec<_> = names.iter().map(|name| json!({
            "name": name, "succeeded": 1, "judged": count, "rejected": count, "state": "open",
            "next_probe": { "secs": count, "nanos": 0 },
        })).collect();
        let table: BreakerTable = serde_json::from_value(json!({ "breakers": breakers })).unwrap();
        check(|view| shown(table.show(view)), &format!("{table:width$}"), width)?;
        prop_assert_eq!(table.to_string().lines().count(), 1 + names.len());
        read_back(&table)?;
    }

    #[test]
    fn an_error_report(texts in prop::array::uniform4(text()), confidence in 0.0..=1.0, width in 0_usize..140) {
        let [operation, error, diagnosis, action] = texts;
        let report: ErrorReport = serde_json::from_value(json!({
            "operation": operation, "class": "Quota", "error": error, "diagnosis": diagnosis,
            "severity": "high", "difficulty": "hard", "threshold": 0.5, "options": [
                { "action": action, "confidence": confidence, "expected": "90s", "risk": "medium" },
                { "action": action, "confidence": 0.5, "expected": "1ms", "risk": "low" },
            ],
        })).unwrap();
        check(|view| shown(report.show(view)), &format!("{report:width$}"), width)?;
        prop_assert_eq!(report.to_string().lines().count(), 7);
        read_back(&report)?;
    }

    #[test]
    fn a_wave(names in prop::collection::vec(text(), 1..6), width in 0_usize..140) {
        let wave = Wave::new().expecting(9);
        for name in &names {
            wave.block(name.as_str(), names[0].as_str());
            drop(wave.watch(name.as_str(), std::future::ready(Ok::<_, ()>(()))));
        }
        let (summary, chart): (WaveSummary, WaveChart) = (wave.summary(), wave.chart());
        check(|view| shown(summary.show(view)), &format!("{summary:width$}"), width)?;
        check(|view| shown(chart.show(view)), &format!("{chart:width$}"), width)?;
        prop_assert_eq!(chart.to_string().lines().count(), 3 + 2 * names.len());
        read_back(&summary)?;
        read_back(&chart)?;
    }
}
