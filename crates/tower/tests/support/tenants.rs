//! Eleven tenants before a service that has just enough for all, some of which ask for far more than their share.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Ten places of 10 ms each can do 1,000 requests a second, for eleven tenants.
pub(crate) const PLACES: u64 = 10;
const TENANTS: usize = 11;
const FAIR_SHARE: f64 = 1000.0 / TENANTS as f64;

/// The share of its fair share that the worst off of those gets who ask for just that, while the first `greedy` ask for a
/// hundred times as much. `ask` sends a request of a tenant, and tells whether it was served.
pub(crate) async fn worst_share<F>(seconds: f64, greedy: usize, ask: impl Fn(String) -> F) -> f64
where
    F: Future<Output = bool> + Send + 'static,
{
    let start = Instant::now();
    let mut sent = Vec::new();
    // Each at an even pace, none at the same instants as another.
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
