//! How deep data may be, so that what was written can be read.

use serde_json::Value;

/// serde_json reads 127 levels, and a letter has some of its own. Nobody who is not an attacker needs
/// as many.
pub(super) const LEVELS: usize = 100;

/// Is `value` nested deeper than [`LEVELS`]?
pub(super) fn is_too_deep(value: &Value) -> bool {
    fn deeper(value: &Value, left: usize) -> bool {
        let inner = |value: &Value| left == 0 || deeper(value, left - 1);
        match value {
            Value::Array(items) => items.iter().any(inner),
            Value::Object(fields) => fields.values().any(inner),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
    }
    deeper(value, LEVELS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_too_deep_is_seen_however_deep_it_is() {
        let nested = |levels: usize| (0..levels).fold(Value::Null, |inner, _| json!([inner]));
        assert!(!is_too_deep(&nested(LEVELS)));
        assert!(is_too_deep(&nested(LEVELS + 1)));
        assert!(is_too_deep(&json!([1, { "a": nested(1_000) }])));
    }
}
