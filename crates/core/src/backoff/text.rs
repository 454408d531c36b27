//! A schedule as it stands in a configuration file.
//!
//! ```toml
//! kind = "exponential"
//! base = "100ms"
//! factor = 2.0
//! cap = "30s"
//! jitter = "full"        # or { ratio = 0.2 }, { span = "50ms" }, { additive = 0.5 }
//! ```

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::curve::Curve;
use super::{Backoff, CapWhen, Jitter};
use crate::config::ConfigError;
use crate::duration_text::DurationText;

/// Every field that some kind of schedule has.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Text {
    kind: Kind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base: Option<DurationText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    step: Option<DurationText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    factor: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    whole_millis: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    min: Option<DurationText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max: Option<DurationText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    delays: Option<Vec<DurationText>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    first_immediate: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cap: Option<DurationText>,
    #[serde(default, skip_serializing_if = "is_default")]
    cap_when: CapWhen,
    #[serde(default, skip_serializing_if = "is_default")]
    jitter: Jitter,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Immediate,
    Fixed,
    Linear,
    Exponential,
    Range,
    Decorrelated,
    List,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl TryFrom<Text> for Backoff {
    type Error = ConfigError;

    fn try_from(mut text: Text) -> Result<Self, ConfigError> {
        let kind = text.kind;
        let curve = match kind {
            Kind::Immediate => Curve::Fixed { base: Duration::ZERO },
            Kind::Fixed => Curve::Fixed { base: delay(kind, "base", &mut text.base)? },
            Kind::Linear => Curve::Linear {
                base: delay(kind, "base", &mut text.base)?,
                step: delay(kind, "step", &mut text.step)?,
            },
            Kind::Exponential => Curve::Exponential {
                base: delay(kind, "base", &mut text.base)?,
                factor: text.factor.take().unwrap_or(2.0),
                whole_millis: text.whole_millis.take().unwrap_or(false),
            },
            Kind::Range => Curve::Range {
                min: delay(kind, "min", &mut text.min)?,
                max: delay(kind, "max", &mut text.max)?,
            },
            Kind::Decorrelated => {
                Curve::Decorrelated { base: delay(kind, "base", &mut text.base)? }
            }
            Kind::List => Curve::List {
                delays: take(kind, "delays", &mut text.delays)?
                    .into_iter()
                    .map(|DurationText(delay)| delay)
                    .collect(),
            },
        };
        // What the kind has taken is gone; what is left it does not have.
        let left = [
            ("base", text.base.is_some()),
            ("step", text.step.is_some()),
            ("factor", text.factor.is_some()),
            ("whole_millis", text.whole_millis.is_some()),
            ("min", text.min.is_some()),
            ("max", text.max.is_some()),
            ("delays", text.delays.is_some()),
        ];
        if let Some((field, _)) = left.into_iter().find(|(_, set)| *set) {
            return Err(ConfigError::new(field, "set", "not a field of this kind of backoff"));
        }
        let backoff = Self {
            curve,
            first_immediate: text.first_immediate,
            cap: text.cap.map(|DurationText(cap)| cap),
            cap_when: text.cap_when,
            jitter: text.jitter,
        };
        backoff.check("backoff").map(|()| backoff)
    }
}

fn delay(
    kind: Kind,
    field: &'static str,
    value: &mut Option<DurationText>,
) -> Result<Duration, ConfigError> {
    take(kind, field, value).map(|DurationText(delay)| delay)
}

fn take<T>(kind: Kind, field: &'static str, value: &mut Option<T>) -> Result<T, ConfigError> {
    value.take().ok_or_else(|| {
        ConfigError::new(field, format_args!("missing in {kind}"), "this kind of backoff needs it")
    })
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a backoff of kind {self:?}")
    }
}

