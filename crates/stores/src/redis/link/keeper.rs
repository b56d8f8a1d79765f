//! The task that keeps a link: connects, watches, probes, connects again.
//!
//! It runs on the runtime of the caller who needed the link first. When that runtime ends, the link is idle again, and
//! the next caller starts a keeper on its own.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use redis::Value;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use super::bounds::{BACKOFF_MAX, BACKOFF_MIN, CONNECT_TIME_MAX, DRAIN_TIME_MAX, PROBE_PAUSE, PROBE_TIME_MAX};
use super::dial::{DialError, Dialled, Driver, Endpoint, Expect};
use super::error::Why;
use super::link::{Link, Live, State};
use super::node::{Node, Whereabouts};

/// Starts a keeper unless there is one.
pub(super) fn start(node: &Arc<Node>, index: usize) -> Result<(), Why> {
    let Some(link) = node.links.get(index) else { return Err(Why::NoConnection("there is no such link".into())) };
    let mut runtime = None;
    link.state.send_if_modified(|state| {
        if !matches!(state, State::Idle) {
            return false;
        }
        runtime = Some(Handle::try_current());
        if matches!(runtime, Some(Ok(_))) && !node.closed.load(Relaxed) {
            *state = State::First(Instant::now());
        }
        true
    });
    match runtime {
        None => Ok(()),
        Some(_) if node.closed.load(Relaxed) => Err(Why::NoConnection("the store was closed".into())),
        Some(Ok(runtime)) => {
            let keeper = Keeper { node: Arc::clone(node), index };
            runtime.spawn(keeper.keep());
            Ok(())
        }
        Some(Err(_)) => Err(Why::NoConnection("calls need a Tokio runtime".into())),
    }
}

struct Keeper {
    node: Arc<Node>,
    index: usize,
}

/// Also when the runtime drops the task.
impl Drop for Keeper {
    fn drop(&mut self) {
        if let Some(link) = self.node.links.get(self.index) {
            link.state.send_replace(State::Idle);
        }
    }
}

/// Why a connection is no longer watched.
enum End {
    Lost,
    Retired,
    Cut,
    Stopped,
}

impl Keeper {
    async fn keep(self) {
        let Some(link) = self.node.links.get(self.index) else { return };
        let mut pause = Duration::ZERO;
        while !self.node.closed.load(Relaxed) {
            let why = match self.connect().await {
                Ok((dialled, endpoint)) => {
                    let connected = Instant::now();
                    if matches!(self.serve(link, dialled, endpoint).await, End::Stopped) {
                        return;
                    }
                    // One that lasted is made again at once, and callers may wait for it. One that did not is in the
                    // way of others: a server that accepts and hangs up must not keep us busy.
                    if connected.elapsed() >= BACKOFF_MAX {
                        pause = Duration::ZERO;
                    }
                    Why::NoConnection("it was lost".into())
                }
                Err(error) => {
                    self.node.journal.unreachable(&self.node, &error);
                    self.node.shared.trouble.notify_one();
                    pause = pause.max(BACKOFF_MIN);
                    error.into_why()
                }
            };
            if pause.is_zero() {
                pause = BACKOFF_MIN;
                continue;
            }
            link.state.send_replace(State::Down(why));
            tokio::select! {
                () = sleep(pause) => {}
                () = link.retry.notified() => {}
                () = link.stop.notified() => return,
            }
            pause = (pause * 2).min(BACKOFF_MAX);
        }
    }

    async fn connect(&self) -> Result<(Dialled, Endpoint), DialError> {
        let connecting = async {
            let (endpoint, expect) = match &self.node.whereabouts {
                Whereabouts::Fixed(endpoint) => (endpoint.clone(), Expect::Anything),
                Whereabouts::Asked(sentinels) => (Endpoint::Tcp(sentinels.locate().await?), Expect::Primary),
            };
            let dialled = self.node.shared.dialer.dial(&endpoint, expect).await?;
            Ok((dialled, endpoint))
        };
        timeout(CONNECT_TIME_MAX, connecting).await.unwrap_or_else(|_| {
            let hint = if self.node.shared.dialer.speaks_tls() { "; does this port speak TLS?" } else { "" };
            Err(format!("{}: connecting took longer than {CONNECT_TIME_MAX:?}{hint}", self.node.name).into())
        })
    }

    /// Lets callers use a connection until it ends, and probes it while the breaker is open.
    async fn serve(&self, link: &Link, dialled: Dialled, endpoint: Endpoint) -> End {
        let Dialled { connection, mut driver, written } = dialled;
        let live = Live::new(connection, endpoint, written);
        self.node.shared.counters.connected.fetch_add(1, Relaxed);
        self.node.journal.connected(&self.node, &live.endpoint);
        link.state.send_replace(State::Up(Arc::clone(&live)));
        let end = tokio::select! {
            end = ended(link, &live, &mut driver) => end,
            end = self.probe_when_open(link, &live) => end,
        };
        match end {
            End::Retired | End::Stopped => {
                // The task ends by itself when no call is left and nobody can bring one.
                tokio::spawn(async move { timeout(DRAIN_TIME_MAX, &mut driver.0).await });
            }
            End::Lost => {
                self.node.shared.counters.lost.fetch_add(1, Relaxed);
                self.node.journal.lost(&self.node, &live.endpoint);
            }
            End::Cut => {}
        }
        if !matches!(end, End::Stopped) {
            link.state.send_replace(State::First(Instant::now()));
        }
        end
    }

    /// Runs beside a connection and returns only if it is dead.
    async fn probe_when_open(&self, link: &Link, live: &Live) -> End {
        loop {
            if self.node.circuit.is_closed() {
                link.probe.notified().await;
                continue;
            }
            self.node.circuit.probe_begins();
            let started = Instant::now();
            let ping = redis::cmd("PING");
            let mut connection = live.connection.clone();
            let answer = timeout(PROBE_TIME_MAX, connection.send_packed_command(&ping)).await;
            let ready = match &answer {
                Err(_) | Ok(Err(_)) => false,
                Ok(Ok(Value::ServerError(error))) => !matches!(error.code(), "LOADING" | "BUSY" | "MASTERDOWN"),
                Ok(Ok(_)) => true,
            };
            if ready && started.elapsed() <= self.node.shared.budget {
                if self.node.circuit.close() {
                    self.node.journal.breaker_closed(&self.node);
                }
                continue;
            }
            self.node.circuit.probe_failed();
            if matches!(answer, Err(_) | Ok(Err(_))) {
                return End::Lost;
            }
            sleep(PROBE_PAUSE).await;
        }
    }
}

async fn ended(link: &Link, live: &Live, driver: &mut Driver) -> End {
    tokio::select! {
        _ = &mut driver.0 => End::Lost,
        () = live.retired.notified() => End::Retired,
        () = live.cut.notified() => End::Cut,
        () = link.stop.notified() => End::Stopped,
    }
}
