//! Sockets: each is bound once and accepted from on every thread, so that an idle one takes the next connection, and
//! hands it to the one that has fewest.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tidegate_core::Clock;
use tidegate_engine::LogLimiter;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{MissedTickBehavior, timeout};

use crate::accepted::Accepted;
use crate::bounds::{
    ACCEPT_LINES, ACCEPT_PAUSE, BACKLOG, CONNECTIONS_MAX, REQUEST_MEMORY, SEATS_LOOK, SEND_BYTES, SPARE_TIME, STALL,
};
use crate::budget::{Budget, RequestMemory};
use crate::drain::Drain;
use crate::lanes::{Arrived, Lane, Lanes, Owner, Place};
use crate::refusals::Refusals;
use crate::seats::{Seat, SeatCounts, Seats};
use crate::stream::Stream;
use crate::tls::Tls;

/// What is behind a listener.
pub trait Door: Send + Sync + 'static {
    /// Its name in logs and metrics.
    const NAME: &'static str;

    /// Connections beyond the bound that are served briefly.
    const SPARE: usize = 0;

    /// Serves one connection until it ends. Once `drain` has started, it finishes what is under way and ends.
    fn serve(self: Arc<Self>, accepted: Accepted, drain: Drain) -> impl Future<Output = ()> + Send;

    /// Serves one connection of those beyond the bound: one request, and not for long.
    fn serve_briefly(self: Arc<Self>, accepted: Accepted, drain: Drain) -> impl Future<Output = ()> + Send {
        self.serve(accepted, drain)
    }
}

/// A bound socket with its count of connections.
#[derive(Debug)]
pub struct Listener {
    name: &'static str,
    socket: std::net::TcpListener,
    connections_max: usize,
    seats: Arc<Seats>,
    lanes: Lanes,
    encryption: Encryption,
    unfinished: Arc<Budget>,
    /// What goes wrong with each connection must not fill the log, and neither failure may hide the other.
    accept_failures: LogLimiter,
    serve_failures: LogLimiter,
}

/// What is counted of a listener.
#[derive(Debug)]
pub(crate) struct Counts {
    pub(crate) listener: &'static str,
    pub(crate) seats: SeatCounts,
    /// What encrypts, if anything does.
    pub(crate) tls: Option<Arc<Tls>>,
    /// TLS handshakes that failed.
    pub(crate) tls_failures: Arc<Refusals>,
}

/// How a listener encrypts its connections, if it does.
#[derive(Clone, Debug)]
struct Encryption {
    /// The listener's name.
    name: &'static str,
    tls: Option<Arc<Tls>>,
    failures: Arc<Refusals>,
}

impl Encryption {
    /// Makes a stream of a connection. Returns `None` if TLS cannot be agreed on within `patience`.
    async fn greet(&self, stream: TcpStream, address: SocketAddr, patience: Duration) -> Option<Stream> {
        let Some(tls) = &self.tls else { return Some(Stream::plain(stream)) };
        match timeout(patience, Stream::greet(stream, tls)).await {
            Ok(Ok(greeted)) => return greeted,
            Ok(Err(error)) => self.note_failure(address, &error),
            Err(_) => self.note_failure(address, &"timed out"),
        }
        None
    }

    /// Counts a client that TLS could not be agreed on with, and logs why.
    fn note_failure(&self, peer: SocketAddr, reason: &dyn fmt::Display) {
        if let Some(unlogged) = self.failures.count() {
            tracing::warn!(listener = self.name, %peer, %reason, unlogged, "TLS handshake failed");
        }
    }
}

/// Why a listener cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("--{name} {address}: {}; {}", describe(.error, *.taken_by), hint(name, .error, *.taken_by))]
pub struct ListenerError {
    name: &'static str,
    address: SocketAddr,
    error: io::Error,
    /// The listener of this process that has the port.
    taken_by: Option<&'static str>,
}

