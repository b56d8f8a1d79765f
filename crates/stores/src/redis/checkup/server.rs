//! The software of a server, and its number of clients.

use super::super::url::{Place, Target};
use super::facts::Facts;
use super::finding::{Notes, Topic};

/// The first version of Redis with `SET … KEEPTTL`, by which scripts change a state and not its end.
const VERSION_MIN: (u32, u32) = (6, 0);

/// The share of the allowed connections, in percent, from which on a few more servers may not find room.
const CLIENTS_PERCENT_MAX: u64 = 80;

/// Judges what the server is. Returns whether it is one that can be looked at further.
pub(super) fn judge(facts: &Facts, target: &Target, notes: &mut Notes) -> bool {
    if !facts.has_info() {
        return true;
    }
    judge_version(facts, notes);
    judge_clients(facts, notes);
    let is_single = matches!(target.place, Place::Server(_) | Place::Socket(_) | Place::Sentinel { .. });
    match facts.info("redis_mode").or(facts.info("server_mode")) {
        Some("sentinel") => {
            notes.error(Topic::Connection, "the server is a Sentinel", "use redis+sentinel://HOST:PORT/NAME");
            false
        }
        Some("cluster") if is_single => {
            let fix = "use redis+cluster://HOST:PORT: calls for keys of other nodes fail";
            notes.error(Topic::Connection, "the server is a node of a Cluster", fix);
            false
        }
        _ => true,
    }
}

fn judge_version(facts: &Facts, notes: &mut Notes) {
    let claimed = facts.info("redis_version").unwrap_or("unknown");
    let (software, version) = match (facts.info("valkey_version"), facts.info("dragonfly_version")) {
        (Some(version), _) => ("Valkey", version),
        (_, Some(version)) => ("Dragonfly", version),
        _ => ("Redis", claimed),
    };
    let mut numbers = claimed.split('.').map_while(|number| number.parse::<u32>().ok());
    let (major, minor) = (numbers.next(), numbers.next().unwrap_or(0));
    let (least_major, least_minor) = VERSION_MIN;
    match major {
        Some(major) if (major, minor) < VERSION_MIN => notes.error(
            Topic::Version,
            format!("{software} {version} is too old: it lacks SET with KEEPTTL, which the scripts use"),
            format!("use Redis {least_major}.{least_minor} or later, or Valkey"),
        ),
        Some(_) if software == "Dragonfly" => {
            let fix = "use Redis or Valkey, which Tidegate is tested with, or test your limits on it";
            notes.warning(Topic::Version, format!("{software} {version} is not tested"), fix);
        }
        Some(_) => notes.ok(Topic::Version, format!("{software} {version}")),
        None => notes.warning(
            Topic::Version,
            format!("unknown: the server reports {software} {version}"),
            format!("make sure that it supports what Redis {least_major}.{least_minor} does"),
        ),
    }
}

fn judge_clients(facts: &Facts, notes: &mut Notes) {
    let Some((connected, most)) = facts.number("connected_clients").zip(facts.number("maxclients")) else { return };
    let message = format!("{connected} of {most} connections in use");
    if connected * 100 >= most * CLIENTS_PERCENT_MAX {
        notes.warning(Topic::Clients, message, "raise maxclients: a Tidegate that cannot connect has no shared store");
    } else {
        notes.ok(Topic::Clients, message);
    }
}
