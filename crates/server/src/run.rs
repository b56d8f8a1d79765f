//! Running it: binds the listeners, serves on one thread a core, and stops without dropping anything.
//!
//! Each thread has a runtime of its own, and a connection stays on the thread that it is given to: no request is handed
//! from core to core, which costs less than a shared pool of threads does.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tidegate_core::Clock;
use tidegate_engine::{Engine, InstallError};
use tokio::runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, mpsc, watch};

use crate::bounds::{CONNECT_PATIENCE, DRAIN, REPEATED_STOP, STORES_CLOSE};
use crate::budget::RequestMemory;
use crate::decision_log::DecisionLog;
use crate::descriptors;
use crate::drain::{Drain, Drainer};
use crate::http::cache_http_date;
use crate::listener::{Door, Listener, ListenerError};
use crate::loads::Loads;
use crate::log_room::LogRoom;
use crate::log_writer::LogProgress;
use crate::panics::log_panics;
use crate::protocol::Protocol;
use crate::reload::{BadConfig, First, Reloader};
use crate::renewals::Renewals;
use crate::service::Service;
use crate::telemetry::{Telemetry, TelemetryError};
use crate::tls::{Tls, TlsError, TlsFiles};
use crate::{HttpDoor, RespDoor, RlsDoor, RlsOptions};

/// How the server is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Files and directories with rules.
    pub config: Vec<PathBuf>,
    /// How those are read.
    pub load: tidegate_policy::LoadOptions,
    /// Where HTTP is spoken.
    pub http: SocketAddr,
    /// Where Envoy's protocol is spoken.
    pub grpc: SocketAddr,
    /// Where the protocol of Redis is spoken.
    pub resp: SocketAddr,
    /// The engine's own options.
    pub engine: tidegate_engine::Options,
    /// How many threads serve; as many as the machine has cores if none is said.
    pub threads: Option<usize>,
    /// How long it goes on serving after a signal to stop, while it reports not ready, so that load balancers notice.
    pub drain_delay: Duration,
    /// Where decisions are written, and one in how many.
    pub decision_log: Option<(PathBuf, u64)>,
    /// What is logged and traced.
    pub telemetry: Telemetry,
    /// What each listener speaks TLS with; those without files are in the clear.
    pub tls: ListenersTls,
    /// What each listener may keep of requests that have not come whole.
    pub request_memory: RequestMemory,
    /// Whether tools may ask over gRPC which services and messages there are.
    pub reflection: bool,
    /// Whether answers to Envoy carry the metadata of rules.
    pub dynamic_metadata: bool,
    /// Whether every gRPC client may give units back, and not only those on this machine or with a certificate.
    pub grpc_refunds: bool,
    /// Whether reports of what became of requests are taken.
    pub reports: bool,
    /// What AUTH has to say.
    pub resp_password: Option<String>,
    /// What administrators have to say.
    pub admin_token: Option<String>,
}

/// What each listener speaks TLS with.
#[derive(Clone, Debug, Default)]
pub struct ListenersTls {
    /// HTTP.
    pub http: Option<TlsFiles>,
    /// Envoy's protocol.
    pub grpc: Option<TlsFiles>,
    /// The protocol of Redis.
    pub resp: Option<TlsFiles>,
}

