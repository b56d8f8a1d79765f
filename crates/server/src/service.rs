//! What the front ends share: the engine, and what is known of the server as a whole. `checks.rs` has how they ask.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::Time;
use tidegate_core::bounds::NANOS_PER_SECOND;
use tidegate_engine::{Engine, LogLimiter};
use tidegate_policy::json::shortened;
use tokio::sync::watch;

use crate::bounds::REFUSAL_LINES;
use crate::decision_log::DecisionLog;
use crate::guesses::Guesses;
use crate::http::Pages;
use crate::log_writer::LogProgress;
use crate::protocol::Protocol;
use crate::refusals::Refusals;
use crate::traffic::Traffic;

/// The engine, and what is known of the server as a whole.
#[derive(Debug)]
pub struct Service {
    /// Decides.
    pub engine: Engine,
    /// Whether load balancers may send requests here.
    ready: watch::Sender<bool>,
    config_loads: AtomicU64,
    config_errors: AtomicU64,
    /// When the policy in force was loaded, in seconds since the epoch.
    config_loaded_seconds: AtomicU64,
    /// How much comes in.
    pub traffic: Traffic,
    /// Passwords of Redis clients that were wrong.
    pub(crate) auth_failures: Refusals,
    /// Lines about administrators who were refused. The metrics count them by the status of their answers.
    admin_refusals: LogLimiter,
    /// Lines about connections that ended badly.
    broken_connections: LogLimiter,
    /// What became of the lines of the log.
    pub(crate) log: LogProgress,
    /// Wrong admin tokens, and wrong passwords of Redis clients.
    pub(crate) token_guesses: Guesses,
    pub(crate) password_guesses: Guesses,
    /// Pages about all rules that are being read.
    pub(crate) pages: Pages,
    /// Where decisions are written, if anywhere.
    pub decision_log: Option<DecisionLog>,
}

impl Service {
    /// A service that is not ready yet.
    #[must_use]
    pub fn new(engine: Engine) -> Service {
        let clock = engine.clock().clone();
        let (token_guesses, password_guesses) = (Guesses::new(engine.clock()), Guesses::new(engine.clock()));
        Service {
            ready: watch::Sender::new(false),
            config_loads: AtomicU64::new(0),
            config_errors: AtomicU64::new(0),
            config_loaded_seconds: AtomicU64::new(seconds(clock.now())),
            traffic: Traffic::default(),
            auth_failures: Refusals::new(&clock),
            admin_refusals: LogLimiter::new(REFUSAL_LINES, clock.clone()),
            broken_connections: LogLimiter::new(REFUSAL_LINES, clock),
            log: LogProgress::default(),
            token_guesses,
            password_guesses,
            pages: Pages::default(),
            decision_log: None,
            engine,
        }
    }

    /// Whether load balancers may send requests here.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        *self.ready.borrow()
    }

    /// Says whether load balancers may send requests here.
    pub fn set_ready(&self, ready: bool) {
        self.ready.send_replace(ready);
    }

    /// Tells whether load balancers may send requests here, now and whenever that changes.
    #[must_use]
    pub fn readiness(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// How often a configuration was loaded, and how often one was refused.
    #[must_use]
    pub fn config_loads(&self) -> (u64, u64) {
        (self.config_loads.load(Ordering::Relaxed), self.config_errors.load(Ordering::Relaxed))
    }

    /// Returns when the policy in force was loaded, in seconds since the epoch.
    pub(crate) fn config_loaded_seconds(&self) -> u64 {
        self.config_loaded_seconds.load(Ordering::Relaxed)
    }

    pub(crate) fn note_config_load(&self, succeeded: bool) {
        let counter = if succeeded { &self.config_loads } else { &self.config_errors };
        counter.fetch_add(1, Ordering::Relaxed);
        if succeeded {
            self.config_loaded_seconds.store(seconds(self.engine.clock().now()), Ordering::Relaxed);
        }
    }

    /// Counts a Redis client whose user or password is wrong. Neither is logged: people mistake one for the other.
    pub(crate) fn note_auth_failure(&self, peer: SocketAddr) {
        if let Some(unlogged) = self.auth_failures.count() {
            tracing::warn!(listener = Protocol::Resp.name(), %peer, unlogged, "wrong password");
        }
    }

    /// Logs that somebody may not administer, and asked for this path.
    pub(crate) fn note_admin_refusal(&self, who: IpAddr, path: &str) {
        if let Some(unlogged) = self.admin_refusals.turn() {
            tracing::info!(target: "tidegate::admin", client = %who, path = shortened(path), unlogged, "admin call refused");
        }
    }

    /// Logs why a connection ended badly, for those who look for a fault: clients cause that.
    pub(crate) fn note_broken_connection(&self, listener: &str, reason: &dyn fmt::Display) {
        if !tracing::enabled!(tracing::Level::DEBUG) {
            return;
        }
        if let Some(unlogged) = self.broken_connections.turn() {
            tracing::debug!(listener, %reason, unlogged, "connection broken");
        }
    }

    /// Answers a request that was read whole, and counts how long that takes. It is pinned by who makes it: handed over,
    /// each request would have room for it twice.
    pub(crate) async fn timed<T>(&self, protocol: Protocol, answer: Pin<&mut impl Future<Output = T>>) -> T {
        let start = self.engine.clock().now();
        let answer = answer.await;
        self.count_time(protocol, 1, start);
        answer
    }

    /// Counts so many answers that were made together since then.
    pub(crate) fn count_time(&self, protocol: Protocol, answers: u64, start: Time) {
        let nanos = self.engine.clock().now().as_nanos().saturating_sub(start.as_nanos());
        self.traffic.count_time(protocol, answers, Duration::from_nanos(nanos));
    }
}

fn seconds(time: Time) -> u64 {
    time.as_nanos() / NANOS_PER_SECOND
}
