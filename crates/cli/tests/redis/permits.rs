//! Permits of two servers on one Redis: never more are held than the limit, and a dead holder frees its own.

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