impl ListenerError {
    /// The same, knowing what this process listens on already.
    pub(crate) fn beside(self, others: &[&Listener]) -> ListenerError {
        let has_it = |other: &&&Listener| other.address().is_ok_and(|address| overlap(address, self.address));
        let is_in_use = self.error.kind() == io::ErrorKind::AddrInUse;
        let taken_by = others.iter().find(has_it).filter(|_| is_in_use).map(|other| other.name);
        ListenerError { taken_by, ..self }
    }
}

/// Whether one socket on the first address keeps another one from the second.
fn overlap(first: SocketAddr, second: SocketAddr) -> bool {
    let is_all = |address: SocketAddr| address.ip().is_unspecified();
    first.port() == second.port() && (first.ip() == second.ip() || is_all(first) || is_all(second))
}

fn describe(error: &io::Error, taken_by: Option<&str>) -> String {
    if let Some(other) = taken_by {
        return format!("--{other} uses this port");
    }
    match error.kind() {
        io::ErrorKind::AddrInUse => "the port is in use".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::AddrNotAvailable => "this machine does not have this address".to_owned(),
        _ => format!("cannot listen: {error}"),
    }
}

/// What to do about it. A listener is called as its flag is.
fn hint(name: &str, error: &io::Error, taken_by: Option<&str>) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse if taken_by.is_some() => format!("choose another with --{name} ADDR"),
        io::ErrorKind::AddrInUse => format!("stop the process that uses it, or choose another with --{name} ADDR"),
        io::ErrorKind::PermissionDenied => {
            format!("ports below 1024 need privileges; choose a higher one with --{name} ADDR")
        }
        io::ErrorKind::AddrNotAvailable => {
            format!("choose an address of this machine with --{name} ADDR, like 127.0.0.1:PORT")
        }
        _ => format!("choose another with --{name} ADDR"),
    }
}

impl Listener {
    /// Binds a socket for `name`.
    ///
    /// # Errors
    /// If the address cannot be listened on.
    pub fn bind(name: &'static str, address: SocketAddr) -> Result<Listener, ListenerError> {
        let bind = || -> io::Result<std::net::TcpListener> {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
            // A restart must not wait for connections of the process before.
            socket.set_reuse_address(true)?;
            // Connections have it from the socket that accepts them.
            socket.set_send_buffer_size(SEND_BYTES)?;
            socket.set_nonblocking(true)?;
            socket.bind(&address.into())?;
            socket.listen(BACKLOG)?;
            Ok(socket.into())
        };
        let socket = bind().map_err(|error| ListenerError { name, address, error, taken_by: None })?;
        Ok(Listener {
            name,
            socket,
            connections_max: CONNECTIONS_MAX,
            seats: Arc::default(),
            lanes: Lanes::default(),
            encryption: Encryption { name, tls: None, failures: Arc::new(Refusals::new(&Clock::system())) },
            unfinished: Budget::new(REQUEST_MEMORY),
            accept_failures: LogLimiter::new(ACCEPT_LINES, Clock::system()),
            serve_failures: LogLimiter::new(ACCEPT_LINES, Clock::system()),
        })
    }

    /// The same with room for so many connections.
    #[must_use]
    pub fn with_connections_max(self, connections_max: usize) -> Listener {
        Listener { connections_max, ..self }
    }

    /// The same speaking TLS, if there is any.
    #[must_use]
    pub fn with_tls(self, tls: Option<Arc<Tls>>) -> Listener {
        let encryption = Encryption { tls, ..self.encryption };
        Listener { encryption, ..self }
    }

    /// The same with this much memory for requests that have not come whole.
    #[must_use]
    pub fn with_request_memory(self, memory: RequestMemory) -> Listener {
        Listener { unfinished: Budget::new(memory), ..self }
    }

    /// What encrypts its connections, if anything does.
    pub(crate) fn tls(&self) -> Option<&Arc<Tls>> {
        self.encryption.tls.as_ref()
    }

