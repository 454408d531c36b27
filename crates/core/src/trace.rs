//! W3C trace context: read and passed on, never invented.

use std::fmt;

/// The identifiers of a `traceparent` header (W3C Trace Context, section 3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceParent {
    /// Trace id, never zero.
    pub trace_id: u128,
    /// Parent span id, never zero.
    pub span_id: u64,
    /// Flags; bit 0 is "sampled".
    pub flags: u8,
}

impl TraceParent {
    /// Reads `00-<32 hex>-<16 hex>-<2 hex>`, lower case. Of a higher version the first four fields
    /// are read; version `ff` and zero ids are invalid.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let lower_hex = |s: &str, len: usize| {
            s.len() == len && s.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        let mut fields = text.split('-');
        let (version, trace, span, flags) =
            (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
        let well_formed = lower_hex(version, 2)
            && lower_hex(trace, 32)
            && lower_hex(span, 16)
            && lower_hex(flags, 2)
            && version != "ff"
            && (version != "00" || fields.next().is_none());
        if !well_formed {
            return None;
        }
        let parsed = Self {
            trace_id: u128::from_str_radix(trace, 16).ok()?,
            span_id: u64::from_str_radix(span, 16).ok()?,
            flags: u8::from_str_radix(flags, 16).ok()?,
        };
        (parsed.trace_id != 0 && parsed.span_id != 0).then_some(parsed)
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, self.flags)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for TraceParent {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for TraceParent {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not a W3C traceparent"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_the_specification_allows_and_nothing_else() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(TraceParent::parse(good).unwrap().to_string(), good);
        assert!(TraceParent::parse(&good.replacen("00", "cc", 1)).is_some());
        assert!(TraceParent::parse(&(good.replacen("00", "cc", 1) + "-more")).is_some());
        for bad in [
            "",
            "00",
            "00-4BF92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceParent::parse(bad), None, "{bad}");
        }
    }
}
