//! Loads beside everything else: a large configuration takes seconds, and a disk may hang. One runs at a time, on a
//! thread of its own, and of all that is asked for meanwhile one more follows.

use tokio::task::JoinHandle;

use crate::reload::{Read, Reloader};

/// The load that runs, and the one that comes next.
#[derive(Debug)]
pub(crate) struct Loads {
    reloader: Reloader,
    running: Option<Load>,
    /// Whether somebody asked since the last one began.
    is_asked: bool,
}

/// What runs beside. It has nothing of the service, which would not end before it.
#[derive(Debug)]
struct Load {
    reason: &'static str,
    thread: JoinHandle<Read>,
}

impl Loads {
    pub(crate) fn new(reloader: Reloader) -> Loads {
        Loads { reloader, running: None, is_asked: false }
    }

    /// Wants everything loaded again.
    pub(crate) fn ask(&mut self) {
        self.is_asked = true;
    }

    /// Waits for the next step and makes it: the end of a load, or the begin of one because somebody asked or files are
    /// other ones. Nothing is lost if it is dropped before.
    pub(crate) async fn go_on(&mut self) {
        if let Some(Load { reason, thread }) = &mut self.running {
            match thread.await {
                Ok(read) => self.reloader.take(reason, read),
                Err(error) => tracing::error!(%error, "configuration not loaded: the old one stays in force"),
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
        let thread = tokio::task::spawn_blocking(read);
        self.running = Some(Load { reason: if is_asked { "SIGHUP" } else { "changed files" }, thread });
    }
}
