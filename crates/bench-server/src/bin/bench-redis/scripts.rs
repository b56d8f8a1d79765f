//! What scripts cost Redis, beside the same ones from before names and states became short.
//!
//! Both are called alike, without a store around them: only the scripts, their arguments and their names differ.

use redis::{Connection, Value};
use tidegate_bench_server::{RedisServer, median, mix};
use tidegate_core::{Argument, Charge, ChargeExt, Key, Limit, Time};

use crate::{Args, progress};

/// Calls in flight, and by how much fewer are made alone, where each waits for its answer.
const DEPTHS: [(usize, u64); 2] = [(64, 1), (1, 4)];

/// Keys of a round: most calls find the state of an earlier one.
const KEYS: u64 = 10_000;

/// A file of today's scripts, and the same from before.
macro_rules! today {
    ($file:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../stores/src/redis/lua/", $file))
    };
}
macro_rules! before {
    ($file:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts-before/", $file))
    };
}

/// What Redis is asked to do for a key.
struct Subject {
    commands: Commands,
    /// The name of a key, up to the eleven digits that tell it apart.
    name: &'static [u8],
}

enum Commands {
    /// A script by its hash, with these arguments.
    Script { sha: String, args: Vec<String> },
    /// What programs do that count in a plain number.
    Plain,
}

/// A script of today beside the one from before, and what their ratio should be at each depth.
struct Pair {
    label: &'static str,
    before: Subject,
    today: Subject,
    wanted: [&'static str; DEPTHS.len()],
}

/// Puts a script together from its files as the store does.
fn load(connection: &mut Connection, files: &[&str], args: Vec<String>, name: &'static [u8]) -> Subject {
    let sha = redis::cmd("SCRIPT").arg("LOAD").arg(files.join("\n")).query(connection).unwrap();
    Subject { commands: Commands::Script { sha, args }, name }
}

/// What the store passes to the script of this limit, behind the number of charges that a call stands for.
fn arguments(limit: &Limit) -> Vec<String> {
    let charge = Charge::take(Key::ALL, limit, 1);
    let written = |argument| match argument {
        Argument::Whole(number) => number.to_string(),
        Argument::Negative => "-1".to_owned(),
        Argument::Missing => String::new(),
    };
    std::iter::once(charge.letter().to_owned())
        .chain(charge.arguments(Time::default()).into_iter().map(written))
        .collect()
}

/// The scripts, of a limit of 1,000 a minute in the rule `user` of the domain `bench`.
fn pairs(connection: &mut Connection) -> [Pair; 2] {
    let once = |args: Vec<String>| [vec!["1".to_owned()], args].concat();
    let (window, bucket): (Limit, Limit) =
        (Limit::fixed_window(1000, std::time::Duration::from_secs(60)).unwrap(), "1000/minute".parse().unwrap());
    // The op, units and nothing, the limit, window and phase as seconds and nanoseconds, and no receipt.
    let window_before = ["t", "1", "0", "1000", "60", "0", "0", "0", "", ""].map(str::to_owned).to_vec();
    let [clock, instant] = [today!("clock.lua"), today!("instant.lua")];
    let decide_window = "local decide = fixed_window";
    let decide_bucket = "local decide = bucket";
    let fixed_window = Pair {
        label: "fixed_window",
        before: load(
            connection,
            &[
                before!("clock.lua"),
                before!("instant.lua"),
                before!("fixed_window.lua"),
                decide_window,
                before!("one.lua"),
            ],
            window_before,
            b"tidegate{}:fixed_window:60000000000:r\x05bench\x04user\x00\x00\x0b",
        ),
        today: load(
            connection,
            &[clock, instant, today!("fixed_window.lua"), decide_window, today!("one.lua")],
            once(arguments(&window)),
            b"tidegate{}bench:user:w1m:",
        ),
        wanted: ["≤ 0.75", "≤ 0.9"],
    };
    let bucket = Pair {
        label: "bucket",
        // Its arguments have not changed.
        before: load(
            connection,
            &[before!("clock.lua"), before!("bucket.lua"), decide_bucket, before!("one.lua")],
            arguments(&bucket),
            b"tidegate{}:gcra:0:r\x05bench\x04user\x00\x00\x0b",
        ),
        today: load(
            connection,
            &[clock, today!("bucket.lua"), decide_bucket, today!("one.lua")],
            once(arguments(&bucket)),
            b"tidegate{}bench:user:b:",
        ),
        wanted: ["≤ 1", "≤ 1"],
    };
    [fixed_window, bucket]
}

/// CPU seconds of Redis for a million calls, of which this many are in flight.
fn measure(server: &RedisServer, subject: &Subject, depth: usize, calls: u64, seed: u64) -> f64 {
    let mut connection = server.connection();
    server.flush();
    let before = server.cpu_seconds();
    let mut numbers = (0..calls).map(|call| mix(seed ^ call) % KEYS);
    let mut done = 0;
    while done < calls {
        let mut pipe = redis::pipe();
        for number in numbers.by_ref().take(depth) {
            let name = [subject.name, format!("{number:011}").as_bytes()].concat();
            match &subject.commands {
                Commands::Script { sha, args } => pipe.cmd("EVALSHA").arg(sha).arg(1).arg(name).arg(args),
                Commands::Plain => pipe.cmd("INCRBY").arg(&name).arg(1).cmd("EXPIRE").arg(name).arg(86_400).ignore(),
            };
            done += 1;
        }
        let replies: Vec<Value> = pipe.query(&mut connection).unwrap();
        for reply in &replies {
            let passed = match reply {
                Value::Array(items) => items.first() == Some(&Value::Int(1)),
                counted => matches!(counted, Value::Int(1..)),
            };
            assert!(passed, "not allowed: {reply:?}");
        }
    }
    (server.cpu_seconds() - before) * 1e6 / calls as f64
}

/// Measures, and prints a table.
pub(crate) fn run(server: &RedisServer, args: &Args) {
    let pairs = pairs(&mut server.connection());
    let plain = Subject { commands: Commands::Plain, name: b"bench_user_" };
    let subjects: Vec<&Subject> =
        pairs.iter().flat_map(|pair| [&pair.before, &pair.today]).chain(std::iter::once(&plain)).collect();
    let bar = progress(DEPTHS.len() * subjects.len() * args.rounds as usize, "scripts");
    println!("Redis CPU seconds per million calls of a script; medians of {} rounds", args.rounds);
    println!("| in flight | script | older | current | current / older | target |\n|---|---|---|---|---|---|");
    for (place, (depth, fewer)) in DEPTHS.into_iter().enumerate() {
        let mut costs = vec![Vec::new(); subjects.len()];
        for round in 0..args.rounds {
            // Each round begins with another one.
            for turn in 0..subjects.len() {
                let number = (turn + round as usize) % subjects.len();
                let calls = args.thousands * 1000 / fewer;
                costs[number].push(measure(server, subjects[number], depth, calls, mix(round.into())));
                bar.inc(1);
            }
        }
        let medians: Vec<f64> = costs.into_iter().map(median).collect();
        bar.suspend(|| {
            for (pair, costs) in pairs.iter().zip(medians.chunks(2)) {
                let (label, wanted, ratio) = (pair.label, pair.wanted[place], costs[1] / costs[0]);
                println!("| {depth} | {label} | {:.2} | {:.2} | {ratio:.2} | {wanted} |", costs[0], costs[1]);
            }
            println!("| {depth} | INCRBY + EXPIRE | | {:.2} | | |", medians[subjects.len() - 1]);
        });
    }
    bar.finish_and_clear();
}
