//! Stores that a program brings along: the engine relies on what they say of themselves, and on nothing else.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate_core::{Algorithm, Charge, Decisions, FakeClock, Limit, MemoryStore, Op, Snapshot, Time};
use tidegate_engine::{Caller, Denial, Engine, InstallError, Options, PermitError};
use tidegate_policy::{Descriptor, LoadOptions, Request, load_text};
use tidegate_stores::{AnyStore, Call, Cause, Certainty, Health, Nature, Other, Store, StoreError};

const WORKS: u8 = 0;
pub(crate) const FAILS: u8 = 1;
const HANGS: u8 = 2;

/// A store of a program's own, on states in memory, that fails or hangs when it is told to.
pub(crate) struct Own {
    states: MemoryStore,
    nature: Nature,
    mode: AtomicU8,
    deadlines: Mutex<Vec<Option<Instant>>>,
    closed: AtomicU8,
}

#[derive(Debug, thiserror::Error)]
#[error("the disk is gone")]
struct Gone;

impl Own {
    pub(crate) fn new(nature: Nature) -> Arc<Own> {
        let clock = FakeClock::at(Time::from_nanos(1_000_000_000_000_000_000));
        let states = MemoryStore::builder().keys(100).clock(clock).build().unwrap();
        Arc::new(Own {
            states,
            nature,
            mode: AtomicU8::new(WORKS),
            deadlines: Mutex::default(),
            closed: AtomicU8::new(0),
        })
    }

    pub(crate) fn turn(&self, mode: u8) {
        self.mode.store(mode, Ordering::Relaxed);
    }
}

impl Store for Own {
    async fn charge(&self, call: &Call, charges: &[Charge<'_>]) -> Result<Decisions, StoreError> {
        self.deadlines.lock().unwrap().push(call.deadline);
        match self.mode.load(Ordering::Relaxed) {
            FAILS => Err(StoreError::Failed { certainty: Certainty::NotSent, cause: Cause::new(Gone) }),
            HANGS => std::future::pending().await,
            _ => Ok(self.states.charge(charges)?),
        }
    }

    async fn inspect(&self, _call: &Call, charge: &Charge<'_>) -> Result<Snapshot, StoreError> {
        Ok(self.states.inspect_in(charge.namespace, charge.key, charge.limit))
    }

    fn nature(&self) -> Nature {
        self.nature
    }

    fn health(&self) -> Health {
        Health::of("own")
    }

    async fn close(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }
}

/// One that several nodes would ask.
pub(crate) fn shared() -> Nature {
    Nature::shared(Duration::from_millis(10))
}

/// One on a disk of this machine.
pub(crate) fn durable() -> Nature {
    let mut nature = Nature::MEMORY;
    nature.survives_restart = true;
    nature
}

/// An engine whose store `own` is this one. Rules of the domain `near` count in memory.
fn engine(own: &[(&str, &Arc<Own>)], rule: &str) -> Engine {
    try_engine(own, rule).unwrap()
}

fn try_engine(own: &[(&str, &Arc<Own>)], rule: &str) -> Result<Engine, InstallError> {
    let names: Vec<String> =
        own.iter().filter(|(name, _)| *name != "default").map(|(name, _)| format!("{name}: {{}}")).collect();
    let text = format!(
        "stores: {{near: {{}}, {}}}
domains:
  far: {{rules: [{{name: far, {rule}}}]}}
  near: {{rules: [{{name: near, store: near, limit: 3/minute}}]}}
",
        names.join(", ")
    );
    let loaded = load_text("test.yaml", &text, &LoadOptions::default());
    let policy = loaded.policy.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics));
    let brought = |(name, store): &(&str, &Arc<Own>)| ((*name).into(), AnyStore::from(Other::new(Arc::clone(store))));
    let stores: HashMap<_, _> = own.iter().map(brought).collect();
    Engine::with_policy(Options { stores, ..Options::default() }, policy)
}

