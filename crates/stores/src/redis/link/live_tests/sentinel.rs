//! A primary that moves.

use tidegate_testkit::ports::free_port;
use tidegate_testkit::servers::{Certificates, LoneSentinel, Sentinels, Server, Setup};
use tokio::time::{Duration, Instant, sleep};

use super::{add, open, pretender, recover};

/// By then a switch has been noticed. Until then calls go to a primary that takes itself for one, and are lost with it.
const NOTICED: Duration = Duration::from_secs(1);

fn url(trio: &Sentinels) -> String {
    // One of those named is not there.
    format!("redis+sentinel://127.0.0.1:{},{}/tide", free_port(), trio.hosts())
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_follow_the_primary_and_leave_the_old_one_alone() {
    let trio = Sentinels::start();
    let redis = open(&url(&trio));
    assert_eq!(add(&redis, "k").await, Ok(1));
    assert_eq!(trio.first.command("GET k"), "1");
    // A primary that hangs through the switch still takes itself for one when it goes on.
    trio.first.hang();
    tokio::task::block_in_place(|| trio.wait_for_switch());
    sleep(NOTICED).await;
    let took = recover(&redis, "after").await;
    println!("answers {took:?} after the switch");
    assert!(took < Duration::from_secs(3), "{took:?}");
    trio.first.go_on();
    let start = Instant::now();
    let mut writes = 1;
    while start.elapsed() < Duration::from_secs(1) {
        if add(&redis, "after").await.is_ok() {
            writes += 1;
        }
        sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(trio.first.command("EXISTS after"), "0", "the old primary was written to");
    assert_eq!(trio.second.command("GET after"), writes.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_switch_by_hand_costs_moments() {
    let trio = Sentinels::start();
    let redis = open(&url(&trio));
    assert_eq!(add(&redis, "k").await, Ok(1));
    tokio::task::block_in_place(|| trio.fail_over());
    sleep(NOTICED).await;
    let took = recover(&redis, "after").await;
    println!("answers {took:?} after the switch");
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert_eq!(trio.second.command("GET after"), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_sentinels_do_not_know_is_said() {
    let trio = Sentinels::start();
    let hosts = trio.hosts();
    let unknown = add(&open(&format!("redis+sentinel://{hosts}/ebb")), "k").await.unwrap_err();
    assert!(unknown.to_string().contains("it knows no primary named \"ebb\""), "{unknown}");
    let (server, free) = (trio.first.port, free_port());
    let mistaken = add(&open(&format!("redis+sentinel://127.0.0.1:{server}/tide")), "k").await.unwrap_err();
    assert!(mistaken.to_string().contains("unknown command"), "{mistaken}");
    let sentinel = hosts.split(',').next().unwrap();
    let taken_for_a_server = add(&open(&format!("redis://{sentinel}")), "k").await.unwrap_err().to_string();
    assert!(taken_for_a_server.ends_with("write redis+sentinel://HOST/NAME"), "{taken_for_a_server}");
    let absent = add(&open(&format!("redis+sentinel://127.0.0.1:{free}/tide")), "k").await.unwrap_err();
    assert!(absent.to_string().contains("no Sentinel names the primary"), "{absent}");
}

#[tokio::test]
async fn a_replica_that_sentinels_take_for_the_primary_is_not_written_to() {
    let server = Server::start(&Setup::default());
    server.command("REPLICAOF 127.0.0.1 1");
    // Such as one that was set back by hand while the Sentinels still believe otherwise.
    server.command("CONFIG SET replica-read-only no");
    let digits = server.port.to_string();
    let sentinel = pretender::start(move |word| match word {
        "get-master-addr-by-name" => Some(format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{digits}\r\n", digits.len())),
        "MASTER" => Some("*2\r\n$12\r\nconfig-epoch\r\n$1\r\n0\r\n".to_owned()),
        _ => None,
    });
    let redis = open(&format!("redis+sentinel://127.0.0.1:{}/tide", sentinel.await));
    let failed = add(&redis, "k").await.unwrap_err();
    assert!(failed.to_string().contains("expected the primary, but its role is slave"), "{failed}");
    server.command("REPLICAOF NO ONE");
    recover(&redis, "k").await;
}

#[tokio::test]
async fn sentinels_and_servers_have_users_and_passwords_of_their_own() {
    let server = Server::start(&Setup { password: Some("sesame"), ..Setup::default() });
    // What is asked of Sentinels, and nothing else.
    let user = "watcher on >basil +sentinel|get-master-addr-by-name +sentinel|master +ping +client|setname";
    let sentinel = LoneSentinel::start(&server, "sesame", "thyme", user);
    let port = sentinel.port;
    let as_user = |user_and_password: &str| {
        format!("redis+sentinel://:sesame@127.0.0.1:{port}/tide/2?sentinel_{user_and_password}")
    };
    assert_eq!(add(&open(&as_user("password=thyme")), "k").await, Ok(1));
    assert_eq!(add(&open(&as_user("user=watcher&sentinel_password=basil")), "k").await, Ok(2));
    let without = add(&open(&format!("redis+sentinel://:sesame@127.0.0.1:{port}/tide")), "k").await;
    assert!(without.unwrap_err().to_string().contains("NOAUTH"));
    for wrong in [
        as_user("password=basil"),
        as_user("user=watcher&sentinel_password=thyme"),
        format!("redis+sentinel://:parsley@127.0.0.1:{port}/tide?sentinel_password=thyme"),
    ] {
        let said = add(&open(&wrong), "k").await.unwrap_err().to_string();
        let tells = ["sesame", "thyme", "basil", "parsley"].iter().any(|password| said.contains(password));
        assert!(said.contains("WRONGPASS") && !tells, "{wrong}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_and_servers_speak_tls() {
    let files = tempfile::tempdir().unwrap();
    let certificates = Certificates::make(files.path());
    let trio = tokio::task::block_in_place(|| Sentinels::start_with(Some(&certificates)));
    let url = format!("rediss+sentinel://{}/tide?ca={}", trio.hosts(), certificates.authority.display());
    let redis = open(&url);
    assert_eq!(add(&redis, "k").await, Ok(1));
    assert_eq!(trio.first.command("GET k"), "1");
    tokio::task::block_in_place(|| trio.fail_over());
    sleep(NOTICED).await;
    recover(&redis, "after").await;
    assert_eq!(trio.second.command("GET after"), "1");
    let plain = add(&open(&format!("redis+sentinel://{}/tide", trio.hosts())), "k").await;
    assert!(plain.is_err(), "these ports speak TLS alone: {plain:?}");
}
