//! From a request to its rules among ten thousand, beside a scan that looks at each of them.

use std::fmt;
use std::hint::black_box;
use std::net::IpAddr;
use std::time::Instant;

use clap::Parser;
use tidegate_policy::{Entry, FoundRules, Http, LoadOptions, Policy, Question, load_text};

use crate::harness::median;
use crate::report::Machine;

const RULES: usize = 10_000;
/// Requests of a kind, each about another rule where there are many: one alone would find everything in the cache.
const REQUESTS: usize = 500;
/// What the project wants to reach.
const TARGET_NS: f64 = 2_000.0;

/// Matching with 10,000 rules, beside a linear scan over the same rules.
#[derive(Debug, Parser)]
struct Options {
    /// Rounds over all kinds of requests; the median counts
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,

    /// Cargo adds this when it runs a bench target.
    #[arg(long, hide = true)]
    bench: bool,
}

/// The condition of a rule. Kinds take turns, so that each has as many.
fn condition(number: usize) -> String {
    match number % 8 {
        0 => format!("{{entries: {{user: u{number}}}}}"),
        1 => format!("{{entries: {{tenant: t{}, seat: s{number}}}}}", number % 40),
        2 => format!("{{path: /api/v{}/r{number}/*}}", number % 5),
        3 => format!("{{address: 10.{}.{}.0/24}}", number / 256, number % 256),
        4 => format!("{{header: {{x-key-{number}: '*'}}}}"),
        5 => format!("{{host: '*.t{number}.example.com'}}"),
        6 => format!("{{path: /w{number}/*/edit}}"),
        _ => format!("{{entries: {{plan: p{number}}}, when: 'request.method == \"GET\" && cost < 5'}}"),
    }
}

fn policy(extra: &str) -> Policy {
    let rule = |number| format!("    - {{name: r{number}, match: {}, limit: 1/s}}\n", condition(number));
    let rules: String = (0..RULES).map(rule).collect();
    let text = format!("domains:\n  api:\n    rules:\n{rules}{extra}");
    let loaded = load_text("rules.yaml", &text, &LoadOptions::default());
    loaded.policy.unwrap_or_else(|| panic!("{:#?}", loaded.diagnostics))
}

/// A request, as it is asked with.
#[derive(Clone)]
struct Asked {
    entries: Vec<(&'static str, String)>,
    path: String,
    host: String,
    address: IpAddr,
    header: String,
}

impl Asked {
    /// One that no rule applies to.
    fn nothing() -> Asked {
        Asked {
            entries: vec![("user", "nobody".to_owned()), ("plan", "none".to_owned())],
            path: "/api/v1/elsewhere/42".to_owned(),
            host: "www.example.com".to_owned(),
            address: "192.0.2.7".parse().unwrap(),
            header: "x-request-id".to_owned(),
        }
    }

    /// The same, so that the rule of this number applies too.
    fn and(mut self, number: usize) -> Asked {
        match number % 8 {
            0 => self.entries.push(("user", format!("u{number}"))),
            1 => self.entries.extend([("tenant", format!("t{}", number % 40)), ("seat", format!("s{number}"))]),
            2 => self.path = format!("/api/v{}/r{number}/page", number % 5),
            3 => self.address = format!("10.{}.{}.9", number / 256, number % 256).parse().unwrap(),
            4 => self.header = format!("x-key-{number}"),
            5 => self.host = format!("www.t{number}.example.com"),
            6 => self.path = format!("/w{number}/some/where/edit"),
            _ => self.entries.push(("plan", format!("p{number}"))),
        }
        self
    }

    /// Its headers, among those that browsers send.
    fn headers(&self) -> [(&str, &str); 8] {
        [
            ("host", &self.host),
            ("user-agent", "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"),
            ("accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"),
            ("accept-language", "en-US,en;q=0.5"),
            ("accept-encoding", "gzip, deflate, br"),
            ("referer", "https://www.example.com/"),
            ("cookie", "session=0123456789abcdef; theme=dark"),
            (&self.header, "7"),
        ]
    }
}

/// Requests that have something in common.
struct Kind {
    name: &'static str,
    requests: Vec<Asked>,
    /// Rules that apply to each of them.
    found: usize,
}

/// The rules of one kind, of which each request is about another.
fn each(name: &'static str, kind: usize) -> Kind {
    let numbers = (0..RULES).filter(|number| number % 8 == kind).step_by(RULES / 8 / REQUESTS);
    Kind { name, requests: numbers.take(REQUESTS).map(|number| Asked::nothing().and(number)).collect(), found: 1 }
}

fn kinds() -> Vec<Kind> {
    let several = |number: usize| [0, 1, 2, 3, 5].iter().fold(Asked::nothing(), |asked, kind| asked.and(number + kind));
    let several = (0..RULES).step_by(8).step_by(RULES / 8 / REQUESTS).map(several).collect();
    let one = |number: usize| vec![Asked::nothing().and(number)];
    vec![
        Kind { name: "the first rule", requests: one(0), found: 1 },
        Kind { name: "the last rule", requests: one(RULES - 1), found: 1 },
        Kind { name: "none", requests: vec![Asked::nothing()], found: 0 },
        each("an exact value", 0),
        each("two exact values", 1),
        each("a prefix", 2),
        each("a network", 3),
        each("the presence of a header", 4),
        each("a suffix", 5),
        each("a wildcard inside", 6),
        each("a value and an expression", 7),
        Kind { name: "five rules of different kinds", requests: several, found: 5 },
    ]
}

/// Requests that are timed together, so that reading the clock does not count.
const BATCH: usize = 16;

/// A kind with what was measured of it, in nanoseconds a request.
struct Lane<'a> {
    name: &'static str,
    found: usize,
    policy: &'a Policy,
    questions: Vec<Question<'static>>,
    index: Vec<f64>,
    scan: Vec<f64>,
}

