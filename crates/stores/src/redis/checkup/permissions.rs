//! The commands that the store needs, tried one by one.

use super::super::link::{DirectConnection, Reply, ServerError, Why};
use super::super::store::PREFIX;
use super::super::url::{Place, Target};
use super::finding::{Notes, Topic};
use super::scratch::Scratch;

/// What may be done at a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// All that scripts need.
    Full,
    /// Less, which was noted.
    Partial,
}

/// What a command is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Calls.
    Scripts,
    /// Writes, which would make a key if there is none: they are tried on a key of another type.
    WriteInScripts,
    /// Nothing that a limit depends on.
    Courtesy,
    Sentinel,
    Cluster,
    Database,
}

/// Stands for the key in a command.
const KEY: &str = "KEY";

/// A digest that no script has.
const NO_SCRIPT: &str = "0000000000000000000000000000000000000000";

/// The permissions that docs/src/shared-store.md lists, in the order in which they are tried: each with what it is needed for and a
/// command that does nothing. The key is that of a text, so that commands on other types say `WRONGTYPE` and change nothing.
const NEEDS: [(&str, Use, &[&str]); 25] = [
    ("+ping", Use::Courtesy, &["PING"]),
    ("+client|setname", Use::Courtesy, &["CLIENT", "SETNAME", "tidegate"]),
    ("+select", Use::Database, &["SELECT"]),
    ("+role", Use::Sentinel, &["ROLE"]),
    ("+cluster|slots", Use::Cluster, &["CLUSTER", "SLOTS"]),
    // It holds for the next command, which needs it as little.
    ("+asking", Use::Cluster, &["ASKING"]),
    ("+time", Use::Scripts, &["TIME"]),
    ("+script|load", Use::Scripts, &["SCRIPT", "LOAD", "return 0"]),
    ("+evalsha", Use::Scripts, &["EVALSHA", NO_SCRIPT, "1", KEY]),
    ("+set", Use::Scripts, &["SET", KEY, "1", "PX", "10000"]),
    ("+get", Use::Scripts, &["GET", KEY]),
    ("+exists", Use::Scripts, &["EXISTS", KEY]),
    ("+pexpire", Use::Scripts, &["PEXPIRE", KEY, "10000"]),
    ("+hget", Use::Scripts, &["HGET", KEY, "f"]),
    ("+hlen", Use::Scripts, &["HLEN", KEY]),
    ("+hmget", Use::Scripts, &["HMGET", KEY, "f"]),
    ("+hset", Use::WriteInScripts, &["HSET", KEY, "f", "1"]),
    ("+hdel", Use::Scripts, &["HDEL", KEY, "f"]),
    ("+zadd", Use::WriteInScripts, &["ZADD", KEY, "1", "m"]),
    ("+zcard", Use::Scripts, &["ZCARD", KEY]),
    ("+zrange", Use::Scripts, &["ZRANGE", KEY, "0", "0"]),
    ("+zrem", Use::Scripts, &["ZREM", KEY, "m"]),
    ("+zremrangebyscore", Use::Scripts, &["ZREMRANGEBYSCORE", KEY, "0", "0"]),
    ("+zscore", Use::Scripts, &["ZSCORE", KEY, "m"]),
    ("+del", Use::Scripts, &["DEL", KEY]),
];

/// What came of the tries.
#[derive(Default)]
struct Tried {
    denied: Vec<&'static str>,
    denied_courtesies: Vec<&'static str>,
    /// Commands that the server does not have, with its words.
    unknown: Vec<(&'static str, String)>,
    are_keys_denied: bool,
    /// Whether there is a key to try writes on.
    has_key: bool,
    /// Why a write that is permitted was not done.
    refused: Option<ServerError>,
}

/// Tries all commands that this store needs.
pub(super) async fn check(
    connection: &mut DirectConnection,
    target: &Target,
    scratch: &mut Scratch,
    notes: &mut Notes,
) -> Result<Access, Why> {
    let (key, database) = (scratch.key("permissions"), target.database.to_string());
    let mut tried = Tried::default();
    for (right, purpose, command) in NEEDS {
        if !is_used(purpose, target) || purpose == Use::WriteInScripts && !tried.has_key {
            continue;
        }
        let mut words: Vec<&[u8]> =
            command.iter().map(|word| if *word == KEY { key.as_slice() } else { word.as_bytes() }).collect();
        if purpose == Use::Database {
            words.push(database.as_bytes());
        }
        let reply = connection.ask(&words).await?;
        tried.note(right, purpose, &reply);
    }
    let access = tried.access();
    tried.report(target, notes);
    Ok(access)
}

fn is_used(purpose: Use, target: &Target) -> bool {
    match purpose {
        Use::Scripts | Use::WriteInScripts | Use::Courtesy => true,
        Use::Sentinel => matches!(target.place, Place::Sentinel { .. }),
        Use::Cluster => target.has_slots(),
        Use::Database => target.database != 0,
    }
}

impl Tried {
    fn note(&mut self, right: &'static str, purpose: Use, reply: &Reply) {
        let Reply::Error(error) = reply else {
            self.has_key |= right == "+set";
            return;
        };
        let words = error.details().to_ascii_lowercase();
        match error.code() {
            "NOPERM" if !words.contains("command") && words.contains("key") => self.are_keys_denied = true,
            "NOPERM" if purpose == Use::Courtesy => self.denied_courtesies.push(right),
            "NOPERM" => self.denied.push(right),
            "ERR" if words.starts_with("unknown") => self.unknown.push((right, error.to_string())),
            _ if right == "+set" => self.refused = Some(error.clone()),
            _ => {}
        }
    }

