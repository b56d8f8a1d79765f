//! Stores that several processes share.
//!
//! | to find | look in |
//! |---|---|
//! | Redis and Valkey | `redis/` |

pub mod redis;
