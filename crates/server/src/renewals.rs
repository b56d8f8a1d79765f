//! Certificates that are renewed while the server runs: read again when somebody asks, beside everything else, since a
//! disk may hang. One reading runs at a time, and of all that is asked for meanwhile one more follows.

use std::sync::Arc;

use tidegate_core::Clock;
use tokio::task::JoinHandle;

use crate::tls::{Tls, TlsError};

/// The certificates of all listeners.
#[derive(Debug)]
pub(crate) struct Renewals {
    all: Arc<[Arc<Tls>]>,
    clock: Clock,
    running: Option<JoinHandle<Vec<Result<(), TlsError>>>>,
    /// Whether somebody asked since the last reading began.
    is_asked: bool,
}

impl Renewals {
    /// Keeps these in force, which were read just now.
    pub(crate) fn new(all: Vec<Arc<Tls>>, clock: Clock) -> Renewals {
        let now = clock.now();
        all.iter().for_each(|tls| tls.tell(now));
        Renewals { all: all.into(), clock, running: None, is_asked: false }
    }

    /// Wants all files read again.
    pub(crate) fn ask(&mut self) {
        self.is_asked = true;
    }

    /// Waits for the next step and makes it: the end of a reading, or the begin of one. Nothing is lost if it is dropped
    /// before.
    pub(crate) async fn go_on(&mut self) {
        if let Some(reading) = &mut self.running {
            match reading.await {
                Ok(results) => self.tell(results),
                Err(error) => tracing::error!(%error, "certificates not read: the old ones stay"),
            }
            self.running = None;
            return;
        }
        if !std::mem::take(&mut self.is_asked) {
            return std::future::pending().await;
        }
        let all = Arc::clone(&self.all);
        let read = move || all.iter().map(|tls| tls.reload()).collect();
        self.running = Some(tokio::task::spawn_blocking(read));
    }

    /// Logs what became of each.
    fn tell(&self, results: Vec<Result<(), TlsError>>) {
        let now = self.clock.now();
        for (tls, result) in self.all.iter().zip(results) {
            match result {
                Ok(()) => tls.tell(now),
                Err(error) => {
                    tracing::error!(listener = tls.listener(), %error, "certificates refused: the old ones stay");
                }
            }
        }
    }
}
