#![doc = include_str!("../README.md")]

pub use tidegate_core::*;

#[cfg(feature = "redis")]
pub mod redis;
