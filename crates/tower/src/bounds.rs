//! Every bound of the layers, in one place, each with its reason.

use std::time::Duration;

/// Longest name of a limit: it stands in a header of each answer.
pub const NAME_BYTES_MAX: usize = 128;

/// Most parts of a key: each is looked up and copied for each request.
pub const KEY_PARTS_MAX: usize = 8;

/// Most times that one request is sent again. Who was refused that often should tell somebody.
pub const RETRIES_MAX: u32 = 10;

/// Longest wait before a request is sent again. Who must wait longer should not hold a request in memory meanwhile.
pub const RETRY_WAIT_MAX: Duration = Duration::from_secs(3600);

/// Retries that a budget saves up at most: after a quiet night an outage must not begin with a flood of them.
pub const RETRIES_SAVED_MAX: u64 = 100;

/// Longest value of `Retry-After` that is read: a date takes 29 bytes.
pub const RETRY_AFTER_BYTES_MAX: usize = 64;