/// Why the server could not start or go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The system clock is not set: HTTP and certificates have no dates before 1970.
    #[error("the system clock is before 1970; set it, and start again")]
    Clock,
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] BadConfig),
    /// A listener cannot be opened.
    #[error(transparent)]
    Listener(#[from] ListenerError),
    /// A store cannot be made.
    #[error(transparent)]
    Store(#[from] InstallError),
    /// Certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Logs or traces cannot be written.
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    /// The decision log cannot be written.
    #[error("decision log: cannot write {}: {error}; use a path that can be written", .path.display())]
    DecisionLog {
        /// Where.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// The system refused something else.
    #[error("system error: {0}")]
    System(#[from] io::Error),
}

/// The addresses that are listened on.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// HTTP.
    pub http: SocketAddr,
    /// Envoy's protocol.
    pub grpc: SocketAddr,
    /// The protocol of Redis.
    pub resp: SocketAddr,
}

/// Runs the server until a signal stops it. Calls `started` with the addresses once all listeners are open.
///
/// # Errors
/// If it cannot start.
pub fn run(options: Options, started: impl FnOnce(Addresses)) -> Result<(), RunError> {
    if Clock::system_is_before_1970() {
        return Err(RunError::Clock);
    }
    let manager = runtime::Builder::new_current_thread().enable_all().build()?;
    let telemetry = {
        // Traces are sent on this runtime.
        let _entered = manager.enter();
        options.telemetry.start()?
    };
    log_panics();
    let (service, reloader) = prepare(&options, telemetry.log())?;
    let count = options.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    let listeners = Listeners::bind(&options, count)?;
    let addresses = listeners.addresses()?;
    // After all that may fail: a start that does logs one line.
    reloader.log_start();
    if options.admin_token.is_none() && !addresses.http.ip().to_canonical().is_loopback() {
        tracing::info!(
            http = %addresses.http,
            "admin calls will be refused (403), since HTTP is not on loopback; to allow them, set TIDEGATE_ADMIN_TOKEN"
        );
    }
    let renewals = Renewals::new(listeners.tls(), service.engine.clock().clone());
    listeners.all().into_iter().for_each(|listener| service.traffic.watch(listener));
    let (drainer, drain) = Drainer::new();
    let (stopper, stop) = watch::channel(());
    let (has_connected, mut connected) = mpsc::channel(count);
    let worker = Worker {
        listeners: Arc::new(listeners),
        service: Arc::clone(&service),
        rls: RlsOptions {
            reflection: options.reflection,
            dynamic_metadata: options.dynamic_metadata,
            refunds: options.grpc_refunds,
        },
        resp: Arc::new(RespDoor::new(Arc::clone(&service)).with_password(options.resp_password)),
        admin_token: options.admin_token,
        reports: options.reports,
        drain,
        stop,
        has_connected,
    };
    // What this thread asks of stores goes over the connections of those that serve.
    tidegate_engine::borrow_connections();
    let threads = worker.spawn(count)?;
    manager.block_on(async {
        // The handlers stand before anybody can know that the server runs, or an early signal would end it.
        let signals = Signals::new()?;
        // The threads connect to stores before they accept.
        for _ in 0..count {
            let _ = tokio::time::timeout(CONNECT_PATIENCE * 2, connected.recv()).await;
        }
        service.set_ready(true);
        // What the start logs stands before what it prints.
        service.log.finish();
        started(addresses);
        let renewal = Arc::new(Notify::new());
        tokio::spawn(renewals.run(Arc::clone(&renewal)));
        let upkeep = Upkeep { loads: Loads::new(reloader), renewal };
        manage(signals, upkeep, &service, &drainer, options.drain_delay).await;
        Ok::<(), io::Error>(())
    })?;
    // Both: who was told to stop twice has not started to drain, and the threads would accept for ever.
    drop((drainer, stopper));
    for thread in threads {
        // A thread that panicked has said so already.
        let _ = thread.join();
    }
    // The last traces are sent by tasks of this runtime, so it has to run meanwhile.
    let _ = manager.block_on(manager.spawn_blocking(move || drop(telemetry)));
    // A load that still runs is of no use any more: nobody waits for it.
    manager.shutdown_background();
    Ok(())
}

/// Reads the configuration, and makes the service that decides by it.
fn prepare(options: &Options, log: LogProgress) -> Result<(Arc<Service>, Reloader), RunError> {
    let mut config = First::read(options.config.clone(), &options.load)?;
    let mut service = Service::new(Engine::with_policy(options.engine.clone(), config.take_policy())?);
    service.log = log;
    if let Some((path, every)) = &options.decision_log {
        let opened = DecisionLog::open(path, *every);
        service.decision_log = Some(opened.map_err(|error| RunError::DecisionLog { path: path.clone(), error })?);
    }
    let service = Arc::new(service);
    let reloader = Reloader::new(config, options.load.clone(), Arc::clone(&service));
    Ok((service, reloader))
}

/// Reads the files that a listener speaks TLS with, if any.
fn load(files: &Option<TlsFiles>, protocol: Protocol) -> Result<Option<Arc<Tls>>, TlsError> {
    files.clone().map(|files| Tls::load(files, protocol).map(Arc::new)).transpose()
}

struct Listeners {
    http: Listener,
    grpc: Listener,
    resp: Listener,
}

impl Listeners {
    /// Opens all of them, for this many threads.
    fn bind(options: &Options, threads: usize) -> Result<Listeners, RunError> {
        let http_tls = load(&options.tls.http, Protocol::Http)?;
        let grpc_tls = load(&options.tls.grpc, Protocol::Grpc)?;
        let resp_tls = load(&options.tls.resp, Protocol::Resp)?;
        let http = Listener::bind(HttpDoor::NAME, options.http)?;
        let grpc = Listener::bind(RlsDoor::NAME, options.grpc).map_err(|error| error.beside(&[&http]))?;
        let resp = Listener::bind(RespDoor::NAME, options.resp).map_err(|error| error.beside(&[&http, &grpc]))?;
        // After all that may fail: a start that does says one line.
        let connections = descriptors::connections(threads);
        let bounded =
            |listener: Listener| listener.with_connections_max(connections).with_request_memory(options.request_memory);
        Ok(Listeners {
            http: bounded(http).with_tls(http_tls),
            grpc: bounded(grpc).with_tls(grpc_tls),
            resp: bounded(resp).with_tls(resp_tls),
        })
    }

    fn all(&self) -> [&Listener; 3] {
        [&self.http, &self.grpc, &self.resp]
    }

    /// Returns what encrypts the connections of those that are encrypted.
    fn tls(&self) -> Vec<Arc<Tls>> {
        self.all().into_iter().filter_map(|listener| listener.tls().cloned()).collect()
    }

    fn addresses(&self) -> io::Result<Addresses> {
        Ok(Addresses { http: self.http.address()?, grpc: self.grpc.address()?, resp: self.resp.address()? })
    }
}

/// One thread that serves.
#[derive(Clone)]
struct Worker {
    listeners: Arc<Listeners>,
    service: Arc<Service>,
    rls: RlsOptions,
    /// One for all threads: it numbers and counts its clients.
    resp: Arc<RespDoor>,
    admin_token: Option<String>,
    reports: bool,
    drain: Drain,
    /// Closed once everybody has finished or time is up.
    stop: watch::Receiver<()>,
    /// Told when this thread has connections to all stores, or has waited for them long enough.
    has_connected: mpsc::Sender<()>,
}

impl Worker {
    /// Starts this many of them. Nobody else has the listeners then: they close as soon as no thread accepts any more.
    fn spawn(self, count: usize) -> io::Result<Vec<JoinHandle<()>>> {
        let spawn = |number| {
            let worker = self.clone();
            std::thread::Builder::new().name(format!("serve-{number}")).spawn(move || worker.run())
        };
        (0..count).map(spawn).collect()
    }

    fn run(self) {
        let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return tracing::error!(%error, "a serving thread cannot start"),
        };
        runtime.block_on(self.serve());
    }

    async fn serve(self) {
        let Worker { listeners, service, rls, resp, admin_token, reports, drain, mut stop, has_connected } = self;
        cache_http_date().await;
        service.engine.connect(CONNECT_PATIENCE).await;
        let _ = has_connected.send(()).await;
        drop(has_connected);
        let mut http = HttpDoor::new(Arc::clone(&service)).with_admin_token(admin_token).with_reports(reports);
        if let Ok(address) = listeners.http.address() {
            http = http.listening_on(address);
        }
        let grpc = RlsDoor::new(service, rls);
        tokio::join!(
            accept(&listeners.http, Arc::new(http), drain.clone()),
            accept(&listeners.grpc, Arc::new(grpc), drain.clone()),
            accept(&listeners.resp, resp, drain),
        );
        // Who comes now is refused at once and can go elsewhere; else it would wait for an answer until the end.
        drop(listeners);
        // Connections go on meanwhile.
        let _ = stop.changed().await;
    }
}

async fn accept<D: Door>(listener: &Listener, door: Arc<D>, drain: Drain) {
    if let Err(error) = listener.accept(door, drain).await {
        tracing::error!(listener = D::NAME, %error, "cannot accept connections on this thread");
    }
}

/// The signals that the server listens to.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    fn new() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Resolves when the server is told to stop.
    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Resolves when the server is told to stop once more, which counts from [`REPEATED_STOP`] on.
    async fn stop_again(&mut self) {
        let repeated = async {
            loop {
                self.stop().await;
            }
        };
        let _: Result<(), _> = tokio::time::timeout(REPEATED_STOP, repeated).await;
        self.stop().await;
    }
}