impl<'a> Lane<'a> {
    fn new(policy: &'a Policy, kind: Kind) -> Lane<'a> {
        // They live as long as the process.
        let requests: &'static [Asked] = kind.requests.leak();
        let question = |asked: &'static Asked| {
            let entries: Vec<_> = asked.entries.iter().map(|(key, value)| Entry { key, value }).collect();
            let http = Http {
                method: "GET",
                path: &asked.path,
                host: &asked.host,
                headers: Vec::from(asked.headers()).leak(),
                address: Some(asked.address),
                ..Http::default()
            };
            Question { domain: "api", entries: entries.leak(), http: Some(Box::leak(Box::new(http))), cost: 1 }
        };
        let questions = requests.iter().cycle().take(REQUESTS).map(question).collect();
        Lane { name: kind.name, found: kind.found, policy, questions, index: Vec::new(), scan: Vec::new() }
    }

    /// Takes samples: of the index one a batch, of the scan, which takes long enough, one a request.
    fn measure(&mut self) {
        let Lane { name, found: rules, policy, questions, index, scan } = self;
        let domain = policy.domain("api").expect("it is in the file");
        let mut found = FoundRules::new();
        // The scans before have filled the caches with other things.
        for question in questions.iter() {
            policy.find(domain, question, &mut found);
        }
        for batch in questions.chunks_exact(BATCH) {
            found.clear();
            let start = Instant::now();
            for question in batch {
                policy.find(domain, black_box(question), &mut found);
            }
            index.push(start.elapsed().as_nanos() as f64 / BATCH as f64);
            assert_eq!(black_box(&found).len(), *rules * BATCH, "{name}");
        }
        for question in questions.iter().step_by(REQUESTS / 10) {
            found.clear();
            let start = Instant::now();
            policy.find_by_scan(black_box(question), &mut found);
            scan.push(start.elapsed().as_nanos() as f64);
            assert_eq!(black_box(&found).len(), *rules, "{name}");
        }
    }

    /// The medians of all samples: on a machine that does other things as well, a mean measures those too.
    fn medians(&self) -> (f64, f64) {
        (median(&self.index), median(&self.scan))
    }
}

impl fmt::Display for Lane<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (index, scan) = self.medians();
        write!(f, "| {} | {index:.0} | {scan:.0} | {:.0}× |", self.name, scan / index)
    }
}

/// Measures, and prints a table.
pub(crate) fn run() {
    let options = Options::parse();
    if !options.bench {
        // `cargo test --all-targets` starts this program without `--bench`.
        eprintln!("nothing measured; run `make bench BENCH=matching`");
        return;
    }
    let rounds = usize::from(options.rounds);
    println!("{}; medians of {rounds} interleaved rounds, {RULES} rules of eight kinds\n", Machine::this());
    println!("| the request matches | index (ns) | scan (ns) | ratio |\n|---|---|---|---|");
    let plain = policy("");
    // A rule that has nothing but an expression is asked for each request.
    let one_more = policy("    - {name: odd, match: {when: 'request.method == \"PUT\" && cost < 5'}, limit: 1/s}\n");
    let beside = Kind {
        name: "none, with one more rule that has only an expression",
        requests: vec![Asked::nothing()],
        found: 0,
    };
    let mut lanes: Vec<Lane<'_>> = kinds().into_iter().map(|kind| Lane::new(&plain, kind)).collect();
    lanes.push(Lane::new(&one_more, beside));
    for _ in 0..rounds {
        lanes.iter_mut().for_each(Lane::measure);
    }
    for lane in &lanes {
        println!("{lane}");
    }
    let slowest = lanes.iter().map(|lane| lane.medians().0).fold(0.0, f64::max);
    let verdict = if slowest < TARGET_NS { "met" } else { "MISSED" };
    println!("\nTarget: below {TARGET_NS:.0} ns per request; the slowest takes {slowest:.0} ns: {verdict}");
}