    /// The address it is bound to.
    ///
    /// # Errors
    /// If the system does not tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Returns what is counted of it, to be looked at while it runs.
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            listener: self.name,
            seats: self.seats.counts().clone(),
            tls: self.encryption.tls.clone(),
            tls_failures: Arc::clone(&self.encryption.failures),
        }
    }

    /// Accepts connections on the runtime this is called on, until it drains.
    ///
    /// # Errors
    /// If the socket cannot be registered with the runtime.
    pub async fn accept<D: Door>(&self, door: Arc<D>, drain: Drain) -> io::Result<()> {
        let listener = TcpListener::from_std(self.socket.try_clone()?)?;
        let (mut lane, mut until) = (self.lanes.join(), drain.clone());
        let mut looks = tokio::time::interval(SEATS_LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(arrived) = lane.next() => {
                    self.serve_handed(arrived, &door, &drain);
                    continue;
                }
                _ = looks.tick() => {
                    self.seats.look();
                    continue;
                }
                () = until.started() => break,
            };
            match accepted {
                Ok((stream, peer)) => {
                    if self.take(&lane, stream, peer, &door, &drain) {
                        // It is served before the next comes, which may take its seat.
                        tokio::task::yield_now().await;
                    }
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    self.tell(&self.accept_failures, &error, "cannot accept connections");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        lane.close();
        while let Some(arrived) = lane.next().await {
            self.serve_handed(arrived, &door, &drain);
        }
        Ok(())
    }

    /// Serves a connection here, or has another thread do so. Returns whether it has a spare seat.
    fn take<D: Door>(
        &self,
        lane: &Lane<'_>,
        stream: TcpStream,
        peer: SocketAddr,
        door: &Arc<D>,
        drain: &Drain,
    ) -> bool {
        // Answers are written whole; waiting for more to send only delays them.
        let _ = stream.set_nodelay(true);
        let Some(seat) = self.seats.take(peer.ip(), self.connections_max, D::SPARE) else { return false };
        let is_spare = seat.is_spare();
        match lane.deal() {
            Owner::Own(place) => self.serve(stream, peer, (seat, place), door, drain),
            Owner::Other(place, hand) => match stream.into_std() {
                Ok(stream) => {
                    if let Err(nobody) = hand.send(Arrived { stream, peer, seat, place }) {
                        self.serve_handed(nobody.0, door, drain);
                    }
                }
                Err(error) => self.tell_unserved(&error),
            },
        }
        is_spare
    }

    /// Serves a connection that belonged to another thread's runtime.
    fn serve_handed<D: Door>(&self, arrived: Arrived, door: &Arc<D>, drain: &Drain) {
        let Arrived { stream, peer, seat, place } = arrived;
        match TcpStream::from_std(stream) {
            Ok(stream) => self.serve(stream, peer, (seat, place), door, drain),
            Err(error) => self.tell_unserved(&error),
        }
    }

    /// Serves a connection on a task of its own, which ends when the seat is lost.
    fn serve<D: Door>(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        (seat, place): (Seat, Place),
        door: &Arc<D>,
        drain: &Drain,
    ) {
        let (door, drain, encryption) = (Arc::clone(door), drain.clone(), self.encryption.clone());
        let (account, activity) = (self.unfinished.account(), seat.activity.clone());
        let (number, is_spare) = (seat.number, seat.is_spare());
        let task = tokio::spawn(async move {
            let patience = if is_spare { SPARE_TIME } else { STALL };
            if let Some(stream) = encryption.greet(stream, address, patience).await {
                let accepted = Accepted { stream, address, account, activity };
                if is_spare {
                    door.serve_briefly(accepted, drain).await;
                } else {
                    door.serve(accepted, drain).await;
                }
            }
            drop((seat, place));
        });
        self.seats.serve(number, task.abort_handle());
    }

    #[cold]
    fn tell_unserved(&self, error: &io::Error) {
        self.tell(&self.serve_failures, error, "cannot serve the connection");
    }

    /// Tells an operator what went wrong: the first time, and then from time to time.
    #[cold]
    fn tell(&self, lines: &LogLimiter, error: &io::Error, what: &str) {
        if let Some(left_out) = lines.turn() {
            tracing::warn!(listener = self.name, left_out, %error, "{what}");
        }
    }
}

/// Whether only one connection failed before it was accepted, and the next may do.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drain::Drainer;
    use std::sync::mpsc;
    use std::thread;

    /// Tells the threads on which connections are served, and keeps these open.
    struct Told(std::sync::Mutex<mpsc::Sender<thread::ThreadId>>);

    impl Door for Told {
        const NAME: &'static str = "told";

        async fn serve(self: Arc<Self>, _accepted: Accepted, mut drain: Drain) {
            self.0.lock().unwrap().send(thread::current().id()).unwrap();
            drain.started().await;
        }
    }

    #[test]
    fn threads_have_as_many_connections_each() {
        let (tell, told) = mpsc::channel();
        let door = Arc::new(Told(tell.into()));
        let (drainer, drain) = Drainer::new();
        let listener = Listener::bind("test", "127.0.0.1:0".parse().unwrap()).unwrap();
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for _ in 0..2 {
                let (listener, door, drain) = (&listener, Arc::clone(&door), drain.clone());
                let run = move || {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                    runtime.block_on(listener.accept(door, drain)).unwrap();
                };
                threads.push(scope.spawn(run).thread().id());
            }
            while listener.lanes.count() < threads.len() {
                thread::yield_now();
            }
            // In a burst, while whoever comes first is awake and the other may not be.
            let connect = |_| std::net::TcpStream::connect(listener.address().unwrap()).unwrap();
            let _clients: Vec<_> = (0..40).map(connect).collect();
            let served: Vec<_> = told.iter().take(40).collect();
            let counts = threads.iter().map(|id| served.iter().filter(|served| *served == id).count());
            // Before anything fails, or the threads would be waited for in vain.
            drainer.start();
            assert_eq!(counts.collect::<Vec<_>>(), [20, 20]);
        });
    }

    #[test]
    fn a_listener_that_cannot_be_opened_says_what_to_do() {
        let check = |kind: io::ErrorKind, told: &str| {
            let (address, error) = ("192.0.2.1:80".parse().unwrap(), kind.into());
            assert_eq!(
                ListenerError { name: "grpc", address, error, taken_by: None }.to_string(),
                format!("--grpc 192.0.2.1:80: {told}")
            );
        };
        check(
            io::ErrorKind::AddrInUse,
            "the port is in use; stop the process that uses it, or choose another with --grpc ADDR",
        );
        check(
            io::ErrorKind::PermissionDenied,
            "permission denied; ports below 1024 need privileges; choose a higher one with --grpc ADDR",
        );
        check(
            io::ErrorKind::AddrNotAvailable,
            "this machine does not have this address; \
             choose an address of this machine with --grpc ADDR, like 127.0.0.1:PORT",
        );
        check(io::ErrorKind::Other, "cannot listen: other error; choose another with --grpc ADDR");
    }

    #[test]
    fn a_port_that_another_listener_has_is_not_somebody_elses() {
        let http = Listener::bind("http", "0.0.0.0:0".parse().unwrap()).unwrap();
        let port = http.address().unwrap().port();
        let resp = SocketAddr::from(([127, 0, 0, 1], port));
        let told = Listener::bind("resp", resp).unwrap_err().beside(&[&http]).to_string();
        assert_eq!(told, format!("--resp {resp}: --http uses this port; choose another with --resp ADDR"));
        assert!(!overlap(resp, SocketAddr::from(([127, 0, 0, 2], port))));
        assert!(!overlap(resp, SocketAddr::from(([127, 0, 0, 1], port ^ 1))));
    }

    #[test]
    fn the_system_holds_little_for_who_does_not_read() {
        let listener = Listener::bind("test", "127.0.0.1:0".parse().unwrap()).unwrap();
        let _client = std::net::TcpStream::connect(listener.address().unwrap()).unwrap();
        listener.socket.set_nonblocking(false).unwrap();
        let (accepted, _) = listener.socket.accept().unwrap();
        let mut sent = 0;
        accepted.set_nonblocking(true).unwrap();
        while let Ok(count) = io::Write::write(&mut &accepted, &[0; 4096]) {
            sent += count;
        }
        assert!(socket2::SockRef::from(&accepted).send_buffer_size().unwrap() <= 2 * SEND_BYTES);
        // What the client's side of this machine holds is beside it.
        assert!(sent > SEND_BYTES / 2, "{sent}");
    }
}
