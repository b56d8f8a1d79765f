//! The example as a process, and real calls to it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a panic is the answer")]

#[path = "../../support/process.rs"]
mod process;

use std::time::Duration;

use tokio::time::sleep;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_types::StatusExt;

use process::{IN_FLIGHT, Process, complaint, refused_by, shed_of};

const EXAMPLE: &str = env!("CARGO_BIN_EXE_tonic-stack");

/// The example, which ends with its value, and a connection to it.
struct Example {
    _process: Process,
    metrics: String,
    channel: Channel,
}

impl Example {
    async fn start(work_millis: u64) -> Example {
        let work = work_millis.to_string();
        let settings = [("WORK_MS", &*work), ("LISTEN", "127.0.0.1:0"), ("METRICS", "127.0.0.1:0")];
        let (process, line) = Process::start(EXAMPLE, &settings);
        let (calls, metrics) = line.split_once(", metrics on ").unwrap();
        let endpoint = Endpoint::from_shared(format!("http://{calls}")).unwrap().timeout(Duration::from_secs(20));
        Example { _process: process, metrics: metrics.to_owned(), channel: endpoint.connect().await.unwrap() }
    }

    /// What so many clients of a tenant hear who each call so many times, one after another.
    async fn flood(&self, tenant: &str, clients: usize, each: usize) -> Vec<Result<(), Status>> {
        let clients: Vec<_> = (0..clients)
            .map(|_| {
                let (channel, tenant) = (self.channel.clone(), tenant.to_owned());
                tokio::spawn(async move {
                    let mut heard = Vec::new();
                    for _ in 0..each {
                        heard.push(call(&channel, &tenant, "normal").await);
                    }
                    heard
                })
            })
            .collect();
        let mut all = Vec::new();
        for client in clients {
            all.extend(client.await.unwrap());
        }
        all
    }

    fn metric(&self, series: &str) -> usize {
        process::metric(&process::ask(&self.metrics, "GET /metrics", ""), series)
    }

    fn refused(&self, part: &str) -> usize {
        self.metric(&refused_by(part))
    }
}

async fn call(channel: &Channel, tenant: &str, priority: &'static str) -> Result<(), Status> {
    let mut request = Request::new(HealthCheckRequest::default());
    request.metadata_mut().insert("x-tenant", tenant.parse().unwrap());
    request.metadata_mut().insert("x-priority", priority.parse().unwrap());
    let response = HealthClient::new(channel.clone()).check(request).await?;
    assert_eq!(response.into_inner().status, 1);
    Ok(())
}

/// The refusals of this kind.
fn refusals(answers: &[Result<(), Status>], code: Code) -> Vec<&Status> {
    answers.iter().filter_map(|answer| answer.as_ref().err()).filter(|status| status.code() == code).collect()
}

#[tokio::test]
async fn a_tenant_far_above_its_share_is_refused_and_another_is_not() {
    let example = Example::start(20).await;
    let (greedy, modest) = tokio::join!(example.flood("greedy", 30, 8), example.flood("modest", 1, 10));
    assert!(modest.iter().all(Result::is_ok), "{modest:?}");
    let served = greedy.iter().filter(|answer| answer.is_ok()).count();
    let (denied, busy) = (refusals(&greedy, Code::ResourceExhausted), refusals(&greedy, Code::Unavailable));
    assert!(served > 0 && !denied.is_empty() && !busy.is_empty(), "{greedy:?}");
    assert_eq!(served + denied.len() + busy.len(), 240, "{greedy:?}");
    for status in &denied {
        let delay = status.get_details_retry_info().unwrap().retry_delay.unwrap();
        assert!(delay > Duration::ZERO && delay <= Duration::from_secs(1), "{status:?}");
    }
    for status in &busy {
        assert_eq!(status.get_details_retry_info().unwrap().retry_delay, Some(Duration::from_secs(1)));
        assert_eq!(status.metadata().get("grpc-retry-pushback-ms").unwrap(), "1000");
    }
    assert_eq!(example.refused("rate"), denied.len());
    assert_eq!(
        example.refused("fair"),
        busy.len(),
        "its own line was full: nothing had to be shed, and the total held"
    );
    assert_eq!((example.refused("shed"), example.refused("concurrency")), (0, 0));
}

#[tokio::test]
async fn under_load_of_many_tenants_critical_calls_pass() {
    let example = Example::start(200).await;
    let calls = (0..120).map(|number| {
        let channel = example.channel.clone();
        tokio::spawn(async move { call(&channel, &format!("tenant-{}", number % 20), "normal").await })
    });
    let calls: Vec<_> = calls.collect();
    // Of the room for 44 nine places are kept for critical calls.
    for _ in 0..1000 {
        sleep(Duration::from_millis(1)).await;
        if example.metric(IN_FLIGHT) >= 35 {
            break;
        }
    }
    for _ in 0..3 {
        call(&example.channel, "shop", "critical").await.unwrap();
    }
    let mut heard = Vec::new();
    for call in calls {
        heard.push(call.await.unwrap());
    }
    let (served, busy) =
        (heard.iter().filter(|answer| answer.is_ok()).count(), refusals(&heard, Code::Unavailable).len());
    assert!(served >= 20 && busy > 0 && served + busy == 120, "{heard:?}");
    assert!(example.metric(&shed_of("get")) > 0);
    assert_eq!(example.metric(&shed_of("critical")), 0);
    assert_eq!(example.refused("shed") + example.refused("fair") + example.refused("concurrency"), busy);
}

#[test]
fn what_is_set_wrong_is_told() {
    let told = complaint(EXAMPLE, &[("LISTEN", "127.0.0.1:0"), ("METRICS", "nowhere")]);
    assert!(told.starts_with("error: METRICS: cannot listen on \"nowhere\": "), "{told}");
    assert!(
        told.ends_with("; use an address like 127.0.0.1:9090, or 127.0.0.1:0 for any port that is free\n"),
        "{told}"
    );
}
