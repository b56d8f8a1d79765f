//! Every bound of the layers, in one place, each with its reason.

use std::time::Duration;

/// Longest name of a limit or a stack, in bytes: it appears in headers and metrics.
pub const NAME_BYTES_MAX: usize = 128;

/// Most parts of a key: each is looked up and copied for each request.
pub const KEY_PARTS_MAX: usize = 8;

/// Most retries of one request: after that many refusals the caller should report an error.
pub const RETRIES_MAX: u32 = 10;

/// Longest wait before a retry. A request that must wait longer should not be held in memory.
pub const RETRY_WAIT_MAX: Duration = Duration::from_secs(3600);

/// Most retries that a budget saves up: an outage after a quiet night must not start with a flood of retries.
pub const RETRIES_SAVED_MAX: u64 = 100;

/// Longest value of `Retry-After` that is parsed, in bytes: a date takes 29.
pub const RETRY_AFTER_BYTES_MAX: usize = 64;

/// Longest gRPC status details that are parsed, in bytes: as much as servers and clients accept for all headers
/// together.
pub const GRPC_DETAILS_BYTES_MAX: usize = 8 * 1024;

/// Most requests in shadow mode for which a shared store is asked at the same time. Further ones pass unjudged, so that
/// they do not pile up before a store that hangs.
pub const WATCHED_MAX: usize = 10_000;

/// Most requests in the queue of a limit: each holds a request, a timer and its caller's connection.
pub const QUEUE_DEPTH_MAX: usize = 1 << 20;

/// Longest wait in the queue of a limit or a shaper: no caller is still there after an hour.
pub const WAIT_MAX: Duration = Duration::from_secs(3600);

/// Longest wait of a request for its turn, unless set otherwise: most callers of services are still there then.
pub const DEADLINE_DEFAULT: Duration = Duration::from_secs(1);

/// Number of locks that the queues of keys are spread over, so that threads seldom contend.
pub(crate) const KEY_SHARDS: usize = 32;

/// Longest `Retry-After` of a refusal.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(86_400);

/// `Retry-After` of a refusal, unless set otherwise.
pub const RETRY_AFTER_DEFAULT: Duration = Duration::from_secs(1);

/// Shortest lease of a permit of a shared limit. A lease is renewed three times in its time, and each call to the store
/// may take its whole time budget.
pub const SHARED_LEASE_MIN: Duration = Duration::from_millis(100);

/// Longest lease of a permit of a shared limit.
pub const SHARED_LEASE_MAX: Duration = tidegate_engine::bounds::PERMIT_LEASE_MAX;

/// Lease of a permit of a shared limit, unless set otherwise. Few requests take long enough for a renewal, and the
/// permits of a process that died come back within this time.
pub const SHARED_LEASE_DEFAULT: Duration = Duration::from_secs(10);

/// How often a lease is renewed in its time: two calls in a row may fail.
pub const RENEWALS_PER_LEASE: u32 = 3;

/// Pause before a release is retried that this process was too overloaded to send: the time a call waits for its turn.
pub(crate) const RELEASE_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// Most domains of a policy that an error for an unknown domain lists: it stays readable, and shows a misspelt name.
pub const DOMAINS_TOLD_MAX: usize = 8;

/// Queue length of a stack, in requests for each request that may be in progress, unless set otherwise. The last in the
/// queue is answered after the time of eleven requests, while its caller still waits.
pub const STACK_WAITING_PER_PLACE: usize = 10;

/// Share of a stack's room that is reserved for critical requests. One tenant that floods fills at most two elevenths
/// of the room, so that most of it stays for the others.
pub const STACK_RESERVED_SHARE: f64 = 0.2;

/// Most workers of a service: the largest adaptive limit.
pub const WORKERS_MAX: u64 = tidegate_core::bounds::ADAPTIVE_LIMIT_MAX;

/// Largest cost of a shaped call: at the slowest rate, the total cost of a full queue fits 128 bits.
pub const SHAPE_COST_MAX: u64 = 1_000_000_000;

/// How late a shaper's call may start and still count as on time. Timers of the runtime fire a few milliseconds late;
/// without this allowance a fast rate would never be reached. Longer delays are lost, so that no burst follows a pause
/// or a stopped process.
pub const SHAPE_CATCH_UP: Duration = Duration::from_millis(5);