    fn access(&self) -> Access {
        let is_full = self.denied.is_empty() && self.unknown.is_empty() && self.has_key;
        if is_full { Access::Full } else { Access::Partial }
    }

    fn report(self, target: &Target, notes: &mut Notes) {
        let guide = "docs/src/shared-store.md lists all permissions";
        let user = target.login.user.as_deref().unwrap_or("default");
        let grant = |rights: &str| format!("run `ACL SETUSER {user} {rights}` as an administrator; {guide}");
        if self.are_keys_denied {
            let pattern = format!("~{}{{*", target.prefix().unwrap_or(PREFIX));
            let message = format!("the user {user} has no permission for the keys of this store, {pattern}");
            notes.error(Topic::Permissions, message, grant(&pattern));
        }
        if !self.denied.is_empty() {
            let mut denied = self.denied.join(" ");
            let message =
                format!("the user {user} has no permission for commands that scripts or connections need: {denied}");
            if self.denied.contains(&"+set") {
                // They were not tried.
                denied.push_str(" +hset +zadd");
            }
            notes.error(Topic::Permissions, message, grant(&denied));
        }
        for (right, words) in &self.unknown {
            let message = format!("the server lacks the command of {right}: {words}");
            notes.error(Topic::Permissions, message, "undo rename-command, or use a server that supports it");
        }
        if !self.denied_courtesies.is_empty() {
            let denied = self.denied_courtesies.join(" ");
            let message = format!(
                "the user {user} has no permission for {denied}: connections are unnamed, or probes report less"
            );
            notes.warning(Topic::Permissions, message, grant(&denied));
        }
        if self.denied.is_empty() && self.unknown.is_empty() && !self.are_keys_denied {
            notes.ok(Topic::Permissions, format!("the user {user} has all required permissions"));
        }
        match &self.refused {
            Some(error) => notes.error(Topic::Writes, format!("writes are refused: {error}"), remedy(error)),
            None if self.has_key => notes.ok(Topic::Writes, "writes are accepted"),
            None => {}
        }
    }
}

/// What to do about a write that was refused.
fn remedy(error: &ServerError) -> &'static str {
    match error.code() {
        "OOM" => "raise maxmemory, or use a separate Redis for limits",
        "MISCONF" => "check the log of Redis and the free space on its disk",
        "NOREPLICAS" => "start the replicas, or lower min-replicas-to-write",
        "READONLY" => "use the URL of the primary, or redis+sentinel:// to find it",
        "MOVED" | "ASK" => {
            "use redis+cluster:// if the URL names one node; otherwise check again after slots have moved"
        }
        "CLUSTERDOWN" | "TRYAGAIN" => "start the nodes that failed; `redis-cli CLUSTER NODES` lists them",
        "LOADING" => "wait until the server has loaded its data",
        "WRONGTYPE" => "choose another prefix (?prefix=): another program writes these keys",
        _ => "check the log of the server",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_guide_lists_what_is_tried() {
        let page = include_str!("../../../../../docs/src/shared-store.md");
        let line = page.lines().find(|line| line.starts_with("ACL SETUSER tidegate ")).unwrap();
        let told: BTreeSet<&str> = line.split(' ').filter(|word| word.starts_with('+')).collect();
        let tried: BTreeSet<&str> = NEEDS.iter().map(|(right, ..)| *right).collect();
        assert_eq!((told, NEEDS.len()), (tried.clone(), tried.len()));
    }

    /// The command that is tried is the one that is named.
    #[test]
    fn permissions_are_tried_by_their_commands() {
        for (right, _, command) in NEEDS {
            let words: Vec<String> = right[1..].split('|').map(str::to_uppercase).collect();
            assert_eq!(command[..words.len()], words, "{right}");
        }
    }
}
