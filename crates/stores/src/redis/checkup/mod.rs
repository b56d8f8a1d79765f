//! Checks a shared store for settings that would harm a rate limiter, and suggests fixes.
//!
//! | to find | look in |
//! |---|---|
//! | which hosts are asked, in which order | this file |
//! | what is reported | `finding` |
//! | INFO and CONFIG GET, and what is unknown if they are refused | `facts` |
//! | software and version, clients | `server` |
//! | memory and eviction | `memory` |
//! | AOF and RDB | `persistence` |
//! | roles, replicas, the state of a Cluster | `replication` |
//! | the difference between two clocks | `clock_offset` |
//! | the commands that the store needs | `permissions` |
//! | one run of each script | `scripts` |
//! | round trips, slow commands | `latency` |
//! | keys for a moment | `scratch` |
//!
//! It has connections of its own and writes only keys that no limit uses, which it deletes. What is read from the server is
//! judged by pure functions, so that tests can make servers up.

mod clock_offset;
mod facts;
mod finding;
mod latency;
mod memory;
mod permissions;
mod persistence;
mod replication;
mod scratch;
mod scripts;
mod server;

#[cfg(test)]
mod tests;

pub use finding::{Finding, Severity, Topic};

use super::link::{DirectConnection, DirectDialer, Primary, Why};
use super::url::{Place, Target};
use facts::Facts;
use finding::Notes;
use permissions::Access;
use scratch::Scratch;

/// The result of a checkup.
#[derive(Clone, Debug)]
pub struct Checkup {
    /// The URL of the store, without passwords.
    pub store: String,
    /// The findings, in the order of the checks.
    pub findings: Vec<Finding>,
}

impl Checkup {
    /// Connects to a store and checks each primary. This takes at most some seconds for each of them.
    pub async fn of(target: &Target) -> Checkup {
        let mut findings = Vec::new();
        look(target, &mut findings).await;
        Checkup { store: target.to_string(), findings }
    }

    /// Returns the number of findings of a severity.
    #[must_use]
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }
}

async fn look(target: &Target, findings: &mut Vec<Finding>) {
    let mut notes = Notes::new(None);
    let dialer = match DirectDialer::new(target) {
        Ok(dialer) => dialer,
        Err(why) => {
            notes.unreachable(&why);
            return findings.extend(notes.findings);
        }
    };
    let located = dialer.locate().await;
    for why in &located.silent {
        if located.primaries.is_ok() {
            let fix = "start it, or remove it from the URL; it is needed when the others fail";
            notes.warning(
                Topic::Connection,
                format!("a host of the URL does not respond: {}", finding::plain(why)),
                fix,
            );
        }
    }
    match &located.primaries {
        Ok(primaries) if target.has_slots() => replication::judge_coverage(primaries, &mut notes),
        Ok(_) => {}
        Err(why) => notes.unreachable(why),
    }
    findings.extend(notes.findings);
    let is_named = matches!(target.place, Place::Server(_) | Place::Socket(_));
    for primary in located.primaries.into_iter().flatten() {
        let mut notes = Notes::new((!is_named).then(|| primary.to_string()));
        if let Err(why) = look_at_primary(target, &dialer, &primary, &mut notes).await {
            notes.unreachable(&why);
        }
        findings.extend(notes.findings);
    }
}

/// Looks at one primary; fails if the connection does.
async fn look_at_primary(
    target: &Target,
    dialer: &DirectDialer<'_>,
    primary: &Primary,
    notes: &mut Notes,
) -> Result<(), Why> {
    let mut connection = dialer.connect(primary).await?;
    notes.ok(Topic::Connection, format!("connected{}", if target.tls { " with TLS" } else { "" }));
    let facts = Facts::ask(&mut connection, notes).await?;
    if !server::judge(&facts, target, notes) {
        return Ok(());
    }
    memory::judge(&facts, notes);
    persistence::judge(&facts, notes);
    replication::judge(&facts, target, notes);
    if target.has_slots() {
        replication::ask_state(&mut connection, notes).await?;
    }
    latency::judge_statistics(&facts, notes);
    try_out(target, primary, &mut connection, notes).await
}

/// Does what the store does, on keys of its own.
async fn try_out(
    target: &Target,
    primary: &Primary,
    connection: &mut DirectConnection,
    notes: &mut Notes,
) -> Result<(), Why> {
    let mut scratch = Scratch::new(target, primary);
    let now = clock_offset::measure(connection, notes).await?;
    let access = permissions::check(connection, target, &mut scratch, notes).await?;
    // Without these keys would stay behind, or the scripts would say once more what is known.
    if let (Access::Full, Some(now)) = (access, now) {
        let ran = scripts::rehearse(connection, now, &mut scratch, notes).await;
        let measured = match ran {
            Ok(true) => latency::measure(connection, target, now, &mut scratch, notes).await,
            Ok(false) => Ok(()),
            Err(why) => Err(why),
        };
        scratch.delete(connection).await?;
        measured?;
    }
    latency::ask_slow_log(connection, target, notes).await
}
