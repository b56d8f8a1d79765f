//! The example as a process, and real requests to it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a panic is the answer")]

#[path = "../../support/process.rs"]
mod process;

use std::thread::{sleep, spawn};
use std::time::Duration;

use process::{IN_FLIGHT, Process, complaint, refused_by, shed_of};

const EXAMPLE: &str = env!("CARGO_BIN_EXE_axum-stack");

/// The example, which ends with its value.
struct Example {
    _process: Process,
    address: String,
}

impl Example {
    fn start(work_millis: u64) -> Example {
        let work = work_millis.to_string();
        let (process, address) = Process::start(EXAMPLE, &[("WORK_MS", &work), ("LISTEN", "127.0.0.1:0")]);
        Example { _process: process, address }
    }

    /// What so many clients of a tenant hear who each send so many requests, one after another.
    fn flood(&self, tenant: &str, clients: usize, each: usize) -> Vec<Answer> {
        let clients: Vec<_> = (0..clients)
            .map(|_| {
                let (address, tenant) = (self.address.clone(), tenant.to_owned());
                spawn(move || (0..each).map(|_| ask(&address, "GET", "/report", &tenant)).collect::<Vec<_>>())
            })
            .collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    }

    fn ask(&self, method: &str, path: &str, tenant: &str) -> Answer {
        ask(&self.address, method, path, tenant)
    }

    fn metric(&self, series: &str) -> usize {
        process::metric(&self.ask("GET", "/metrics", "").text, series)
    }

    fn refused(&self, part: &str) -> usize {
        self.metric(&refused_by(part))
    }
}

struct Answer {
    status: u16,
    text: String,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        let value = self.text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.unwrap_or_else(|| panic!("{name} is not in {}", self.text))
    }
}

fn ask(address: &str, method: &str, path: &str, tenant: &str) -> Answer {
    let text = process::ask(address, &format!("{method} {path}"), &format!("x-tenant: {tenant}\r\n"));
    Answer { status: process::status(&text), text }
}

fn count(answers: &[Answer], status: u16) -> usize {
    answers.iter().filter(|answer| answer.status == status).count()
}

#[test]
fn a_tenant_far_above_its_share_is_refused_and_another_is_not() {
    let example = Example::start(20);
    let (modest, greedy) = std::thread::scope(|scope| {
        let greedy = scope.spawn(|| example.flood("greedy", 30, 8));
        let modest = example.flood("modest", 1, 10);
        (modest, greedy.join().unwrap())
    });
    assert_eq!(count(&modest, 200), 10, "who stays within its share is served");
    let [served, denied, busy] = [200, 429, 503].map(|status| count(&greedy, status));
    assert!(served > 0 && denied > 0 && busy > 0 && served + denied + busy == 240, "{served} {denied} {busy}");
    for answer in &greedy {
        match answer.status {
            200 => assert!(answer.text.ends_with("done\n"), "{}", answer.text),
            status => {
                assert_eq!(answer.header("retry-after"), "1");
                assert_eq!(answer.header("content-type"), "application/problem+json");
                let told = if status == 429 { "quota-exceeded" } else { "the request queue is full" };
                assert!(answer.text.contains(told), "{}", answer.text);
            }
        }
    }
    assert_eq!(example.refused("rate"), denied);
    assert_eq!(example.refused("fair"), busy, "its own line was full: nothing had to be shed, and the total held");
    assert_eq!((example.refused("shed"), example.refused("concurrency")), (0, 0));
    // The switch of the rate, and no such switch.
    assert_eq!(example.ask("POST", "/switch/rate/off", "").status, 204);
    assert_eq!(example.ask("GET", "/report", "greedy").status, 200);
    assert_eq!(example.ask("POST", "/switch/rate/enforce", "").status, 204);
    // One unit comes back in 0.6 s.
    assert!(count(&example.flood("greedy", 1, 5), 429) > 0);
    assert_eq!(example.ask("POST", "/switch/rates/off", "").status, 404);
    assert_eq!(example.ask("POST", "/switch/rate/of", "").status, 404);
}

#[test]
fn under_load_of_many_tenants_payments_pass() {
    let example = Example::start(200);
    let reports = std::thread::scope(|scope| {
        let (example, names) = (&example, (0..20).map(|number| format!("tenant-{number}")));
        let tenants: Vec<_> = names.map(|name| scope.spawn(move || example.flood(&name, 6, 1))).collect();
        // Of the room for 44 nine places are kept for payments.
        for _ in 0..1000 {
            if example.metric(IN_FLIGHT) >= 35 {
                break;
            }
            sleep(Duration::from_millis(1));
        }
        for _ in 0..3 {
            let paid = example.ask("POST", "/pay", "shop");
            assert_eq!(paid.status, 200, "{}", paid.text);
        }
        tenants.into_iter().flat_map(|tenant| tenant.join().unwrap()).collect::<Vec<_>>()
    });
    let [served, busy] = [200, 503].map(|status| count(&reports, status));
    assert!(served >= 20 && busy > 0 && served + busy == 120, "{served} {busy}");
    assert!(example.metric(&shed_of("get")) > 0);
    assert_eq!(example.metric(&shed_of("critical")), 0);
    assert_eq!(example.refused("shed") + example.refused("fair") + example.refused("concurrency"), busy);
    assert_eq!(example.metric(IN_FLIGHT), 0);
}

#[test]
fn what_is_set_wrong_is_told() {
    let told = complaint(EXAMPLE, &[("WORK_MS", "soon")]);
    assert_eq!(told, "error: WORK_MS: \"soon\" is no number of milliseconds; use one like 50\n");
}
