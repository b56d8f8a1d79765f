//! Real servers, over the links that the store uses: one alone, one behind Sentinels, a Cluster.

use std::sync::LazyLock;
use std::time::Duration;

use crate::redis::link::Reply;
use tidegate_testkit::servers::{Cluster, Sentinels, Server, Setup, valkey};
use tokio::runtime::{Builder, Runtime};

use super::{End, Runs, told_the_time};
use crate::redis::link::{Arg, Redis, Script, Term};
use crate::redis::script::Scripts;

/// Redis expires by a clock of its own, so that states must outlive the test.
static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| told_the_time(3_600_000));

/// Servers that end with the test.
#[expect(dead_code, reason = "they are only held")]
enum Servers {
    One(Server),
    Sentinel(Box<Sentinels>),
    Cluster(Cluster),
}

pub(super) struct Live {
    redis: Redis,
    runtime: Runtime,
    /// How often everything was forgotten: keys before have other names.
    generation: u64,
    _servers: Servers,
}

impl Live {
    pub(super) fn alone() -> Live {
        let server = Server::start(&Setup::default());
        Live::at(format!("redis://127.0.0.1:{}", server.port), Servers::One(server))
    }

    pub(super) fn on_valkey() -> Live {
        let server = Server::start(&Setup { program: Some(valkey()), ..Setup::default() });
        Live::at(format!("valkey://127.0.0.1:{}", server.port), Servers::One(server))
    }

    pub(super) fn behind_sentinels() -> Live {
        let trio = Sentinels::start();
        Live::at(format!("redis+sentinel://{}/tide", trio.hosts()), Servers::Sentinel(Box::new(trio)))
    }

    pub(super) fn as_cluster() -> Live {
        let cluster = Cluster::start(5_000);
        Live::at(format!("redis+cluster://{}", cluster.hosts()), Servers::Cluster(cluster))
    }

    fn at(url: String, servers: Servers) -> Live {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        // What is compared are answers, however busy the machine is.
        let redis = Redis::open(&format!("{url}?timeout=5s").parse().unwrap()).unwrap();
        Live { redis, runtime, generation: 0, _servers: servers }
    }
}

impl Runs for Live {
    fn scripts(&self) -> &'static Scripts {
        &SCRIPTS
    }

    fn end_of(&self, _: &[u8]) -> Option<End> {
        None
    }

    fn restart(&mut self) {
        self.generation += 1;
    }

    fn run(&mut self, script: &Script, keys: &[&[u8]], args: &[Vec<u8>]) -> Reply {
        // One slot for all keys of a call, and another one after each restart.
        let tag = format!("{{{}}}", self.generation);
        let keys: Vec<Vec<u8>> = keys.iter().map(|key| [tag.as_bytes(), key].concat()).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let args: Vec<Arg<'_>> = args.iter().map(|arg| Arg::from(arg.as_slice())).collect();
        self.runtime
            .block_on(self.redis.call(script, &keys, &args, Term::new(Duration::from_secs(5), Duration::from_secs(5))))
            .unwrap()
    }
}
