//! Counts that remain after a restart, and disk failures that block writes.

use super::facts::Facts;
use super::finding::{Notes, Topic};

pub(super) fn judge(facts: &Facts, notes: &mut Notes) {
    let Some(has_aof) = facts.info("aof_enabled").map(|value| value == "1") else { return };
    if has_aof {
        judge_aof(facts, notes);
    } else {
        judge_rdb(facts, notes);
    }
    judge_last_save(facts, notes);
}

fn judge_aof(facts: &Facts, notes: &mut Notes) {
    let failed = |name| facts.info(name).is_some_and(|status| status != "ok");
    let fix = "check the log of Redis and the free space on its disk";
    if failed("aof_last_write_status") {
        let message = "the last write to the append-only file failed: writes are refused";
        notes.error(Topic::Persistence, message, fix);
    } else if failed("aof_last_bgrewrite_status") {
        let message = "the last rewrite of the append-only file failed: it keeps growing";
        notes.warning(Topic::Persistence, message, fix);
    } else if facts.setting("appendfsync") == Some("always") {
        let message = "appendonly is yes with appendfsync always: every call waits for the disk";
        notes.warning(Topic::Persistence, message, "set appendfsync everysec: a crash then loses about one second");
    } else {
        notes.ok(Topic::Persistence, "appendonly is yes: counts survive a restart");
    }
}

fn judge_rdb(facts: &Facts, notes: &mut Notes) {
    match facts.setting("save") {
        None => {
            let message = "unknown: appendonly is no, and the setting for snapshots (save) cannot be read";
            let fix = "grant the user +config|get for this check, or check `save` as an administrator";
            notes.warning(Topic::Persistence, message, fix);
        }
        Some("") => {
            let message = "appendonly is no and save is empty: a restart loses all counts";
            let fix = "set appendonly yes if limits with long periods, such as a day, must survive a restart";
            notes.warning(Topic::Persistence, message, fix);
        }
        Some(save) => {
            notes.ok(
                Topic::Persistence,
                format!("snapshots are on (save {save}): a crash loses the counts since the last one"),
            );
        }
    }
}

fn judge_last_save(facts: &Facts, notes: &mut Notes) {
    if facts.info("rdb_last_bgsave_status").is_none_or(|status| status == "ok") {
        return;
    }
    let (saves, stops) = (facts.setting("save"), facts.setting("stop-writes-on-bgsave-error"));
    let fix = "check the log of Redis and the free space on its disk, or set stop-writes-on-bgsave-error no";
    match (saves, stops) {
        (Some(""), _) | (_, Some("no")) => notes.warning(Topic::Persistence, "the last snapshot failed", fix),
        (Some(_), Some(_)) => {
            let message = "the last snapshot failed, and stop-writes-on-bgsave-error is yes: writes are refused";
            notes.error(Topic::Persistence, message, fix);
        }
        _ => notes.warning(Topic::Persistence, "the last snapshot failed: writes may be refused", fix),
    }
}
