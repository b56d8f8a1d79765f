//! Tidegate: rate limits that are fast, exact and pleasant to use.

pub use tidegate_core::*;
