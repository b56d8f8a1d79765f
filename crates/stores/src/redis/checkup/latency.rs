//! How long the scripts take, beside PING and beside the time that a call has.

use std::time::Duration;

use tidegate_core::{Charge, Key, Time};
use tokio::time::Instant;

use super::super::encode;
use super::super::link::bounds::BUDGET_MAX;
use super::super::link::{DirectConnection, Reply, Why};
use super::super::script::SCRIPTS;
use super::super::url::Target;
use super::facts::{Facts, field};
use super::finding::{Notes, Topic};
use super::scratch::Scratch;
use super::scripts::{bucket, window};

/// Calls of each kind: enough for a median, and for a pause of the server to show.
const CALLS: usize = 300;

/// How long measuring may take: servers that are far away answer fewer calls.
const MEASURE_TIME_MAX: Duration = Duration::from_secs(3);

/// What running a script may take longer than PING. On an idle core it is a tenth of that.
const SCRIPT_TIME_MAX: Duration = Duration::from_millis(1);

/// How many slow commands are asked for: as many as Redis keeps unless told otherwise.
const SLOW_COMMANDS: &str = "128";

/// How long ago slow commands still count, in seconds: a day, so that those of nightly tasks do.
const SLOW_SINCE_SECONDS: u64 = 86_400;

/// Round trips of one kind, the quickest first.
struct RoundTrips(Vec<Duration>);

impl RoundTrips {
    fn median(&self) -> Duration {
        self.0.get(self.0.len() / 2).copied().unwrap_or_default()
    }

    fn worst(&self) -> Duration {
        self.0.last().copied().unwrap_or_default()
    }

    fn longer_than(&self, time: Duration) -> usize {
        self.0.iter().filter(|trip| **trip > time).count()
    }

    fn text(&self) -> String {
        format!("{} ms (worst {})", millis(self.median()), millis(self.worst()))
    }
}

/// Measures PING, a bucket and a fixed window in turn, so that all of them meet the same moments.
pub(super) async fn measure(
    connection: &mut DirectConnection,
    target: &Target,
    now: Time,
    scratch: &mut Scratch,
    notes: &mut Notes,
) -> Result<(), Why> {
    let (Ok(bucket), Ok(window)) = (bucket(), window()) else { return Ok(()) };
    let calls = [&bucket, &window].map(|limit| {
        let name = scratch.key(&format!("latency-{}", limit.algorithm().name()));
        (SCRIPTS.one(limit), name, encode::one(&Charge::take(Key::ALL, limit, 1), now))
    });
    let (start, mut trips) = (Instant::now(), [const { Vec::new() }; 3]);
    let [ping, of_bucket, of_window] = &mut trips;
    for _ in 0..CALLS {
        let begin = Instant::now();
        connection.ask(&[b"PING"]).await?;
        ping.push(begin.elapsed());
        for ((script, name, args), trips) in calls.iter().zip([&mut *of_bucket, &mut *of_window]) {
            let begin = Instant::now();
            if let Reply::Error(error) = connection.run(script, &[name], args).await? {
                let fix = "run the check again: the same script worked a moment ago";
                notes.error(Topic::Scripts, format!("a script failed: {error}"), fix);
                return Ok(());
            }
            trips.push(begin.elapsed());
        }
        if start.elapsed() > MEASURE_TIME_MAX {
            break;
        }
    }
    let trips = trips.map(|mut trips| {
        trips.sort_unstable();
        RoundTrips(trips)
    });
    judge(&trips, target.budget(), notes);
    Ok(())
}

/// Judges the round trips of PING, a bucket and a window.
fn judge([ping, bucket, window]: &[RoundTrips; 3], budget: Duration, notes: &mut Notes) {
    let count = bucket.0.len();
    let measured = format!(
        "median of {count} calls: gcra {}, fixed_window {}, PING {}; timeout is {} ms",
        bucket.text(),
        window.text(),
        ping.text(),
        budget.as_millis()
    );
    let (median, worst) = (bucket.median().max(window.median()), bucket.worst().max(window.worst()));
    let late = bucket.longer_than(budget) + window.longer_than(budget);
    // Twice what was seen, so that a slower moment fits too.
    let enough = (worst * 2).max(median * 4).as_millis().saturating_add(1).min(BUDGET_MAX.as_millis());
    let fix = format!(
        "set ?timeout={enough}ms in the URL, move Tidegate and the server closer together, or find out what slows the server down (`redis-cli --latency`)"
    );
    if median > budget {
        notes.error(Topic::Latency, format!("most calls take longer than the timeout; {measured}"), fix);
    } else if late > 0 {
        notes.warning(
            Topic::Latency,
            format!("{late} of {} calls took longer than the timeout; {measured}", 2 * count),
            fix,
        );
    } else if median > budget / 2 {
        let message =
            format!("calls take more than half of the timeout, so a node can send few in parallel; {measured}");
        notes.warning(Topic::Latency, message, fix);
    } else if median > ping.median() + SCRIPT_TIME_MAX {
        let fix = "give the server a core of its own, or look for commands that block it (`redis-cli SLOWLOG GET`)";
        notes.warning(Topic::Latency, format!("scripts are slow on this server; {measured}"), fix);
    } else {
        notes.ok(Topic::Latency, measured);
    }
}

