//! Every bound on configuration files, each with its reason.

/// Largest file, in bytes: 10,000 rules take about 2 MB. Kubernetes keeps at most 1 MiB in a ConfigMap.
pub const FILE_BYTES_MAX: u64 = 8 << 20;

/// All files together, in bytes: a reload holds them, and the trees made of them, beside the policy in use.
pub const FILES_BYTES_MAX: u64 = 64 << 20;

/// Most files of a load. A reload opens each of them.
pub const FILES_MAX: usize = 10_000;

/// Most entries of all directories together, so that a path like `/` ends with a message and not after hours.
pub const ENTRIES_MAX: usize = 100_000;

/// Deepest directory below one that was named; a link that leads back up ends here.
pub const DIRECTORY_DEPTH_MAX: usize = 16;

/// Deepest nesting of maps and lists: trees are walked and dropped by functions that call themselves.
pub const DEPTH_MAX: usize = 64;

/// Most values in a file, without those of aliases: 10,000 rules have about 300,000.
pub const NODES_MAX: usize = 500_000;

/// What all aliases of a file may expand to: bytes of text and `NODE_WEIGHT` for each value.
pub const ALIAS_WEIGHT_MAX: usize = 4 << 20;

/// What a value weighs beside its text.
pub const NODE_WEIGHT: usize = 64;

/// Most problems that are told of one load: nobody reads more, and a broken file must not fill the log.
pub const PROBLEMS_MAX: usize = 200;

/// Longest word, in bytes, that a known one is sought for: longer words are no slips of those, which are all short, and
/// comparing costs the product of both lengths.
pub const WORD_BYTES_MAX: usize = 40;

/// Most pairs of descriptors of one domain of Envoy's that are compared for which goes first. A wildcard is compared with
/// all that stands beside it, so many of them grow with the square of their number: 1,000 beside 9,000 values are fine.
pub const COMPARISONS_MAX: usize = 20_000_000;
