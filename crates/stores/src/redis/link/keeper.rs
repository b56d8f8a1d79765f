//! The task that keeps a link: connects, watches, probes, connects again.
//!
//! It runs on the runtime of the caller who needed the link first. When that runtime ends, the link is idle again, and
//! the next caller starts a keeper on its own.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::bounds::{
    BACKOFF_MAX, BACKOFF_MIN, CONNECT_TIME_MAX, DRAIN_TIME_MAX, LATE_MAX, PROBE_PAUSE, PROBE_TIME_MAX,
};
use super::command::Packed;
use super::dial::{DialError, Endpoint, Expect, Wire};
use super::driver;
use super::error::Why;
use super::link::{Link, Live, State};
use super::node::{Node, Whereabouts};
use super::pipe::{Kind, Outcome, Patience, Pipe, is_not_ready};
use super::reply::Reply;

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
            *state = State::First;
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

/// The task of a connection, which ends when its handle goes.
struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
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
            let why = match self.connect_or_say_so(link).await {
                Ok((wire, endpoint)) => {
                    let connected = Instant::now();
                    if matches!(self.serve(link, wire, endpoint).await, End::Stopped) {
                        return;
                    }
                    // One that lasted is made again at once, and callers may wait for it. One that did not is in the
                    // way of others: a server that accepts and hangs up must not keep us busy.
                    if connected.elapsed() >= BACKOFF_MAX {
                        pause = Duration::ZERO;
                    }
                    Why::NoConnection("the connection was lost".into())
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

    /// Connects. Whoever waits for it hears when that has taken a budget: by then it is the server that takes its time.
    async fn connect_or_say_so(&self, link: &Link) -> Result<(Wire, Endpoint), DialError> {
        let mut connecting = pin!(self.connect());
        // A clock that was looked at late has measured this node.
        for _ in 0..2 {
            let due = Instant::now() + self.node.shared.budget;
            if let Ok(connected) = timeout_at(due, connecting.as_mut()).await {
                return connected;
            }
            if Instant::now() - due <= LATE_MAX {
                break;
            }
        }
        link.state.send_if_modified(|state| {
            let is_first = matches!(state, State::First);
            if is_first {
                *state = State::Down(Why::Connecting);
            }
            is_first
        });
        connecting.await
    }

    async fn connect(&self) -> Result<(Wire, Endpoint), DialError> {
        let connecting = async {
            let (endpoint, expect) = match &self.node.whereabouts {
                Whereabouts::Fixed(endpoint) => (endpoint.clone(), Expect::Anything),
                Whereabouts::Asked(sentinels) => (Endpoint::Tcp(sentinels.locate().await?), Expect::Primary),
            };
            let wire = self.node.shared.dialer.dial(&endpoint, expect).await?;
            Ok((wire, endpoint))
        };
        timeout(CONNECT_TIME_MAX, connecting).await.unwrap_or_else(|_| {
            let hint = if self.node.shared.dialer.speaks_tls() { "; does this port speak TLS?" } else { "" };
            Err(format!("{}: connecting took longer than {CONNECT_TIME_MAX:?}{hint}", self.node.name).into())
        })
    }

    /// Lets callers use a connection until it ends, and probes it while the breaker is open.
    async fn serve(&self, link: &Link, wire: Wire, endpoint: Endpoint) -> End {
        let pipe = Pipe::new(self.node.shared.budget);
        let live = Live::new(Arc::clone(&pipe), endpoint);
        let (node, of_driver) = (Arc::clone(&self.node), Arc::clone(&live));
        let mut driver = Driver(tokio::spawn(driver::drive(pipe, wire, move |tally| node.note(&of_driver, tally))));
        self.node.shared.counters.connected.fetch_add(1, Relaxed);
        self.node.journal.connected(&self.node, &live.endpoint);
        link.state.send_replace(State::Up(Arc::clone(&live)));
        let end = tokio::select! {
            end = ended(link, &live, &mut driver) => end,
            end = self.probe_when_open(link, &live) => end,
        };
        match end {
            End::Retired | End::Stopped => {
                // The task ends by itself when no call is left.
                live.pipe.retire();
                tokio::spawn(async move { timeout(DRAIN_TIME_MAX, &mut driver.0).await });
            }
            End::Lost => {
                self.node.shared.counters.lost.fetch_add(1, Relaxed);
                self.node.journal.lost(&self.node, &live.endpoint);
            }
            End::Cut => {}
        }
        if !matches!(end, End::Stopped) {
            link.state.send_replace(State::First);
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
            let patience = Patience { until: Instant::now() + PROBE_TIME_MAX, leave: None };
            let asked = live.pipe.call(Packed::of(&[b"PING"]), Kind::Aside, &patience);
            let Ok(pending) = asked else { return End::Lost };
            let Ok(Outcome::Answered(answer)) = timeout(PROBE_TIME_MAX, pending).await else {
                self.node.circuit.probe_failed();
                return End::Lost;
            };
            let is_ready = !matches!(&answer.reply, Reply::Error(error) if is_not_ready(error.code()));
            if is_ready && answer.took < self.node.shared.budget {
                if self.node.circuit.close() {
                    self.node.journal.breaker_closed(&self.node);
                }
                continue;
            }
            self.node.circuit.probe_failed();
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
