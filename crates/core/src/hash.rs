//! The hash that all nodes agree on.

/// A fixed hash of bytes, for what nodes and versions must agree on: FNV-1a, then the finaliser of SplitMix64, since FNV
/// leaves the upper bits of short keys alike. It never changes.
#[must_use]
pub fn agreed_hash(bytes: &[u8]) -> u64 {
    let fnv = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    let mixed = (fnv ^ (fnv >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
