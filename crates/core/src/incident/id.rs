//! The id of an incident.

use std::fmt;

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

#[cfg(feature = "serde")]
impl serde::Serialize for IncidentId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
