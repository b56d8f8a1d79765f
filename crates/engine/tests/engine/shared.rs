//! Rules that one real Redis counts for, and the same in memory: what else denies a key, and what goes back to it.

use std::time::Duration;

use tidegate_core::{FakeClock, Time};
use tidegate_engine::bounds::{NOTICES_PAUSE, TOP_PAUSE};
use tidegate_engine::{Answer, Engine, HeavyBy, KeyCounts, Options, TopQuery, TopWindow, check_store_url};
use tidegate_policy::{Descriptor, LoadOptions, Outside, Policy, Request, Response, load_text};
use tidegate_testkit::servers::{Server, Setup};

/// Where a rule counts: here, in Redis, and there under a hash tag, without which a key is another one.
const PLACES: [&str; 3] = ["store: default", "store: far", "store: far, hash_tag: pair"];

/// All requests are about the same.
const REQUEST: Request<'_> =
    Request { domain: "api", descriptors: &[Descriptor { entries: &[], ask: None, limit: None }], http: None, cost: 1 };

const HOUR: Duration = Duration::from_secs(3_600);
const FIVE_MINUTES: Duration = Duration::from_secs(300);

/// An engine with one rule for all. Its clock stands still and that of Redis does not, so nothing here is a matter of
/// seconds.
struct Node<'s> {
    engine: Engine,
    clock: FakeClock,
    redis: &'s Server,
}

fn policy(redis: &Server, rule: &str) -> Policy {
    let url = format!("{{url: 'redis://127.0.0.1:{}?timeout=5s'}}", redis.port);
    let text = format!(
        "stores: {{default: {{}}, far: {url}, other: {url}}}\ndomains: {{api: {{rules: [{{name: one, {rule}}}]}}}}"
    );
    let outside = Outside { check_store: Some(check_store_url), ..Outside::default() };
    let loaded = load_text("test.yaml", &text, &LoadOptions { outside, ..LoadOptions::default() });
    loaded.policy.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics))
}

