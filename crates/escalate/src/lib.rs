//! escalate
