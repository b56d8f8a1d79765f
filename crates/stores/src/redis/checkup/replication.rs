//! Whether the node is the primary, what is lost with it, and the state of a Cluster.

use super::super::link::{DirectConnection, Primary, Reply, SLOTS, Why};
use super::super::url::{Place, Target};
use super::facts::{Facts, field};
use super::finding::{Notes, Topic};

/// How long a replica may acknowledge nothing, in seconds: it does so every second.
const LAG_SECONDS_MAX: u64 = 10;

pub(super) fn judge(facts: &Facts, target: &Target, notes: &mut Notes) {
    match facts.info("role") {
        Some("master") => judge_replicas(facts, target, notes),
        Some(_) => judge_replica(facts, target, notes),
        None => {}
    }
}

/// The node is not the primary.
fn judge_replica(facts: &Facts, target: &Target, notes: &mut Notes) {
    let host = facts.info("master_host").unwrap_or("unknown");
    let port = facts.info("master_port").unwrap_or("unknown");
    let fix = match target.place {
        Place::Server(_) | Place::Socket(_) => "use the URL of the primary, or redis+sentinel:// to find it",
        Place::Sentinel { .. } | Place::Cluster(_) => "check again after the failover",
    };
    let message = format!("the node is a replica of {host} port {port}: it refuses writes, or loses its counts");
    notes.error(Topic::Replication, message, fix);
}

fn judge_replicas(facts: &Facts, target: &Target, notes: &mut Notes) {
    let count = facts.number("connected_slaves").unwrap_or(0);
    let lines: Vec<&str> = (0..count).filter_map(|number| facts.info(&format!("slave{number}"))).collect();
    let is_late = |line: &&&str| {
        let lag = field(line, "lag").and_then(|lag| lag.parse::<u64>().ok()).unwrap_or(0);
        field(line, "state").is_some_and(|state| state != "online") || lag > LAG_SECONDS_MAX
    };
    let has_failover = !matches!(target.place, Place::Server(_) | Place::Socket(_));
    if let Some(line) = lines.iter().find(is_late) {
        let (host, port) = (field(line, "ip").unwrap_or("unknown"), field(line, "port").unwrap_or("unknown"));
        let fix = "check the log of the replica: a failover to it would lose the counts it does not have yet";
        notes.warning(Topic::Replication, format!("the replica {host} port {port} lags behind"), fix);
    }
    if count == 0 && has_failover {
        let fix = "add a replica: without one, no node takes over if this one fails";
        notes.warning(Topic::Replication, "the node is a primary without replicas", fix);
    } else {
        let noun = if count == 1 { "replica" } else { "replicas" };
        notes.ok(Topic::Replication, format!("the node is a primary with {count} {noun}"));
    }
    judge_quorum(facts, target, count, notes);
}

/// Judges how many replicas must be there for writes to be taken.
fn judge_quorum(facts: &Facts, target: &Target, count: u64, notes: &mut Notes) {
    let number = |name| facts.setting(name).and_then(|value| value.parse::<u64>().ok());
    let Some(needed) = number("min-replicas-to-write") else { return };
    let lag = number("min-replicas-max-lag").unwrap_or(0);
    // INFO counts them only if it matters.
    let good = facts.number("min_slaves_good_slaves").unwrap_or(count);
    if needed > 0 && lag > 0 && good < needed {
        let message = format!("min-replicas-to-write is {needed}, but {good} are connected: writes are refused");
        notes.error(Topic::Replication, message, "start the replicas, or lower min-replicas-to-write");
    } else if needed == 0 && count > 0 && matches!(target.place, Place::Sentinel { .. }) {
        let message = "min-replicas-to-write is 0: a primary that is cut off keeps counting on its own";
        let fix = "set min-replicas-to-write 1 and min-replicas-max-lag 1, which refuses writes while no replica is connected";
        notes.warning(Topic::Replication, message, fix);
    }
}

/// Judges whether every slot has a primary.
pub(super) fn judge_coverage(primaries: &[Primary], notes: &mut Notes) {
    let ranges = primaries.iter().flat_map(|primary| primary.slots.iter().flatten());
    let covered: usize = ranges.map(ExactSizeIterator::len).sum();
    let found = format!("{} primaries have {covered} of {SLOTS} slots", primaries.len());
    if covered < usize::from(SLOTS) {
        let fix = "assign the missing slots (`redis-cli --cluster fix HOST:PORT`): calls for their keys fail";
        notes.error(Topic::Cluster, found, fix);
    } else {
        notes.ok(Topic::Cluster, found);
    }
}

/// Asks a node of a Cluster how it sees the Cluster.
pub(super) async fn ask_state(connection: &mut DirectConnection, notes: &mut Notes) -> Result<(), Why> {
    let reply = connection.ask(&[b"CLUSTER", b"INFO"]).await?;
    if let Reply::Error(error) = &reply {
        let message = format!("unknown: the state of the Cluster: CLUSTER INFO was refused: {error}");
        notes.warning(
            Topic::Cluster,
            message,
            "grant the user +cluster|info for this check, or check it as an administrator",
        );
        return Ok(());
    }
    let text = reply.text().unwrap_or_default();
    let line = |name: &str| text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'));
    let state = line("cluster_state").unwrap_or("unknown");
    let number = |name| line(name).and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
    let failing = number("cluster_slots_pfail") + number("cluster_slots_fail");
    if state != "ok" {
        let fix = "start the nodes that failed, or assign their slots to others; `redis-cli CLUSTER NODES` lists them";
        notes.error(Topic::Cluster, format!("cluster_state is {state}: calls are refused"), fix);
    } else if failing > 0 {
        let fix = "look for a node that does not respond; `redis-cli CLUSTER NODES` lists all nodes";
        notes.warning(Topic::Cluster, format!("the primaries of {failing} slots do not respond"), fix);
    } else {
        notes.ok(Topic::Cluster, "cluster_state is ok");
    }
    Ok(())
}
