//! The permissions that the guide tells are enough, and needed.

use std::time::Duration;

use tidegate_core::{Charge, Key, Limit, Namespace, Op, PermitOp, Placement};
use tidegate_testkit::servers::{Cluster, Server, Setup};

use super::store::RedisStore;
use crate::{Bulletin, Call, Lease, Leasing, Notice, PermitCharge, PermitStore, Store};

/// The line of the guide, in words.
fn told() -> Vec<String> {
    let page = include_str!("../../../../docs/src/shared-store.md");
    let line = page.lines().find(|line| line.starts_with("ACL SETUSER tidegate ")).unwrap();
    line.split(' ').map(str::to_owned).collect()
}

fn set_user(server: &Server, words: &[String]) {
    let mut command = redis::cmd(&words[0]);
    words[1..].iter().for_each(|word| {
        command.arg(word);
    });
    command.exec(&mut server.admin().unwrap()).unwrap();
}

/// Does everything once.
async fn do_all(url: &str) -> Result<(), String> {
    let store = RedisStore::open(&url.parse().unwrap()).unwrap();
    let (day, key) = (Duration::from_secs(86_400), Key::new("ann").unwrap());
    let limits: [Limit; 5] = [
        "10/day".parse().unwrap(),
        Limit::fixed_window(10, day).unwrap(),
        Limit::sliding_counter(10, day).unwrap(),
        Limit::sliding_log(10, day).unwrap(),
        Limit::sliced_window(10, day).unwrap(),
    ];
    let call = Call::default();
    let words = |error: &dyn std::fmt::Display| error.to_string();
    for limit in &limits {
        for op in [Op::Take(1), Op::Debit(1), Op::Refund(1, None), Op::Peek, Op::Reset] {
            let charge = Charge::new(key, limit, op);
            store.charge(&call, &[charge]).await.map_err(|error| format!("{op:?}: {error}"))?;
        }
        store.inspect(&call, &Charge::new(key, limit, Op::Peek)).await.map_err(|error| words(&error))?;
    }
    // A log is counted once it is longer than a few entries.
    let long = Limit::sliding_log(100, 2 * day).unwrap();
    for _ in 0..20 {
        let charge = Charge::take(key, &long, 1);
        store.charge(&call, &[charge]).await.map_err(|error| words(&error))?;
    }
    let placement = Placement { tag: b"x", ..Placement::default() };
    let all: Vec<Charge<'_>> = limits.iter().map(|limit| Charge::take(key, limit, 1).placed(placement)).collect();
    store.charge(&call, &all).await.map_err(|error| words(&error))?;
    for limit in &limits[..2] {
        let (namespace, length) = (Namespace::root(), Duration::from_secs(1));
        let lease = Lease { namespace, key, limit, tag: b"", sizes: &[2, 1], length };
        store.lease(&call, &lease).await.map_err(|error| words(&error))?;
    }
    let acquire = PermitOp::Acquire { limit: 5, lease: day };
    for op in [acquire, PermitOp::Renew { lease: day }, PermitOp::Release] {
        let charge = PermitCharge { namespace: Namespace::root(), key, permit: Key::new("p").unwrap(), op };
        store.permit(&call, &charge).await.map_err(|error| words(&error))?;
    }
    let notice = Notice { node: "n", topic: "t", bytes: b"text", ttl: day };
    store.publish(&call, &notice).await.map_err(|error| words(&error))?;
    store.posted(&call, "t").await.map_err(|error| words(&error))?;
    store.read(&call, "t", "n").await.map_err(|error| words(&error))?;
    Ok(())
}

#[tokio::test]
async fn the_guide_tells_all_permissions() {
    let server = Server::start(&Setup::default());
    let words = told();
    let url = format!("redis://tidegate:password@127.0.0.1:{}?timeout=5s", server.port);
    set_user(&server, &words);
    do_all(&url).await.unwrap();
    // Without any of them something is refused. What only a Sentinel, a Cluster or another database than the first is asked
    // is not needed here, nor what is a courtesy.
    let elsewhere = ["+ping", "+client|setname", "+role", "+cluster|slots", "+asking", "+select"];
    for word in words.iter().filter(|word| word.starts_with('+') && !elsewhere.contains(&word.as_str())) {
        let without: Vec<String> = words.iter().filter(|other| *other != word).cloned().collect();
        set_user(&server, &without);
        redis::cmd("FLUSHALL").exec(&mut server.admin().unwrap()).unwrap();
        redis::cmd("SCRIPT").arg("FLUSH").exec(&mut server.admin().unwrap()).unwrap();
        let refused = do_all(&url).await.expect_err(&format!("{word} is not needed"));
        // Of what a script may not do, Redis does not say what it is, and Valkey does.
        let is_in_script = refused.contains("The user executing the script can't run this command")
            || refused.contains("ACL failure in script");
        let is_named = refused.contains("NOPERM") && refused.contains(word.trim_start_matches('+'));
        assert_eq!(is_in_script, !["+evalsha", "+script|load"].contains(&word.as_str()), "{word}: {refused}");
        assert!(is_in_script || is_named, "{word}: {refused}");
    }
}

#[tokio::test]
async fn and_those_that_a_cluster_needs() {
    let cluster = Cluster::start(5_000);
    let words = told();
    cluster.nodes.iter().for_each(|node| set_user(node, &words));
    let hosts = cluster.hosts();
    do_all(&format!("redis+cluster://tidegate:password@{hosts}?timeout=5s")).await.unwrap();
}
