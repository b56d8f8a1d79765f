//! Permits under limits that callers bring, in memory.

use std::time::Duration;

use tidegate_core::{FakeClock, PermitOp};
use tidegate_engine::{Engine, Options, PermitCounts, PermitError, StoreError};

use crate::bench::at_once;

const LEASE: Duration = Duration::from_secs(30);

fn engine() -> (Engine, FakeClock) {
    let clock = FakeClock::new();
    let options = Options { clock: clock.clone().into(), keys: Some(100), ..Options::default() };
    (Engine::new(options).unwrap(), clock)
}

#[test]
fn they_are_counted_and_end_by_themselves() {
    let (engine, clock) = engine();
    let acquire = |key: &str, id: Option<&str>| {
        at_once(engine.acquire_permit(key.as_bytes(), 2, LEASE, id.map(str::as_bytes))).unwrap()
    };
    let first = acquire("pool", None);
    assert!(first.permits.done && first.permits.in_use == 1, "{first:?}");
    assert_eq!(acquire("pool", Some(&first.id)).permits.in_use, 1, "the same permit is one");
    assert!(acquire("pool", Some("second")).permits.done);
    let third = acquire("pool", None);
    assert!(!third.permits.done && third.permits.next_end == LEASE, "{third:?}");
    assert!(acquire("other", Some("second")).permits.done, "each key by itself");
    assert!(at_once(engine.renew_permit(b"pool", b"second", 2 * LEASE)).unwrap().done);
    clock.advance(LEASE);
    assert!(!at_once(engine.renew_permit(b"pool", first.id.as_bytes(), LEASE)).unwrap().done);
    assert!(at_once(engine.release_permit(b"pool", b"second")).unwrap().done);
    assert!(!at_once(engine.release_permit(b"pool", b"second")).unwrap().done);
    let counts = PermitCounts { acquired: 4, denied: 1, renewed: 1, released: 1, gone: 2, held_here: 0 };
    assert_eq!(engine.permit_counts(), counts);
    assert_eq!(engine.fell_back(), 0);
}

#[test]
fn rates_and_permits_of_a_key_do_not_meet() {
    let (engine, _clock) = engine();
    let limit = "1/minute".parse().unwrap();
    assert!(at_once(engine.decide(b"pool", &limit, tidegate_core::Op::Take(1))).unwrap().is_allowed());
    assert!(at_once(engine.acquire_permit(b"pool", 1, LEASE, None)).unwrap().permits.done);
}

#[test]
fn what_is_out_of_bounds_is_refused_with_its_field() {
    let (engine, _clock) = engine();
    let refused = |key: &[u8], limit, lease, id: Option<&[u8]>| {
        at_once(engine.acquire_permit(key, limit, lease, id)).unwrap_err().to_string()
    };
    let day = Duration::from_secs(86_400);
    for (told, field) in [
        (refused(b"", 1, LEASE, None), "key: "),
        (refused(&[b'k'; 4096], 1, LEASE, None), "key: 4096 bytes are too long; a key has 1 to 4095 bytes "),
        (refused(b"k", 0, LEASE, None), "limit: 0 "),
        (refused(b"k", u64::MAX, LEASE, None), "limit: 18446744073709551615 "),
        (refused(b"k", 1, Duration::ZERO, None), "lease: 0ns "),
        (refused(b"k", 1, day + Duration::from_nanos(1), None), "lease: 86400.000000001s "),
        (refused(b"k", 1, LEASE, Some(b"")), "id: `` "),
        (refused(b"k", 1, LEASE, Some(b"a b")), "id: `a b` "),
        (refused(b"k", 1, LEASE, Some(b"\xff\n")), "id: `\\xff\\n` "),
    ] {
        assert!(told.starts_with(field) && told.contains("; "), "{told}");
    }
    assert!(at_once(engine.acquire_permit(b"k", 1, day, Some(&[b'i'; 64]))).unwrap().permits.done);
    assert!(at_once(engine.acquire_permit(&[b'k'; 4095], 1, day, None)).unwrap().permits.done);
    assert_eq!(at_once(engine.renew_permit(b"k", b"/", LEASE)), Err(PermitError::Id { shown: "/".into() }));
    assert_eq!(at_once(engine.release_permit(b"k", &[b'i'; 65])).unwrap_err().retry_after(), None);
}

/// Nobody listens where the store is said to be.
#[tokio::test]
async fn who_asks_in_the_store_hears_that_it_does_not_answer() {
    let store = Some("redis://127.0.0.1:1".into());
    let engine = Engine::new(Options { store, keys: Some(100), ..Options::default() }).unwrap();
    for op in [PermitOp::Acquire { limit: 1, lease: LEASE }, PermitOp::Renew { lease: LEASE }, PermitOp::Release] {
        assert_eq!(engine.ask_permit(b"pool", b"first", op).await, Err(PermitError::Store(StoreError::Unanswered)));
    }
    assert_eq!(
        (engine.permit_counts(), engine.fell_back()),
        (PermitCounts::default(), 0),
        "nothing was done elsewhere"
    );
    assert!(engine.acquire_permit(b"pool", 1, LEASE, None).await.unwrap().permits.done);
    assert_eq!((engine.permit_counts().held_here, engine.fell_back()), (1, 1));
}

/// Otherwise whoever may ask for permits could take all places of a layer that counts in the same store.
#[test]
fn keys_of_callers_are_not_those_of_the_program() {
    let (engine, _) = engine();
    let acquire = PermitOp::Acquire { limit: 1, lease: LEASE };
    for key in [&b"pool"[..], b"\0\x04pool", b"l\0\x04pool", b"i"] {
        assert!(at_once(engine.acquire_permit(key, 1, LEASE, Some(b"stranger"))).unwrap().permits.done);
        assert!(at_once(engine.ask_permit(key, b"own", acquire)).unwrap().done, "{key:?}");
        assert!(!at_once(engine.renew_permit(key, b"own", LEASE)).unwrap().done, "{key:?}");
    }
}

#[test]
fn in_memory_it_is_the_same_to_ask_in_the_store() {
    let (engine, clock) = engine();
    let ask = |id: &[u8], op| at_once(engine.ask_permit(b"pool", id, op));
    let acquire = PermitOp::Acquire { limit: 1, lease: LEASE };
    assert!(ask(b"first", acquire).unwrap().done);
    assert!(!ask(b"other", acquire).unwrap().done);
    assert!(ask(b"first", PermitOp::Renew { lease: 2 * LEASE }).unwrap().done);
    clock.advance(LEASE);
    assert!(!ask(b"second", acquire).unwrap().done);
    assert!(ask(b"first", PermitOp::Release).unwrap().done && ask(b"second", acquire).unwrap().done);
    let counts = PermitCounts { acquired: 2, denied: 2, renewed: 1, released: 1, gone: 0, held_here: 1 };
    assert_eq!(engine.permit_counts(), counts);
    assert_eq!(ask(b"", acquire), Err(PermitError::Id { shown: "".into() }));
    assert_eq!(ask(b"x", PermitOp::Acquire { limit: 0, lease: LEASE }), Err(PermitError::Limit { value: 0 }));
    let none = Duration::ZERO;
    assert_eq!(ask(b"x", PermitOp::Renew { lease: none }), Err(PermitError::Lease { value: none }));
}
