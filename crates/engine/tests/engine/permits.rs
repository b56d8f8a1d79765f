//! Permits under limits that callers bring, in memory.

use std::time::Duration;

use tidegate_core::{FakeClock, PermitOp};
use tidegate_engine::bounds::PERMIT_LEASE_MAX;
use tidegate_engine::{Caller, Engine, Options, PermitCounts, PermitError, PermitOptions, PermitShare, StoreError};

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
        at_once(engine.acquire_permit(&Caller::default(), key.as_bytes(), 2, LEASE, id.map(str::as_bytes))).unwrap()
    };
    let first = acquire("pool", None);
    assert!(first.permits.done && first.permits.in_use == 1, "{first:?}");
    assert_eq!(acquire("pool", Some(&first.id)).permits.in_use, 1, "the same permit is one");
    assert!(acquire("pool", Some("second")).permits.done);
    let third = acquire("pool", None);
    assert!(!third.permits.done && third.permits.next_end == LEASE, "{third:?}");
    assert!(acquire("other", Some("second")).permits.done, "each key by itself");
    assert!(at_once(engine.renew_permit(&Caller::default(), b"pool", b"second", 2 * LEASE)).unwrap().done);
    clock.advance(LEASE);
    assert!(!at_once(engine.renew_permit(&Caller::default(), b"pool", first.id.as_bytes(), LEASE)).unwrap().done);
    assert!(at_once(engine.release_permit(b"pool", b"second")).unwrap().done);
    assert!(!at_once(engine.release_permit(b"pool", b"second")).unwrap().done);
    let counts = PermitCounts { acquired: 4, denied: 1, renewed: 1, released: 1, gone: 2, held_here: 0 };
    assert_eq!(engine.permit_counts(), counts);
    assert_eq!(engine.fell_back(), 0);
}

/// An engine in which an address may hold this many of all places, and leases of up to this length.
fn engine_with(share: &str, lease_max: Duration) -> (Engine, FakeClock) {
    let clock = FakeClock::new();
    let permits = PermitOptions { share: share.parse().unwrap(), lease_max };
    let options = Options { clock: clock.clone().into(), keys: Some(100), permits, ..Options::default() };
    (Engine::new(options).unwrap(), clock)
}

#[test]
fn an_address_holds_its_share_and_others_find_room() {
    let (engine, clock) = engine_with("1/1000", LEASE);
    let [greedy, neighbour, other] =
        ["2001:db8::1", "2001:db8::ffff:1", "192.0.2.1"].map(|address| engine.caller(address.parse().unwrap()));
    let acquire = |caller: &Caller, key: &str| {
        at_once(engine.acquire_permit(caller, key.as_bytes(), 1, LEASE, Some(b"mine"))).map(|told| told.permits.done)
    };
    let taken = |caller| (0..300).filter(|number| acquire(caller, &format!("flood:{number}")) == Ok(true)).count();
    assert_eq!(taken(&greedy), 262);
    let refused = Err(PermitError::OverShare { permits: 262 });
    assert_eq!((acquire(&greedy, "work"), acquire(&neighbour, "work")), (refused.clone(), refused.clone()));
    assert_eq!(acquire(&other, "work"), Ok(true));
    assert_eq!(acquire(&Caller::default(), "own"), Ok(true), "the program is no address");
    let layer = PermitOp::Acquire { limit: 1, lease: LEASE };
    assert!(at_once(engine.ask_permit(b"layer", b"mine", layer)).unwrap().done, "layers have a room of their own");
    assert_eq!(engine.permit_counts().held_here, 265);
    // Whoever gives one back, it is the holder's share that grows.
    assert!(at_once(engine.release_permit(b"flood:0", b"mine")).unwrap().done);
    assert_eq!((acquire(&greedy, "work:1"), acquire(&greedy, "work:2")), (Ok(true), refused));
    clock.advance(LEASE);
    assert_eq!(taken(&neighbour), 262, "what has ended is free");
}

