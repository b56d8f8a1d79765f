//! Every bound on input, each with its reason.

/// Longest line of `decide`, in bytes without the line end: the longest key, fully escaped, fits in it twice. A longer
/// line is skipped and not kept in memory.
pub(crate) const LINE_BYTES_MAX: usize = 64 * 1024;

/// Most threads of `serve`: more than any machine has cores.
pub(crate) const THREADS_MAX: u16 = 1024;

/// Longest drain delay of `serve`, in seconds: load balancers notice within minutes.
pub(crate) const DRAIN_DELAY_SECONDS_MAX: u64 = 3600;

/// Most keys that `decide` keeps the state of: about 230 MB with short keys under a bucket or a counter.
pub(crate) const KEYS_MAX: usize = 1_000_000;

/// Most memory for incomplete requests, in megabytes: all connections of a listener together cannot need more.
pub(crate) const REQUEST_MEMORY_MB_MAX: usize = 65_536;

/// Most memory for denials that can be explained, in megabytes: enough for a hundred million of them.
pub(crate) const EXPLAIN_MEMORY_MB_MAX: usize = 16_384;

/// Longest answer of a server that commands read, in bytes: the list of the most rules that a server loads has about 60 MB.
pub(crate) const ANSWER_BYTES_MAX: usize = 256 << 20;

/// Longest admin token, in bytes: a server refuses requests with longer heads.
pub(crate) const TOKEN_BYTES_MAX: usize = 8 * 1024;