impl From<Backoff> for Text {
    fn from(backoff: Backoff) -> Self {
        let Backoff { curve, first_immediate, cap, cap_when, jitter } = backoff;
        let empty = Self {
            kind: Kind::Immediate,
            base: None,
            step: None,
            factor: None,
            whole_millis: None,
            min: None,
            max: None,
            delays: None,
            first_immediate,
            cap: cap.map(DurationText),
            cap_when,
            jitter,
        };
        let some = |delay| Some(DurationText(delay));
        match curve {
            Curve::Fixed { base } if base.is_zero() => empty,
            Curve::Fixed { base } => Self { kind: Kind::Fixed, base: some(base), ..empty },
            Curve::Linear { base, step } => {
                Self { kind: Kind::Linear, base: some(base), step: some(step), ..empty }
            }
            Curve::Exponential { base, factor, whole_millis } => Self {
                kind: Kind::Exponential,
                base: some(base),
                factor: Some(factor),
                whole_millis: whole_millis.then_some(true),
                ..empty
            },
            Curve::Range { min, max } => {
                Self { kind: Kind::Range, min: some(min), max: some(max), ..empty }
            }
            Curve::Decorrelated { base } => {
                Self { kind: Kind::Decorrelated, base: some(base), ..empty }
            }
            Curve::List { delays } => Self {
                kind: Kind::List,
                delays: Some(delays.into_iter().map(DurationText).collect()),
                ..empty
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<Backoff, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn reads_what_a_person_writes() {
        let read = read(
            r#"{ "kind": "exponential", "base": "100ms", "cap": "30s", "jitter": { "ratio": 0.2 } }"#,
        );
        let meant = Backoff::exponential(Duration::from_millis(100), 2.0)
            .cap(Duration::from_secs(30))
            .jitter(Jitter::Ratio(0.2));
        assert_eq!(read, Ok(meant));
    }

    #[test]
    fn writes_only_what_is_said() {
        let json = serde_json::to_string(
            &Backoff::linear(Duration::from_secs(1), Duration::from_millis(500))
                .jitter(Jitter::Span(Duration::from_millis(50))),
        );
        assert_eq!(
            json.expect("writes"),
            r#"{"kind":"linear","base":"1s","step":"500ms","jitter":{"span":"50ms"}}"#
        );
        let json = serde_json::to_string(&Backoff::immediate());
        assert_eq!(json.expect("writes"), r#"{"kind":"immediate"}"#);
    }

    #[test]
    fn every_kind_comes_back() {
        let (one, two) = (Duration::from_millis(1), Duration::from_secs(2));
        for backoff in [
            Backoff::immediate(),
            Backoff::fixed(two).first_immediate().jitter(Jitter::Full),
            Backoff::linear(one, two).jitter(Jitter::Equal).cap_before_jitter(two),
            Backoff::exponential(one, 1.5).whole_millis().cap_when(two, CapWhen::AfterJitter),
            Backoff::range(one, two),
            Backoff::decorrelated(one).cap(two),
            Backoff::list([one, two]).jitter(Jitter::Additive(0.5)),
        ] {
            let json = serde_json::to_string(&backoff).expect("writes");
            assert_eq!(read(&json), Ok(backoff), "{json}");
        }
    }

    #[test]
    fn refuses_what_cannot_work_and_says_why() {
        for (json, says) in [
            (r#"{ "kind": "fixed" }"#, "base"),
            (r#"{ "kind": "fixed", "base": "1s", "step": "1s" }"#, "step"),
            (r#"{ "kind": "list", "delays": [] }"#, "at least one"),
            (r#"{ "kind": "exponential", "base": "1s", "factor": 0.5 }"#, "factor"),
            (r#"{ "kind": "fixed", "base": "soon" }"#, "soon"),
            (r#"{ "kind": "fibonacci" }"#, "fibonacci"),
            (r#"{ "kind": "immediate", "typo": 1 }"#, "typo"),
        ] {
            let error = read(json).expect_err(json);
            assert!(error.contains(says), "{json}: {error}");
        }
    }
}