#[test]
fn leases_have_a_ceiling_for_callers_and_not_for_layers() {
    let (engine, _clock) = engine_with("1/4", LEASE);
    let caller = Caller::default();
    let refused = PermitError::Lease { value: 2 * LEASE, max: LEASE };
    assert_eq!(at_once(engine.acquire_permit(&caller, b"k", 1, 2 * LEASE, None)), Err(refused.clone()));
    assert!(at_once(engine.acquire_permit(&caller, b"k", 1, LEASE, Some(b"mine"))).unwrap().permits.done);
    assert_eq!(at_once(engine.renew_permit(&caller, b"k", b"mine", 2 * LEASE)), Err(refused));
    let layer = PermitOp::Acquire { limit: 1, lease: PERMIT_LEASE_MAX };
    assert!(at_once(engine.ask_permit(b"k", b"mine", layer)).unwrap().done);
}

#[test]
fn shares_are_parts_of_the_whole() {
    for text in ["1/4", "1/1", "3/4", "1000/1000", "1/1000"] {
        assert_eq!(text.parse::<PermitShare>().unwrap().to_string(), text);
    }
    for text in ["", "1", "0/4", "1/0", "5/4", "1/1001", "-1/4", "1/4/5", "a/b", "0.25"] {
        assert!(text.parse::<PermitShare>().is_err(), "{text}");
    }
}

#[test]
fn rates_and_permits_of_a_key_do_not_meet() {
    let (engine, _clock) = engine();
    let limit = "1/minute".parse().unwrap();
    assert!(at_once(engine.decide(b"pool", &limit, tidegate_core::Op::Take(1))).unwrap().is_allowed());
    assert!(at_once(engine.acquire_permit(&Caller::default(), b"pool", 1, LEASE, None)).unwrap().permits.done);
}

#[test]
fn what_is_out_of_bounds_is_refused_with_its_field() {
    let (engine, _clock) = engine();
    let refused = |key: &[u8], limit, lease, id: Option<&[u8]>| {
        at_once(engine.acquire_permit(&Caller::default(), key, limit, lease, id)).unwrap_err().to_string()
    };
    let hour = Duration::from_secs(3_600);
    for (told, field) in [
        (refused(b"", 1, LEASE, None), "key: "),
        (refused(&[b'k'; 4096], 1, LEASE, None), "key: 4096 bytes are too long; a key has 1 to 4095 bytes "),
        (refused(b"k", 0, LEASE, None), "limit: 0 "),
        (refused(b"k", u64::MAX, LEASE, None), "limit: 18446744073709551615 "),
        (refused(b"k", 1, Duration::ZERO, None), "lease: 0ns "),
        (refused(b"k", 1, hour + Duration::from_nanos(1), None), "lease: 3600.000000001s "),
        (refused(b"k", 1, LEASE, Some(b"")), "id: `` "),
        (refused(b"k", 1, LEASE, Some(b"a b")), "id: `a b` "),
        (refused(b"k", 1, LEASE, Some(b"\xff\n")), "id: `\\xff\\n` "),
    ] {
        assert!(told.starts_with(field) && told.contains("; "), "{told}");
    }
    assert!(at_once(engine.acquire_permit(&Caller::default(), b"k", 1, hour, Some(&[b'i'; 64]))).unwrap().permits.done);
    assert!(at_once(engine.acquire_permit(&Caller::default(), &[b'k'; 4095], 1, hour, None)).unwrap().permits.done);
    assert_eq!(
        at_once(engine.renew_permit(&Caller::default(), b"k", b"/", LEASE)),
        Err(PermitError::Id { shown: "/".into() })
    );
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
    assert!(engine.acquire_permit(&Caller::default(), b"pool", 1, LEASE, None).await.unwrap().permits.done);
    assert_eq!((engine.permit_counts().held_here, engine.fell_back()), (1, 1));
}

/// Otherwise whoever may ask for permits could take all places of a layer that counts in the same store.
#[test]
fn keys_of_callers_are_not_those_of_the_program() {
    let (engine, _) = engine();
    let acquire = PermitOp::Acquire { limit: 1, lease: LEASE };
    for key in [&b"pool"[..], b"\0\x04pool", b"l\0\x04pool", b"i"] {
        assert!(
            at_once(engine.acquire_permit(&Caller::default(), key, 1, LEASE, Some(b"stranger"))).unwrap().permits.done
        );
        assert!(at_once(engine.ask_permit(key, b"own", acquire)).unwrap().done, "{key:?}");
        assert!(!at_once(engine.renew_permit(&Caller::default(), key, b"own", LEASE)).unwrap().done, "{key:?}");
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
    assert_eq!(
        ask(b"x", PermitOp::Renew { lease: none }),
        Err(PermitError::Lease { value: none, max: PERMIT_LEASE_MAX })
    );
}
