//! What the server says about itself while it serves: traces, the decision log, logs as JSON.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{TraceService, TraceServiceServer};
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use rustix::process::Signal;
use tidegate_testkit::http::Connection;
use tidegate_testkit::ports::free_port;
use tidegate_testkit::process::directory;
use tidegate_testkit::tidegate::Tidegate;
use tokio::runtime::{Builder, Runtime};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Identity, ServerTlsConfig};

const RULES: &str = "
domains:
  api:
    rules:
    - {name: twice, match: {entries: {user: '*'}}, key: {entry: user}, limit: 2/hour}
    - {name: login, match: {path: /login}, key: address, limit: 2/hour}
";

const CHECK: &str = r#"{"domain":"api","descriptors":[{"user":"42"}]}"#;

/// A directory with the rules above, and their path.
fn rules() -> (tempfile::TempDir, String) {
    let directory = directory();
    let path = directory.path().join("rules.yaml");
    std::fs::write(&path, RULES).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (directory, path)
}

/// A server with the rules above, and the directory that they stand in.
fn start(arguments: &[&str]) -> (Tidegate, tempfile::TempDir) {
    let (directory, path) = rules();
    let mut all = vec!["--drain-delay", "0"];
    all.extend(arguments);
    (Tidegate::with_config(Path::new(&path), &all), directory)
}

fn post(address: SocketAddr, path: &str, body: &str) -> u16 {
    post_with(address, path, &[], body)
}

fn post_with(address: SocketAddr, path: &str, headers: &[&str], body: &str) -> u16 {
    Connection::open(address).unwrap().ask("POST", path, headers, body).unwrap().status
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// Keeps the spans that are sent to it.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: tonic::Request<ExportTraceServiceRequest>,
    ) -> Result<tonic::Response<ExportTraceServiceResponse>, tonic::Status> {
        let scopes = request.into_inner().resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
        self.0.lock().unwrap().extend(scopes.flat_map(|scope| scope.spans));
        Ok(tonic::Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    fn start() -> (SocketAddr, Collector) {
        Collector::start_by(tonic::transport::Server::builder())
    }

    /// One that speaks TLS, with a certificate for localhost that it signed itself; also that certificate.
    fn encrypted() -> (SocketAddr, Collector, String) {
        let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let (certificate, key) = (signed.cert.pem(), signed.signing_key.serialize_pem());
        let tls = ServerTlsConfig::new().identity(Identity::from_pem(&certificate, key));
        let (address, collector) = Collector::start_by(tonic::transport::Server::builder().tls_config(tls).unwrap());
        (address, collector, certificate)
    }

    fn start_by(mut server: tonic::transport::Server) -> (SocketAddr, Collector) {
        let (collector, runtime) = (Collector::default(), runtime());
        let incoming = runtime.block_on(async { TcpIncoming::bind("127.0.0.1:0".parse().unwrap()) }).unwrap();
        let address = incoming.local_addr().unwrap();
        let server = server.add_service(TraceServiceServer::new(collector.clone()));
        std::thread::spawn(move || runtime.block_on(server.serve_with_incoming(incoming)));
        (address, collector)
    }

    /// Each span, in the order of their start: its name and attributes.
    fn told(&self) -> Vec<String> {
        let mut spans = self.0.lock().unwrap().clone();
        spans.sort_by_key(|span| span.start_time_unix_nano);
        spans.iter().map(told).collect()
    }
}

fn attribute(span: &Span, name: &str) -> String {
    let found = span.attributes.iter().find(|attribute| attribute.key == name);
    match found.and_then(|attribute| attribute.value.clone()?.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::BoolValue(is_so)) => is_so.to_string(),
        other => format!("{other:?}"),
    }
}

fn told(span: &Span) -> String {
    let attribute = |name: &str| attribute(span, name);
    format!("{} {} {} {}", span.name, attribute("protocol"), attribute("domain"), attribute("allowed"))
}

/// Asks as Envoy does.
fn ask_grpc(address: SocketAddr) {
    ask_grpc_with(address, None);
}

fn ask_grpc_with(address: SocketAddr, traceparent: Option<&str>) {
    let entry = Entry { key: "user".to_owned(), value: "42".to_owned() };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..Default::default() };
    let request = RateLimitRequest { domain: "api".to_owned(), descriptors: vec![descriptor], hits_addend: 1 };
    runtime().block_on(async {
        let mut client = RateLimitServiceClient::connect(format!("http://{address}")).await.unwrap();
        let mut request = tonic::Request::new(request);
        if let Some(traceparent) = traceparent {
            request.metadata_mut().insert("traceparent", traceparent.parse().unwrap());
        }
        client.should_rate_limit(request).await.unwrap();
    });
}

