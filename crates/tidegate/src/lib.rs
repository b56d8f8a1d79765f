#![doc = include_str!("../README.md")]

pub use tidegate_core::*;

#[cfg(feature = "redis")]
pub mod redis;

/// Limits as layers for axum, tonic and hyper.
#[cfg(feature = "tower")]
pub use tidegate_tower as tower;
