//! One run of each script of the store, on keys for a moment.

use std::error::Error;
use std::time::Duration;

use tidegate_core::{Calendar, CalendarPeriod, Charge, Key, Limit, LimitError, Op, Rate, Time};

use super::super::decode::{self, ReplyError};
use super::super::encode;
use super::super::link::{Arg, DirectConnection, Reply, Script, Why};
use super::super::script::SCRIPTS;
use super::finding::{Notes, Topic};
use super::scratch::Scratch;

/// The window of the limits: keys that are not deleted are gone soon.
const WINDOW: Duration = Duration::from_secs(10);

/// Units in the window: so many that all calls pass.
const UNITS: u64 = 10_000;

/// Runs each script once. Returns whether all did what they should.
pub(super) async fn rehearse(
    connection: &mut DirectConnection,
    now: Time,
    scratch: &mut Scratch,
    notes: &mut Notes,
) -> Result<bool, Why> {
    let limits = match limits() {
        Ok(limits) => limits,
        Err(error) => {
            notes.error(Topic::Scripts, format!("cannot run the scripts: {error}"), "report this as a bug in Tidegate");
            return Ok(false);
        }
    };
    let key = Key::ALL;
    let mut rehearsal = Rehearsal { connection, scratch, problems: Vec::new(), count: 0 };
    for limit in &limits {
        let (name, charge) = (limit.algorithm().name(), Charge::take(key, limit, 1));
        let args = encode::one(&charge, now);
        let read = |reply: &Reply| decode::one(&charge, reply, 0).map(drop);
        rehearsal.run(name, SCRIPTS.one(limit), &[name], &args, read).await?;
        if let Some(script) = SCRIPTS.lease(limit) {
            let args = encode::lease(Duration::from_secs(1), [charge].into_iter());
            let read = |reply: &Reply| decode::leased(&charge, reply).map(drop);
            rehearsal.run("lease", script, &[name], &args, read).await?;
        }
        if limit.log_entries_max() > 0 {
            let looking = Charge { op: Op::Peek, ..charge };
            let args = encode::log_numbers(&looking);
            let read = |reply: &Reply| decode::log_snapshot(&looking, reply).map(drop);
            rehearsal.run("inspect_log", &SCRIPTS.inspect_log, &[name], &args, read).await?;
        }
    }
    let charges: Vec<Charge<'_>> = limits.iter().map(|limit| Charge::take(key, limit, 1)).collect();
    let names: Vec<&str> = limits.iter().map(|limit| limit.algorithm().name()).collect();
    let read = |reply: &Reply| decode::decisions(&charges, reply).map(drop);
    rehearsal.run("several", &SCRIPTS.several, &names, &encode::several(&charges, now), read).await?;
    let args = [Arg::from("acquire"), Arg::from("permit"), Arg::from(10_000_000_u64), Arg::from(1_u64)];
    rehearsal.run("permits", &SCRIPTS.permits, &["permits"], &args, |reply| decode::permits(reply).map(drop)).await?;
    rehearse_bulletin(&mut rehearsal).await?;
    let Rehearsal { problems, count, .. } = rehearsal;
    for (name, problem) in &problems {
        let fix = "check that the server runs Lua scripts like Redis 6.0 or later";
        notes.error(Topic::Scripts, format!("the script {name} failed: {problem}"), fix);
    }
    if problems.is_empty() {
        notes.ok(Topic::Scripts, format!("all scripts work: {count} calls returned the right answers"));
    }
    Ok(problems.is_empty())
}

async fn rehearse_bulletin(rehearsal: &mut Rehearsal<'_>) -> Result<(), Why> {
    let (script, keys) = (&SCRIPTS.bulletin, ["ends", "notices"]);
    let node = Arg::from("node");
    let publish = [Arg::from("publish"), node, Arg::from(10_000_000_u64), Arg::from("text"), Arg::from(1_u64)];
    rehearsal.run("publish", script, &keys, &publish, |_| Ok(())).await?;
    rehearsal.run("posted", script, &keys, &[Arg::from("posted")], |reply| decode::posted(reply).map(drop)).await?;
    let read = |reply: &Reply| decode::posting(reply.clone()).map(drop);
    rehearsal.run("read", script, &keys, &[Arg::from("read"), node], read).await
}

/// Limits that bring every script, under which all calls pass.
fn limits() -> Result<[Limit; 6], Box<dyn Error>> {
    let day = Calendar::new(CalendarPeriod::Day, "UTC", None)?;
    Ok([
        bucket()?,
        window()?,
        Limit::calendar_window(UNITS, day)?,
        Limit::sliding_counter(UNITS, WINDOW)?,
        Limit::sliding_log(UNITS, WINDOW)?,
        Limit::sliced_window(UNITS, WINDOW)?,
    ])
}

pub(super) fn bucket() -> Result<Limit, LimitError> {
    Limit::gcra(Rate::new(UNITS, WINDOW)?, UNITS)
}

pub(super) fn window() -> Result<Limit, LimitError> {
    Limit::fixed_window(UNITS, WINDOW)
}

struct Rehearsal<'a> {
    connection: &'a mut DirectConnection,
    scratch: &'a mut Scratch,
    problems: Vec<(&'static str, String)>,
    count: usize,
}

impl Rehearsal<'_> {
    async fn run(
        &mut self,
        name: &'static str,
        script: &Script,
        keys: &[&str],
        args: &[Arg<'_>],
        read: impl Fn(&Reply) -> Result<(), ReplyError>,
    ) -> Result<(), Why> {
        let keys: Vec<Vec<u8>> = keys.iter().map(|key| self.scratch.key(key)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        self.count += 1;
        let problem = match call(self.connection, script, &keys, args).await? {
            Reply::Error(error) => Some(error.to_string()),
            reply => read(&reply).err().map(|error| error.to_string()),
        };
        self.problems.extend(problem.map(|problem| (name, problem)));
        Ok(())
    }
}

/// Runs a script, and makes it known first if it is not.
async fn call(
    connection: &mut DirectConnection,
    script: &Script,
    keys: &[&[u8]],
    args: &[Arg<'_>],
) -> Result<Reply, Why> {
    let reply = connection.run(script, keys, args).await?;
    match &reply {
        Reply::Error(error) if error.code() == "NOSCRIPT" => {}
        _ => return Ok(reply),
    }
    match connection.load(script).await? {
        Reply::Error(error) => Ok(Reply::Error(error)),
        _ => connection.run(script, keys, args).await,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use tidegate_core::{Arithmetic, LimitExt};

    use super::*;

    #[test]
    fn every_arithmetic_is_rehearsed() {
        let tried: BTreeSet<&str> = limits().unwrap().iter().map(|limit| limit.arithmetic().name()).collect();
        assert_eq!(tried, Arithmetic::ALL.map(Arithmetic::name).into());
    }
}
