//! What tenants get through the whole stack while others ask for far more than their share.

use std::time::Duration;

use tidegate_testkit::tenants::{self, PLACES};
use tidegate_tower::StackLayer;
use tower::ServiceExt;

use super::{Work, class, request, tenant};

/// What the worst off gets in two seconds.
async fn worst_share(stack: &StackLayer, greedy: usize) -> f64 {
    let service = Work::taking(Duration::from_millis(10)).behind(stack);
    tenants::worst_share(2.0, greedy, |tenant| {
        let response = service.clone().oneshot(request(&tenant));
        async move { response.await.unwrap().status() == 200 }
    })
    .await
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