/// Judges how long the server itself says that scripts take, of all clients since its start.
pub(super) fn judge_statistics(facts: &Facts, notes: &mut Notes) {
    let Some(line) = facts.info("cmdstat_evalsha") else { return };
    let number = |name| field(line, name).and_then(|value| value.split('.').next()?.parse::<u64>().ok());
    let Some((calls, micros)) = number("calls").zip(number("usec_per_call")) else { return };
    let message = format!("EVALSHA takes {micros} µs on the server on average ({calls} calls of all clients)");
    if Duration::from_micros(micros) > SCRIPT_TIME_MAX {
        let fix = "look for slow scripts of other programs, or use a separate Redis for limits";
        notes.warning(Topic::Latency, message, fix);
    } else {
        notes.ok(Topic::Latency, message);
    }
}

/// Looks for commands that held up all others for longer than a call has. Says nothing if the server refuses.
pub(super) async fn ask_slow_log(
    connection: &mut DirectConnection,
    target: &Target,
    notes: &mut Notes,
) -> Result<(), Why> {
    let Reply::Array(time) = connection.ask(&[b"TIME"]).await? else { return Ok(()) };
    let now = time.first().and_then(Reply::text).and_then(|seconds| seconds.parse().ok()).unwrap_or(0_u64);
    let Reply::Array(entries) = connection.ask(&[b"SLOWLOG", b"GET", SLOW_COMMANDS.as_bytes()]).await? else {
        return Ok(());
    };
    let slow = entries.iter().filter_map(slow_command);
    let slow: Vec<_> = slow.filter(|(at, took, _)| at + SLOW_SINCE_SECONDS > now && *took > target.budget()).collect();
    let Some((_, took, name)) = slow.iter().max_by_key(|(_, took, _)| *took) else {
        notes.ok(Topic::Latency, "SLOWLOG has no command that took longer than the timeout in the last day");
        return Ok(());
    };
    let (count, noun) = (slow.len(), if slow.len() == 1 { "command" } else { "commands" });
    let message = format!(
        "{count} {noun} took longer than the timeout in the last day and blocked all others; the slowest is {name} with {} ms",
        millis(*took)
    );
    let fix = "avoid it (see `redis-cli SLOWLOG GET`), or use a separate Redis for limits";
    notes.warning(Topic::Latency, message, fix);
    Ok(())
}

/// Reads an entry of SLOWLOG: when, how long, and the name of the command. Its other words may be secrets.
fn slow_command(entry: &Reply) -> Option<(u64, Duration, String)> {
    let Reply::Array(parts) = entry else { return None };
    let [_, Reply::Int(at), Reply::Int(micros), Reply::Array(words), ..] = parts.as_slice() else { return None };
    let name = words.first()?.text()?.to_ascii_uppercase();
    Some((u64::try_from(*at).ok()?, Duration::from_micros(u64::try_from(*micros).ok()?), name))
}

/// A time in milliseconds with two digits behind the point, rounded up.
fn millis(time: Duration) -> String {
    let hundredths = time.as_micros().div_ceil(10);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::super::finding::{Finding, Severity};
    use super::*;

    fn trips(micros: &[u64]) -> RoundTrips {
        RoundTrips(micros.iter().map(|micros| Duration::from_micros(*micros)).collect())
    }

    fn judged(ping: &[u64], bucket: &[u64], window: &[u64]) -> Finding {
        let mut notes = Notes::new(None);
        judge(&[trips(ping), trips(bucket), trips(window)], Duration::from_millis(10), &mut notes);
        notes.findings.remove(0)
    }

    #[test]
    fn round_trips_are_judged_by_the_time_of_a_call() {
        let quick = [50, 60, 4_000];
        for (window, severity, words) in [
            ([90, 100, 9_000], Severity::Ok, "median of 3 calls: gcra 0.06 ms (worst 4.00), fixed_window 0.10 ms"),
            ([90, 1_100, 9_000], Severity::Warning, "scripts are slow"),
            ([90, 5_500, 9_000], Severity::Warning, "more than half of the timeout"),
            ([90, 100, 10_001], Severity::Warning, "1 of 6 calls took longer than the timeout"),
            ([90, 10_001, 10_001], Severity::Error, "most calls take longer than the timeout"),
        ] {
            let finding = judged(&quick, &quick, &window);
            assert_eq!(finding.severity, severity, "{finding:?}");
            assert!(finding.message.contains(words), "{finding:?}");
        }
        let fix = judged(&quick, &quick, &[90, 10_001, 15_000]).fix.unwrap();
        assert!(fix.contains("?timeout=41ms"), "{fix}");
    }

    #[test]
    fn of_slow_commands_the_name_is_read() {
        let text = |text: &str| Reply::Bulk(text.as_bytes().into());
        let words = Reply::Array(vec![text("auth"), text("secret")]);
        let entry = Reply::Array(vec![Reply::Int(1), Reply::Int(5), Reply::Int(12_000), words, text("client")]);
        assert_eq!(slow_command(&entry), Some((5, Duration::from_millis(12), "AUTH".to_owned())));
        assert_eq!(slow_command(&Reply::Nil), None);
    }
}
