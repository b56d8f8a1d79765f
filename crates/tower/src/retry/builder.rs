//! The builder of a retry policy.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tidegate_core::{Clock, DirectLimiter, Limit, Rate};

use super::budget::Budget;
use super::{RetryPolicy, Shared};
use crate::ConfigError;
use crate::bounds::{RETRIES_MAX, RETRY_WAIT_MAX};
use crate::error::check_time;
use crate::shed::seed;

/// Builds a [`RetryPolicy`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct RetryBuilder {
    retries_max: u32,
    wait_max: Duration,
    backoff: Duration,
    jitter: f64,
    share: f64,
    least_per_second: u64,
    clock: Clock,
    seed: Option<u64>,
}

impl RetryPolicy {
    /// Returns a builder with the default numbers.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate_tower::RetryPolicy;
    ///
    /// let policy = RetryPolicy::builder()
    ///     .retries(5)
    ///     .wait_max(Duration::from_secs(60))
    ///     .budget(0.2, 1)
    ///     .build()?;
    /// # Ok::<(), tidegate_tower::ConfigError>(())
    /// ```
    pub fn builder() -> RetryBuilder {
        RetryBuilder {
            retries_max: 3,
            wait_max: Duration::from_secs(30),
            backoff: Duration::from_millis(100),
            jitter: 0.25,
            share: 0.1,
            least_per_second: 10,
            clock: Clock::system(),
            seed: None,
        }
    }
}

impl Default for RetryPolicy {
    fn default() -> RetryPolicy {
        // No part of it can be out of bounds; without its least rate the budget would still hold.
        let builder = RetryPolicy::builder();
        let least = builder.least().unwrap_or_default();
        builder.with(least)
    }
}

impl RetryBuilder {
    /// Sets the most retries of one request. Default: 3.
    pub fn retries(mut self, times: u32) -> Self {
        self.retries_max = times;
        self
    }

    /// Sets the longest wait before a retry. Default: 30 s. A request that would have to wait longer is not retried:
    /// the caller gets the refusal at once.
    pub fn wait_max(mut self, wait: Duration) -> Self {
        self.wait_max = wait;
        self
    }

    /// Sets the wait before the first retry if the server states none; each further retry waits twice as long. Default:
    /// 100 ms.
    pub fn backoff(mut self, first: Duration) -> Self {
        self.backoff = first;
        self
    }

    /// Sets the largest random share that is added to a wait, so that clients do not come back all at once. Default:
    /// 0.25.
    pub fn jitter(mut self, share: f64) -> Self {
        self.jitter = share;
        self
    }

    /// Sets the share of all requests that may be retried, and the retries per second that are allowed besides.
    /// Defaults: 0.1 and 10.
    pub fn budget(mut self, share: f64, least_per_second: u64) -> Self {
        self.share = share;
        self.least_per_second = least_per_second;
        self
    }

    /// Sets the clock for dates in `Retry-After` and for the budget's retries per second.
    pub fn clock(mut self, clock: impl Into<Clock>) -> Self {
        self.clock = clock.into();
        self
    }

    /// Sets the seed of the jitter, for tests. By default it is different in each process.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Builds the policy.
    ///
    /// # Errors
    /// Fails if a number is out of range.
    pub fn build(self) -> Result<RetryPolicy, ConfigError> {
        if self.retries_max > RETRIES_MAX {
            return Err(ConfigError::number("retries", self.retries_max, format!("at most {RETRIES_MAX}")));
        }
        for (field, wait) in [("wait_max", self.wait_max), ("backoff", self.backoff)] {
            check_time(field, wait, RETRY_WAIT_MAX)?;
        }
        for (field, share) in [("jitter", self.jitter), ("budget", self.share)] {
            // What is not a number is in no range.
            if !(0.0..=1.0).contains(&share) {
                return Err(ConfigError::number(field, share, "a share from 0 to 1"));
            }
        }
        let least = self.least()?;
        Ok(self.with(least))
    }

    fn least(&self) -> Result<Option<DirectLimiter>, ConfigError> {
        let units = self.least_per_second;
        if units == 0 {
            return Ok(None);
        }
        let limit = Limit::token_bucket(Rate::per_second(units)?, units)?;
        Ok(Some(DirectLimiter::with_clock(limit, self.clock.clone())?))
    }

    fn with(self, least: Option<DirectLimiter>) -> RetryPolicy {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is a share from 0 to 1")]
        let share = (self.share * 1_000.0).round() as u64;
        let seed = self.seed.unwrap_or_else(seed);
        let shared = Shared {
            retries_max: self.retries_max,
            wait_max: self.wait_max,
            backoff: self.backoff,
            jitter: self.jitter,
            budget: Budget::new(share, least),
            clock: self.clock,
            seed: AtomicU64::new(seed),
        };
        RetryPolicy { shared: Arc::new(shared), retried: 0 }
    }
}
