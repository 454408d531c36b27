//! Retry budgets: how much of the traffic may be retries.
//!
//! Attempts per request bound one request; they do not bound an outage. When every request fails,
//! three attempts each are three times the load on a dependency that is down already. A budget
//! bounds retries by the traffic: few failures are repeated, many are not.
//!
//! | kind | retries allowed | clock | default |
//! |---|---|---|---|
//! | [bucket](Budget::bucket) | a fraction per request, kept up to a cap | no | 0.1 per request, at most 20, 10 at the start |
//! | [window](Budget::window) | a share of the requests of the last while, and a reserve | yes | 0.2 within 10 s, and 10 per second |
//! | [token cost](Budget::token_cost) | what tokens pay; successes refund (AWS SDKs) | only to refill | 500 tokens; 10 for a timeout, 5 otherwise |
//! | [failure throttle](Budget::failure_throttle) | any, while most calls succeed (gRPC A6) | no | 10 tokens, 0.1 per success |
//! | [in flight](Budget::in_flight) | a share of what runs now (Envoy, failsafe-go) | no | 0.2, and always 3 |
//! | [unlimited](Budget::unlimited) | all | no | |
//!
//! Everything counts in fixed point, so a ratio of 0.6 allows 60 % and not 100 %.

mod bucket;
mod fixed;
mod handle;
mod in_flight;
mod settings;
mod spending;
mod throttle;
mod token_cost;
mod window;

#[cfg(test)]
mod tests;

pub use self::{
    bucket::BucketSettings,
    handle::{Budget, Denied},
    in_flight::InFlightSettings,
    settings::BudgetSettings,
    spending::Spending,
    throttle::ThrottleSettings,
    token_cost::{RetriedRefund, TokenCostSettings, TokenCosts, TokenRefunds},
    window::WindowSettings,
};
