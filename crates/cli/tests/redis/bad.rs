//! What is wrong is said, with the store's name and without its password; who asks gets what the rule chose; and nothing is
//! overwritten.

use crate::ask::Said;
use crate::fleet::{Fleet, PATIENT, check, shared};

use Said::{Failed, Passed};
use tidegate_testkit::process::directory;
use tidegate_testkit::servers::{Server, Setup};
use tidegate_testkit::tidegate::command;
use tidegate_testkit::wait::eventually;

const SHUT: &str = "name: shut, key: {entry: shut}, on_store_failure: deny, limit: 5/30d";
const OPEN: &str = "name: open, key: {entry: open}, on_store_failure: allow, limit: 1/30d";
const SECRET: &str = "s3cret-w0rd";

/// The rule's choice answers, and the log says in these words what is wrong with which store.
fn answers_and_says(fleet: &Fleet, store: &str, words: &[&str]) {
    let node = fleet.node(0);
    assert_eq!([(); 3].map(|()| check(node, ("shut", "ann"))), [Failed; 3]);
    assert_eq!([(); 3].map(|()| check(node, ("open", "ann"))), [Passed; 3]);
    let is_said = |line: &str| line.contains(store) && words.iter().all(|word| line.contains(word));
    let said = eventually(|| node.process.log().lines().any(is_said));
    let log = node.process.log();
    println!("{log}");
    assert!(said, "no line names {store} and says {words:?}:\n{log}");
    assert!(!log.contains(SECRET), "a password is in the log:\n{log}");
}

#[test]
fn urls_that_are_wrong_are_refused_at_the_start() {
    for (url, words) in [
        ("redis://:s3cret-w0rd@127.0.0.1:99999", "port"),
        ("redis+cluster://", "host"),
        ("http://127.0.0.1", "write redis"),
        ("redis://127.0.0.1/?timeout=never", "timeout"),
    ] {
        let by_option = command().args(["serve", "--store", url]).output().unwrap();
        let directory = directory();
        let path = directory.path().join("rules.yaml");
        std::fs::write(&path, shared(url, &[SHUT])).unwrap();
        let by_file = command().args(["serve", "--config"]).arg(&path).output().unwrap();
        for output in [by_option, by_file] {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            println!("{said}");
            assert!(!output.status.success(), "{url}");
            assert!(said.contains(words), "{url}: {said}");
            assert!(!said.contains(SECRET), "{said}");
        }
    }
}

#[test]
fn a_wrong_password_is_said() {
    let redis = Server::start(&Setup { password: Some("another"), ..Setup::default() });
    let url = format!("redis://:{SECRET}@127.0.0.1:{}?timeout=300ms", redis.port);
    let fleet = Fleet::start(1, &shared(&url, &[SHUT, OPEN]));
    answers_and_says(
        &fleet,
        &format!("127.0.0.1:{}", redis.port),
        &["ERROR", "cannot connect to the store", "WRONGPASS"],
    );
    answers_and_says(&fleet, &format!("127.0.0.1:{}", redis.port), &["ERROR", "store call failed", "WRONGPASS"]);
    let log = fleet.node(0).process.log();
    let heals = log.lines().find(|line| line.contains(" WARN ") && line.contains("WRONGPASS"));
    assert_eq!(heals, None, "it does not heal by itself");
}

#[test]
fn a_user_without_rights_is_said() {
    let user = format!("limiter on >{SECRET} ~tidegate* +@all -evalsha");
    let redis = Server::start(&Setup { user: Some(&user), ..Setup::default() });
    let url = format!("redis://limiter:{SECRET}@127.0.0.1:{}?timeout=300ms", redis.port);
    let fleet = Fleet::start(1, &shared(&url, &[SHUT, OPEN]));
    answers_and_says(&fleet, &format!("127.0.0.1:{}", redis.port), &["ERROR", "NOPERM", "evalsha"]);
}

#[test]
fn a_user_without_rights_to_the_keys_is_said() {
    let user = format!("limiter on >{SECRET} ~other* +@all");
    let redis = Server::start(&Setup { user: Some(&user), ..Setup::default() });
    let url = format!("redis://limiter:{SECRET}@127.0.0.1:{}?timeout=300ms", redis.port);
    let fleet = Fleet::start(1, &shared(&url, &[SHUT, OPEN]));
    answers_and_says(&fleet, &format!("127.0.0.1:{}", redis.port), &["ERROR", "NOPERM"]);
}

/// Puts something else where the count of a rule is, and sees that it stays there.
fn holds_something_else(put: &[&str], dump: &str, words: &[&str]) {
    let redis = Server::start(&Setup::default());
    let url = format!("redis://127.0.0.1:{}?{PATIENT}", redis.port);
    let fleet = Fleet::start(1, &shared(&url, &[SHUT, OPEN]));
    for entry in ["shut", "open"] {
        assert_eq!(check(fleet.node(0), (entry, "ann")), Passed);
    }
    let mut connection = redis.admin().unwrap();
    let keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    assert_eq!(keys.len(), 2);
    let run = |words: &[&str], key: &[u8], connection: &mut redis::Connection| {
        let mut command = redis::cmd(words[0]);
        command.arg(key).arg(&words[1..]);
        command.query::<redis::Value>(connection).unwrap()
    };
    for key in &keys {
        run(&["DEL"], key, &mut connection);
        run(put, key, &mut connection);
    }
    let before = keys.iter().map(|key| run(&[dump], key, &mut connection)).collect::<Vec<_>>();
    answers_and_says(&fleet, &format!("127.0.0.1:{}", redis.port), words);
    let after = keys.iter().map(|key| run(&[dump], key, &mut connection)).collect::<Vec<_>>();
    assert_eq!(before, after, "it was overwritten");
}

#[test]
fn a_key_of_another_type_is_left_alone() {
    holds_something_else(&["RPUSH", "mine"], "DUMP", &["WRONGTYPE"]);
}

#[test]
fn a_state_of_an_unknown_layout_is_left_alone() {
    holds_something_else(&["SET", "v9:17"], "DUMP", &["TIDEGATE", "another version"]);
}
