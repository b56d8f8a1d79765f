//! Tasks on a runtime of one thread whose time is paused.

/// Lets all tasks run that are ready, and those that they wake.
pub async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}
