//! What is answered to what, as text.

use std::time::Duration;

use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tidegate_engine::Options;
use tidegate_server::RlsOptions;

use super::{Server, descriptor, hits, own_limit, request};

/// A conversation: each line is a question and its answer.
async fn conversation(server: &Server, questions: Vec<(&str, RateLimitRequest)>) -> String {
    let mut client = server.client().await;
    let mut lines = String::new();
    for (name, question) in questions {
        let answer = match client.should_rate_limit(question).await {
            Ok(response) => told(&response.into_inner()),
            Err(status) => format!("{:?}: {}", status.code(), status.message()),
        };
        lines += &format!("{name}\n    {answer}\n");
    }
    lines
}

fn told(response: &RateLimitResponse) -> String {
    let statuses: Vec<String> = response.statuses.iter().map(status).collect();
    let mut text = format!("{} [{}]", code(response.overall_code), statuses.join("; "));
    for header in &response.response_headers_to_add {
        assert!(header.raw_value.is_empty(), "Envoy does not read it");
        text += &format!("\n    {}: {}", header.key, header.value);
    }
    if !response.raw_body.is_empty() {
        text += &format!("\n    {}", String::from_utf8_lossy(&response.raw_body));
    }
    if let Some(metadata) = &response.dynamic_metadata {
        let mut fields: Vec<_> = metadata.fields.iter().collect();
        fields.sort_by_key(|(name, _)| name.as_str());
        text += &format!("\n    {fields:?}");
    }
    text
}

fn code(code: i32) -> &'static str {
    Code::try_from(code).unwrap().as_str_name()
}

fn status(status: &DescriptorStatus) -> String {
    let limit = status.current_limit.as_ref().map_or("no limit".to_owned(), |limit| {
        format!("`{}` {} a {}", limit.name, limit.requests_per_unit, limit.unit().as_str_name())
    });
    let reset = status.duration_until_reset.as_ref().map_or("no reset".to_owned(), |reset| {
        assert_eq!(reset.nanos, 0, "Envoy would cut it off");
        format!("{} s", reset.seconds)
    });
    format!("{}, {limit}, {} left, {reset}", code(status.code), status.limit_remaining)
}

/// The largest cost, and one above it.
#[tokio::test]
async fn hits_have_a_bound() {
    let server = Server::start(
        "domains: {vast: {rules: [{name: all, limit: {rate: 10000000/second, burst: 9007199254740992}}]}}",
    );
    let mut client = server.client().await;
    let mut ask = async |value| {
        let answer = client.should_rate_limit(request("vast", vec![hits(value, descriptor(&[("user", "ann")]))])).await;
        answer.map(|response| code(response.into_inner().overall_code)).map_err(|status| status.message().to_owned())
    };
    let refused = "cost: 9007199254740993 is too large; use at most 9007199254740992";
    assert_eq!(ask((1 << 53) + 1).await, Err(refused.to_owned()));
    assert_eq!(ask(1 << 53).await, Ok("OK"));
    assert_eq!(ask(1).await, Ok("OVER_LIMIT"));
}

const ENVOY_FILE: &str = "
domain: edge
descriptors:
- key: user
  rate_limit: {unit: minute, requests_per_unit: 2}
- key: named
  rate_limit: {unit: hour, requests_per_unit: 1, name: hourly}
- key: free
  rate_limit: {unlimited: true}
- key: shut
  rate_limit: {unit: second, requests_per_unit: 0}
- key: shy
  rate_limit: {unit: day, requests_per_unit: 1}
  shadow_mode: true
- key: quota
  quota_mode: true
  rate_limit: {unit: minute, requests_per_unit: 1}
- key: rest
  quota_mode: true
  rate_limit: {unit: minute, requests_per_unit: 2}
- key: instead
  rate_limit: {unit: minute, requests_per_unit: 50, replaces: [{name: hourly}]}
";

