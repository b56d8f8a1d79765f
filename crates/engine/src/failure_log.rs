//! Messages about a store that fails, as few as are needed to notice it.

use tidegate_core::Clock;
use tidegate_stores::StoreError;

use crate::bounds::STORE_FAILURE_LINES;
use crate::log_limiter::LogLimiter;

/// The messages about one store: one that fails each request does not fill the log.
#[derive(Debug)]
pub(crate) struct FailureLog {
    /// Its name in the configuration.
    name: Box<str>,
    lines: LogLimiter,
}

impl FailureLog {
    pub(crate) fn new(name: &str, clock: Clock) -> FailureLog {
        FailureLog { name: name.into(), lines: LogLimiter::new(STORE_FAILURE_LINES, clock) }
    }

    /// Logs that the store failed, and what happens `instead`: the first time, and then from time to time.
    pub(crate) fn log(&self, error: &StoreError, instead: &str) {
        let Some(left_out) = self.lines.turn() else { return };
        let store = &*self.name;
        if error.is_overload() {
            return tracing::warn!(store, left_out, %error, "this node is overloaded: calls to the store were too late");
        }
        // The error names the store by its URL, without the password. What heals by itself is a warning.
        if error.is_access_denied() {
            tracing::error!(store, left_out, %error, "store call failed: {instead}");
        } else {
            tracing::warn!(store, left_out, %error, "store call failed: {instead}");
        }
    }
}
