//! The id of an incident.

use std::fmt;
use std::str::FromStr;

use crate::config::ConfigError;

/// A random 128-bit id, written like a UUID (version 4).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct IncidentId(u128);

impl IncidentId {
    /// A new random id.
    #[must_use]
    pub fn random() -> Self {
        Self::from_bits(rand::random())
    }

    /// The id made from `bits`; version and variant of a UUID are put in.
    #[must_use]
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits & !(0xf << 76) & !(0x3 << 62) | (0x4 << 76) | (0x2 << 62))
    }
}

impl fmt::Display for IncidentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0;
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            n >> 96,
            (n >> 80) & 0xffff,
            (n >> 64) & 0xffff,
            (n >> 48) & 0xffff,
            n & 0xffff_ffff_ffff
        )
    }
}

impl fmt::Debug for IncidentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Reads what [`fmt::Display`] writes: 32 hexadecimal digits, dashes left aside.
impl FromStr for IncidentId {
    type Err = ConfigError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let digits: String = s.chars().filter(|c| *c != '-').collect();
        let well_formed = digits.len() == 32 && digits.bytes().all(|b| b.is_ascii_hexdigit());
        match u128::from_str_radix(&digits, 16) {
            Ok(bits) if well_formed => Ok(Self(bits)),
            _ => Err(ConfigError::new("id", s, "an incident id is written like a UUID")),
        }
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for IncidentId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for IncidentId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bits_make_a_uuid_of_version_4() {
        for (bits, id) in [
            (0, "00000000-0000-4000-8000-000000000000"),
            (u128::MAX, "ffffffff-ffff-4fff-bfff-ffffffffffff"),
        ] {
            assert_eq!(IncidentId::from_bits(bits).to_string(), id);
        }
    }

    #[test]
    fn reads_what_it_writes_and_nothing_else() {
        let id = IncidentId::from_bits(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(id.to_string().parse::<IncidentId>().unwrap(), id);
        for bad in ["", "123", "+1234567-89ab-4def-8123-456789abcdef", "zz"] {
            assert!(bad.parse::<IncidentId>().is_err(), "{bad}");
        }
    }
}