#[tokio::test]
async fn as_the_reference_server_answers() {
    let server = Server::start(ENVOY_FILE);
    let one = |key: &str, value: &str| request("edge", vec![descriptor(&[(key, value)])]);
    let of = |descriptors| request("edge", descriptors);
    let user = || descriptor(&[("user", "ann")]);
    let refund = |units| {
        let mut refund = hits(units, user());
        refund.is_negative_hits = true;
        refund
    };
    let own = |units, unit| of(vec![own_limit(units, unit, descriptor(&[("own", "x")]))]);
    let all = conversation(
        &server,
        vec![
            ("no rule matches", one("nothing", "x")),
            ("unlimited", one("free", "x")),
            ("unknown domain", request("elsewhere", vec![user()])),
            ("unknown domain with a limit", request("elsewhere", vec![own_limit(1, 2, user())])),
            ("a peek at what nobody used", of(vec![hits(0, user())])),
            ("first of two", one("user", "ann")),
            ("second of two", one("user", "ann")),
            ("third of two", one("user", "ann")),
            ("a peek at what is used up", of(vec![hits(0, user())])),
            ("another user", one("user", "bob")),
            ("one back", of(vec![refund(1)])),
            ("more than the whole limit", RateLimitRequest { hits_addend: 3, ..one("user", "eve") }),
            ("with a name", one("named", "x")),
            ("over a limit with a name", one("named", "x")),
            ("two descriptors, one over", of(vec![descriptor(&[("named", "x")]), descriptor(&[("user", "cat")])])),
            ("what passed alone was not taken", of(vec![hits(0, descriptor(&[("user", "cat")]))])),
            ("replaced", of(vec![descriptor(&[("named", "x")]), descriptor(&[("instead", "x")])])),
            ("no request passes", one("shut", "x")),
            ("shadow", one("shy", "x")),
            ("shadow, over", one("shy", "x")),
            ("quota", of(vec![descriptor(&[("quota", "x")]), descriptor(&[("rest", "x")])])),
            ("quota, one over", of(vec![descriptor(&[("quota", "x")]), descriptor(&[("rest", "x")])])),
            ("quota, both over", of(vec![descriptor(&[("quota", "x")]), descriptor(&[("rest", "x")])])),
            ("its own limit", own(1, 2)),
            ("its own limit, over", own(1, 2)),
            ("its own limit of none", own(0, 4)),
            ("its own limit in no unit", own(1, 0)),
            ("its own limit in a unit of the future", own(1, 9)),
            ("its own limit beyond what can be counted", own(u32::MAX, 1)),
            ("no domain", request("", vec![user()])),
            ("no descriptors", of(vec![])),
            ("no entries", of(vec![descriptor(&[])])),
            ("as many descriptors as there may be", of(vec![descriptor(&[("nothing", "x")]); 128])),
            ("too many descriptors", of(vec![user(); 129])),
            ("too many hits", of(vec![hits(u64::MAX, user())])),
            ("a long value", one("user", &"x".repeat(70_000))),
        ],
    )
    .await;
    insta::assert_snapshot!(all);
    server.clock.advance(Duration::from_secs(60));
    let later = conversation(&server, vec![("a minute later", one("user", "ann"))]).await;
    assert!(later.contains("1 left"), "{later}");
}

/// The overall code says whether the request passes, the status of a descriptor what its own limit says.
#[tokio::test]
async fn a_spent_quota_is_over_its_limit_by_itself() {
    const RULES: &str = "
domains:
  api:
    rules:
    - {name: free, match: {entries: {user: '*'}}, quota: true, limit: 1/minute}
    - {name: all, match: {entries: {user: '*'}}, limit: 100/minute}
    - {name: paid, match: {entries: {account: '*'}}, quota: true, limit: 100/minute}
    - {name: tried, match: {entries: {tried: '*'}}, quota: true, mode: shadow, limit: 1/minute}
";
    for shadow in [false, true] {
        let server = Server::with(RULES, Options { shadow, ..Options::default() }, RlsOptions::default());
        let mut client = server.client().await;
        let mut ask = async || {
            let descriptors = [("user", "ann"), ("account", "7"), ("tried", "x")].map(|entry| descriptor(&[entry]));
            let answer = client.should_rate_limit(request("api", descriptors.into())).await.unwrap().into_inner();
            let codes: Vec<_> = answer.statuses.iter().map(|status| code(status.code)).collect();
            (code(answer.overall_code), codes)
        };
        assert_eq!(ask().await, ("OK", vec!["OK", "OK", "OK"]));
        assert_eq!(ask().await, ("OK", vec!["OVER_LIMIT", "OK", "OK"]), "shadow: {shadow}");
    }
}

#[tokio::test]
async fn a_cost_that_cannot_be_computed_is_over_the_limit() {
    const RULES: &str = "domains: {api: {rules: [{name: r, limit: 5/minute, cost: int(entries.bytes)}]}}";
    let server = Server::start(RULES);
    let ask = |bytes| request("api", vec![descriptor(&[("bytes", bytes)])]);
    let all = conversation(&server, vec![("none", ask("x")), ("three", ask("3"))]).await;
    assert_eq!(
        all,
        "none\n    OVER_LIMIT [OVER_LIMIT, `r` 5 a MINUTE, 0 left, no reset]\nthree\n    OK [OK, `r` 5 a MINUTE, 2 left, 36 s]\n"
    );
}

