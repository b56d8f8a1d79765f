//! What is measured: kinds of load, and the servers that each is put on.

use crate::load::{Load, Users};
use crate::servers::Which;

/// A kind of load, the servers it is put on, and what each of them is asked.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) table: Table,
    pub(crate) subjects: Vec<Subject>,
}

/// What a scenario measures of its servers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Table {
    /// Their CPU.
    Cpu,
    /// Their CPU, and that of the Redis behind them with the scripts that it runs.
    CpuWithRedis,
    /// Their writes to eventfds, by which one thread wakes another one.
    Wakes,
}

pub(crate) struct Subject {
    pub(crate) label: &'static str,
    pub(crate) server: Which,
    pub(crate) load: Load,
    /// The target for the result; empty if there is none.
    pub(crate) target: &'static str,
}

const THROTTLE: &str = "CL.THROTTLE key:__rand_int__ 100 1000 60";
const CRAB_THROTTLE: &str = "THROTTLE key:__rand_int__ 100 1000 60";
const CHECK: &str = r#"{"key":"KEY","limit":{"rate":"1000/minute","burst":100}}"#;
const CRAB_CHECK: &str = r#"{"key":"KEY","max_burst":100,"count_per_period":1000,"period":60}"#;

/// All scenarios, in the order in which they are measured.
pub(crate) fn scenarios() -> Vec<Scenario> {
    let of = |label, server, load| Subject { label, server, load, target: "" };
    let resp = |name, depth| Scenario {
        name,
        table: Table::Cpu,
        subjects: vec![
            of("tidegate CL.THROTTLE", Which::Tidegate, Load::Redis(depth, THROTTLE)),
            of("redis-server INCR", Which::Redis, Load::Redis(depth, "INCR key:__rand_int__")),
            of("throttlecrab-server THROTTLE", Which::Throttlecrab, Load::Redis(depth, CRAB_THROTTLE)),
        ],
    };
    let grpc = |name, connections, streams| Scenario {
        name,
        table: Table::Cpu,
        subjects: vec![
            of("tidegate", Which::Tidegate, Load::Grpc(connections, streams)),
            of("empty tonic", Which::Tonic, Load::Grpc(connections, streams)),
        ],
    };
    let http = Scenario {
        name: "HTTP check, 50 connections",
        table: Table::Cpu,
        subjects: vec![
            of("tidegate", Which::Tidegate, Load::Http("/v1/check", CHECK)),
            of("fixed hyper answer", Which::Hyper, Load::Http("/", CHECK)),
            of("throttlecrab-server", Which::Throttlecrab, Load::Http("/throttle", CRAB_CHECK)),
        ],
    };
    let mut all = vec![resp("RESP, pipeline 1", 1), resp("RESP, pipeline 16", 16), resp("RESP, pipeline 64", 64), http];
    all.push(grpc("gRPC, 2 connections of 50 streams", 2, 50));
    all.push(grpc("gRPC, 50 connections of 1 stream", 50, 1));
    all.extend(on_redis());
    all
}

/// One rule in memory and on Redis, over gRPC.
fn on_redis() -> [Scenario; 5] {
    let scenario = |name, table, load, [memory, exact, leased]: [&'static str; 3]| Scenario {
        name,
        table,
        subjects: vec![
            Subject { label: "in memory", server: Which::InMemory, load, target: memory },
            Subject { label: "exact", server: Which::Exact, load, target: exact },
            Subject { label: "leased", server: Which::Leased, load, target: leased },
        ],
    };
    let few = |users| Load::Users(2, 50, users);
    let many = |users| Load::Users(50, 1, users);
    let cpu = Table::CpuWithRedis;
    let targets = ["", "≤ 2.1×", "≤ 1.5×"];
    let wakes = ["", "< 0.1", ""];
    [
        scenario(
            "gRPC on Redis, 2 connections of 50 streams, 100 requests per user",
            cpu,
            few(Users::Hundredth),
            targets,
        ),
        scenario(
            "gRPC on Redis, 50 connections of 1 stream, 100 requests per user",
            cpu,
            many(Users::Hundredth),
            ["", "≤ 1.5×", "≤ 1.5×"],
        ),
        scenario(
            "gRPC on Redis, 2 connections of 50 streams, one user",
            cpu,
            few(Users::One),
            ["", "≤ 0.2 scripts", ""],
        ),
        scenario(
            "gRPC on Redis, threads woken, 2 connections of 50 streams",
            Table::Wakes,
            few(Users::Hundredth),
            wakes,
        ),
        scenario(
            "gRPC on Redis, threads woken, 50 connections of 1 stream",
            Table::Wakes,
            many(Users::Hundredth),
            wakes,
        ),
    ]
}
