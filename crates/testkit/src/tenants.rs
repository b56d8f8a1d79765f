//! Eleven tenants of a service that has just enough capacity for all of them, while some send far more than their share.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// The concurrency of the service: with 10 ms a request it serves 1,000 requests a second, for eleven tenants.
pub const PLACES: u64 = 10;
const TENANTS: usize = 11;
const FAIR_SHARE: f64 = 1000.0 / TENANTS as f64;

/// Runs all tenants for some seconds of Tokio's clock: the first `greedy` tenants send a hundred times their fair share, all
/// others exactly their share. `ask` sends a request of a tenant and returns whether it was served.
///
/// Returns the share that was served of the worst-served tenant's fair share, among the tenants that are not greedy.
pub async fn worst_share<F>(seconds: f64, greedy: usize, ask: impl Fn(String) -> F) -> f64
where
    F: Future<Output = bool> + Send + 'static,
{
    let start = Instant::now();
    let mut sent = Vec::new();
    // Each tenant sends at an even pace, and no two send at the same instant.
    let mut next: Vec<f64> = (0..TENANTS).map(|tenant| tenant as f64 * 0.000_37).collect();
    loop {
        let (tenant, at) = next.iter().copied().enumerate().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        if at >= seconds {
            break;
        }
        next[tenant] += if tenant < greedy { 0.01 / FAIR_SHARE } else { 1.0 / FAIR_SHARE };
        sleep_until(start + Duration::from_secs_f64(at)).await;
        sent.push((tenant, tokio::spawn(ask(tenant.to_string()))));
    }
    let mut served = [0.0; TENANTS];
    for (tenant, task) in sent {
        served[tenant] += f64::from(u8::from(task.await.unwrap()));
    }
    served[greedy..].iter().map(|served| served / (FAIR_SHARE * seconds)).fold(f64::INFINITY, f64::min)
}
