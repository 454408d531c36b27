//! A budget as plain data.

use tower_triage_core::ConfigError;

use super::{
    BucketSettings, Budget, InFlightSettings, ThrottleSettings, TokenCostSettings, WindowSettings,
};

/// Any kind of budget as plain data, for policies and configuration files.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case", tag = "kind"))]
pub enum BudgetSettings {
    /// No limit.
    Unlimited,
    /// A capped bucket, filled per request: the default.
    Bucket(BucketSettings),
    /// A share of the requests of the last while, and a reserve.
    Window(WindowSettings),
    /// Tokens with a price per kind of failure.
    TokenCost(TokenCostSettings),
    /// gRPC's retry throttling.
    FailureThrottle(ThrottleSettings),
    /// A share of the calls in flight.
    InFlight(InFlightSettings),
}

impl BudgetSettings {
    /// A budget of its own, full or as full as it starts.
    ///
    /// # Errors
    /// Names the setting that is out of its range.
    pub fn build(&self) -> Result<Budget, ConfigError> {
        match self.clone() {
            Self::Unlimited => Ok(Budget::unlimited()),
            Self::Bucket(settings) => Budget::bucket(settings),
            Self::Window(settings) => Budget::window(settings),
            Self::TokenCost(settings) => Budget::token_cost(settings),
            Self::FailureThrottle(settings) => Budget::failure_throttle(settings),
            Self::InFlight(settings) => Budget::in_flight(settings),
        }
    }
}

impl Default for BudgetSettings {
    fn default() -> Self {
        Self::Bucket(BucketSettings::default())
    }
}