/// Asks as Redis clients do.
fn ask_resp(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"TIDEGATE.CHECK api user 42\r\n").unwrap();
    let mut first = [0; 2];
    stream.read_exact(&mut first).unwrap();
    assert_eq!(&first, b"*6");
}

#[test]
fn a_span_for_each_check_reaches_the_collector() {
    let (address, collector) = Collector::start();
    let (mut tidegate, _rules) = start(&["--otlp", &format!("http://{address}")]);
    assert_eq!(post(tidegate.http, "/v1/check", CHECK), 200);
    ask_grpc(tidegate.grpc);
    ask_resp(tidegate.resp);
    tidegate.process.signal(Signal::TERM);
    assert!(tidegate.process.ended().success());
    assert_eq!(collector.told(), ["check http api true", "check grpc api true", "check resp api false"]);
    assert!(!tidegate.process.log().contains("not sent"), "{}", tidegate.process.log());
}

#[test]
fn answers_are_timed() {
    let (tidegate, _rules) = start(&[]);
    assert_eq!(post(tidegate.http, "/v1/check", CHECK), 200);
    assert_eq!(tidegate.get("/healthz").status, 200, "nothing is decided there");
    for _ in 0..2 {
        ask_grpc(tidegate.grpc);
    }
    ask_resp(tidegate.resp);
    for (name, label, count) in [
        ("tidegate", "protocol=\"http\"", 1.0),
        ("tidegate", "protocol=\"grpc\"", 2.0),
        ("tidegate", "protocol=\"resp\"", 1.0),
        ("ratelimit_service", "grpc_method=\"ShouldRateLimit\"", 2.0),
    ] {
        let told = |what: &str| tidegate.metric(&format!("{name}_response_time_seconds_{what}")).unwrap();
        assert_eq!(told(&format!("count{{{label}}}")), count, "{name} {label}");
        assert_eq!(told(&format!("bucket{{{label},le=\"+Inf\"}}")), count, "{name} {label}");
        let seconds = told(&format!("sum{{{label}}}"));
        assert!(seconds > 1e-6 && seconds < 1.0, "{name} {label}: {seconds}");
    }
}

#[test]
fn spans_are_encrypted_where_the_collector_speaks_tls() {
    let (address, collector, certificate) = Collector::encrypted();
    let place = directory();
    let trusted = place.path().join("authorities.pem");
    let endpoint = format!("https://localhost:{}", address.port());
    let (others, _, other) = Collector::encrypted();
    for (endpoint, certificate, is_sent) in [
        (endpoint.clone(), &certificate, true),
        (endpoint, &other, false),
        (format!("http://localhost:{}", address.port()), &certificate, false),
        (format!("https://localhost:{}", others.port()), &certificate, false),
    ] {
        collector.0.lock().unwrap().clear();
        std::fs::write(&trusted, certificate).unwrap();
        let (rules, path) = rules();
        let arguments = ["--drain-delay", "0", "--config", &path, "--otlp", &endpoint];
        let mut tidegate = Tidegate::with_variable("SSL_CERT_FILE", &trusted, &arguments);
        assert_eq!(post(tidegate.http, "/v1/check", CHECK), 200);
        tidegate.process.signal(Signal::TERM);
        assert!(tidegate.process.ended().success());
        let expected: &[&str] = if is_sent { &["check http api true"] } else { &[] };
        assert_eq!(collector.told(), expected, "{endpoint}");
        assert_eq!(tidegate.process.log().contains("not sent"), !is_sent, "{}", tidegate.process.log());
        drop(rules);
    }
}

