//! Stopping without dropping anything: everybody hears of it, finishes what is under way, and is waited for.

use tokio::sync::watch;

/// Tells everybody to finish. Dropping it tells them too.
#[derive(Debug)]
pub struct Drainer(watch::Sender<bool>);

/// Hears that it is time to finish; whoever holds one is waited for.
#[derive(Clone, Debug)]
pub struct Drain(watch::Receiver<bool>);

impl Drainer {
    /// Nobody has to finish yet.
    #[must_use]
    pub fn new() -> (Drainer, Drain) {
        let (sender, receiver) = watch::channel(false);
        (Drainer(sender), Drain(receiver))
    }

    /// Tells everybody to finish.
    pub fn start(&self) {
        self.0.send_replace(true);
    }

    /// Resolves once everybody has.
    pub async fn finished(&self) {
        self.0.closed().await;
    }
}

impl Drain {
    /// Resolves once it is time to finish.
    pub async fn started(&mut self) {
        // An error means that nobody is left to tell, which is as good as being told.
        let _ = self.0.wait_for(|started| *started).await;
    }

    /// Whether it is time to finish.
    #[must_use]
    pub fn has_started(&self) -> bool {
        *self.0.borrow()
    }
}
