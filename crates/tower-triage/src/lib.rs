//! tower-triage
