//! Stopping without dropping anything: everybody hears of it, finishes what is under way, and is waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// Tells everybody to finish. Dropping it tells them too.
#[derive(Debug)]
pub struct Drainer {
    sender: watch::Sender<bool>,
    has_started: Arc<AtomicBool>,
}

/// Hears that it is time to finish; whoever holds one is waited for.
#[derive(Clone, Debug)]
pub struct Drain {
    receiver: watch::Receiver<bool>,
    /// The same as the channel says. It is asked for each request, and the channel would take a lock that all threads
    /// share.
    has_started: Arc<AtomicBool>,
}

impl Drainer {
    /// Nobody has to finish yet.
    #[must_use]
    pub fn new() -> (Drainer, Drain) {
        let (sender, receiver) = watch::channel(false);
        let has_started = Arc::new(AtomicBool::new(false));
        (Drainer { sender, has_started: Arc::clone(&has_started) }, Drain { receiver, has_started })
    }

    /// Tells everybody to finish.
    pub fn start(&self) {
        self.has_started.store(true, Ordering::Release);
        self.sender.send_replace(true);
    }

    /// Resolves once everybody has.
    pub async fn finished(&self) {
        self.sender.closed().await;
    }
}

impl Drop for Drainer {
    fn drop(&mut self) {
        self.start();
    }
}

impl Drain {
    /// Resolves once it is time to finish.
    pub async fn started(&mut self) {
        // An error means that nobody is left to tell, which is as good as being told.
        let _ = self.receiver.wait_for(|started| *started).await;
    }

    /// Whether it is time to finish.
    #[must_use]
    pub fn has_started(&self) -> bool {
        self.has_started.load(Ordering::Acquire)
    }
}
