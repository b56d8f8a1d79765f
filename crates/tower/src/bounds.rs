//! Every bound of the layers, in one place, each with its reason.

use std::time::Duration;

/// Longest name of a limit or a stack: it stands in headers and metrics.
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

/// Longest details of a gRPC status that are read: as many bytes as servers and clients take for all headers together.
pub const GRPC_DETAILS_BYTES_MAX: usize = 8 * 1024;

/// Most requests in shadow mode that a shared store is asked about at once. Those beyond pass without being judged: a
/// store that hangs must not gather them.
pub const WATCHED_MAX: usize = 10_000;

/// Most that wait before a limit: each holds a request, a timer and its caller's connection.
pub const QUEUE_DEPTH_MAX: usize = 1 << 20;

/// Longest that somebody may wait before a limit or a shaper: no caller is still there after an hour.
pub const WAIT_MAX: Duration = Duration::from_secs(3600);

/// How long a request waits at most for its turn if nothing is said: most callers of services are still there then.
pub const DEADLINE_DEFAULT: Duration = Duration::from_secs(1);

/// Locks that the lines of keys are spread over, so that threads seldom meet at one.
pub(crate) const KEY_SHARDS: usize = 32;

/// Longest time after which a caller is told to come back.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(86_400);

/// When a caller is told to come back if nothing is said.
pub const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);

/// Shortest lease of a place under a shared limit. It is renewed three times in it, and each time a call to the store, which
/// may be late by its whole budget, must arrive in time.
pub const SHARED_LEASE_MIN: Duration = Duration::from_millis(100);

/// Longest lease of a place under a shared limit: that of a permit.
pub const SHARED_LEASE_MAX: Duration = tidegate_engine::bounds::PERMIT_LEASE_MAX;

/// The lease of a place under a shared limit if nothing is said: few requests take long enough to be renewed, and what a
/// process that died has held is missed for no longer than this.
pub const SHARED_LEASE_DEFAULT: Duration = Duration::from_secs(10);

/// How often a lease is renewed in its time: two calls in a row may fail.
pub const RENEWALS_PER_LEASE: u32 = 3;

/// The pause before a release is sent again that an overloaded process could not send: as long as a call waits for its turn.
pub(crate) const RELEASE_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// Most domains of a policy that are named to who asks for another: a line that is read, and a misspelt name is found in it.
pub const DOMAINS_TOLD_MAX: usize = 8;

/// Requests that may wait in a stack for each that may be in progress, if nothing is said. The last in line is answered
/// after as long as eleven requests take: it is still wanted then.
pub const STACK_WAITING_PER_PLACE: usize = 10;

/// The share of all that a stack has room for that it keeps for critical requests. Those of one tenant that floods fill
/// two elevenths of the room at most: the reserve leaves the other tenants most of it.
pub const STACK_RESERVED_SHARE: f64 = 0.2;

/// Most workers of a service: as many as an adaptive limit can let in.
pub const WORKERS_MAX: u64 = tidegate_core::bounds::ADAPTIVE_LIMIT_MAX;

/// Largest cost of a call that is shaped: at the slowest rate, the sum of all that wait stays within 128 bits.
pub const SHAPE_COST_MAX: u64 = 1_000_000_000;

/// How late a shaper's call may go and still count as on time. Timers of the runtime wake up to some milliseconds late;
/// without this a fast rate would never be reached. What is later is lost, so that neither a pause nor a process that
/// stood still is caught up by a burst.
pub const SHAPE_CATCH_UP: Duration = Duration::from_millis(5);
