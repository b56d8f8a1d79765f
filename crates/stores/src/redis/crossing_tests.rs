//! Charges of several slots, on a real Cluster.

use std::time::Duration;

use tidegate_core::{Charge, Decisions, Key, Limit, Op, Placement};
use tidegate_testkit::servers::Cluster;
use tokio::time::{Instant, sleep};

use super::link::slot;
use super::store::{RedisError, RedisStore};
use crate::Call;

/// Long enough that a busy machine makes no difference.
const BUDGET: Duration = Duration::from_millis(1_000);

/// Charges of one key whose slots are on all three primaries, one after the other.
struct Places<'a> {
    cluster: &'a Cluster,
    store: RedisStore,
    tags: Vec<String>,
    limit: Limit,
}

impl Places<'_> {
    async fn put(&self, key: &str, ops: &[Op]) -> Result<Decisions, RedisError> {
        let key = Key::new(key).unwrap();
        let mut charges = Vec::with_capacity(ops.len());
        for (op, tag) in ops.iter().zip(&self.tags) {
            let placement = Placement { tag: tag.as_bytes(), ..Placement::default() };
            charges.push(Charge::new(key, &self.limit, *op).placed(placement));
        }
        self.store.decide(&Call::default(), &charges).await
    }

    /// What is left under each tag.
    async fn left(&self, key: &str) -> Vec<u64> {
        let looked = self.put(key, &[Op::Peek; 3]).await.unwrap();
        looked.iter().map(|one| one.remaining()).collect()
    }

    /// Has the primary of a tag answer nobody for so long.
    fn pause(&self, place: usize, length: Duration) {
        let node = &self.cluster.nodes[self.cluster.primary_of(slot(self.tags[place].as_bytes()))];
        node.command(&format!("CLIENT PAUSE {} ALL", length.as_millis()));
    }

    fn calls(&self) -> u64 {
        self.store.health().totals.answered
    }
}

/// One Cluster for all of it: starting one takes seconds.
#[tokio::test(flavor = "multi_thread")]
async fn charges_of_several_slots() {
    let cluster = tokio::task::block_in_place(|| Cluster::start(15_000));
    let url = format!("redis+cluster://{}?timeout={}ms", cluster.hosts(), BUDGET.as_millis());
    let tag = |primary: usize| {
        (0..).map(|number| format!("tag{number}")).find(|tag| cluster.primary_of(slot(tag.as_bytes())) == primary)
    };
    let places = Places {
        cluster: &cluster,
        store: RedisStore::open(&url.parse().unwrap()).unwrap(),
        tags: (0..3).map(|primary| tag(primary).unwrap()).collect(),
        limit: Limit::fixed_window(10, Duration::from_secs(864_000)).unwrap(),
    };
    assert_eq!(places.left("nobody").await, [10, 10, 10]);
    what_gives_is_done_only_if_nobody_denies(&places).await;
    each_slot_has_a_budget_of_its_own(&places).await;
    what_goes_back_goes_at_the_same_time(&places).await;
}

async fn what_gives_is_done_only_if_nobody_denies(places: &Places<'_>) {
    let calls = places.calls();
    assert!(places.put("ann", &[Op::Take(6), Op::Take(6), Op::Take(6)]).await.unwrap().is_allowed());
    assert_eq!(places.calls() - calls, 3, "one call for each slot");
    for gives in [Op::Refund(2, None), Op::Reset] {
        let denied = places.put("ann", &[gives, Op::Take(1), Op::Take(5)]).await.unwrap();
        assert!(!denied.is_allowed());
        let told: Vec<u64> = denied.iter().map(|one| one.remaining()).collect();
        assert_eq!(told, [4, 4, 4], "{gives:?}");
        assert_eq!(places.left("ann").await, [4, 4, 4], "{gives:?} was done though another slot denies");
    }
    let calls = places.calls();
    let allowed = places.put("ann", &[Op::Refund(2, None), Op::Take(1), Op::Reset]).await.unwrap();
    assert!(allowed.is_allowed());
    assert_eq!(allowed.iter().map(|one| one.remaining()).collect::<Vec<u64>>(), [6, 3, 10]);
    assert_eq!(places.left("ann").await, [6, 3, 10], "done once");
    assert_eq!(places.calls() - calls, 5 + 3);
}

/// Each slot answers within a budget, and all of them one after the other do not.
async fn each_slot_has_a_budget_of_its_own(places: &Places<'_>) {
    let start = Instant::now();
    tokio::task::block_in_place(|| {
        for (place, share) in [(0, 2), (1, 4), (2, 6)] {
            places.pause(place, (BUDGET * share / 3).saturating_sub(start.elapsed()));
        }
    });
    let late = places.put("bob", &[Op::Take(1); 3]).await.unwrap();
    assert!(late.is_allowed() && start.elapsed() > BUDGET * 3 / 2, "{:?}", start.elapsed());
    assert_eq!(places.left("bob").await, [9, 9, 9]);
}

/// A slot denies late, when those before it answer no more. One after the other two refunds take two budgets, and together
/// one; on a busy machine, whose timers ring late, each may take two.
async fn what_goes_back_goes_at_the_same_time(places: &Places<'_>) {
    let late = BUDGET / 2;
    for key in ["cid", "dan", "eve"] {
        let took = time_to_give_back(places, key, late).await;
        assert!(took > BUDGET, "it was tried: {took:?}");
        if took < late + BUDGET * 9 / 5 {
            return;
        }
    }
    panic!("two refunds take two budgets, three times in a row");
}

async fn time_to_give_back(places: &Places<'_>, key: &str, late: Duration) -> Duration {
    assert!(places.put(key, &[Op::Peek, Op::Peek, Op::Take(10)]).await.unwrap().is_allowed());
    let silent = BUDGET * 4;
    tokio::task::block_in_place(|| places.pause(2, late));
    let start = Instant::now();
    let silencing = async {
        sleep(late / 2).await;
        tokio::task::block_in_place(|| [0, 1].map(|place| places.pause(place, silent)));
    };
    let (denied, ()) = tokio::join!(places.put(key, &[Op::Take(1); 3]), silencing);
    let took = start.elapsed();
    assert!(!denied.unwrap().is_allowed());
    // The next attempt finds servers that answer.
    sleep(silent).await;
    took
}
