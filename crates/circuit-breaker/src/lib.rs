//! circuit-breaker
