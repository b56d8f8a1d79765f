//! Each way to reach one server, and what is said when it does not work.

use tidegate_testkit::servers::{Certificates, Server, Setup};

use super::{add, open};
use crate::redis::link::{CallError, Redis};

async fn failure(url: &str) -> String {
    let error = add(&open(url), "k").await.unwrap_err();
    assert!(matches!(error, CallError::NotSent { .. }), "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn a_server_answers_by_every_way_in() {
    let files = tempfile::tempdir().unwrap();
    let certificates = Certificates::make(files.path());
    let user = Some("alice on >a:b@c/d allkeys +@all");
    let server = Server::start(&Setup { password: Some("sesame"), user, tls: Some(&certificates), ..Setup::default() });
    let (port, tls_port) = (server.port, server.tls_port);
    let authority = certificates.authority.display();
    for (url, sum) in [
        (format!("redis://:sesame@127.0.0.1:{port}"), 1),
        (format!("valkey://default:sesame@localhost:{port}/0"), 2),
        (format!("redis://alice:a%3Ab%40c%2Fd@127.0.0.1:{port}/0"), 3),
        (format!("rediss://:sesame@localhost:{tls_port}?ca={authority}"), 4),
        (format!("valkeys://:sesame@127.0.0.1:{tls_port}?ca={authority}"), 5),
        (format!("redis+unix://:sesame@{}", server.socket().display()), 6),
        (format!("unix://:sesame@{}?db=3", server.socket().display()), 1),
        (format!("redis://:sesame@127.0.0.1:{port}/3"), 2),
    ] {
        assert_eq!(add(&open(&url), "k").await, Ok(sum), "{url}");
    }
    let redis = open(&format!("redis://:sesame@127.0.0.1:{port}"));
    add(&redis, "k").await.unwrap();
    let list: String = redis::cmd("CLIENT").arg("LIST").query(&mut server.admin().unwrap()).unwrap();
    assert!(list.contains("name=tidegate"), "{list}");
}

#[tokio::test]
async fn a_login_that_fails_is_told_with_the_store_and_without_the_password() {
    let user = Some("reader on >sesame ~* +@read");
    let server = Server::start(&Setup { password: Some("sesame"), user, ..Setup::default() });
    let port = server.port;
    let wrong = failure(&format!("redis://:opensecret@127.0.0.1:{port}")).await;
    assert!(
        wrong.starts_with(&format!("redis://127.0.0.1:{port}/0: not sent: no connection: 127.0.0.1:{port}: login"))
    );
    assert!(wrong.contains("WRONGPASS") && !wrong.contains("opensecret"), "{wrong}");
    let nobody = failure(&format!("redis://nobody:opensecret@127.0.0.1:{port}")).await;
    assert!(nobody.contains("redis://nobody@127.0.0.1") && nobody.contains("WRONGPASS"), "{nobody}");
    let without = failure(&format!("redis://127.0.0.1:{port}")).await;
    assert!(without.contains("NOAUTH"), "{without}");
    let database = failure(&format!("redis://:sesame@127.0.0.1:{port}/99")).await;
    assert!(database.contains("database refused") && database.contains("out of range"), "{database}");
    let reader = open(&format!("redis://reader:sesame@127.0.0.1:{port}"));
    let refused = add(&reader, "k").await.unwrap_err();
    assert_eq!(refused.code(), Some("NOPERM"), "{refused}");
}

#[tokio::test]
async fn tls_believes_only_the_authority() {
    let (files, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let certificates = Certificates::make(files.path());
    let stranger = Certificates::make(others.path()).authority;
    let server = Server::start(&Setup { tls: Some(&certificates), ..Setup::default() });
    let url = format!("rediss://localhost:{}?ca=", server.tls_port);
    let distrusted = failure(&format!("{url}{}", stranger.display())).await;
    assert!(distrusted.contains("TLS: invalid peer certificate"), "{distrusted}");
    let plain = failure(&format!("rediss://localhost:{}?ca={}", server.port, stranger.display())).await;
    assert!(plain.contains("does this port speak TLS?"), "{plain}");
    for (file, said) in [("/nowhere/ca.pem", "/nowhere/ca.pem"), ("/dev/null", "there is no certificate")] {
        let error = Redis::open(&format!("{url}{file}").parse().unwrap()).err().unwrap().to_string();
        assert!(error.contains(said) && error.starts_with("rediss://localhost"), "{error}");
    }
}
