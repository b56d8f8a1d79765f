//! How full the memory is, and what happens when it is full.

use super::facts::Facts;
use super::finding::{Notes, Topic};

/// The share of the memory, in percent, from which on a flood of new keys may fill the rest.
const USED_PERCENT_MAX: u64 = 80;

const GIVE_ROOM: &str = "raise maxmemory; counts expire by themselves, so keys that stay may belong to other programs";

pub(super) fn judge(facts: &Facts, notes: &mut Notes) {
    let (Some(limit), Some(used)) = (facts.number("maxmemory"), facts.number("used_memory")) else { return };
    judge_room(used.saturating_sub(facts.number("mem_not_counted_for_evict").unwrap_or(0)), limit, notes);
    if let Some(policy) = facts.info("maxmemory_policy") {
        judge_eviction(policy, limit, facts.number("evicted_keys").unwrap_or(0), notes);
    }
}

fn judge_room(used: u64, limit: u64, notes: &mut Notes) {
    if limit == 0 {
        let message = format!("maxmemory is not set ({} in use): the system may kill a growing Redis", mebibytes(used));
        return notes.warning(
            Topic::Memory,
            message,
            "set maxmemory below the memory of the machine, and maxmemory-policy noeviction",
        );
    }
    let percent = used.saturating_mul(100) / limit;
    let message = format!("{percent} % of maxmemory is used: {} of {}", mebibytes(used), mebibytes(limit));
    match percent {
        ..USED_PERCENT_MAX => notes.ok(Topic::Memory, message),
        USED_PERCENT_MAX..100 => notes.warning(Topic::Memory, message, GIVE_ROOM),
        _ => notes.error(Topic::Memory, format!("{message}: new keys are refused or other keys evicted"), GIVE_ROOM),
    }
}

fn judge_eviction(policy: &str, limit: u64, evicted: u64, notes: &mut Notes) {
    let keeps_counts = matches!(policy, "noeviction" | "volatile-ttl");
    let so_far = if evicted > 0 { format!("; {evicted} keys were evicted since Redis started") } else { String::new() };
    if !keeps_counts && limit > 0 {
        let message = format!(
            "maxmemory-policy is {policy}: a client whose count is evicted gets its whole limit again, and a flood of new keys evicts counts{so_far}"
        );
        notes.error(Topic::Eviction, message, "set maxmemory-policy noeviction or volatile-ttl");
    } else if !keeps_counts {
        let message = format!("maxmemory-policy is {policy}: counts will be evicted once maxmemory is set");
        notes.warning(Topic::Eviction, message, "set maxmemory-policy noeviction or volatile-ttl");
    } else if evicted > 0 {
        notes.warning(Topic::Eviction, format!("maxmemory-policy is {policy}{so_far}"), GIVE_ROOM);
    } else {
        notes.ok(Topic::Eviction, format!("maxmemory-policy is {policy}"));
    }
}

/// Bytes in MiB with one digit behind the point, rounded down.
fn mebibytes(bytes: u64) -> String {
    format!("{}.{} MiB", bytes >> 20, ((bytes & 0xf_ffff) * 10) >> 20)
}
