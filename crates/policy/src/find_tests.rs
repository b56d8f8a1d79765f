//! Tests of the whole way from a configuration and a request to rules and keys.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use proptest::prelude::*;

use crate::bounds::{KEY_BYTES_KEPT_MAX, NAME_BYTES_MAX};
use crate::policy::tests::VERIFIED;
use crate::{
    Diagnostics, Entry, FoundRules, Http, KeyMade, Location, Outside, PathForms, Policy, Question, RuleId, compile,
    schema,
};

/// Compiles rules of the domain `d`, written as JSON.
pub(crate) fn policy(rules: &serde_json::Value) -> Policy {
    let config = serde_json::json!({ "domains": { "d": { "rules": rules } } });
    policy_of(&serde_json::from_value(config).unwrap())
}

fn policy_of(config: &schema::Config) -> Policy {
    let locate = |pointer: &str| Location { file: pointer.into(), line: 0, column: 0 };
    let mut diagnostics = Diagnostics::new(&locate);
    let policy = compile(config, &Outside::default(), &mut diagnostics);
    assert!(!diagnostics.has_errors(), "{diagnostics:?}");
    policy
}

/// A request of entries.
pub(crate) fn of_entries<'a>(entries: &'a [Entry<'a>]) -> Question<'a> {
    Question { domain: "d", entries, http: None, cost: 1 }
}

/// A request of HTTP.
pub(crate) fn of_http<'a>(http: &'a Http<'a>) -> Question<'a> {
    Question { domain: "d", entries: &[], http: Some(http), cost: 1 }
}

fn entry<'a>(key: &'a str, value: &'a str) -> Entry<'a> {
    Entry { key, value }
}

fn find(policy: &Policy, question: &Question<'_>) -> Vec<usize> {
    let mut found = FoundRules::new();
    policy.find(policy.domain("d").unwrap(), question, &mut found);
    found.into_iter().map(RuleId::index).collect()
}

/// Finds, and tells how many rules were looked at for that.
fn find_counting(policy: &Policy, question: &Question<'_>) -> (Vec<usize>, usize) {
    VERIFIED.set(0);
    (find(policy, question), VERIFIED.get())
}

fn rules(matches: impl Iterator<Item = serde_json::Value>) -> serde_json::Value {
    let rule =
        |(number, matching)| serde_json::json!({"name": format!("r{number}"), "match": matching, "limit": "1/s"});
    (0..).zip(matches).map(|(number, matching): (u32, _)| rule((number, matching))).collect()
}

const MANY: usize = 10_000;

#[test]
fn exact_values_are_not_scanned() {
    let policy =
        policy(&rules((0..MANY).map(|i| serde_json::json!({"entries": {"plan": "free", "user": i.to_string()}}))));
    let question = [entry("plan", "free"), entry("user", "77"), entry("other", "1")];
    assert_eq!(find_counting(&policy, &of_entries(&question)), (vec![77], 1));
}

#[test]
fn prefixes_of_many_lengths_are_not_scanned() {
    let path = |i: usize| format!("/{}/{i}/", "x".repeat(i % 50));
    let policy = policy(&rules((0..MANY).map(|i| serde_json::json!({"path": path(i) + "*"}))));
    let path = path(4321) + "page";
    let http = Http { path: &path, ..Http::default() };
    assert_eq!(find_counting(&policy, &of_http(&http)), (vec![4321], 1));
    let http = Http { path: "/none", ..Http::default() };
    assert_eq!(find_counting(&policy, &of_http(&http)), (vec![], 0));
}

#[test]
fn suffixes_are_not_scanned() {
    let policy = policy(&rules((0..MANY).map(|i| serde_json::json!({"host": format!("*.t{i}.Example.com")}))));
    let http = Http { host: "WWW.t99.example.com.", ..Http::default() };
    assert_eq!(find_counting(&policy, &of_http(&http)), (vec![99], 1));
}

#[test]
fn networks_of_many_lengths_are_not_scanned() {
    let network = |i: usize| format!("10.{}.{}.0/{}", i / 256, i % 256, 24 + i % 8);
    let policy = policy(&rules((0..MANY).map(|i| serde_json::json!({"address": network(i)}))));
    let http = Http { address: Some("::ffff:10.2.3.1".parse().unwrap()), ..Http::default() };
    assert_eq!(find_counting(&policy, &of_http(&http)), (vec![515], 1));
}

#[test]
fn sequences_of_entries_are_not_scanned() {
    // A hundred tenants by a hundred paths, each with a user of any name but the known ones, as the files of the reference
    // server have it.
    let except: Arc<[String]> = (0..1000).map(|user| format!("u{user}")).collect();
    let rule = |i: usize| {
        let is = |text: String| schema::Value::Is(text);
        let but = schema::Value::But(schema::But { is: "*".to_owned(), except: Arc::clone(&except) });
        let (tenant, path) = (is(format!("t{}", i / 100)), is(format!("/p{}", i % 100)));
        let entries = [("tenant", tenant), ("path", path), ("user", but)];
        let entries = entries.map(|(key, value)| BTreeMap::from([(key.to_owned(), value)])).to_vec();
        schema::Rule {
            name: i.to_string(),
            matching: schema::Match { entries: schema::Entries::Exactly(entries), ..schema::Match::default() },
            limit: Some(schema::Limit::Rate("1/s".to_owned())),
            ..schema::Rule::default()
        }
    };
    let domain = schema::Domain { rules: (0..MANY).map(rule).collect(), ..schema::Domain::default() };
    let policy = policy_of(&schema::Config { domains: [("d".to_owned(), domain)].into(), ..schema::Config::default() });
    let question = |user| [entry("tenant", "t3"), entry("path", "/p7"), entry("user", user)];
    assert_eq!(find_counting(&policy, &of_entries(&question("someone"))), (vec![307], 1));
    assert_eq!(find_counting(&policy, &of_entries(&question("u5"))), (vec![], 1));
    let [tenant, path, user] = question("someone");
    assert_eq!(find_counting(&policy, &of_entries(&[path, tenant, user])), (vec![], 0));
    assert_eq!(find_counting(&policy, &of_entries(&[tenant, path, user, user])), (vec![], 0));
}

#[test]
fn what_many_share_is_not_what_they_are_found_by() {
    let rule =
        |i: usize| serde_json::json!({"method": "post", "path": "/login*", "header": {"X-Key": format!("k{i}")}});
    let policy = policy(&rules((0..MANY).map(rule)));
    let headers = [("accept", "*/*"), ("x-key", "k12")];
    let http = Http { method: "POST", path: "/login", headers: &headers, ..Http::default() };
    assert_eq!(find_counting(&policy, &of_http(&http)), (vec![12], 1));
}

#[test]
fn every_kind_of_condition() {
    let policy = policy(&rules(
        [
            serde_json::json!({}),
            serde_json::json!({"cookie": {"session": "*"}}),
            serde_json::json!({"query": {"q a": ["x/y", "z*"]}}),
            serde_json::json!({"address": ["10.0.0.0/8", "2001:db8::/32"]}),
            serde_json::json!({"entries": []}),
            serde_json::json!({"host": "a.example.com", "method": ["GET", "head"]}),
            serde_json::json!({"header": {"x-a": "1", "x-b": "*2*"}}),
            serde_json::json!({"entries": {"remote_address": "*"}}),
        ]
        .into_iter(),
    ));
    let headers = [("cookie", "a=b; session=1"), ("x-b", "3"), ("x-a", "1"), ("x-b", "123")];
    let http = Http {
        method: "HEAD",
        host: "A.Example.COM",
        path: "/",
        odd_path: None,
        query: "q+a=x%2Fy",
        headers: &headers,
        address: Some(IpAddr::from([10, 1, 1, 1])),
    };
    assert_eq!(find(&policy, &of_http(&http)), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(find(&policy, &of_http(&Http::default())), [0, 4]);
    assert_eq!(find(&policy, &of_entries(&[entry("remote_address", "2001:db8::9")])), [0, 3, 7]);
    assert_eq!(find(&policy, &of_entries(&[entry("remote_address", "somewhere")])), [0, 7]);
}

#[test]
fn a_star_that_means_itself_is_asked_for_by_an_expression() {
    let matches = [
        serde_json::json!({"entries": [{"path": "a*z"}]}),
        serde_json::json!({"entries": [{"path": "*"}], "when": "entries.path == \"a*z\""}),
    ];
    let policy = policy(&rules(matches.into_iter()));
    for (value, expected) in [("a*z", &[0, 1][..]), ("abz", &[0]), ("az", &[0]), ("a*", &[])] {
        assert_eq!(find(&policy, &of_entries(&[entry("path", value)])), expected, "{value}");
    }
}

/// Finds the rules of a path as a client wrote it.
fn find_path(policy: &Policy, path: &str) -> Vec<usize> {
    let forms = PathForms::new(path);
    find(policy, &of_http(&Http { path: forms.canonical(), odd_path: forms.odd(), ..Http::default() }))
}

#[test]
fn a_rule_applies_to_every_form_of_its_path() {
    let matches = [
        serde_json::json!({"path": "/login"}),
        serde_json::json!({"path": ["/none", "/files/*"]}),
        serde_json::json!({"path": {"is": "/*", "except": ["/health", "/free/*"]}}),
        serde_json::json!({"path": "/a%2Fb"}),
    ];
    let policy = policy(&rules(matches.into_iter()));
    let cases: [(&str, &[usize]); 18] = [
        ("/login", &[0, 2]),
        ("/login#f", &[0, 2]),
        ("/%2flogin", &[0, 2]),
        ("/.%2flogin", &[0, 2]),
        ("/x/..%2flogin", &[0, 2]),
        ("/x/%2e%2e%2f%2flog%69n", &[0, 2]),
        ("/LOGIN", &[2]),
        ("/login/", &[2]),
        ("/%252flogin", &[2]),
        // To a server that takes `..` for a name this is a file, to others it is the login.
        ("/files/../login", &[0, 1, 2]),
        ("/files%2fx", &[1, 2]),
        ("/health", &[]),
        ("/free/x", &[]),
        // It may be something else than what is excepted.
        ("/x/../health", &[2]),
        ("/free/..%2fx", &[2]),
        ("/free%2fx", &[2]),
        // All forms of this are excepted.
        ("/free/a%20b", &[]),
        ("/a%2fb", &[2, 3]),
    ];
    for (path, expected) in cases {
        assert_eq!(find_path(&policy, path), expected, "{path}");
    }
}

#[test]
fn a_rule_may_ignore_the_case_of_paths() {
    let matches = [
        serde_json::json!({"path": "/Login", "path_case": "ignore"}),
        serde_json::json!({"path": "/Files/*", "path_case": "ignore"}),
        serde_json::json!({"path": {"is": "/*", "except": ["/Login"]}, "path_case": "ignore"}),
        serde_json::json!({"path": "/Login"}),
    ];
    let policy = policy(&rules(matches.into_iter()));
    let cases: [(&str, &[usize]); 6] = [
        ("/login", &[0]),
        ("/Login", &[0, 3]),
        ("/x/..%2fLOG%49N", &[0, 2]),
        ("/log%C4%B0n", &[0, 2]),
        ("/FILES%2fA", &[1, 2]),
        ("/other", &[2]),
    ];
    for (path, expected) in cases {
        assert_eq!(find_path(&policy, path), expected, "{path}");
    }
}

#[test]
fn all_ways_to_write_a_path_count_together() {
    let rules = serde_json::json!([
        {"name": "exact", "limit": "1/s", "key": "path"},
        {"name": "folded", "limit": "1/s", "key": "path", "match": {"path_case": "ignore"}},
    ]);
    let policy = policy(&rules);
    let check = |rule: usize, path: &str, expected: &[u8]| {
        let forms = PathForms::new(path);
        let http = Http { path: forms.canonical(), odd_path: forms.odd(), ..Http::default() };
        let expected = [&[0, u8::try_from(expected.len()).unwrap()], expected].concat();
        assert_eq!(key(&policy, rule, &of_http(&http)), (KeyMade::Whole, expected), "{path}");
    };
    for path in ["/A/b", "/A%2fb", "/A/x/..%2fb", "//A%2F%62#c"] {
        check(0, path, b"/A/b");
        check(1, path, b"/a/b");
    }
    check(0, "/%ff%20", b"/\xff ");
}

fn key(policy: &Policy, rule: usize, question: &Question<'_>) -> (KeyMade, Vec<u8>) {
    let mut bytes = b"before".to_vec();
    let made = policy.rules()[rule].key(question, &mut bytes);
    assert!(bytes.starts_with(b"before"));
    (made, bytes.split_off(6))
}

#[test]
fn parts_of_keys() {
    let parts = ["address", "method", "host", "path"].map(serde_json::Value::from);
    let named = ["header", "cookie", "query"].map(|kind| serde_json::json!({kind: "X-Id"}));
    let rules: Vec<_> = parts
        .into_iter()
        .chain(named)
        .map(|part| serde_json::json!({"name": part.to_string(), "limit": "1/s", "key": part}))
        .collect();
    let policy = policy(&rules.into());
    let headers = [("x-id", "first"), ("x-id", "second"), ("cookie", "X-Id=c")];
    let http = Http {
        method: "GET",
        host: "A.example.com.",
        path: "/p",
        odd_path: None,
        query: "X-Id=%00",
        headers: &headers,
        address: Some("2001:db8:1:2:3:4:5:6".parse().unwrap()),
    };
    let network = [0, 16, 0x20, 1, 0xd, 0xb8, 0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0];
    let expected: [&[u8]; 7] =
        [&network, b"\0\x03GET", b"\0\x0da.example.com", b"\0\x02/p", b"\0\x05first", b"\0\x01c", b"\0\x01\0"];
    for (rule, expected) in expected.into_iter().enumerate() {
        assert_eq!(key(&policy, rule, &of_http(&http)), (KeyMade::Whole, expected.to_vec()));
    }
    for rule in [0, 4, 5, 6] {
        assert_eq!(key(&policy, rule, &of_http(&Http::default())), (KeyMade::Missing, vec![]));
    }
    let long = "x".repeat(4096);
    let headers = [("x-id", &*long)];
    let http = Http { headers: &headers, ..Http::default() };
    let (made, digest) = key(&policy, 4, &of_http(&http));
    assert_eq!((made, digest.len(), &digest[..2]), (KeyMade::Whole, 34, &[0xff, 0xfe][..]));
    let address = [entry("remote_address", "::ffff:1.2.3.4")];
    assert_eq!(key(&policy, 0, &of_entries(&address)), (KeyMade::Whole, vec![0, 4, 1, 2, 3, 4]));
}

#[test]
fn requests_that_lack_a_part_share_a_key_that_no_others_have() {
    let rule = |name: &str, missing| serde_json::json!({"name": name, "limit": "1/s", "key": ["method", {"header": "a"}], "missing": missing});
    let policy = policy(&["skip", "share", "deny"].map(|missing| rule(missing, missing)).into());
    let made = |rule, http: &Http<'_>| key(&policy, rule, &of_http(http));
    let (bare, whole) = (Http { method: "GET", ..Http::default() }, [("a", "\u{ff}")]);
    assert_eq!(made(0, &bare), (KeyMade::Missing, vec![]));
    assert_eq!(made(1, &bare), (KeyMade::Whole, vec![0xff, 0xff]));
    assert_eq!(made(1, &bare), made(1, &Http { method: "POST", ..bare }));
    assert_eq!(made(2, &bare), (KeyMade::Missing, vec![]));
    let whole = Http { headers: &whole, ..bare };
    assert_eq!(made(1, &whole), (KeyMade::Whole, b"\0\x03GET\0\x02\xc3\xbf".to_vec()));
    assert_eq!(made(0, &whole), made(2, &whole));
}

#[test]
fn long_keys_are_digested_and_stay_apart() {
    let name = "n".repeat(NAME_BYTES_MAX);
    let limit = serde_json::json!({"name": name, "rate": "1/s"});
    let key_parts = serde_json::json!([{"entry": "a"}, {"entry": "b"}]);
    let policy = policy(&serde_json::json!([{"name": name, "limit": limit, "key": key_parts}]));
    let made = |a: &str, b: &str| key(&policy, 0, &of_entries(&[entry("a", a), entry("b", b)]));
    let (long, room) = ("v".repeat(100_000), KEY_BYTES_KEPT_MAX - 4);
    assert_eq!(made(&long[..room], "").1.len(), KEY_BYTES_KEPT_MAX);
    let cases = [
        (&long[..room], ""),
        (&long[..=room], ""),
        ("", &long[..=room]),
        (&long[..room], "v"),
        (&long[..4_096], ""),
        (&long, ""),
        (&long, &long),
    ];
    let keys: HashSet<Vec<u8>> = cases.iter().map(|(a, b)| made(a, b).1).collect();
    assert_eq!(keys.len(), cases.len());
    let namespace = policy.rules()[0].limits[0].namespace.as_bytes();
    assert!(keys.iter().all(|key| namespace.len() + key.len() <= tidegate_core::bounds::KEY_BYTES_MAX));
    assert_eq!(keys.iter().filter(|key| key.starts_with(&[0xff, 0xfe]) && key.len() == 34).count(), cases.len() - 1);
}

fn value() -> impl Strategy<Value = serde_json::Value> {
    prop_oneof![
        "[ab*]{0,3}".prop_map(serde_json::Value::from),
        prop::collection::vec("[ab*]{0,2}", 1..3).prop_map(serde_json::Value::from),
        ("[ab*]{0,2}", prop::collection::vec("[ab*]{0,2}", 1..3))
            .prop_map(|(is, except)| serde_json::json!({"is": is, "except": except})),
    ]
}

fn path_value() -> impl Strategy<Value = serde_json::Value> {
    prop_oneof![
        "[abA/*]{0,4}".prop_map(serde_json::Value::from),
        prop::collection::vec("[abA/*]{0,3}", 1..3).prop_map(serde_json::Value::from),
        ("[abA/*]{0,3}", prop::collection::vec("[abA/*]{0,3}", 1..3))
            .prop_map(|(is, except)| serde_json::json!({"is": is, "except": except})),
    ]
}

fn matching() -> impl Strategy<Value = serde_json::Value> {
    let named = || prop::collection::btree_map("[xy]", value(), 0..2);
    let entries = prop_oneof![
        named().prop_map(|map| serde_json::json!(map)),
        prop::collection::vec(("[xy]", value()), 0..3)
            .prop_map(|list| list.into_iter().map(|(key, value)| serde_json::json!({key: value})).collect()),
    ];
    let network = prop::sample::select(vec!["10.0.0.0/8", "10.128.0.0/9", "0.0.0.0/0", "::/0"]);
    (entries, named(), named(), prop::option::of(path_value()), any::<bool>(), prop::option::of(network)).prop_map(
        |(entries, header, query, path, ignores_case, address)| {
            let mut json = serde_json::json!({"entries": entries, "header": header, "query": query});
            if let Some(path) = path {
                json["path"] = path;
                json["path_case"] = if ignores_case { "ignore" } else { "exact" }.into();
            }
            if let Some(address) = address {
                json["address"] = address.into();
            }
            json
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_index_finds_what_a_scan_finds(
        matches in prop::collection::vec(matching(), 1..12),
        entries in prop::collection::vec(("[xy]", "[ab]{0,3}"), 0..3),
        header in "[ab]{0,3}",
        query in "([xy]=[ab]{0,3}&){0,2}",
        path in "([abA/.]|%2f|%61){0,5}",
        address in prop::option::of(prop::sample::select(vec!["10.200.0.1", "9.9.9.9", "::1"])),
        is_http in any::<bool>(),
    ) {
        let policy = policy(&rules(matches.into_iter()));
        let entries: Vec<Entry<'_>> = entries.iter().map(|(key, value)| entry(key, value)).collect();
        let headers = [("x", &*header)];
        let address = address.map(|address| address.parse().unwrap());
        let forms = PathForms::new(&path);
        let (path, odd_path) = (forms.canonical(), forms.odd());
        let http = Http { path, odd_path, query: &query, headers: &headers, address, ..Http::default() };
        let question = Question { domain: "d", entries: &entries, http: is_http.then_some(&http), cost: 1 };
        let mut scanned = FoundRules::new();
        policy.find_by_scan(&question, &mut scanned);
        let scanned: Vec<usize> = scanned.into_iter().map(RuleId::index).collect();
        prop_assert_eq!(&find(&policy, &question), &scanned);
        // Nothing changes without what nobody looks at.
        let parts = policy.http_parts(policy.domain("d").unwrap());
        let bare = Http {
            path: if parts.path { http.path } else { "" },
            odd_path: http.odd_path.filter(|_| parts.path),
            headers: if parts.headers { http.headers } else { &[] },
            ..http
        };
        let question = Question { http: is_http.then_some(&bare), ..question };
        prop_assert_eq!(&find(&policy, &question), &scanned);
    }

    #[test]
    fn distinct_identities_have_distinct_keys(
        one in prop::collection::vec("[ -~]{0,6}", 3),
        other in prop::collection::vec("[ -~]{0,6}", 3),
    ) {
        let rule = serde_json::json!({"name": "r", "limit": "1/s", "key": [{"entry": "a"}, {"entry": "b"}, {"entry": "c"}]});
        let policy = policy(&serde_json::json!([rule]));
        let bytes = |values: &[String]| {
            let entries: Vec<Entry<'_>> = ["a", "b", "c"].into_iter().zip(values).map(|(k, v)| entry(k, v)).collect();
            key(&policy, 0, &of_entries(&entries)).1
        };
        prop_assert_eq!(one == other, bytes(&one) == bytes(&other));
    }
}
