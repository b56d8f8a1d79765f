//! Loads beside everything else: a large configuration takes seconds, and a disk may hang. One runs at a time, on a
//! thread of its own, and of all that is asked for meanwhile one more follows.

use std::sync::Arc;

use tokio::task::JoinHandle;

use crate::reload::{Read, Reloader};
use crate::service::Service;
use crate::tls::TlsError;

/// The load that runs, and the one that comes next.
#[derive(Debug)]
pub(crate) struct Loads {
    reloader: Reloader,
    service: Arc<Service>,
    running: Option<Load>,
    /// Whether somebody asked since the last one began.
    is_asked: bool,
}

/// What runs beside. It has nothing of the service, which would not end before it.
#[derive(Debug)]
struct Load {
    reason: &'static str,
    thread: JoinHandle<(Read, Option<Result<(), TlsError>>)>,
}

impl Loads {
    pub(crate) fn new(reloader: Reloader, service: Arc<Service>) -> Loads {
        Loads { reloader, service, running: None, is_asked: false }
    }

    /// Wants everything loaded again, certificates too.
    pub(crate) fn ask(&mut self) {
        self.is_asked = true;
    }

    /// Waits for the next step and makes it: the end of a load, or the begin of one because somebody asked or files are
    /// other ones. Nothing is lost if it is dropped before.
    pub(crate) async fn go_on(&mut self) {
        if let Some(Load { reason, thread }) = &mut self.running {
            match thread.await {
                Ok((read, renewed)) => {
                    self.reloader.take(reason, read);
                    if let Some(renewed) = renewed {
                        self.tell(renewed);
                    }
                }
                Err(error) => tracing::error!(%error, "configuration not loaded: the old one stays"),
            }
            self.running = None;
            return;
        }
        if !self.is_asked {
            self.reloader.changed().await;
        }
        self.start();
    }

    fn start(&mut self) {
        let is_asked = std::mem::take(&mut self.is_asked);
        let read = self.reloader.reading();
        let tls = self.service.tls.clone().filter(|_| is_asked);
        let thread = tokio::task::spawn_blocking(move || (read(), tls.map(|tls| tls.reload())));
        self.running = Some(Load { reason: if is_asked { "SIGHUP" } else { "changed files" }, thread });
    }

    /// Says what became of the certificates.
    fn tell(&self, renewed: Result<(), TlsError>) {
        match (renewed, &self.service.tls) {
            (Ok(()), Some(tls)) => tls.tell(self.service.engine.clock().now()),
            (Ok(()), None) => {}
            (Err(error), _) => tracing::error!(%error, "certificates refused: the old ones stay"),
        }
    }
}
