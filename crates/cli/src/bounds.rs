//! Every bound on what comes in, each with its reason.

/// Longest line of `decide`, in bytes without its end: the longest key, fully escaped, fits in it twice. A longer line
/// is skipped without being kept.
pub(crate) const LINE_BYTES_MAX: usize = 64 * 1024;

/// Most threads of `serve`: more than any machine has cores for.
pub(crate) const THREADS_MAX: u16 = 1024;

/// Longest time, in seconds, that `serve` stays open after it was told to stop: load balancers notice within minutes.
pub(crate) const DRAIN_DELAY_SECONDS_MAX: u64 = 3600;

/// Most keys whose state `decide` keeps at once: about 230 MB with short keys under a bucket or a counter.
pub(crate) const KEYS_MAX: usize = 1_000_000;

/// Most megabytes for requests that have not come whole: all connections of a listener cannot send more at a time.
pub(crate) const REQUEST_MEMORY_MB_MAX: usize = 65_536;
