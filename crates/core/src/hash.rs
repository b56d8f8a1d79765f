//! Hashes that all nodes and versions agree on. They never change.

const FNV_64_START: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_64_PRIME: u64 = 0x0100_0000_01b3;
const FNV_128_START: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const FNV_128_PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

/// A fixed hash of bytes, for what nodes and versions must agree on: FNV-1a, then the finaliser of SplitMix64, since FNV
/// leaves the upper bits of short keys alike.
#[must_use]
pub fn agreed_hash(bytes: &[u8]) -> u64 {
    spread_end(spread_begin(bytes))
}

/// The first part of [`agreed_hash`], of bytes that others follow.
pub(crate) const fn spread_begin(bytes: &[u8]) -> u64 {
    spread_on(FNV_64_START, bytes)
}

/// Goes on with the bytes that follow.
pub(crate) const fn spread_on(begun: u64, bytes: &[u8]) -> u64 {
    let (mut hash, mut place) = (begun, 0);
    while place < bytes.len() {
        hash = (hash ^ bytes[place] as u64).wrapping_mul(FNV_64_PRIME);
        place += 1;
    }
    hash
}

/// The last part of [`agreed_hash`], after all bytes.
pub(crate) const fn spread_end(hash: u64) -> u64 {
    let mixed = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A fixed hash of 128 bits for names that operators choose: FNV-1a, with both halves finished so that every bit
/// depends on every byte. It is not collision resistant: code that relies on it compares the names too.
#[allow(clippy::cast_possible_truncation, reason = "the halves are taken apart")]
pub(crate) const fn unkeyed(bytes: &[u8]) -> u128 {
    let (mut hash, mut place) = (FNV_128_START, 0);
    while place < bytes.len() {
        hash = (hash ^ bytes[place] as u128).wrapping_mul(FNV_128_PRIME);
        place += 1;
    }
    let low = spread_end(hash as u64 ^ ((hash >> 64) as u64).rotate_left(32));
    let high = spread_end((hash >> 64) as u64 ^ low);
    (high as u128) << 64 | low as u128
}
