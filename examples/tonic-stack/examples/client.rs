//! Calls the service many times at once and counts what it hears: `client TENANT CALLS [PRIORITY]`.

use std::collections::BTreeMap;
use std::env::{args, var};
use std::error::Error;
use std::process::ExitCode;

use tokio::task::JoinSet;
use tonic::Request;
use tonic::metadata::MetadataValue;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// Each call is a task here.
const CALLS_MAX: usize = 10_000;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}

async fn run() -> Result<(), Box<dyn Error>> {
    let mut words = args().skip(1);
    let (Some(tenant), Some(calls)) = (words.next(), words.next()) else {
        return Err("use: client TENANT CALLS [PRIORITY]".into());
    };
    let tenant: MetadataValue<_> = tenant.parse()?;
    let priority: MetadataValue<_> = words.next().unwrap_or_else(|| "normal".to_owned()).parse()?;
    let address = var("ADDRESS").unwrap_or_else(|_| "http://127.0.0.1:50051".to_owned());
    let endpoint = Endpoint::from_shared(address.clone())?;
    let unreachable = |_| format!("ADDRESS: nobody answers at {address}; start the service, or say where it is");
    let channel = endpoint.connect().await.map_err(unreachable)?;
    let mut tasks = JoinSet::new();
    let count = calls.parse().ok().filter(|count| (1..=CALLS_MAX).contains(count));
    let count = count.ok_or_else(|| format!("CALLS: {calls:?} is out of range; use 1 to {CALLS_MAX}"))?;
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