#[tokio::test]
async fn when_all_is_in_shadow() {
    let options = Options { shadow: true, ..Options::default() };
    let server = Server::with(ENVOY_FILE, options, RlsOptions::default());
    let one = |key: &str| request("edge", vec![descriptor(&[(key, "x")])]);
    let all = conversation(&server, vec![("first", one("named")), ("over", one("named")), ("shut", one("shut"))]).await;
    insta::assert_snapshot!(all);
}

const NATIVE: &str = "
domains:
  api:
    rules:
    - name: odd
      match: {entries: {odd: '*'}}
      key: {entry: odd}
      limit: {algorithm: fixed_window, limit: 10, window_ns: 10000000000}
    - name: two
      match: {entries: {two: '*'}}
      key: {entry: two}
      limits: [{name: burst, rate: 2/second}, {name: daily, rate: 3/day}]
      response: {headers: standard}
    - name: old
      match: {entries: {old: '*'}}
      limit: 1/minute
      response: {headers: legacy_epoch, problem: true}
    - name: secret
      match: {entries: {secret: '*'}}
      limit: 1/minute
      response: {hidden: true, headers: standard, problem: true}
    - name: blocked
      match: {entries: {blocked: '*'}}
      action: block
      response: {problem: true}
    - name: penalty
      match: {entries: {penalty: '*'}}
      limit: 1/minute
      penalty: 10m
      response: {headers: draft03}
    - name: tagged
      match: {entries: {tagged: '*'}}
      limit: 1/minute
      metadata: {tier: gold, weight: 2, list: [true, null]}
    - name: shy
      match: {entries: {two: '*'}}
      mode: shadow
      limit: 1/minute
      response: {headers: standard}
";

#[tokio::test]
async fn rules_of_its_own() {
    let options = RlsOptions { dynamic_metadata: true, ..RlsOptions::default() };
    let server = Server::with(NATIVE, Options::default(), options);
    let one = |key: &str| request("api", vec![descriptor(&[(key, "x")])]);
    let names =
        ["odd", "two", "two", "two", "old", "old", "secret", "secret", "blocked", "penalty", "penalty", "penalty"];
    let mut questions: Vec<_> = names.iter().map(|name| (*name, one(name))).collect();
    questions.push(("tagged", one("tagged")));
    let all = conversation(&server, questions).await;
    insta::assert_snapshot!(all);
}

#[tokio::test]
async fn metadata_stays_here_unless_asked_for() {
    let server = Server::start(NATIVE);
    let mut client = server.client().await;
    let response = client.should_rate_limit(request("api", vec![descriptor(&[("tagged", "x")])])).await.unwrap();
    assert_eq!(response.into_inner().dynamic_metadata, None);
}

#[tokio::test]
async fn a_hidden_denial_tells_nothing_of_other_descriptors() {
    let server = Server::start(NATIVE);
    let both = || request("api", vec![descriptor(&[("two", "x")]), descriptor(&[("secret", "x")])]);
    let all = conversation(&server, vec![("first", both()), ("denied", both())]).await;
    let (first, denied) = all.split_once("denied\n").unwrap();
    assert!(first.contains("`burst` 2 a SECOND"), "{first}");
    assert!(
        denied.contains("OVER_LIMIT [OK, no limit, 0 left, no reset; OVER_LIMIT, no limit, 0 left, no reset]"),
        "{denied}"
    );
    assert!(!denied.contains("ratelimit"), "{denied}");
}

#[tokio::test]
async fn a_limit_of_none_is_told_as_one() {
    let file = "
domain: edge
descriptors:
- {key: named, rate_limit: {unit: hour, requests_per_unit: 0, name: none}}
- {key: missing, rate_limit: {unit: day}}
";
    let loaded = tidegate_policy::load_text("edge.yaml", file, &tidegate_policy::LoadOptions::default());
    let migrated = tidegate_policy::migrate::to_yaml(&loaded.config);
    for file in [file, &migrated] {
        let server = Server::start(file);
        let one = |key: &str| request("edge", vec![descriptor(&[(key, "x")])]);
        let all = conversation(&server, vec![("named", one("named")), ("missing", one("missing"))]).await;
        assert!(all.contains("[OVER_LIMIT, `none` 0 a HOUR, 0 left, "), "{all}");
        assert!(all.contains("[OVER_LIMIT, `` 0 a DAY, 0 left, "), "{all}");
        assert!(!all.contains("no reset"), "{all}");
    }
}
