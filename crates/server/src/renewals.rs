//! Certificates that are renewed while the server runs, apart from rules: a bad configuration, or one that takes seconds,
//! must not stand between a file and the certificate in force.

use std::sync::Arc;

use tidegate_core::Clock;
use tokio::sync::Notify;

use crate::file_marks::{self, FileMark};
use crate::tls::Tls;

/// The certificates of all listeners.
#[derive(Debug)]
pub(crate) struct Renewals {
    all: Arc<[Arc<Tls>]>,
    clock: Clock,
    /// The files as they were before they were read.
    read: Vec<FileMark>,
}

impl Renewals {
    /// Takes certificates in force over, and logs until when they are valid.
    pub(crate) fn new(all: Vec<Arc<Tls>>, clock: Clock) -> Renewals {
        let now = clock.now();
        all.iter().for_each(|tls| tls.tell(now));
        let read = all.iter().flat_map(|tls| tls.first_marks()).cloned().collect();
        Renewals { all: all.into(), clock, read }
    }

    /// Reads all files again whenever they are other ones or somebody asks, for ever.
    pub(crate) async fn run(mut self, asked: Arc<Notify>) {
        if self.all.is_empty() {
            return;
        }
        loop {
            let look = || {
                let all = Arc::clone(&self.all);
                move || marks(&all)
            };
            tokio::select! {
                () = asked.notified() => {}
                () = file_marks::changed(&self.read, look) => {}
            }
            self.renew().await;
        }
    }

    async fn renew(&mut self) {
        let all = Arc::clone(&self.all);
        let read = move || (marks(&all), all.iter().map(|tls| tls.reload()).collect::<Vec<_>>());
        let (marks, results) = match tokio::task::spawn_blocking(read).await {
            Ok(read) => read,
            Err(error) => return tracing::error!(%error, "certificates not read: the old ones stay in use"),
        };
        self.read = marks;
        let now = self.clock.now();
        for (tls, result) in self.all.iter().zip(results) {
            match result {
                Ok(()) => tls.tell(now),
                Err(error) => {
                    tracing::error!(listener = tls.listener(), %error, "certificates refused: the old ones stay in use");
                }
            }
        }
    }
}

/// The marks of all files, in order.
fn marks(all: &[Arc<Tls>]) -> Vec<FileMark> {
    all.iter().flat_map(|tls| tls.marks()).collect()
}