/// What is read again while the server runs.
struct Upkeep {
    loads: Loads,
    /// Asks for certificates to be read again.
    renewal: Arc<Notify>,
}

/// Reloads when asked or when files changed, until it is told to stop; then lets everybody finish.
async fn manage(mut signals: Signals, mut upkeep: Upkeep, service: &Service, drainer: &Drainer, drain_delay: Duration) {
    let mut log_room = LogRoom::new();
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => break,
            _ = signals.interrupt.recv() => break,
            _ = signals.hang_up.recv() => {
                upkeep.loads.ask();
                upkeep.renewal.notify_one();
            }
            () = upkeep.loads.go_on() => {}
            () = log_room.look(&service.engine) => {}
        }
    }
    tracing::info!("stopping: no longer ready, finishing requests in progress");
    service.set_ready(false);
    let finish = async {
        tokio::time::sleep(drain_delay).await;
        drainer.start();
        if tokio::time::timeout(DRAIN, drainer.finished()).await.is_err() {
            tracing::warn!(seconds = DRAIN.as_secs(), "some connections did not end in time");
        }
        // The workers' runtimes still run, and with them the connections that this goes over.
        let _ = tokio::time::timeout(STORES_CLOSE, service.engine.close()).await;
    };
    tokio::select! {
        () = finish => {}
        () = signals.stop_again() => tracing::warn!("second signal to stop: not waiting for connections"),
    }
}
