//! fallback