fn request(domain: &str) -> Request<'_> {
    const ONE: &[Descriptor<'_>] = &[Descriptor { entries: &[], ask: None, limit: None }];
    Request { domain, descriptors: ONE, http: None, cost: 1 }
}

async fn denial(engine: &Engine) -> Option<Denial> {
    engine.check(&request("far")).await.unwrap().denial()
}

#[tokio::test]
async fn a_store_of_ones_own_counts() {
    for nature in [shared(), durable()] {
        let own = Own::new(nature);
        let engine = engine(&[("own", &own)], "store: own, limit: 2/minute");
        let denials = [denial(&engine).await, denial(&engine).await, denial(&engine).await];
        assert_eq!(denials, [None, None, Some(Denial::OverLimit)], "{nature:?}");
    }
}

#[tokio::test]
async fn what_a_rule_does_without_its_store_depends_on_the_store() {
    for (nature, rule, expected) in [
        (shared(), "store: own, limit: 2/minute", None),
        (durable(), "store: own, limit: 2/minute", Some(Denial::StoreFailure)),
        (durable(), "store: own, limit: 2/minute, on_store_failure: allow", None),
    ] {
        let own = Own::new(nature);
        let engine = engine(&[("own", &own)], rule);
        own.turn(FAILS);
        assert_eq!(denial(&engine).await, expected, "{rule}: {nature:?}");
        assert_eq!(engine.rules().iter().find(|rule| &*rule.name == "far").unwrap().counts.failed, 1);
    }
}

#[tokio::test]
async fn a_block_holds_and_after_a_restart_too() {
    for nature in [shared(), durable(), Nature::MEMORY] {
        let own = Own::new(nature);
        let rule = "store: own, limit: 9/minute, on_store_failure: allow";
        let before = engine(&[("own", &own)], rule);
        before.block(&request("far"), Duration::from_secs(60)).await.unwrap();
        assert_eq!(denial(&before).await, Some(Denial::Penalty), "{nature:?}");
        drop(before);
        if !nature.outlives_process() {
            continue;
        }
        // A first look that fails says nothing of blocks.
        let after = engine(&[("own", &own)], rule);
        own.turn(FAILS);
        assert_eq!(denial(&after).await, None, "{nature:?}");
        own.turn(WORKS);
        assert_eq!(denial(&after).await, Some(Denial::Penalty), "{nature:?}");
    }
}

