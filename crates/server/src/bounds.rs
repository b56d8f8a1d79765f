//! Every bound on what comes in from outside, in one place, each with its reason.

use std::time::Duration;

/// Most connections that one listener serves at a time. Each takes some kilobytes and a file descriptor.
pub const CONNECTIONS_MAX: usize = 10_000;

/// How long a connection may stay silent in the middle of a request, or before its first one: longer than any honest
/// client needs, short enough that silent sockets do not pile up.
pub const STALL: Duration = Duration::from_secs(10);

/// How long connections may finish their work after the server was told to stop.
pub const DRAIN: Duration = Duration::from_secs(20);

/// Most limits that one answer's headers tell of: proxies refuse heads of more than some kilobytes. The strictest are
/// told.
pub const POLICIES_TOLD_MAX: usize = 16;

/// Lines of the decision log that may wait to be written: some megabytes at most.
pub const DECISION_LOG_QUEUE: usize = 8_192;

/// Bytes of the decision log before it is set aside: twice this much is on disk at most.
pub const DECISION_LOG_BYTES_MAX: u64 = 100 << 20;
