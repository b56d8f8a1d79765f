//! Calls the service many times at once and counts what it hears: `client TENANT CALLS [PRIORITY]`.

use std::collections::BTreeMap;
use std::env::args_os;
use std::error::Error;
use std::process::ExitCode;

use tokio::task::JoinSet;
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

#[path = "../../support/start.rs"]
mod start;

/// Where the service is if nothing is said.
const ADDRESS: &str = "http://127.0.0.1:50051";
/// Each call is a task here, and all go over one connection.
const CALLS_MAX: usize = 2_000;

#[tokio::main]
async fn main() -> ExitCode {
    start::ended(run().await)
}

async fn run() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let (tenant, calls, priority) = match &words[..] {
        [tenant, calls] => (tenant, calls, "normal"),
        [tenant, calls, priority] => (tenant, calls, &**priority),
        _ => return Err("use: client TENANT CALLS [PRIORITY]".into()),
    };
    let tenant = metadata("TENANT", tenant)?;
    let count = calls.parse().ok().filter(|count| (1..=CALLS_MAX).contains(count));
    let count = count.ok_or_else(|| format!("CALLS: {calls:?} is no whole number in range; use 1 to {CALLS_MAX}"))?;
    let priority = metadata("PRIORITY", priority)?;
    let address = start::setting("ADDRESS", ADDRESS);
    if !address.starts_with("http://") {
        return Err(format!("ADDRESS: {address:?} does not begin with http://; use a URL like {ADDRESS}").into());
    }
    let endpoint = Endpoint::from_shared(address.clone())
        .map_err(|error| format!("ADDRESS: {address:?}: {error}; use a URL like {ADDRESS}"))?;
    let channel = endpoint.connect().await.map_err(|error| {
        let cause = cause(&error);
        format!("ADDRESS: cannot reach {address:?}: {cause}; start the service, or use a URL like {ADDRESS}")
    })?;
    let mut tasks = JoinSet::new();
    for _ in 0..count {
        let mut client = HealthClient::new(channel.clone());
        let mut request = Request::new(HealthCheckRequest::default());
        request.metadata_mut().insert("x-tenant", tenant.clone());
        request.metadata_mut().insert("x-priority", priority.clone());
        tasks.spawn(async move { client.check(request).await });
    }
    let mut heard = BTreeMap::<String, usize>::new();
    while let Some(answer) = tasks.join_next().await {
        let told =
            answer?.map_or_else(|status| format!("{:?}: {}", status.code(), status.message()), |_| "served".into());
        *heard.entry(told).or_default() += 1;
    }
    for (told, count) in heard {
        println!("{count:6} {told}");
    }
    Ok(())
}

/// A word that is sent with each call.
fn metadata(name: &str, word: &str) -> Result<MetadataValue<Ascii>, String> {
    let value = word.parse().ok().filter(|_| !word.is_empty() && word.is_ascii());
    value.ok_or_else(|| format!("{name}: {word:?} cannot be sent in a header; use printable ASCII"))
}

/// What is behind an error.
fn cause(error: &dyn Error) -> &dyn Error {
    error.source().map_or(error, cause)
}
