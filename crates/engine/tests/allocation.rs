//! What a decision holds while it waits for a shared store.
#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a panic is the answer")]

use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use tidegate_core::{FakeClock, Op};
use tidegate_engine::{Engine, Options, check_store_url};
use tidegate_policy::{Descriptor, Entry, Http, LoadOptions, Outside, Request, load_text};
use tidegate_testkit::counting::{Counting, sizes};
use tidegate_testkit::servers::{Server, Setup};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes of all futures of a decision together, of which half are those of the connection: servers have thousands of them,
/// and what is large is moved about.
const FUTURES_BYTES: usize = 2_048;

/// Bytes above which an allocation is one for a future: names, arguments and commands of one charge are shorter.
const DATA_BYTES: usize = 512;

/// What a decision allocates until it waits, beside its own size.
struct Held {
    size: usize,
    allocated: Vec<usize>,
}

impl Held {
    /// Polls a decision until it waits, and then to its end.
    async fn by<F: Future>(decision: F) -> Held {
        let size = size_of_val(&decision);
        let mut decision = pin!(decision);
        let mut context = Context::from_waker(Waker::noop());
        let allocated = sizes(|| assert!(decision.as_mut().poll(&mut context).is_pending(), "it does not wait"));
        decision.await;
        Held { size, allocated }
    }

    /// Checks that all futures are in one allocation beside the decision itself, and small.
    fn check(&self, name: &str) {
        let futures: Vec<usize> = self.allocated.iter().copied().filter(|bytes| *bytes > DATA_BYTES).collect();
        let together = self.size + futures.iter().sum::<usize>();
        assert_eq!(futures.len(), 1, "{name}: {:?}", self.allocated);
        assert!(together <= FUTURES_BYTES, "{name}: {together} bytes: {} and {:?}", self.size, self.allocated);
    }
}

#[tokio::test]
async fn a_charge_that_redis_decides_waits_in_one_small_allocation() {
    let redis = Server::start(&Setup::default());
    let text = format!(
        "stores: {{default: {{url: 'redis://127.0.0.1:{}?timeout=5s'}}}}
domains: {{api: {{rules: [{{name: user, match: {{entries: {{user: '*'}}}}, key: {{entry: user}}, limit: 1000/hour}}]}}}}",
        redis.port
    );
    let outside = Outside { check_store: Some(check_store_url), ..Outside::default() };
    let loaded = load_text("test.yaml", &text, &LoadOptions { outside, ..LoadOptions::default() });
    let policy = loaded.policy.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics));
    let engine = Engine::with_policy(Options { keys: Some(100), ..Options::default() }, policy).unwrap();
    engine.connect(Duration::from_secs(10)).await;
    let entries = [Entry { key: "user", value: "ann" }];
    let descriptors = [Descriptor { entries: &entries, ..Descriptor::default() }];
    let request = Request { domain: "api", descriptors: &descriptors, http: None, cost: 1 };
    let limit = "1000/hour".parse().unwrap();
    // The first of each has scripts loaded and lists grown.
    for _ in 0..2 {
        engine.check(&request).await.unwrap();
        engine.decide(b"ann", &limit, Op::Take(1)).await.unwrap();
    }
    Held::by(engine.check(&request)).await.check("check");
    Held::by(engine.check_or_deny_until(&request, None)).await.check("check_or_deny_until");
    Held::by(engine.decide(b"ann", &limit, Op::Take(1))).await.check("decide");
}

#[test]
fn a_denial_that_can_be_explained_allocates_nothing() {
    let text = "domains: {api: {rules: [{name: user, key: {entry: user}, limit: 1/hour}]}}";
    let (clock, policy) = (FakeClock::new(), load_text("test.yaml", text, &LoadOptions::default()).policy.unwrap());
    let options = Options { clock: clock.clone().into(), explain_bytes: 1 << 20, ..Options::default() };
    let engine = Engine::with_policy(options, policy).unwrap();
    let entries = [Entry { key: "user", value: "ann" }];
    let descriptors = [Descriptor { entries: &entries, ..Descriptor::default() }];
    let check = || engine.at_once("api").unwrap().check_or_deny(&descriptors, &Http::default(), 1).unwrap();
    // The first of each has lists grown, and the memory for denials made.
    assert!(check().decision_id().is_none());
    let first = check().decision_id().unwrap();
    for advance in [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(1)] {
        clock.advance(advance);
        assert_eq!(sizes(|| assert!(check().decision_id().is_some())), [0; 0], "{advance:?}");
    }
    assert_ne!(check().decision_id(), Some(first));
}
