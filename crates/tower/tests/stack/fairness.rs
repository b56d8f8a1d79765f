//! What tenants get through the whole stack while others ask for far more than their share.

use std::time::Duration;

use tidegate_tower::StackLayer;
use tokio::time::{Instant, sleep_until};
use tower::ServiceExt;

use super::{Work, class, request, tenant};

/// Ten places of 10 ms each can do 1,000 requests a second, for eleven tenants.
const PLACES: u64 = 10;
const TENANTS: usize = 11;
const FAIR_SHARE: f64 = 1000.0 / TENANTS as f64;
const SECONDS: f64 = 2.0;

/// The share of its fair share that the worst off of those gets who ask for just that, while the first `greedy` ask for a
/// hundred times as much.
async fn worst_share(stack: &StackLayer, greedy: usize) -> f64 {
    let service = Work::taking(Duration::from_millis(10)).behind(stack);
    let start = Instant::now();
    let mut sent = Vec::new();
    // Each at an even pace, none at the same instants as another.
    let mut next: Vec<f64> = (0..TENANTS).map(|tenant| tenant as f64 * 0.000_37).collect();
    loop {
        let (tenant, at) = next.iter().copied().enumerate().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        if at >= SECONDS {
            break;
        }
        next[tenant] += if tenant < greedy { 0.01 / FAIR_SHARE } else { 1.0 / FAIR_SHARE };
        sleep_until(start + Duration::from_secs_f64(at)).await;
        let response = service.clone().oneshot(request(&tenant.to_string()));
        sent.push((tenant, tokio::spawn(async move { response.await.unwrap().status() == 200 })));
    }
    let mut served = [0.0; TENANTS];
    for (tenant, task) in sent {
        served[tenant] += f64::from(u8::from(task.await.unwrap()));
    }
    served[greedy..].iter().map(|served| served / (FAIR_SHARE * SECONDS)).fold(f64::INFINITY, f64::min)
}

#[tokio::test(start_paused = true)]
async fn tenants_that_ask_for_a_hundred_times_their_share_take_nothing_from_the_others() {
    for greedy in [1, 3] {
        let stack = StackLayer::builder(PLACES).class(class).tenant(tenant).build().unwrap();
        let worst = worst_share(&stack, greedy).await;
        assert!(worst >= 0.95, "{greedy}: {worst}");
    }
}

/// The same without turns: who asks for the most has it all.
#[tokio::test(start_paused = true)]
async fn without_turns_they_take_it_all() {
    let stack = StackLayer::builder(PLACES).class(class).build().unwrap();
    let worst = worst_share(&stack, 1).await;
    assert!(worst < 0.5, "{worst}");
}