#[tokio::test]
async fn a_store_is_closed_with_its_engine_and_not_when_a_policy_leaves_it_out() {
    let own = Own::new(durable());
    let engine = engine(&[("own", &own)], "store: own, limit: 9/minute");
    engine.install(load_text("test.yaml", "domains: {}", &LoadOptions::default()).policy.unwrap()).unwrap();
    tokio::task::yield_now().await;
    assert_eq!(own.closed.load(Ordering::Relaxed), 0, "the next policy may name it again");
    let engine = self::engine(&[("own", &own)], "store: own, limit: 9/minute");
    engine.close().await;
    assert_eq!(own.closed.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn permits_of_a_durable_store_do_not_fall_back() {
    let own = Own::new(durable());
    let engine = engine(&[("default", &own)], "limit: 9/minute");
    own.turn(FAILS);
    let asked = engine.acquire_permit(&Caller::default(), b"pool", 2, Duration::from_secs(5), Some(b"me")).await;
    assert!(asked.is_err(), "{asked:?}");
    assert_eq!(engine.permit_counts().held_here, 0);
}

#[tokio::test]
async fn permits_of_a_store_that_keeps_none_are_refused() {
    let own = Own::new(shared());
    let engine = engine(&[("default", &own)], "limit: 9/minute");
    let asked = engine.acquire_permit(&Caller::default(), b"pool", 2, Duration::from_secs(5), Some(b"me")).await;
    assert!(matches!(asked, Err(PermitError::Unsupported { .. })), "{asked:?}");
    assert_eq!(engine.permit_counts().held_here, 0, "none is held in memory instead");
}

#[tokio::test]
async fn limits_of_callers_fall_back_whatever_the_store_is() {
    for nature in [shared(), durable()] {
        let own = Own::new(nature);
        let engine = engine(&[("default", &own)], "limit: 9/minute");
        own.turn(FAILS);
        let limit: Limit = "1/minute".parse().unwrap();
        let both = [(&b"a"[..], limit, Op::Take(1)), (&b"b"[..], limit, Op::Take(1))];
        let allowed = [engine.decide_all(&both).await, engine.decide_all(&both).await]
            .map(|decisions| decisions.unwrap().is_allowed());
        assert_eq!((allowed, engine.fell_back()), ([true, false], 4), "{nature:?}");
    }
}

#[tokio::test]
async fn what_goes_back_in_a_fallback_is_not_counted_as_another() {
    let own = Own::new(shared());
    let engine = engine(&[("default", &own)], "limit: 9/minute");
    own.turn(FAILS);
    let limit: Limit = "1/minute".parse().unwrap();
    assert!(engine.decide(b"full", &limit, Op::Take(1)).await.unwrap().is_allowed());
    let both = [(&b"free"[..], limit, Op::Take(1)), (&b"full"[..], limit, Op::Take(1))];
    let decisions = engine.decide_all(&both).await.unwrap();
    assert_eq!((decisions.is_allowed(), engine.fell_back()), (false, 3));
    assert!(engine.decide(b"free", &limit, Op::Take(1)).await.unwrap().is_allowed(), "its unit went back");
}

#[tokio::test]
async fn units_of_a_request_that_goes_away_go_back_to_every_store() {
    let (first, second) = (Own::new(shared()), Own::new(shared()));
    let rule = "limits: [{name: one, rate: 9/minute, store: own}, {name: two, rate: 9/minute, store: slow}]";
    let engine = engine(&[("own", &first), ("slow", &second)], rule);
    assert_eq!(denial(&engine).await, None);
    second.turn(HANGS);
    let waiting = tokio::time::timeout(Duration::from_millis(50), engine.check(&request("far"))).await;
    assert!(waiting.is_err(), "the second store hangs");
    let left = async || engine.inspect(&request("far")).await.unwrap()[0].limits[0].snapshot.decision.remaining();
    for _ in 0..100 {
        if left().await == 8 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} left, not 8", left().await);
}

#[test]
fn a_limit_that_its_store_does_not_know_is_refused() {
    let mut nature = shared();
    nature.algorithms = &[Algorithm::Gcra];
    let rule = "store: own, limit: {algorithm: sliding_log, rate: 5/minute}";
    let refused = try_engine(&[("own", &Own::new(nature))], rule).unwrap_err().to_string();
    assert_eq!(refused, "rule far: store own does not support sliding_log; use another store or algorithm");
}

#[tokio::test]
async fn only_the_domain_of_an_awaited_store_waits() {
    let own = Own::new(shared());
    let engine = engine(&[("own", &own)], "store: own, limit: 9/minute");
    assert!(engine.at_once("near").is_some() && engine.at_once("far").is_none());
    own.turn(HANGS);
    // It is decided at the first poll.
    let near = futures_util::FutureExt::now_or_never(engine.check(&request("near")));
    assert!(near.unwrap().unwrap().is_allowed());
    assert_eq!(own.deadlines.lock().unwrap().len(), 0, "nobody looked for blocks there either");
}

#[tokio::test]
async fn the_deadline_of_a_caller_reaches_the_store() {
    let own = Own::new(shared());
    let engine = engine(&[("own", &own)], "store: own, limit: 9/minute");
    assert_eq!(denial(&engine).await, None);
    own.deadlines.lock().unwrap().clear();
    let deadline = tokio::time::Instant::now().into_std() + Duration::from_secs(1);
    engine.check_or_deny_until(&request("far"), Some(deadline)).await.unwrap();
    assert_eq!(*own.deadlines.lock().unwrap(), [Some(deadline)]);
}
