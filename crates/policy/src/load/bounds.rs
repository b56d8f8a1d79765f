//! Bounds on configuration files, each with its reason.

/// Maximum size of a file in bytes: 10,000 rules take about 2 MB. A ConfigMap of Kubernetes has at most 1 MiB.
pub const FILE_BYTES_MAX: u64 = 8 << 20;

/// Maximum size of all files in bytes: a reload holds them and their trees in addition to the current policy.
pub const FILES_BYTES_MAX: u64 = 64 << 20;

/// Maximum number of files: a reload opens each of them.
pub const FILES_MAX: usize = 10_000;

/// Maximum number of directory entries in total, so that a path like `/` fails at once and not after hours.
pub const ENTRIES_MAX: usize = 100_000;

/// Maximum depth of directories, which also ends loops of links.
pub const DIRECTORY_DEPTH_MAX: usize = 16;

/// Maximum nesting of maps and lists: trees are walked and dropped recursively.
pub const DEPTH_MAX: usize = 64;

/// Maximum number of values in a file, without those of aliases: 10,000 rules have about 300,000.
pub const NODES_MAX: usize = 500_000;

/// Maximum expansion of all aliases of a file in bytes: their text, and `NODE_WEIGHT` for each value.
pub const ALIAS_WEIGHT_MAX: usize = 4 << 20;

/// The weight of a value in bytes, in addition to its text.
pub const NODE_WEIGHT: usize = 64;

/// Maximum number of problems that are reported for one load: nobody reads more, and a broken file must not fill the log.
pub const PROBLEMS_MAX: usize = 200;

/// Maximum length of a word in bytes for which a similar known word is suggested: known words are shorter, and a comparison
/// takes time proportional to both lengths.
pub const WORD_BYTES_MAX: usize = 40;

/// Maximum number of comparisons to order the descriptors of a domain of envoyproxy/ratelimit. Each wildcard is compared with
/// all descriptors of its level, so the number is quadratic: 1,000 wildcards and 9,000 values are within the bound.
pub const COMPARISONS_MAX: usize = 20_000_000;
