//! Permits of two servers on one Redis: never more are held than the limit, a dead holder frees its own, and nobody hoards
//! them.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::Signal;
use serde_json::Value;
use tidegate_testkit::http::{self, Connection};
use tidegate_testkit::servers::{Server, Setup};
use tidegate_testkit::tidegate::Tidegate;
use tidegate_testkit::wait::eventually;

use crate::ask::Resp;
use crate::exact::passed;
use crate::fleet::PATIENT;

const LIMIT: u64 = 3;
const TRIES: usize = 1_000;

fn nodes(redis: &Server) -> [Tidegate; 2] {
    [(); 2].map(|()| Tidegate::start(&["--store", &format!("redis://127.0.0.1:{}?{PATIENT}", redis.port)]))
}

/// Somebody who acquires and releases, over one protocol.
enum Client {
    Http(Connection),
    Resp(Resp),
}

impl Client {
    fn acquire(&mut self) -> Option<String> {
        match self {
            Client::Resp(resp) => resp.acquire("pool", LIMIT, 60_000),
            Client::Http(connection) => {
                let ask = format!(r#"{{"key":"pool","limit":{LIMIT},"lease":"60s"}}"#);
                let told = connection.ask("POST", "/v1/permits", &[], &ask).unwrap();
                let body: Value = serde_json::from_str(&told.body).unwrap();
                match told.status {
                    201 => Some(body["id"].as_str().unwrap().to_owned()),
                    429 => {
                        assert_eq!(body["in_use"], LIMIT, "{told:?}");
                        assert!((1..=60).contains(&told.number("retry-after")), "{told:?}");
                        None
                    }
                    _ => panic!("{told:?}"),
                }
            }
        }
    }

    fn release(&mut self, id: &str) -> bool {
        match self {
            Client::Resp(resp) => resp.release("pool", id),
            Client::Http(connection) => {
                connection.ask("DELETE", &format!("/v1/permits/{id}?key=pool"), &[], "").unwrap().status == 204
            }
        }
    }
}

/// A permit is counted after it was acquired and before it is released, so that more than the limit would show.
#[test]
fn eight_clients_of_two_servers_never_hold_more_than_the_limit() {
    let redis = Server::start(&Setup::default());
    let nodes = nodes(&redis);
    let (held, most) = (AtomicU64::new(0), AtomicU64::new(0));
    let acquired = passed(|number| {
        let node = &nodes[number % 2];
        let mut client = match number {
            0..4 => Client::Resp(Resp::open(node.resp)),
            _ => Client::Http(Connection::open(node.http).unwrap()),
        };
        let mut acquired = 0;
        for _ in 0..TRIES {
            let Some(id) = client.acquire() else { continue };
            let now_held = held.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(now_held, Ordering::SeqCst);
            std::thread::yield_now();
            held.fetch_sub(1, Ordering::SeqCst);
            assert!(client.release(&id), "its lease had not ended");
            acquired += 1;
        }
        acquired
    });
    let most = most.into_inner();
    println!("{acquired} of {} acquired, {most} at once", 8 * TRIES);
    assert!((2..=LIMIT).contains(&most), "{most} at once");
    assert!(acquired > TRIES as u64, "{acquired}");
    let mut client = Client::Resp(Resp::open(nodes[0].resp));
    let all: Vec<_> = (0..=LIMIT).map(|_| client.acquire()).collect();
    assert_eq!(all.iter().flatten().count() as u64, LIMIT, "all were given back, and no more: {all:?}");
}

/// The first holder is killed together with the server that it asked. Nobody releases for it.
#[test]
fn a_holder_that_is_killed_frees_its_place_when_its_lease_ends() {
    let redis = Server::start(&Setup::default());
    let [mut first, second] = nodes(&redis);
    let acquire = |node: &Tidegate, lease: &str| {
        let ask = format!(r#"{{"key":"job","limit":1,"lease":"{lease}"}}"#);
        http::ask(node.http, "POST", "/v1/permits", &[], &ask)
    };
    assert_eq!(acquire(&first, "2s").status, 201);
    first.process.signal(Signal::KILL);
    first.process.ended();
    let denied = acquire(&second, "2s");
    assert_eq!((denied.status, denied.number("retry-after") <= 2), (429, true), "{denied:?}");
    let mut told = None;
    assert!(eventually(|| told.insert(acquire(&second, "60s")).status == 201), "its lease does not end");
    let told: Value = serde_json::from_str(&told.unwrap().body).unwrap();
    assert_eq!(told["in_use"], 1);
    let id = told["id"].as_str().unwrap();
    let renewed = http::ask(second.http, "PUT", &format!("/v1/permits/{id}?key=job&lease=60s"), &[], "");
    assert_eq!(renewed.status, 200, "{renewed:?}");
    assert_eq!(second.metric("tidegate_permits_total{event=\"acquired\"}"), Some(1.0));
    assert_eq!(second.metric("tidegate_permits_in_memory"), Some(0.0), "they are in Redis");
}

/// What a client heard of a permit of `key`, of which there is one.
fn ask_alone(node: &Tidegate, key: &str, id: &str) -> (u16, bool) {
    let ask = format!(r#"{{"key":"{key}","limit":1,"lease":"10m","id":"{id}"}}"#);
    let told = http::ask(node.http, "POST", "/v1/permits", &[], &ask);
    (told.status, told.body.contains(r#""local":true"#))
}

/// A release that Redis cannot hear is made good once it can: nobody has to wait for the end of the lease.
#[test]
fn a_permit_that_was_released_while_redis_hung_is_free_when_it_is_back() {
    let redis = Server::start(&Setup::default());
    let store = format!("redis://127.0.0.1:{}?timeout=200ms", redis.port);
    let [first, second] = [(); 2].map(|()| Tidegate::start(&["--store", &store]));
    let release = |key: &str| http::ask(first.http, "DELETE", &format!("/v1/permits/a?key={key}"), &[], "").status;
    assert_eq!(ask_alone(&first, "before", "a"), (201, false));
    redis.hang();
    // Redis reads this once it goes on, though the node has long decided by itself.
    assert_eq!(ask_alone(&first, "meanwhile", "a"), (201, true));
    let renewed = http::ask(first.http, "PUT", "/v1/permits/a?key=before&lease=10m", &[], "");
    assert_eq!(renewed.status, 200, "{renewed:?}");
    assert_eq!(ask_alone(&first, "before", "b"), (429, true), "the node knows who holds it");
    assert_eq!([release("before"), release("meanwhile")], [503, 503], "Redis may still count them");
    redis.go_on();
    for key in ["before", "meanwhile"] {
        let mut told = None;
        assert!(eventually(|| told.insert(ask_alone(&second, key, "b")).0 == 201), "{key} is still held: {told:?}");
        assert_eq!(told, Some((201, false)), "{key}");
    }
}

/// An address has a quarter of all places. Only how many it holds counts, not how many it has held.
#[test]
fn one_address_cannot_take_all_permits() {
    const SHARE: usize = (1 << 18) / 4;
    let tidegate = Tidegate::start(&[]);
    let [mut greedy, mut other] = [1, 2].map(|host| Resp::open_from(Ipv4Addr::new(127, 0, 0, host), tidegate.resp));
    assert_eq!(greedy.told("TIDEGATE.ACQUIRE first 1 3600000 mine")[0], 0);
    assert_eq!(greedy.acquired("flood", SHARE + 1_000), SHARE - 1);
    let refused = greedy.said("TIDEGATE.ACQUIRE one-more 1 1000");
    assert!(refused.starts_with("-ERR permits: "), "{refused}");
    let ask = r#"{"key":"one-more","limit":1,"lease":"1s"}"#;
    let refused = http::ask(tidegate.http, "POST", "/v1/permits", &[], ask);
    assert_eq!((refused.status, refused.number("retry-after")), (429, 1), "{refused:?}");
    assert_eq!(other.acquired("work", 1_000), 1_000, "others find room");
    assert!(other.release("first", "mine"));
    assert_eq!(greedy.acquired("again", 2), 1, "one was released");
}

/// A lease is bounded, so that what a caller hoards comes back soon.
#[test]
fn a_lease_has_a_ceiling_that_can_be_set() {
    let acquire = |node: &Tidegate, lease: &str| {
        let ask = format!(r#"{{"key":"job","limit":9,"lease":"{lease}"}}"#);
        http::ask(node.http, "POST", "/v1/permits", &[], &ask)
    };
    let tidegate = Tidegate::start(&[]);
    assert_eq!(acquire(&tidegate, "1h").status, 201);
    let refused = acquire(&tidegate, "61m");
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.body.contains("lease: 3660s is out of bounds; use 1ms to 3600s"), "{refused:?}");
    let longer = Tidegate::start(&["--permit-lease-max", "24h", "--permit-share", "1/1"]);
    assert_eq!(acquire(&longer, "24h").status, 201);
}
