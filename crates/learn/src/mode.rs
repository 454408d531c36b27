//! How sure one has to be.

use std::fmt;

use serde::{Deserialize, Serialize};

/// From which confidence on a remedy is applied without asking anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// From 0.9.
    Cautious,
    /// From 0.7.
    #[default]
    Balanced,
    /// From 0.5.
    Aggressive,
}

impl Mode {
    /// The least confidence.
    #[must_use]
    pub const fn threshold(self) -> f64 {
        match self {
            Self::Cautious => 0.9,
            Self::Balanced => 0.7,
            Self::Aggressive => 0.5,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cautious => "cautious",
            Self::Balanced => "balanced",
            Self::Aggressive => "aggressive",
        })
    }
}