impl<'s> Node<'s> {
    /// One that nothing was asked of yet.
    async fn start(redis: &'s Server, rule: &str) -> Node<'s> {
        redis.command("FLUSHALL");
        Node::join(redis, rule).await
    }

    /// One more, beside others.
    async fn join(redis: &'s Server, rule: &str) -> Node<'s> {
        let clock = FakeClock::at(Time::from_nanos(1_000_000_000_000));
        let options = Options { clock: clock.clone().into(), keys: Some(100), ..Options::default() };
        let engine = Engine::with_policy(options, policy(redis, rule)).unwrap();
        engine.connect(Duration::from_secs(10)).await;
        Node { engine, clock, redis }
    }

    /// Waits until it lists so many blocks.
    async fn lists(&self, blocks: usize) {
        for _ in 0..1_000 {
            if self.engine.blocks(None, None).blocks.len() == blocks {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("it does not list {blocks}: {:?}", self.engine.blocks(None, None));
    }

    /// Asks for units, and tells what the first limit said.
    async fn take(&self, units: u64) -> Answer {
        let outcome = self.engine.check(&Request { cost: units, ..REQUEST }).await.unwrap();
        outcome.judgements().next().unwrap().answer
    }

    /// How long a key stays denied, as who asks for units is told.
    async fn penalised(&self, units: u64) -> Duration {
        match self.take(units).await {
            Answer::Penalised(left) => left,
            other => panic!("{other:?}"),
        }
    }

    async fn block(&self, length: Duration) {
        assert_eq!(self.engine.block(&REQUEST, length).await, Ok(1));
    }

    /// What is left under each limit.
    async fn left(&self) -> Vec<u64> {
        let inspected = self.engine.inspect(&REQUEST).await.unwrap();
        inspected[0].limits.iter().map(|limit| limit.snapshot.decision.remaining()).collect()
    }

    /// Keys of the rule, its penalties and its blocks that Redis has without a hash tag.
    fn untagged(&self) -> String {
        self.redis.command("KEYS tidegate{}*api:one:b")
    }
}

#[tokio::test]
async fn a_key_that_stays_denied_takes_nothing() {
    let redis = Server::start(&Setup::default());
    for place in PLACES {
        for mode in ["enforce", "shadow"] {
            let rule = format!("mode: {mode}, limit: 9/30d, {place}");
            let node = Node::start(&redis, &format!("penalty: 1h, {rule}")).await;
            assert!(node.take(5).await.is_allowed());
            for units in [5, 1, 1] {
                node.penalised(units).await;
            }
            assert_eq!(node.left().await, [4], "penalised: {rule}");
            assert_eq!(node.untagged().is_empty(), place != "store: far", "penalised: {rule}");
            let node = Node::start(&redis, &rule).await;
            node.block(HOUR).await;
            for _ in 0..2 {
                node.penalised(1).await;
            }
            assert_eq!(node.left().await, [9], "blocked: {rule}");
            assert_eq!(node.untagged().is_empty(), place != "store: far", "blocked: {rule}");
        }
    }
}

#[tokio::test]
async fn what_denies_a_key_for_longest_is_told() {
    let redis = Server::start(&Setup::default());
    // Of the limit, a unit comes back in 80 hours.
    for place in PLACES {
        for (penalty, block, units, at_least, at_most) in [
            ("5m", Some(HOUR), 1, FIVE_MINUTES * 2, HOUR),
            ("1h", Some(FIVE_MINUTES), 1, FIVE_MINUTES * 2, HOUR),
            ("1h", None, 1, FIVE_MINUTES * 2, HOUR),
            ("1h", None, 5, HOUR * 79, HOUR * 80),
            ("5m", Some(HOUR), 5, HOUR * 79, HOUR * 80),
        ] {
            let node = Node::start(&redis, &format!("penalty: {penalty}, limit: 9/30d, {place}")).await;
            let case = format!("{penalty} {block:?} {units} {place}");
            node.take(5).await;
            let tripped = node.penalised(5).await;
            assert!((HOUR * 79..=HOUR * 80).contains(&tripped), "{tripped:?} {case}");
            if let Some(length) = block {
                node.block(length).await;
            }
            let told = node.penalised(units).await;
            assert!((at_least..=at_most).contains(&told), "{told:?} {case}");
        }
    }
}

/// The node that blocked a key needs to hear of it from nobody, whatever its rule does without the store.
#[tokio::test]
async fn a_block_holds_where_it_was_imposed_while_the_store_is_away() {
    for place in ["store: far", "store: far, hash_tag: pair"] {
        let redis = Server::start(&Setup::default());
        let node = Node::start(&redis, &format!("limit: 9/30d, on_store_failure: allow, {place}")).await;
        node.block(HOUR).await;
        redis.kill();
        node.penalised(1).await;
    }
}

/// What one node says is blocked the others hold, though nobody asked them for the key before the store went away.
#[tokio::test]
async fn a_block_holds_on_other_nodes_while_the_store_is_away() {
    for place in ["store: far", "store: far, hash_tag: pair"] {
        let redis = Server::start(&Setup::default());
        let rule = format!("limit: 9/30d, on_store_failure: allow, {place}");
        let [here, there] = [Node::start(&redis, &rule).await, Node::join(&redis, &rule).await];
        here.block(HOUR).await;
        there.lists(1).await;
        let block = there.engine.blocks(None, None).blocks.remove(0);
        assert_eq!(block.node.as_deref(), Some(here.engine.node()));
        redis.kill();
        there.penalised(1).await;
        here.penalised(1).await;
    }
}

/// A block that was lifted on another node is shown nowhere; one whose node is gone is shown on, and held by nodes that come later.
#[tokio::test]
async fn blocks_are_lifted_and_taken_over_on_all_nodes() {
    let redis = Server::start(&Setup::default());
    let rule = "limit: 9/30d, store: far";
    let [here, there] = [Node::start(&redis, rule).await, Node::join(&redis, rule).await];
    here.block(HOUR).await;
    there.lists(1).await;
    assert_eq!(there.engine.reset(&REQUEST).await, Ok(1));
    there.lists(0).await;
    here.lists(0).await;
    assert!(here.take(1).await.is_allowed());
    here.block(HOUR).await;
    there.lists(1).await;
    let name = here.engine.node().to_owned();
    here.engine.close().await;
    drop(here);
    // As it is when its notice is over.
    redis.command("DEL tidegate{blocks/far}/bulletin:ends");
    let late = Node::join(&redis, rule).await;
    // Blocks that were taken over are published after a while.
    for _ in 0..100 {
        if !late.engine.blocks(None, None).blocks.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        there.clock.advance(NOTICES_PAUSE);
    }
    late.lists(1).await;
    assert_eq!(late.engine.blocks(None, None).blocks[0].node.as_deref(), Some(&*name));
    redis.kill();
    late.penalised(1).await;
}

#[tokio::test]
async fn nodes_tell_each_other_their_heaviest_keys() {
    let redis = Server::start(&Setup::default());
    let rule = "limit: 3/30d, store: far";
    let [here, there] = [Node::start(&redis, rule).await, Node::join(&redis, rule).await];
    for node in [&here, &there, &there, &there, &here] {
        node.take(1).await;
    }
    let query = TopQuery { domain: None, rule: None, by: HeavyBy::Denials, window: TopWindow::Hour, keys_max: 5 };
    // Its clock stands still, and what it knew when it started was nothing.
    for node in [&here, &there] {
        node.clock.advance(TOP_PAUSE);
    }
    let expected = KeyCounts { requests: 5, denials: 2, shadow_denials: 0 };
    let mut answer = there.engine.top(&query, &there.engine.others().await);
    for _ in 0..100 {
        if answer.rules.first().is_some_and(|rule| rule.total == expected) && answer.nodes.len() == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        there.clock.advance(NOTICES_PAUSE);
        let others = there.engine.others().await;
        answer = there.engine.top(&query, &others);
    }
    let told = &answer.rules[0];
    assert_eq!((told.total, told.keys.len(), told.keys[0].counts), (expected, 1, expected), "{answer:?}");
    assert!(!answer.is_partial);
    redis.kill();
    there.clock.advance(Duration::from_secs(2));
    let answer = there.engine.top(&query, &there.engine.others().await);
    assert!(answer.is_partial, "what is known is told, and that it may be old");
    assert_eq!(answer.nodes.len(), 2);
}

#[tokio::test]
async fn a_penalty_that_is_longer_than_its_rule_says_is_cut() {
    let redis = Server::start(&Setup::default());
    // Redis itself cuts what it is asked for together with a limit; here it is asked for the penalty alone.
    let alone = ["store: far, consistency: async", "store: far, consistency: async, hash_tag: pair"];
    for place in PLACES.into_iter().chain(alone) {
        let rule = |length: &str| format!("penalty: {length}, limit: 9/30d, {place}");
        let node = Node::start(&redis, &rule("1h")).await;
        node.take(5).await;
        node.penalised(5).await;
        let told = async |length| {
            node.engine.install(policy(&redis, &rule(length))).unwrap();
            node.penalised(1).await
        };
        // As if the clock of Redis had been set back since: what is left is more than the rule would impose now.
        assert_eq!(told("5m").await, FIVE_MINUTES, "{place}");
        // It stays cut, though the rule says an hour again.
        assert!(told("1h").await <= FIVE_MINUTES, "{place}");
    }
}

#[tokio::test]
async fn what_goes_back_or_counts_later_does_so_under_the_same_key() {
    let redis = Server::start(&Setup::default());
    let two = "limits: [{name: wide, rate: 9/30d}, {name: tight, rate: 1/30d, store: other}]";
    for place in PLACES {
        for (rule, units, left) in [
            (two, [1, 1], &[8, 0][..]),
            ("count_denied: true, limit: 9/30d", [5, 5], &[0]),
            ("count: response.status == 401, limit: 9/30d", [1, 1], &[8]),
        ] {
            let node = Node::start(&redis, &format!("{rule}, {place}")).await;
            for units in units {
                node.take(units).await;
            }
            node.engine.report(&REQUEST, &Response { status: 401, ..Response::default() }).await.unwrap();
            assert_eq!(node.left().await, left, "{rule} {place}");
        }
    }
}