#[test]
fn a_machine_that_trusts_nobody_says_so() {
    let place = directory();
    let empty = place.path().join("empty.pem");
    std::fs::write(&empty, "").unwrap();
    let mut command = tidegate_testkit::tidegate::command();
    command.env("SSL_CERT_FILE", &empty).args(["serve", "--otlp", "https://127.0.0.1:4317"]);
    let output = command.output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.starts_with("error: otlp: cannot send traces to `https://127.0.0.1:4317`"), "{told}");
    assert!(told.contains("; for TLS, set SSL_CERT_FILE to a file with CA certificates"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
}

/// A caller's span, and whether it is recorded.
fn parent(span: u64, is_sampled: bool) -> String {
    format!("00-0af7651916cd43dd8448eb211c80319c-{span:016x}-0{}", u8::from(is_sampled))
}

#[test]
fn spans_belong_to_the_trace_of_whoever_asks() {
    let (address, collector) = Collector::start();
    let (mut tidegate, _rules) = start(&["--otlp", &format!("http://{address}")]);
    for (span, is_sampled) in [(1, true), (2, false)] {
        let header = format!("traceparent: {}", parent(span, is_sampled));
        assert_eq!(post_with(tidegate.http, "/v1/check", &[&header], CHECK), 200);
    }
    ask_grpc_with(tidegate.grpc, Some(&parent(3, true)));
    let json = r#"{"domain":"api","descriptors":[{"entries":[{"key":"other","value":"42"}]}]}"#;
    assert_eq!(post_with(tidegate.http, "/json", &[&format!("traceparent: {}", parent(4, true))], json), 200);
    assert_eq!(
        post_with(tidegate.http, "/v1/auth?domain=api", &[&format!("traceparent: {}", parent(5, true))], ""),
        200
    );
    assert_eq!(post_with(tidegate.http, "/v1/check", &["traceparent: nonsense"], CHECK), 429);
    tidegate.process.signal(Signal::TERM);
    assert!(tidegate.process.ended().success());
    let mut spans = collector.0.lock().unwrap().clone();
    spans.sort_by_key(|span| span.start_time_unix_nano);
    let parents: Vec<Vec<u8>> = spans.iter().map(|span| span.parent_span_id.clone()).collect();
    let of = |span: u64| span.to_be_bytes().to_vec();
    assert_eq!(parents, [of(1), of(3), of(4), of(5), vec![]], "the second is not recorded, the last begins a trace");
    let trace = [0x0a, 0xf7, 0x65, 0x19, 0x16, 0xcd, 0x43, 0xdd, 0x84, 0x48, 0xeb, 0x21, 0x1c, 0x80, 0x31, 0x9c];
    assert!(spans[..4].iter().all(|span| span.trace_id == trace), "{spans:#?}");
    assert_ne!(spans[4].trace_id, trace);
    let names: Vec<&str> = spans[0].attributes.iter().map(|attribute| attribute.key.as_str()).collect();
    assert_eq!(names, ["protocol", "domain", "allowed", "rule"], "{spans:#?}");
    assert_eq!(attribute(&spans[4], "rule"), "twice");
}

#[test]
fn traces_that_cannot_be_sent_are_warned_of_once() {
    let (mut tidegate, _rules) = start(&["--otlp", &format!("http://127.0.0.1:{}", free_port())]);
    let said = tidegate.process.path("stderr");
    for number in 1..=2 {
        assert_eq!(post(tidegate.http, "/v1/check", CHECK), 200, "{number}");
    }
    let log = || std::fs::read_to_string(&said).unwrap_or_default();
    tidegate.process.wait_until("the warning", || log().contains("does a collector listen at the address of --otlp?"));
    post(tidegate.http, "/v1/check", CHECK);
    tidegate.process.signal(Signal::TERM);
    assert!(tidegate.process.ended().success());
    assert_eq!(log().matches("traces were not sent").count(), 1, "{}", log());
}

#[test]
fn one_in_so_many_decisions_is_logged() {
    let path = |directory: &tempfile::TempDir| -> PathBuf { directory.path().join("decisions.jsonl") };
    let place = directory();
    let log = path(&place);
    let (mut tidegate, _rules) = start(&["--decision-log", log.to_str().unwrap(), "--decision-log-every", "2"]);
    for expected in [200, 200, 429, 429, 429] {
        assert_eq!(post(tidegate.http, "/v1/check", CHECK), expected);
    }
    assert_eq!(tidegate.metric("tidegate_decision_log_dropped_total"), Some(0.0));
    tidegate.process.signal(Signal::TERM);
    assert!(tidegate.process.ended().success());
    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> = lines.iter().map(|line| (&line["allowed"], &line["denial"])).collect();
    let (denied, null) = ((&false.into(), &"over_limit".into()), serde_json::Value::Null);
    assert_eq!(told, [(&true.into(), &null), denied, denied], "the first, third and fifth");
    assert_eq!(lines[0]["descriptors"], serde_json::json!([[["user", "42"]]]));
    let rule = &lines[1]["rules"][0];
    assert_eq!((&rule["rule"], &rule["enforced"], &rule["remaining"]), (&"twice".into(), &true.into(), &0.into()));
}

#[test]
fn the_decision_log_says_what_was_answered_and_of_what() {
    let place = directory();
    let log = place.path().join("decisions.jsonl");
    let (mut tidegate, _rules) = start(&["--decision-log", log.to_str().unwrap()]);
    let about = |domain: &str| {
        format!(
            r#"{{"domain":"{domain}","descriptors":[{{}}],"cost":2,"request":{{"method":"POST","path":"/login"}}}}"#
        )
    };
    assert_eq!(post(tidegate.http, "/v1/check", &about("api")), 200);
    assert_eq!(post(tidegate.http, "/v1/check", &about("apo")), 404);
    let mut stream = TcpStream::connect(tidegate.resp).unwrap();
    stream.write_all(b"TIDEGATE.CHECK apo user 42\r\nQUIT\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("-ERR domain: there are no rules for `apo`"), "{answer}");
    let hits = r#"{"domain":"apo","descriptors":[{"entries":[{"key":"user","value":"42"}],"hitsAddend":"3"}]}"#;
    assert_eq!(post(tidegate.http, "/json", hits), 200, "Envoy is told OK");
    tidegate.process.signal(Signal::TERM);
    assert!(tidegate.process.ended().success());
    assert_eq!(std::fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o640);
    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told = |name: &str| lines.iter().map(|line| line[name].clone()).collect::<Vec<_>>();
    let (null, unknown) = (serde_json::Value::Null, serde_json::Value::from("domain: it has no rules"));
    assert_eq!(told("allowed"), [true.into(), null.clone(), null.clone(), true.into()], "{text}");
    assert_eq!(told("error"), [null.clone(), unknown.clone(), unknown, null.clone()], "{text}");
    assert_eq!(told("cost"), [2, 2, 1, 1], "{text}");
    assert_eq!(told("costs"), [null.clone(), null.clone(), null.clone(), serde_json::json!([3])], "{text}");
    assert_eq!(told("method"), ["POST".into(), "POST".into(), null.clone(), null.clone()], "{text}");
    assert_eq!(told("path"), ["/login".into(), "/login".into(), null.clone(), null], "{text}");
}

#[test]
fn logs_are_json_where_asked_for_and_say_whom_a_change_was_about() {
    let (mut tidegate, _rules) = start(&["--log-format", "json"]);
    let about =
        r#""domain":"api","descriptors":[{}],"request":{"method":"POST","path":"/login","address":"192.0.2.7"}"#;
    assert_eq!(post(tidegate.http, "/v1/block", &format!(r#"{{{about},"duration":"1m"}}"#)), 200);
    let long = "x".repeat(2_000);
    let odd =
        format!(r#"{{"domain":"api","descriptors":[{{"user":"a\nb{long}"}}],"request":{{"path":"/c\n{long}"}}}}"#);
    assert_eq!(post(tidegate.http, "/v1/reset", &odd), 200);
    tidegate.process.signal(Signal::TERM);
    assert!(tidegate.process.ended().success());
    let log = tidegate.process.log();
    let lines: Vec<serde_json::Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().all(|line| line["level"].is_string() && line["message"].is_string()), "{log}");
    let changes: Vec<_> = lines.iter().filter(|line| line["target"] == "tidegate::admin").collect();
    assert_eq!(changes[0]["action"], "block");
    assert_eq!(changes[0]["request"], r#""192.0.2.7 POST /login""#);
    assert_eq!(changes[0]["limits"], 1);
    assert!(changes[1]["request"].as_str().unwrap().starts_with(r#""/c\nxxx"#), "{log}");
    assert!(changes[1].to_string().len() < 500, "{log}");
}

/// The lines of a decision log without their instants, when the server has ended.
fn lines(log: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(log).unwrap();
    let line = |line: &str| {
        let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(line.as_object_mut().unwrap().remove("at_ns").is_some_and(|at| at.is_u64()), "{line}");
        line
    };
    text.lines().map(line).collect()
}

/// Asks with limits of its own, over HTTP and as a pipeline of a Redis client.
fn ask_with_own_limits(tidegate: &Tidegate) {
    let get = |query: &str| tidegate.get(&format!("/v1/check?{query}")).status;
    assert_eq!(get("key=a&rate=1/hour&cost=2"), 429);
    let list = r#"[{"key":"a","limit":{"name":"day","rate":"9/day"}},{"key":"b","limit":"1/hour"}]"#;
    let parent = format!("traceparent: {}", parent(7, true));
    assert_eq!(post_with(tidegate.http, "/v1/check", &[&parent], list), 200);
    assert_eq!(get("key=c&rate=1/hour&algorithm=leaky_bucket&capacity=2&wait=1m"), 200);
    assert_eq!(post(tidegate.http, "/v1/check", r#"{"key":"","limit":"1/hour"}"#), 400);
    assert_eq!(post(tidegate.http, "/v1/permits", r#"{"key":"job","limit":2,"lease":"1m"}"#), 201);
    let mut stream = TcpStream::connect(tidegate.resp).unwrap();
    stream
        .write_all(b"CL.THROTTLE d 0 1 60\r\nCL.THROTTLE d 0 1 60\r\nTIDEGATE.ACQUIRE job 1 60000\r\nQUIT\r\n")
        .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:60\r\n*5\r\n:1\r\n"), "{answer}");
}

#[test]
fn decisions_by_limits_of_callers_are_logged() {
    let place = directory();
    let log = place.path().join("decisions.jsonl");
    let (mut tidegate, _rules) = start(&["--decision-log", log.to_str().unwrap()]);
    ask_with_own_limits(&tidegate);
    tidegate.process.signal(Signal::TERM);
    assert!(tidegate.process.ended().success());
    let mut lines = lines(&log);
    // A wait is as long as it takes.
    for line in &mut lines {
        if let Some(wait) = line.get_mut("retry_after_ns") {
            assert!(wait.as_u64().is_some_and(|wait| (1..=60_000_000_000).contains(&wait)), "{wait}");
            *wait = "under a minute".into();
        }
    }
    let own = |limits: serde_json::Value, protocol: &str, allowed: bool| serde_json::json!({"protocol": protocol, "allowed": allowed, "limits": limits});
    let with = |mut line: serde_json::Value, more: serde_json::Value| {
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        line
    };
    let denied = serde_json::json!({"denial": "over_limit", "retry_after_ns": "under a minute"});
    let one = |key: &str, algorithm: &str, numbers: [u64; 3], allowed: bool| {
        let [units, cost, remaining] = numbers;
        serde_json::json!({"key": key, "algorithm": algorithm, "units": units, "cost": cost, "allowed": allowed, "remaining": remaining})
    };
    let named = with(one("a", "gcra", [9, 1, 8], true), serde_json::json!({"limit": "day"}));
    let never = serde_json::json!({"denial": "over_limit"});
    let error = "key: empty; a key has at least 1 byte (skip or refuse a request without an identity)";
    let refused = serde_json::json!({"key": "", "algorithm": "gcra", "units": 1, "cost": 1});
    let expected = [
        with(own([one("a", "gcra", [1, 2, 1], false)].into(), "http", false), never),
        own([named, one("b", "gcra", [1, 1, 0], true)].into(), "http", true),
        with(own([one("c", "leaky_bucket", [2, 1, 1], true)].into(), "http", true), serde_json::json!({"wait_ns": 0})),
        serde_json::json!({"protocol": "http", "error": error, "limits": [refused]}),
        own([one("job", "concurrency", [2, 1, 1], true)].into(), "http", true),
        own([one("d", "gcra", [1, 1, 0], true)].into(), "resp", true),
        with(own([one("d", "gcra", [1, 1, 0], false)].into(), "resp", false), denied.clone()),
        with(own([one("job", "concurrency", [1, 1, 0], false)].into(), "resp", false), denied),
    ];
    assert_eq!(lines, expected);
}

#[test]
fn decisions_by_limits_of_callers_are_traced() {
    let (address, collector) = Collector::start();
    let (mut tidegate, _rules) = start(&["--otlp", &format!("http://{address}")]);
    ask_with_own_limits(&tidegate);
    tidegate.process.signal(Signal::TERM);
    assert!(tidegate.process.ended().success());
    let (http, resp) = ("check http None", "check resp None");
    let expected = [
        format!("{http} false"),
        format!("{http} true"),
        format!("{http} true"),
        format!("{http} None"),
        format!("{http} true"),
        format!("{resp} true"),
        format!("{resp} false"),
        format!("{resp} false"),
    ];
    assert_eq!(collector.told(), expected);
    let mut spans = collector.0.lock().unwrap().clone();
    spans.sort_by_key(|span| span.start_time_unix_nano);
    assert_eq!(spans[1].parent_span_id, 7_u64.to_be_bytes().to_vec(), "the list has a traceparent");
}
